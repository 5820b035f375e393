"""Who decides what starts: one gang after the other by a rule, or all that wait in one round of Thalweg."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from harness.gang_levels.arrivals import NARROWNESS, ArrivingGang, Need
from harness.gang_levels.cluster import Hosts, Places

#: Where a gang goes; None: it does not fit.
Rule = Callable[[Hosts, ArrivingGang], Places | None]
Decision = tuple[ArrivingGang, Places]


class Placer(Protocol):
    """Starts gangs."""

    def decide(self, hosts: Hosts, waiting: Sequence[ArrivingGang], now: float) -> Iterator[Decision]:
        """Gangs that start now. The caller takes their GPUs before it asks for the next.

        Args:
            waiting: in the order in which they came.
            now: seconds since the start.
        """
        ...


def narrow_first(gang: ArrivingGang) -> int:
    """Gangs that need a rack before those that need a block, and these before all others."""
    return -NARROWNESS[gang.need]


def small_first(gang: ArrivingGang) -> int:
    """Gangs of few pods before those of many, however long these wait."""
    return gang.pods


class OneByOne:
    """Gangs in their order, each placed by a rule if it fits.

    Args:
        strict: the first that does not fit ends it; otherwise later ones may pass it.
        first: of a gang, the lowest value first and the oldest of equal ones.
    """

    def __init__(self, rule: Rule, *, strict: bool = False, first: Callable[[ArrivingGang], int] | None = None) -> None:
        self._rule, self._strict, self._first = rule, strict, first

    def decide(self, hosts: Hosts, waiting: Sequence[ArrivingGang], now: float) -> Iterator[Decision]:  # noqa: ARG002
        """See Placer."""
        ordered = waiting if self._first is None else sorted(waiting, key=self._first)
        refused: set[tuple[Need, int]] = set()  # what did not fit does not fit later in the pass: room only gets less
        for gang in ordered:
            places = None if (gang.need, gang.pods) in refused else self._rule(hosts, gang)
            if places is not None:
                yield gang, places
            elif self._strict:
                return
            else:
                refused.add((gang.need, gang.pods))
