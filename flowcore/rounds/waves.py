"""Waves: which placements of a plan may be carried out in any order.

kube-scheduler takes pods in an order of its own and checks each against those that it has let through already. A plan
with affinity or spread is legal in its commit order, and perhaps in no other. So the commit order is cut into waves:
within a wave every order is legal, and a wave begins once the one before it was let through.

Pods that no rule links, however many pods are between, need not wait for each other: each such chain has waves of its
own. Where rules only keep pods apart there is nothing to cut: where all may be together, so may any part of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand
from flowcore.rounds.topology import Counter, Counts, Spread, Ties

#: Of pods that need not wait for anybody, and nobody for them: chain and wave.
_WHENEVER = (0, 0)


def waves_of(commits: Sequence[Commit], demands: Sequence[Demand]) -> Iterator[tuple[int, int]]:
    """The chain and wave of each committed pod, in commit order.

    Yields:
        0 and 0 for pods that may come in any order with all others. Others are in chain 1, 2, ... and there in wave
        1, 2, ..., never in an earlier one than those of their chain that were committed before them.
    """
    chains = _chains([demand.ties for demand in demands])
    for commit in commits:
        ties, chain = demands[commit.demand].ties, chains[commit.demand]
        for _ in range(commit.count):
            yield _WHENEVER if chain is None else (chain.number, chain.next(ties, commit.node))


def _chains(ties: Sequence[Ties]) -> list[_Chain | None]:
    """The chain of each demand: the same for two of which one raises what the other reads, or both what a third does.

    None where no order could be wrong: nothing that is read is raised, or no placement makes another one legal.
    """
    linking = {counter for each in ties for counter in each.feeds} & {c for each in ties for c in each.theirs}
    linked: dict[Counter, list[int]] = {}
    for at, each in enumerate(ties):
        for counter in dict.fromkeys((*each.feeds, *each.theirs)):
            if counter in linking:
                linked.setdefault(counter, []).append(at)
    found: list[_Chain | None] = [None] * len(ties)
    seen: set[Counter] = set()
    number = 0
    for start in linked:
        members: set[int] = set()
        ahead = [start]
        while ahead:
            counter = ahead.pop()
            if counter in seen:
                continue
            seen.add(counter)
            for at in linked[counter]:
                if at not in members:
                    members.add(at)
                    ahead += [each for each in (*ties[at].feeds, *ties[at].theirs) if each in linked]
        if any(ties[at].may_open for at in members):
            number += 1
            chain = _Chain(number)
            for at in members:
                found[at] = chain
    return found


@dataclass(slots=True)
class _Chain:
    """The waves of pods that rules link."""

    number: int
    _counts: Counts = field(default_factory=Counts)
    _wave: _Wave | None = None
    _at: int = 0

    def next(self, ties: Ties, node: int) -> int:
        """The wave of the pod that was committed next."""
        wave = self._wave
        if wave is None or not wave.takes(ties, node, self._counts):
            if wave is not None:
                wave.commit(self._counts)
            wave = self._wave = _Wave()
            self._at += 1
        wave.add(ties, node, self._counts)
        return self._at


class _Wave:
    """One wave in the making.

    What its members see depends on how many of the others came before them, so each is asked about the worst case:
    for a spread all others of its domain and none elsewhere, for affinity none at all: but a group that wants to be
    together may go all to one domain, since any of them may be the first. Anti-affinity needs no such question: where
    all may be together, so may any part of them. The same is so of what policies demand.
    """

    def __init__(self) -> None:
        self._members: list[tuple[Ties, int]] = []
        self._raised: dict[tuple[Counter, int], int] = {}
        #: How far members allow a counter to be raised in their domain.
        self._most: dict[tuple[Counter, int], int] = {}
        #: Counters that may be raised in this domain only, or None: nowhere. The first pod of a group may go anywhere
        #: only while it is the first, and those that come before it in the same domain do no harm.
        self._closed: dict[Counter, int | None] = {}

    def takes(self, ties: Ties, node: int, counts: Counts) -> bool:
        """Whether the pod may join."""
        if not self._members:
            return True  # legal after all that were committed before, which is what a plan's order promises
        for counter in ties.feeds:
            at = (counter, int(counter.domains.codes[node]))
            if counter.feeding[node] and (
                self._closed.get(counter, at[1]) != at[1]
                or (at in self._most and self._raised.get(at, 0) >= self._most[at])
            ):
                return False
        if ties.near and counts.alone(ties):
            own = self._gathers_in(ties, node)
            if any(counter in ties.near and domain != own for counter, domain in self._raised):
                return False
        elif any(not counts.of(counter)[counter.domains.codes[node]] for counter in ties.near):
            return False
        return all(
            self._raised.get((spread.counter, domain), 0) + spread.itself <= most
            for spread, domain, most in self._limits(ties, node, counts)
        )

    def add(self, ties: Ties, node: int, counts: Counts) -> None:
        """The pod joins."""
        if ties.near and counts.alone(ties):
            self._closed.update(dict.fromkeys(ties.near, self._gathers_in(ties, node)))
        for spread, domain, most in self._limits(ties, node, counts):
            at = (spread.counter, domain)
            self._most[at] = min(self._most.get(at, most), most)
        for counter in ties.feeds:
            if counter.feeding[node]:
                at = (counter, int(counter.domains.codes[node]))
                self._raised[at] = self._raised.get(at, 0) + 1
        self._members.append((ties, node))

    @staticmethod
    def _gathers_in(ties: Ties, node: int) -> int | None:
        """The domain in which others may come before the first of a group; None where several topologies are asked."""
        return int(ties.near[0].domains.codes[node]) if len(ties.near) == 1 else None

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
