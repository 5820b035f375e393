"""Waves: which placements of a plan may be carried out in any order.

kube-scheduler takes pods in an order of its own and checks each against those that it placed already. A plan with
affinity or spread is legal in its commit order, and perhaps in no other. So the commit order is cut into waves: within
a wave every order is legal, and a wave begins when all pods of the one before it are placed.

Pods that no rule links, directly or through other pods, need not wait for each other: each set of linked pods, a chain,
has waves of its own. Anti-affinity and limits need no waves: if all pods may be together, so may any part of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.rules.topology.connected_components import connected_components
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.round_constraints.constraints import TopologyConstraints
from flowcore.rules.topology.round_constraints.domain_counts import DomainCounts
from flowcore.rules.topology.spread import Spread

#: Chain and wave of pods that may be placed in any order with all others.
_UNORDERED = (0, 0)


def waves_of(
    commits: Iterable[tuple[int, int, int]], constraints: Sequence[TopologyConstraints]
) -> Iterator[tuple[int, int]]:
    """The chain and wave of each committed pod, in commit order.

    Args:
        commits: index into ``constraints``, node and number of pods, in commit order.

    Yields:
        0 and 0 for pods that may come in any order with all others. Others are in chain 1, 2, ... and there in wave
        1, 2, ..., never in an earlier one than those of their chain that were committed before them.
    """
    chains = _chains(constraints)
    for group, node, count in commits:
        chain = chains[group]
        for _ in range(count):
            yield _UNORDERED if chain is None else (chain.number, chain.next(constraints[group], node))


def _chains(constraints: Sequence[TopologyConstraints]) -> list[_Chain | None]:
    """The chain of each group. Groups that read or raise the same counter are in one chain.

    None where no order could be wrong: nothing that is read is raised, or no placement makes another one legal.
    """
    touched = [{*each.increments, *each.kube_scheduler_reads} for each in constraints]
    linking = {counter for each in constraints for counter in each.increments} & {
        counter for terms in constraints for counter in terms.kube_scheduler_reads
    }
    linked = [linking.intersection(counters) for counters in touched]
    chains: list[_Chain | None] = [None] * len(constraints)
    number = 0
    for members in connected_components(linked):
        if linked[members[0]] and any(constraints[group].may_unblock for group in members):
            number += 1
            chain = _Chain(number)
            for group in members:
                chains[group] = chain
    return chains


@dataclass(slots=True)
class _Chain:
    """The waves of pods that rules link."""

    number: int
    _counts: DomainCounts = field(default_factory=DomainCounts)
    _wave: _Wave | None = None
    _wave_number: int = 0

    def next(self, constraints: TopologyConstraints, node: int) -> int:
        """The wave of the pod that was committed next."""
        wave = self._wave
        if wave is None or not wave.accepts(constraints, node, self._counts):
            if wave is not None:
                wave.commit(self._counts)
            wave = self._wave = _Wave()
            self._wave_number += 1
        wave.add(constraints, node, self._counts)
        return self._wave_number


class _Wave:
    """A wave to which pods are added.

    What a member finds depends on how many of the others came before it, so each must be legal in its worst case. For a
    spread: all others of its domain came before, and none elsewhere. For affinity: no other came before. But the first
    pods of a group with affinity to itself may all go to one domain, since any of them may be the first. Anti-affinity
    and limits are not asked: if all pods may be together, so may any part of them.
    """

    def __init__(self) -> None:
        self._members: list[tuple[TopologyConstraints, int]] = []
        #: Members by counter and domain.
        self._increments: dict[tuple[DomainCounter, int], int] = {}
        #: How many members the spreads of members allow in their domain.
        self._max_increments: dict[tuple[DomainCounter, int], int] = {}
        #: The only domain in which members may raise a counter, None: nowhere. The first pod of a group may go anywhere
        #: only while it is the first; members that come before it in the same domain do no harm.
        self._only_domain: dict[DomainCounter, int | None] = {}

    def accepts(self, constraints: TopologyConstraints, node: int, counts: DomainCounts) -> bool:
        """Whether the pod may join."""
        if not self._members:
            return True  # legal after all that were committed before, as a plan's order promises
        for counter in constraints.increments:
            domain = int(counter.domains.codes[node])
            most = self._max_increments.get((counter, domain))
            if counter.counted_nodes[node] and (
                self._only_domain.get(counter, domain) != domain
                or (most is not None and self._increments.get((counter, domain), 0) >= most)
            ):
                return False
        if constraints.affinity and counts.is_first_pod(constraints):
            own = self._first_pod_domain(constraints, node)
            if any(counter in constraints.affinity and domain != own for counter, domain in self._increments):
                return False
        elif any(not counts.of(counter)[counter.domains.codes[node]] for counter in constraints.affinity):
            return False
        return all(
            spread.allows(int(pods[domain]) + self._increments.get((spread.counter, domain), 0), minimum)
            for spread, domain, pods, minimum in self._spread_counts(constraints, node, counts)
        )

    def add(self, constraints: TopologyConstraints, node: int, counts: DomainCounts) -> None:
        """The pod joins."""
        if constraints.affinity and counts.is_first_pod(constraints):
            self._only_domain.update(dict.fromkeys(constraints.affinity, self._first_pod_domain(constraints, node)))
        for spread, domain, pods, minimum in self._spread_counts(constraints, node, counts):
            most = spread.remaining(int(pods[domain]), minimum)
            entry = (spread.counter, domain)
            self._max_increments[entry] = min(self._max_increments.get(entry, most), most)
        for counter in constraints.increments:
            if counter.counted_nodes[node]:
                entry = (counter, int(counter.domains.codes[node]))
                self._increments[entry] = self._increments.get(entry, 0) + 1
        self._members.append((constraints, node))

    @staticmethod
    def _first_pod_domain(constraints: TopologyConstraints, node: int) -> int | None:
        """The domain in which others may come before the first of a group; None where it reads several topologies."""
        return int(constraints.affinity[0].domains.codes[node]) if len(constraints.affinity) == 1 else None

    @staticmethod
    def _spread_counts(
        constraints: TopologyConstraints, node: int, counts: DomainCounts
    ) -> Iterator[tuple[Spread, int, Int64s, int]]:
        """Each spread with the node's domain, and the pods in all domains and in the emptiest before this wave."""
        for spread in constraints.spreads:
            pods = counts.of(spread.counter)
            yield spread, int(spread.counter.domains.codes[node]), pods, spread.global_minimum(pods)

    def commit(self, counts: DomainCounts) -> None:
        """Counts the members: the next wave comes after them."""
        for constraints, node in self._members:
            counts.increment(constraints, node, 1)
