"""What solving a network may take: it is counted, not timed, so that a round replays."""

from __future__ import annotations

from flowcore.planning.declared_networks.graph import NetworkRefused

#: Of one network in a round, with all that is solved again: some 20 seconds. Everything else in the round waits for it.
MOST_WORK = 4_000_000
#: What a column of a linear program counts for, and by how many ways one is looked at for 1.
_COLUMN, _SCANNED = 10, 100


class Work:
    """Work that is left. A unit is a way that is priced, or a part of a column of a linear program."""

    def __init__(self, most: int = MOST_WORK) -> None:
        self._left = most

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return self._left <= 0

    def program(self, ways: int, columns: int) -> None:
        """Counts a program with so many columns, and the prices of so many ways.

        Raises:
            NetworkRefused: nothing is left.
        """
        if self.is_done:
            raise NetworkRefused(
                "no flow that meets its minimums and maximums was found in the time of a round; its pods have "
                f"{ways} ways through its arcs: use fewer arcs, or fewer kinds of pods"
            )
        self._left -= ways + _COLUMN * columns

    def scan(self, ways: int) -> None:
        """Counts a look at so many ways."""
        self._left -= ways // _SCANNED + 1
