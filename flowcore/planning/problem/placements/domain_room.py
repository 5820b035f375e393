"""Domains for gangs: in which order they choose, and how many of their pods a domain has room for beside a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.model.gangs import Gang
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.topology.domains import Domains

#: Demand -> the places of its pods that are of a gang.
Members = Mapping[int, tuple[int, ...]]
#: More pods of a kind than this fit no node: so sums over nodes stay within int64.
_MOST = 2**31
_ANYWHERE: Mapping[int, Bools] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """Pods of a gang that ask for the same amounts.

    Attributes:
        number: of one of their demands.
        requests: int64[R], what one asks for.
        count: how many are needed at once.
        wanted: how many there are.
        usable: bool[N], nodes that may take any of them.
        fits: int64[N], how many of them each node has room for at most.
    """

    number: int
    requests: Int64s
    count: int
    wanted: int
    usable: Bools
    fits: Int64s

    def totals(self, domains: Domains) -> Int64s:
        """int64[D]: how many fit each domain."""
        return domains.totals(np.minimum(self.fits, _MOST))[: domains.count]

    def within(self, nodes: Bools) -> Need:
        """The same on these nodes only, bool[N]."""
        return replace(self, usable=self.usable & nodes, fits=np.where(nodes, self.fits, 0))


@dataclass(frozen=True, slots=True, eq=False)
class DomainRoom:
    """The room that a question is about: what is free now, what is free once others have left, an empty cluster.

    Attributes:
        free: int64[N, R]. Not to be written to.
        usable: of a demand bool[N], nodes that may take its pods.
        fits: of a demand int64[N], how many of its pods each node has room for. Not to be written to.
    """

    free: Int64s
    usable: Callable[[int], Bools]
    fits: Callable[[int], Int64s]

    @classmethod
    def of_amounts(cls, demands: Sequence[Demand], free: Int64s) -> DomainRoom:
        """The room that amounts alone leave; none of them is negative."""
        return cls(free, lambda each: demands[each].allowed, lambda each: count_fitting(demands[each].requests, free))

    @classmethod
    def beside(cls, demands: Sequence[Demand], plan: Plan) -> DomainRoom:
        """What is free beside what a plan places, and what its rules do not close for good."""

        def usable(number: int) -> Bools:
            allowed, constraints = demands[number].allowed, demands[number].constraints
            if constraints.anti_affinity or constraints.caps:
                allowed = allowed & ~plan.domain_counts.blocked(constraints)
            return allowed

        return cls(plan.free, usable, lambda each: plan.fit_counts(demands[each]))


def needs_of(
    members: Members,
    required: Mapping[int, int],
    demands: Sequence[Demand],
    room: DomainRoom,
    kept: Mapping[int, Bools] = _ANYWHERE,
) -> list[Need]:
    """What a gang needs, the kind of which it needs most first.

    Args:
        members: demand -> the places of its pods that are of the gang.
        required: demand -> how many pods of it the atomic group needs. Of a demand that several gangs share each may
            need only some.
        kept: demand -> bool[N], nodes that its pods are kept to; of others all will do.
    """
    by_requests: dict[bytes, Need] = {}
    by_amounts: dict[bytes, Int64s] = {}
    for number, places in members.items():
        demand, usable = demands[number], room.usable(number)
        if number in kept:
            usable = usable & kept[number]
        fitting = np.where(usable, room.fits(number), 0)
        count, wanted, kind = min(required.get(number, 0), len(places)), len(places), demand.requests.tobytes()
        before = by_requests.get(kind)
        if before is not None:
            # Pods of a kind may be kept to different nodes. No node takes more of both than of the one that fits more,
            # unless each pod is a demand of its own (devices): then no more than amounts allow.
            count, wanted = count + before.count, wanted + before.wanted
            usable, larger = usable | before.usable, np.maximum(fitting, before.fits)
            if demand.group.pod_class.fits_by_amounts:
                fitting = larger
            else:
                if kind not in by_amounts:
                    by_amounts[kind] = count_fitting(demand.requests, room.free)
                fitting = np.maximum(larger, np.minimum(fitting + before.fits, by_amounts[kind]))
        first = number if before is None else before.number
        by_requests[kind] = Need(first, demand.requests, count, wanted, usable, fitting)
    return sorted(by_requests.values(), key=lambda need: -need.count)


def kind_of(needs: Sequence[Need]) -> tuple[tuple[bytes, int], ...]:
    """What gangs that need the same have in common."""
    return tuple((need.requests.tobytes(), need.count) for need in needs)


def may_hold(needs: Sequence[Need], domains: Domains, free: Int64s) -> Bools:
    """bool[D]: domains that may hold all that is needed: each kind by itself, and the sum of all kinds.

    A domain that holds it is never ruled out.

    Args:
        free: int64[N, R].
    """
    fine = np.ones(domains.count, dtype=np.bool_)
    for need in needs:
        fine &= need.totals(domains) >= need.count
    if len(needs) > 1:
        usable = np.logical_or.reduce([need.usable for need in needs])
        asked = np.sum([need.count * need.requests.astype(np.float64) for need in needs], axis=0)
        for resource in np.nonzero(asked)[0].tolist():
            room = np.where(usable, np.maximum(free[:, resource], 0), 0).astype(np.float64)
            fine &= np.bincount(domains.codes, room, domains.count + 1)[: domains.count] >= asked[resource] * (1 - 1e-9)
    return fine


def slices_that_fit(wide: Domains, narrow: Domains, needs: Sequence[Need]) -> Int64s:
    """int64[D]: how many slices fit each wide domain at most, each in one narrow domain."""
    inside = wide.labelled & narrow.labelled
    pairs, which = np.unique(wide.codes[inside] * (narrow.count + 1) + narrow.codes[inside], return_inverse=True)
    slices = np.full(len(pairs), _MOST, dtype=np.int64)
    for need in needs:
        if need.count:
            room = np.bincount(which, np.minimum(need.fits[inside], _MOST), len(pairs)).astype(np.int64)
            slices = np.minimum(slices, room // need.count)
    return np.bincount(pairs // (narrow.count + 1), slices, wide.count)[: wide.count].astype(np.int64)


def may_hold_slices(domains: Domains, slices: Iterable[tuple[Domains, Sequence[Need]]]) -> Bools:
    """bool[D]: domains that may hold all of these gangs, each in a domain of its own topology.

    Args:
        slices: the topology of each and what it needs; topologies that are equal are one object.
    """
    kinds: dict[tuple[int, tuple[tuple[bytes, int], ...]], tuple[int, Domains, Sequence[Need]]] = {}
    for narrow, needs in slices:
        kind = id(narrow), kind_of(needs)
        count, _, before = kinds.get(kind, (0, narrow, needs))
        both = zip(before, needs, strict=True)
        kinds[kind] = count + 1, narrow, [replace(a, fits=np.maximum(a.fits, b.fits)) for a, b in both]
    fine = np.ones(domains.count, dtype=np.bool_)
    for count, narrow, needs in kinds.values():
        fine &= slices_that_fit(domains, narrow, needs) >= count
    return fine


def is_untouched(need: Need, domains: Domains, allocatable: Int64s) -> Bools:
    """bool[D]: domains with as much room as if nothing ran there.

    Args:
        allocatable: int64[N, R].
    """
    empty = np.where(need.usable, count_fitting(need.requests, np.maximum(allocatable, 0)), 0)
    return replace(need, fits=empty).totals(domains) <= need.totals(domains)


def by_turns(group: AtomicGroup, demands: Sequence[Demand]) -> list[tuple[Gang, Members]]:
    """Gangs that choose domains, each with its pods: those that others are within, then of large pods, then of many.

    Args:
        demands: of the problem.
    """
    asking = [
        (gang, members)
        for gang, members in zip(group.gangs, group.members, strict=True)
        if members and gang.chooses_domain
    ]

    def turn(entry: tuple[Gang, Members]) -> tuple[int, float, int, int, str]:
        (gang, members), shares = entry, [demands[number].dominant_share for number in entry[1]]
        depth = sum(members.keys() < around.keys() for _, around in asking)
        return depth, -max(shares), -sum(map(len, members.values())), len(gang.name), gang.name

    return sorted(asking, key=turn)
