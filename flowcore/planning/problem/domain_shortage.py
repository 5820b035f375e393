"""Why an atomic group finds no topology domains, in words: at which level there is too little room, and how much."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.model.gangs import Gang
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup
from flowcore.planning.problem.placements.domain_room import (
    DomainRoom,
    Members,
    Need,
    kind_of,
    may_hold,
    needs_of,
    slices_that_fit,
)
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.rules.reasons.kept_domains import nodes_of_domain
from flowcore.rules.topology.domains import Domains


def domain_shortage(problem: Problem, group: AtomicGroup, capacity: Plan, *, put_off: bool) -> str:
    """What a group asks of domains, and what the freest one has: the end of a sentence; "": it asks for none.

    Args:
        capacity: what is free beside what is placed.
        put_off: whether domains that may have room were left untried.
    """
    asking = [
        (gang, members)
        for gang, members in zip(group.gangs, group.members, strict=True)
        if gang.needs_domain and members
    ]
    if not asking:
        return ""
    wide = next((entry for entry in asking if not entry[0].slice_of), None)
    slices = [entry for entry in asking if entry[0].slice_of and (wide is None or entry[0].slice_of == wide[0].name)]
    asked = f" in one domain of {wide[0].topology_key}" if wide is not None else ""
    if slices:
        number = f"each of {len(slices)} slices" if len(slices) > 1 else "a slice"
        asked += f", {number} in one domain of {slices[0][0].topology_key}"

    def needs(entry: tuple[Gang, Members], room: DomainRoom) -> list[Need]:
        return needs_of(entry[1], group.required, problem.demands, room)

    empty = DomainRoom.of_amounts(problem.demands, np.maximum(problem.snapshot.allocatable, 0))
    if not all(
        may_hold(needs(entry, empty), problem.domains(entry[0].topology_key), empty.free).any() for entry in asking
    ):
        return f"{asked}, and none can hold them even when empty"
    now, freest = DomainRoom.beside(problem.demands, capacity), ""
    if wide is not None:
        most = needs(wide, now)[0]
        freest = _freest(problem, wide[0], most.totals(problem.domains(wide[0].topology_key)), most.count)
    if not freest and len({kind_of(needs(entry, now)) for entry in slices}) == 1:
        around = Domains.whole(problem.snapshot.table) if wide is None else problem.domains(wide[0].topology_key)
        fitting = slices_that_fit(around, problem.domains(slices[0][0].topology_key), needs(slices[0], now))
        freest = _freest(problem, None if wide is None else wide[0], fitting, len(slices), " slices")
    if put_off and not freest:
        return f"{asked}, and this round did not try all domains that may hold them: a later round does"
    return f"{asked}, and none has room for them beside what is placed{freest}"


def shortage_where_it_runs(problem: Problem, group: AtomicGroup, capacity: Plan) -> tuple[Gang, str] | None:
    """A gang of a group that has begun, and what its domain lacks, in words; None: there is room for what is needed.

    Of several the one with the narrowest domain is named: a slice and its rack, not the gang and its block.

    Args:
        capacity: what is free beside what is placed.
    """
    kept = [
        (gang, members)
        for gang, members in zip(group.gangs, group.members, strict=True)
        if gang.topology_key and gang.domain and members
    ]
    table, now = problem.snapshot.table, DomainRoom.beside(problem.demands, capacity)
    for gang, members in sorted(kept, key=lambda entry: (int(nodes_of_domain(entry[0], table).sum()), entry[0].name)):
        for need in needs_of(members, group.required, problem.demands, now):
            room = int(need.fits.sum())
            if room < need.count:
                told = f"where there is room for {room} of {need.count} beside what is placed"
                return gang, f"{gang.name} keeps to {gang.topology_key} {gang.domain}, {told}"
    return None


def _freest(problem: Problem, gang: Gang | None, fitting: Int64s, count: int, unit: str = "") -> str:
    """The domain with most room for a gang and how much that is; "": it is enough.

    Args:
        gang: None: it need not be in one domain, only its slices.
        fitting: int64[D], how many of those that are asked for fit each domain.
        count: how many these are, and ``unit``: what they are if not pods.
    """
    if not len(fitting) or fitting.max() >= count:
        return ""
    freest = int(fitting.argmax())
    if gang is None:
        return f": there is room for {fitting[freest]} of {count}{unit}"
    column = problem.snapshot.table.column(gang.topology_key)
    name = column.values[int(column.codes[problem.domains(gang.topology_key).nodes(freest)[0]])]
    return f": the freest, {name}, has room for {fitting[freest]} of {count}{unit}"
