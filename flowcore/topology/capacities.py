"""A group's own rules as capacities: how many of its pods each node and each domain takes at most.

A limit on pods that the group itself is among bounds its own pods, whatever else is placed: anti-affinity that matches
its own pods, caps of policies. A spread constraint does too: pods in a domain end at most ``maxSkew`` above those in
the emptiest one, and that cannot get fuller than all pods of the round can make it.

So every legal plan keeps these capacities. A plan that keeps them is legal in some order if no other group is counted
or counts the group, and if domains get their minimums where it has a spread constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.snapshot import Int64s
from flowcore.topology.constraints import TopologyConstraints
from flowcore.topology.counters import DomainCounter
from flowcore.topology.limits import UNLIMITED, remaining, within_limit
from flowcore.topology.spread import Spread

#: No domain.
NONE = -1


@dataclass(frozen=True, slots=True, eq=False)
class DomainCapacities:
    """K domains that may bind a group, each inside its parent or apart from it.

    Attributes:
        by_node: int64[N], most pods on each node.
        domain_of: int64[N], the smallest of the domains around each node, -1 for none.
        parents: int64[K], the domain around each, -1 for none; parents come before what is inside them.
        capacities: int64[K], most pods in each.
        minimums: int64[K], pods that each should get so that others may get as many as they do; of domains without
            parents only.
    """

    by_node: Int64s
    domain_of: Int64s
    parents: Int64s
    capacities: Int64s
    minimums: Int64s

    @property
    def depths(self) -> Int64s:
        """int64[K]: how many domains each is inside, itself counted."""
        found = np.ones(len(self.parents) + 1, dtype=np.int64)
        found[-1] = 0
        for _ in range(len(self.parents)):
            deeper = found[self.parents] + 1
            if np.array_equal(deeper, found[:-1]):
                break
            found[:-1] = deeper
        return found[:-1]


@dataclass(frozen=True, slots=True, eq=False)
class _Topology:
    """int64[N] the domain of each node, -1 where nothing counts; int64[D] how many pods each takes, and should get."""

    codes: Int64s
    capacities: Int64s
    minimums: Int64s


def pods_by_counter(groups: Sequence[tuple[TopologyConstraints, int]]) -> dict[DomainCounter, int]:
    """How many pods of these groups each counter may come to count."""
    found: dict[DomainCounter, int] = {}
    for constraints, pods in groups:
        for counter in constraints.increments:
            found[counter] = found.get(counter, 0) + pods
    return found


def capacities_of(
    constraints: TopologyConstraints,
    counts: Callable[[DomainCounter], Int64s],
    fit_counts: Int64s,
    pods: int,
    raising: Mapping[DomainCounter, int],
) -> DomainCapacities:
    """What a group's own rules let it place.

    Args:
        counts: int64[D + 1], pods that a counter counts in each domain now.
        fit_counts: int64[N], how many pods each node has room for, rules left aside.
        pods: how many there are.
        raising: see ``pods_by_counter``; of all pods that are still to be placed.
    """
    fits = np.minimum(fit_counts, pods)
    by_node = np.full(len(fits), UNLIMITED, dtype=np.int64)
    topologies = []
    for counter, most in _limits(constraints, counts):
        by_node = np.minimum(by_node, most[counter.domains.codes])
        if counter.domains.count < np.count_nonzero(counter.domains.labelled):
            codes = np.where(counter.domains.labelled, counter.domains.codes, NONE)
            topologies.append(_Topology(codes, most[:-1], np.zeros(counter.domains.count, dtype=np.int64)))
    for spread in constraints.spreads:
        room = np.minimum(fits, by_node)
        topology = _spread_topology(spread, constraints, counts(spread.counter), room, pods, raising)
        known = topology.codes >= 0
        by_node[known] = np.minimum(by_node[known], topology.capacities[topology.codes[known]])
        by_node[~spread.counter.domains.labelled] = 0
        if spread.counter.domains.count < np.count_nonzero(spread.counter.domains.labelled):
            topologies.append(topology)
    return _nested(by_node, np.minimum(fits, by_node), pods, sorted(topologies, key=lambda each: len(each.capacities)))


def _limits(
    constraints: TopologyConstraints, counts: Callable[[DomainCounter], Int64s]
) -> Iterator[tuple[DomainCounter, Int64s]]:
    """Counters of anti-affinity and caps, and int64[D + 1] how many pods of the group each domain takes."""
    for counter in constraints.anti_affinity:
        pods = counts(counter)
        if counter in constraints.increments:
            most = remaining(1, pods)
            most[-1] = UNLIMITED  # in no domain: nothing is counted
        else:
            most = np.where(within_limit(pods, 0, 0), UNLIMITED, 0)
        yield counter, most
    for cap in constraints.caps:
        yield cap.counter, cap.remaining(counts(cap.counter))


def _spread_topology(
    spread: Spread,
    constraints: TopologyConstraints,
    counts: Int64s,
    fits: Int64s,
    own_pods: int,
    raising: Mapping[DomainCounter, int],
) -> _Topology:
    """A spread constraint, whose domains should get what the emptiest one can get at most."""
    counter = spread.counter
    codes = np.where(counter.counted_nodes, counter.domains.codes, NONE)
    nothing = np.zeros(counter.domains.count, dtype=np.int64)
    if not spread.self_match or counter not in constraints.increments:
        return _Topology(codes, np.full(counter.domains.count, UNLIMITED, dtype=np.int64), nothing)
    minimum, minimums = spread.fixed_minimum, nothing
    if minimum is None:
        there, pods = counts[spread.eligible_domains], raising[counter]
        minimum = _water_level(there, pods)
        if pods == own_pods:
            # Nobody else makes the emptiest domain fuller: the group has to, and only where it has room.
            room = _totals(codes, fits, counter.domains.count)[spread.eligible_domains]
            minimum = min(minimum, int((there + room).min()))
            minimums = nothing.copy()
            minimums[spread.eligible_domains] = np.maximum(minimum - there, 0)
    return _Topology(codes, np.maximum(spread.remaining(counts[:-1], minimum), 0), minimums)


def _water_level(pods: Int64s, more: int) -> int:
    """How many pods the emptiest domain can have at most after so many more were placed."""
    ordered = np.sort(pods)
    levels = (more + np.cumsum(ordered)) // np.arange(1, len(ordered) + 1)
    return int(levels.min())


def _nested(by_node: Int64s, fits: Int64s, pods: int, topologies: Sequence[_Topology]) -> DomainCapacities:
    """Domains that may bind, of the topologies with the fewest domains first; those that overlap others left out."""
    domain_of = np.full(len(fits), NONE, dtype=np.int64)
    parents, capacities, minimums = ([np.zeros(0, dtype=np.int64)] for _ in range(3))
    count = 0
    for topology in topologies:
        domains = len(topology.capacities)
        inside = (topology.codes >= 0) & (fits > 0)
        codes, around = topology.codes[inside], domain_of[inside]
        outermost, innermost = np.full(domains, count), np.full(domains, NONE)
        np.minimum.at(outermost, codes, around)
        np.maximum.at(innermost, codes, around)
        wanted = topology.minimums
        if (innermost >= 0).any() or any(each.any() for each in minimums):
            wanted = np.zeros_like(wanted)
        binds = topology.capacities < np.minimum(_totals(topology.codes, fits, domains), pods)
        kept = (outermost == innermost) & (binds | (wanted > 0))
        number = np.where(kept, count + np.cumsum(kept) - 1, NONE)[codes]
        domain_of[inside] = np.where(number >= 0, number, around)
        count += int(kept.sum())
        parents.append(innermost[kept])
        capacities.append(topology.capacities[kept])
        minimums.append(wanted[kept])
    return DomainCapacities(by_node, domain_of, *(np.concatenate(each) for each in (parents, capacities, minimums)))


def _totals(codes: Int64s, amounts: Int64s, domains: int) -> Int64s:
    """int64[D]: sums of int64[N] amounts over the nodes of each domain; codes below zero count nowhere."""
    known = codes >= 0
    return np.bincount(codes[known], amounts[known], domains).astype(np.int64)
