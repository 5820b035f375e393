"""What solving networks may take: it is counted, not timed, so that a round replays."""

from __future__ import annotations

from flowcore.planning.declared_networks.graph import NoFlowInTime

#: Of all networks in a round, with all that is solved again: five to eleven seconds. All other pods wait for it.
MOST_WORK = 2_000_000
#: What a column of a linear program counts for, and by how many ways one is looked at for 1.
_COLUMN, _SCANNED = 10, 100
#: What a second of CP-SAT's deterministic time counts for, and the least that it is given.
_SECOND, _LEAST_SECONDS = 200_000, 0.1


class Work:
    """Work that is left. A unit is a way that is priced, or a part of a column of a linear program.

    Attributes:
        most: units at the start.
        left: units; below zero where the last part took more than there was.
    """

    def __init__(self, most: int = MOST_WORK) -> None:
        self.most = self.left = most

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0

    def demand(self, ways: int) -> None:
        """Something is left, for a network without a flow so far.

        Args:
            ways: how many its pods have.

        Raises:
            NoFlowInTime: nothing is left.
        """
        if self.is_done:
            raise NoFlowInTime(f"; its pods have {ways} ways through its arcs: use fewer arcs, or fewer kinds of pods")

    def program(self, ways: int, columns: int) -> None:
        """Counts a linear program with so many columns, and the prices of so many ways."""
        self.left -= ways + _COLUMN * columns

    def scan(self, ways: int) -> None:
        """Counts a look at so many ways."""
        self.left -= ways // _SCANNED + 1

    def flow(self, arcs: int) -> None:
        """Counts a minimum-cost flow of so many arcs."""
        self.left -= arcs

    def seconds(self, wanted: float) -> float:
        """CP-SAT's deterministic time for a program, which is counted: ``wanted``, or half of what is left."""
        granted = max(_LEAST_SECONDS, min(wanted, self.left / 2 / _SECOND))
        self.left -= int(granted * _SECOND)
        return granted

    def part(self, of: int) -> Work:
        """An equal part for the next of so many networks; ``took`` counts what it takes of that."""
        return Work(max(0, self.left) // of)

    def took(self, part: Work) -> None:
        """Counts what a network took of its part."""
        self.left -= part.most - part.left
