"""Why an atomic group finds no topology domains, in words: at which level there is too little room, and how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.model.gangs import Gang
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup
from flowcore.planning.problem.placements.domain_room import Need, kind_of, may_hold, needs_of, slices_that_fit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.rules.filters.node_resources_fit import count_fitting
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
    room = np.maximum(problem.snapshot.allocatable, 0)
    empty = {number: count_fitting(problem.demands[number].requests, room) for number in group.demands}
    if not all(
        may_hold(_needs(problem, group, entry, empty), problem.domains(entry[0].topology_key), room).any()
        for entry in asking
    ):
        return f"{asked}, and none can hold them even when empty"
    now = {number: capacity.fit_counts(problem.demands[number]) for number in group.demands}
    freest = "" if wide is None else _freest(problem, wide[0], _needs(problem, group, wide, now, capacity))
    if not freest and slices:
        parts = [_needs(problem, group, entry, now, capacity) for entry in slices]
        freest = _freest_for_slices(problem, wide[0] if wide is not None else None, slices[0][0].topology_key, parts)
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
    now = {number: capacity.fit_counts(problem.demands[number]) for number in group.demands} if kept else {}
    table = problem.snapshot.table
    for gang, members in sorted(kept, key=lambda entry: (int(nodes_of_domain(entry[0], table).sum()), entry[0].name)):
        for need in _needs(problem, group, (gang, members), now, capacity):
            room = int(need.fits.sum())
            if room < need.count:
                told = f"where there is room for {room} of {need.count} beside what is placed"
                return gang, f"{gang.name} keeps to {gang.topology_key} {gang.domain}, {told}"
    return None


def _needs(
    problem: Problem,
    group: AtomicGroup,
    entry: tuple[Gang, Mapping[int, Sequence[int]]],
    fits: Mapping[int, Int64s],
    capacity: Plan | None = None,
) -> list[Need]:
    demands = {number: problem.demands[number] for number in entry[1]}
    free = problem.snapshot.allocatable if capacity is None else capacity.free
    return needs_of(entry[1], group.required, demands, fits, free, capacity)


def _freest(problem: Problem, gang: Gang, needs: Sequence[Need]) -> str:
    """The domain with most room for a gang and how much that is; "": for each kind of its pods it is enough."""
    domains, most = problem.domains(gang.topology_key), needs[0]
    totals = most.totals(domains)
    if not len(totals) or totals.max() >= most.count:
        return ""
    freest = int(totals.argmax())
    return f": the freest, {_name(problem, gang, domains, freest)}, has room for {totals[freest]} of {most.count}"


def _freest_for_slices(problem: Problem, wide: Gang | None, key: str, slices: Sequence[Sequence[Need]]) -> str:
    """The domain with room for most slices of a gang and how many that is; "": it is enough, or they differ.

    Args:
        wide: the gang, if it must be in one domain that it has yet to choose.
    """
    kinds = {kind_of(needs) for needs in slices}
    domains = Domains.whole(problem.snapshot.table) if wide is None else problem.domains(wide.topology_key)
    fitting = slices_that_fit(domains, problem.domains(key), slices[0])
    if len(kinds) > 1 or not len(fitting) or fitting.max() >= len(slices):
        return ""
    freest = int(fitting.argmax())
    if wide is None:
        return f": there is room for {fitting[freest]} of {len(slices)} slices"
    name = _name(problem, wide, domains, freest)
    return f": the freest, {name}, has room for {fitting[freest]} of {len(slices)} slices"


def _name(problem: Problem, gang: Gang, domains: Domains, number: int) -> str:
    column = problem.snapshot.table.column(gang.topology_key)
    return column.values[int(column.codes[domains.nodes(number)[0]])]
