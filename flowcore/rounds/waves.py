"""Waves: which placements of a plan may be carried out in any order.

kube-scheduler takes pods in an order of its own and checks each against those that it has let through already. A plan
with affinity or spread is legal in its commit order, and perhaps in no other. So the commit order is cut into waves:
within a wave every order is legal, and a wave begins once the one before it was let through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand
from flowcore.rounds.topology import Counter, Counts, Spread, Ties


def waves_of(commits: Sequence[Commit], demands: Sequence[Demand]) -> Iterator[int]:
    """The wave of each committed pod, in commit order.

    Yields:
        0 for pods that no rule of kube-scheduler's has to do with: they need not wait for anybody, and nobody for them.
        Others are in wave 1, 2, ..., never in an earlier one than those committed before them.
    """
    counts, wave, number = Counts(), _Wave(), 1
    for commit in commits:
        ties = demands[commit.demand].ties
        for _ in range(commit.count):
            if not ties.shared:
                yield 0
                continue
            if not wave.takes(ties, commit.node, counts):
                wave.commit(counts)
                wave, number = _Wave(), number + 1
            wave.add(ties, commit.node, counts)
            yield number


class _Wave:
    """One wave in the making.

    What its members see depends on how many of the others came before them, so each is asked about the worst case:
    for a spread all others of its domain and none elsewhere, for affinity none at all. Anti-affinity needs no such
    question: where all may be together, so may any part of them. The same is so of what policies demand.
    """

    def __init__(self) -> None:
        self._members: list[tuple[Ties, int]] = []
        self._raised: dict[tuple[Counter, int], int] = {}
        #: How far members allow a counter to be raised in their domain.
        self._most: dict[tuple[Counter, int], int] = {}
        #: Counters that must stay as they are: the first pod of a group may go anywhere only while it is the first.
        self._closed: set[Counter] = set()

    def takes(self, ties: Ties, node: int, counts: Counts) -> bool:
        """Whether the pod may join."""
        if not self._members:
            return True  # legal after all that were committed before, which is what a plan's order promises
        for counter in ties.feeds:
            at = (counter, int(counter.domains.codes[node]))
            if counter.feeding[node] and (
                counter in self._closed or (at in self._most and self._raised.get(at, 0) >= self._most[at])
            ):
                return False
        if ties.near and counts.alone(ties):
            return not any(counter in ties.near for counter, _ in self._raised)
        if any(not counts.of(counter)[counter.domains.codes[node]] for counter in ties.near):
            return False
        return all(
            self._raised.get((spread.counter, domain), 0) + spread.itself <= most
            for spread, domain, most in self._limits(ties, node, counts)
        )

    def add(self, ties: Ties, node: int, counts: Counts) -> None:
        """The pod joins."""
        if ties.near and counts.alone(ties):
            self._closed.update(ties.near)
        for spread, domain, most in self._limits(ties, node, counts):
            at = (spread.counter, domain)
            self._most[at] = min(self._most.get(at, most), most)
        for counter in ties.feeds:
            if counter.feeding[node]:
                at = (counter, int(counter.domains.codes[node]))
                self._raised[at] = self._raised.get(at, 0) + 1
        self._members.append((ties, node))

    @staticmethod
    def _limits(ties: Ties, node: int, counts: Counts) -> Iterator[tuple[Spread, int, int]]:
        for spread in ties.spreads:
            now = counts.of(spread.counter)
            domain = int(spread.counter.domains.codes[node])
            yield spread, domain, spread.max_skew + spread.least_of(now) - int(now[domain])

    def commit(self, counts: Counts) -> None:
        """Counts the members: the next wave finds them let through."""
        for ties, node in self._members:
            counts.feed(ties, node, 1)
