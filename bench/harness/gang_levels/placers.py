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


class OneByOne:
    """Gangs in their order, each placed by a rule if it fits.

    Args:
        strict: the first that does not fit ends it; otherwise later ones may pass it.
        narrow_first: gangs that need a rack come before those that need a block, and these before all others.
    """

    def __init__(self, rule: Rule, *, strict: bool = False, narrow_first: bool = False) -> None:
        self._rule, self._strict, self._narrow_first = rule, strict, narrow_first

    def decide(self, hosts: Hosts, waiting: Sequence[ArrivingGang], now: float) -> Iterator[Decision]:  # noqa: ARG002
        """See Placer."""
        ordered = sorted(waiting, key=lambda gang: -NARROWNESS[gang.need]) if self._narrow_first else waiting
        refused: set[tuple[Need, int]] = set()  # what did not fit does not fit later in the pass: room only gets less
        for gang in ordered:
            places = None if (gang.need, gang.pods) in refused else self._rule(hosts, gang)
            if places is not None:
                yield gang, places
            elif self._strict:
                return
            else:
                refused.add((gang.need, gang.pods))
