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

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import UNLIMITED, remaining, within_limit
from flowcore.rules.topology.round_constraints.constraints import TopologyConstraints
from flowcore.rules.topology.spread import Spread

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
        minimums: int64[K], pods that each must get for others to get as many as they may; of domains without parents
            only.
        rise: how many pods the emptiest domain of a spread constraint gets at most, if no other group has a part in it.
    """

    by_node: Int64s
    domain_of: Int64s
    parents: Int64s
    capacities: Int64s
    minimums: Int64s
    rise: int

    @property
    def depths(self) -> Int64s:
        """int64[K]: how many domains each is inside, itself counted."""
        depths = np.ones(len(self.parents) + 1, dtype=np.int64)
        depths[-1] = 0
        for _ in range(len(self.parents)):
            deeper = depths[self.parents] + 1
            if np.array_equal(deeper, depths[:-1]):
                break
            depths[:-1] = deeper
        return depths[:-1]


@dataclass(frozen=True, slots=True, eq=False)
class _Topology:
    """int64[N] the domain of each node, -1 where nothing counts; int64[D] how many pods each takes, and must get.

    ``rise`` as in ``DomainCapacities``.
    """

    codes: Int64s
    capacities: Int64s
    minimums: Int64s
    rise: int = 0


def pods_by_counter(groups: Sequence[tuple[TopologyConstraints, int]]) -> dict[DomainCounter, int]:
    """How many pods of these groups each counter may come to count."""
    counted: dict[DomainCounter, int] = {}
    for constraints, pods in groups:
        for counter in constraints.increments:
            counted[counter] = counted.get(counter, 0) + pods
    return counted


def capacities_of(
    constraints: TopologyConstraints,
    counts: Callable[[DomainCounter], Int64s],
    fit_counts: Int64s,
    pods: int,
    raising: Mapping[DomainCounter, int],
    below: int = 0,
) -> DomainCapacities:
    """What a group's own rules let it place.

    Args:
        counts: int64[D + 1], pods that a counter counts in each domain now.
        fit_counts: int64[N], how many pods each node has room for, rules left aside.
        pods: how many there are.
        raising: see ``pods_by_counter``; of all pods that are still to be placed.
        below: for plans in which the emptiest domain gets this number of pods fewer than ``rise``.
    """
    fits = np.minimum(fit_counts, pods)
    by_node = np.full(len(fits), UNLIMITED, dtype=np.int64)
    topologies = []
    for counter, most in _limits(constraints, counts):
        by_node = np.minimum(by_node, most[counter.domains.codes])
        codes = np.where(counter.domains.labelled, counter.domains.codes, NONE)
        topologies.append(_Topology(codes, most[:-1], np.zeros(counter.domains.count, dtype=np.int64)))
    # What small domains leave room for says what large ones have room for.
    for spread in sorted(constraints.spreads, key=lambda spread: -spread.counter.domains.count):
        coarsest = spread.counter.domains.count == min(each.counter.domains.count for each in constraints.spreads)
        topology = _spread_topology(
            spread,
            constraints,
            counts(spread.counter),
            np.minimum(fits, by_node),
            raising.get(spread.counter, 0),
            alone=raising.get(spread.counter) == pods,
            below=below if coarsest else None,
        )
        # The last entry is that of nodes where nothing counts: code -1.
        by_node = np.minimum(by_node, np.append(topology.capacities, UNLIMITED)[topology.codes])
        by_node[~spread.counter.domains.labelled] = 0
        topologies.append(topology)
    # A domain that is one node is no domain of its own.
    shared = [each for each in topologies if len(each.capacities) < np.count_nonzero(each.codes >= 0)]
    return _nested(by_node, np.minimum(fits, by_node), pods, sorted(shared, key=lambda level: len(level.capacities)))


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
    pods: int,
    *,
    alone: bool,
    below: int | None,
) -> _Topology:
    """A spread constraint.

    Args:
        pods: all that its counter may come to count.
        alone: no other group has pods that its counter counts.
        below: see ``capacities_of``; None: minimums are those of another constraint.
    """
    counter = spread.counter
    codes = np.where(counter.counted_nodes, counter.domains.codes, NONE)
    nothing = np.zeros(counter.domains.count, dtype=np.int64)
    if not spread.self_match or counter not in constraints.increments:
        return _Topology(codes, np.full(counter.domains.count, UNLIMITED, dtype=np.int64), nothing)
    if spread.fixed_minimum is not None:
        return _Topology(codes, np.maximum(spread.remaining(counts[:-1], spread.fixed_minimum), 0), nothing)
    eligible = counts[spread.eligible_domains]
    minimum, minimums, rise = water_level(eligible, pods), nothing.copy(), 0
    if alone:
        # The group makes the emptiest domain fuller only where it has room.
        room = _totals(codes, fits, counter.domains.count)[spread.eligible_domains]
        minimum = min(minimum, int((eligible + room).min()))
    if alone and below is not None:
        rise = minimum - int(eligible.min())
        minimum -= below
        minimums[spread.eligible_domains] = np.maximum(minimum - eligible, 0)
    return _Topology(codes, np.maximum(spread.remaining(counts[:-1], minimum), 0), minimums, rise)


def water_level(pods: Int64s, more: int) -> int:
    """How many pods the emptiest domain can have at most after ``pods`` more were placed."""
    ordered = np.sort(pods)
    levels = (more + np.cumsum(ordered)) // np.arange(1, len(ordered) + 1)
    return int(levels.min())


def _nested(by_node: Int64s, fits: Int64s, pods: int, topologies: Sequence[_Topology]) -> DomainCapacities:
    """Domains that may bind, of the topologies with the fewest domains first; those that overlap others left out."""
    domain_of, rise = np.full(len(fits), NONE, dtype=np.int64), 0
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
        if topology.rise and not (innermost >= 0).any():
            rise = topology.rise
        else:
            wanted = np.zeros_like(wanted)
        binds = topology.capacities < np.minimum(_totals(topology.codes, fits, domains), pods)
        kept = (outermost == innermost) & (binds | (wanted > 0))
        number = np.where(kept, count + np.cumsum(kept) - 1, NONE)[codes]
        domain_of[inside] = np.where(number >= 0, number, around)
        count += int(kept.sum())
        parents.append(innermost[kept])
        capacities.append(topology.capacities[kept])
        minimums.append(wanted[kept])
    return DomainCapacities(
        by_node, domain_of, np.concatenate(parents), np.concatenate(capacities), np.concatenate(minimums), rise
    )


def _totals(codes: Int64s, amounts: Int64s, domains: int) -> Int64s:
    """int64[D]: sums of int64[N] amounts over the nodes of each domain; codes below zero count nowhere."""
    return np.bincount(codes + 1, amounts, domains + 1)[1:].astype(np.int64)
