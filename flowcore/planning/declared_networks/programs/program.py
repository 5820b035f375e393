"""Networks that are no plain minimum-cost flow: with gains, with groups, or with pods of different sizes on one node.

An integer program (``statement``): of all ways where they are few, which proves the best flow; else of those that lower
its cost in fractions (``generation``), of which the whole part is kept and the rest is decided.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.declared_networks.graph import Graph, NetworkRefused, NetworkTooLarge, NoFlowInTime
from flowcore.planning.declared_networks.programs.bounds import least_alone
from flowcore.planning.declared_networks.programs.completion import complete
from flowcore.planning.declared_networks.programs.generation import RelaxedNetwork, generate, relax
from flowcore.planning.declared_networks.programs.lns import (
    improve,
    lack_price,
    lacks_something,
    nodes_behind,
    short_arcs,
)
from flowcore.planning.declared_networks.programs.statement import Statement
from flowcore.planning.declared_networks.programs.ways import Float64s, Ways, ways_of
from flowcore.planning.declared_networks.programs.whole_part import whole_part
from flowcore.planning.declared_networks.programs.work import Work
from flowcore.planning.declared_networks.solution import NetworkSolution, check_solution, shortage
from flowcore.planning.solvers import LinearProgram, solve_lp, solve_mip

#: A program of more ways is not stated as a whole.
MOST_COLUMNS = 10_000
#: CP-SAT's deterministic time, and that for finding out why there is no flow: roughly seconds.
_WORK, _WORK_OF_REASON = 2.0, 0.5
#: How often the whole part of a flow in fractions is kept.
_DIVES = 2
#: Ways that CP-SAT decides about beside the whole part: more take longer than its time.
_MOST_OPEN = 6_000
#: A value of the linear program that is so near to a whole number is taken for it; what comes of it is checked.
_WHOLE = 1e-6
#: Sums of whole numbers below this are exact as floats, so that the solver's proof holds for the program as stated.
_EXACT = 2.0**53


def solve_program(graph: Graph, free: Int64s, *, seed: int, work: Work) -> NetworkSolution:
    """The best flow that is found in the time of a round; the solution says whether it is proven to be of least cost.

    Args:
        free: int64[N, R], what is free on each node.
        work: what it may take.

    Raises:
        NetworkRefused: the program is too large, no flow meets the minimums and maximums, or none was found in time.
    """
    ways = ways_of(graph)
    is_small = len(ways) <= MOST_COLUMNS
    if graph.wholes.any() and not is_small:
        problem = f"it has arcs with wholeOrNone and {len(ways)} ways, and a round has time for {MOST_COLUMNS}"
        raise NetworkTooLarge(problem, MOST_COLUMNS / len(ways))
    relaxed = _in_fractions(ways, free, seed, work)
    bound = _bound(ways, relaxed)
    if relaxed is not None:
        # A corner of the relaxation is often whole.
        whole = np.rint(relaxed.solution.values)
        if np.abs(whole - relaxed.solution.values).max(initial=0.0) < _WHOLE:
            corner = NetworkSolution(graph, *ways.flow(relaxed.stated.units(whole)), bound)
            # The bound knows no arcs that take none or enough: CP-SAT proves what it does not.
            if _is_flow(corner, free) and (corner.cost <= bound or not is_small):
                return replace(corner, bound=min(bound, corner.cost), proven=corner.cost <= bound)
    if relaxed is not None and not is_small:
        units = complete(ways, free, _around(ways, free, relaxed, seed, work), work)
        units = improve(ways, free, units, bound, seed, work)
        if lacks_something(ways, units):
            hint = np.rint(relaxed.solution.values)
            seconds = work.seconds(_WORK)
            solved = solve_mip(relaxed.program, deterministic_time=seconds, seed=seed, hint=hint)
            if solved is None:
                raise NoFlowInTime
            units = relaxed.stated.units(solved.values)
        solution = NetworkSolution(graph, *ways.flow(units), bound)
        return replace(solution, bound=min(bound, solution.cost), proven=solution.cost <= bound)
    return _whole_program(ways, free, relaxed, seed, work)


def bound_of_program(graph: Graph, free: Int64s, *, seed: int, work: Work) -> int:
    """A cost that no flow goes below.

    Raises:
        NetworkRefused: it has more ways than a round has time for.
    """
    ways = ways_of(graph)
    try:
        relaxed = _in_fractions(ways, free, seed, work)
    except NetworkRefused:  # no flow was found in time, as there is more room
        relaxed = None
    return _bound(ways, relaxed)


def _bound(ways: Ways, relaxed: RelaxedNetwork | None) -> int:
    """A cost that no flow goes below: that of pods alone, or more where the network was solved in fractions."""
    return max(least_alone(ways), 0 if relaxed is None else relaxed.bound)


def _whole_program(ways: Ways, free: Int64s, relaxed: RelaxedNetwork | None, seed: int, work: Work) -> NetworkSolution:
    """The best flow of all ways.

    Raises:
        NetworkRefused: none was found.
    """
    graph, bound = ways.graph, _bound(ways, relaxed)
    if relaxed is None:
        stated = Statement(ways, free, np.arange(len(ways)), elastic=False)
        program, hint = stated.program(), stated.nothing_placed()
    else:
        stated, program, hint = relaxed.stated, relaxed.program, np.rint(relaxed.solution.values)
    solved = solve_mip(program, deterministic_time=work.seconds(_WORK), seed=seed, hint=hint)
    if solved is None:
        raise _why_none(ways, free, seed, work)
    solution = NetworkSolution(graph, *ways.flow(stated.units(solved.values)), bound)
    exact = float(np.abs(program.costs) @ program.variable_upper) < _EXACT
    proven = solution.cost <= bound or (solved.optimal and exact)
    return replace(solution, bound=min(bound, solution.cost), proven=proven)


def _in_fractions(ways: Ways, free: Int64s, seed: int, work: Work) -> RelaxedNetwork | None:
    """The program of all ways, or of those that are worth something; None: the solver finds no flow."""
    if len(ways) > MOST_COLUMNS:
        return generate(ways, free, seed, work)
    work.program(len(ways), len(ways))
    return relax(ways, free, np.arange(len(ways)))


def _around(ways: Ways, free: Int64s, relaxed: RelaxedNetwork, seed: int, work: Work) -> Int64s:
    """int64[E]: a flow near the one in fractions; it may lack something.

    Its whole part is kept. What is left is solved in fractions again, on nodes that have room for whole pods only, and
    so on; the rest is decided by CP-SAT.

    Raises:
        NetworkRefused: there is none.
    """
    chosen = relaxed.stated.chosen
    stated = Statement(ways, free, chosen, lack_price=lack_price(ways))
    program = stated.program()
    values = relaxed.solution.values[: len(chosen)]
    nodes, supplies = _settled(ways, chosen, values, free)
    kept = np.zeros(len(program.costs))
    for dive in range(_DIVES):
        if dive and work.is_done:
            break
        work.program(len(ways), len(chosen))
        whole = whole_part(ways, chosen, values, nodes=nodes, supplies=supplies)
        # What is nearly whole is rounded up: a node may have too little room for that.
        overfull = _overfull(ways, free, chosen, kept[: len(chosen)] + whole)
        if overfull.any():
            nodes = nodes & ~overfull
            whole = whole_part(ways, chosen, values, nodes=nodes, supplies=supplies)
        kept[: len(chosen)] += whole
        rest = _beside(program, kept, _room_left(ways, free, chosen, kept[: len(chosen)]))
        solution = solve_lp(rest) if whole.any() else None
        if solution is None:
            break
        values = solution.values[: len(chosen)]
    reduced = relaxed.program.costs.copy()
    terms = relaxed.program.coefficients * relaxed.solution.duals[relaxed.program.rows]
    np.subtract.at(reduced, relaxed.program.columns, terms)
    # Of the ways the cheapest, by how much a plan in fractions would cost more with them.
    left = rest.variable_upper.copy()
    dear = np.nonzero(left[: len(chosen)] > 0)[0]
    left[dear[np.argsort(reduced[dear], kind="stable")[_MOST_OPEN:]]] = 0.0
    near = kept[: len(chosen)] + np.minimum(np.rint(values), left[: len(chosen)])
    hint = stated.values(stated.units(near)) - kept
    seconds = work.seconds(_WORK)
    solved = solve_mip(replace(rest, variable_upper=left), deterministic_time=seconds, seed=seed, hint=hint)
    if solved is None:
        raise NoFlowInTime
    return stated.units(kept + solved.values)


def _beside(program: LinearProgram, kept: Float64s, most: Float64s) -> LinearProgram:
    """What is left to decide beside a part of the solution.

    Args:
        most: float64[K], of the first columns, how much more they may take.
    """
    used = np.zeros(len(program.row_lower))
    np.add.at(used, program.rows, program.coefficients * kept[program.columns])
    upper = program.variable_upper - kept
    upper[: len(most)] = np.minimum(upper[: len(most)], most)
    return replace(
        program, variable_upper=upper, row_lower=program.row_lower - used, row_upper=program.row_upper - used
    )


def _overfull(ways: Ways, free: Int64s, chosen: Int64s, kept: Float64s) -> Bools:
    """bool[N]: nodes that have less room than a part of a solution takes."""
    overfull: Bools = np.any(_room_beside(ways, free, chosen, kept) < np.minimum(free, 0), axis=1)
    return overfull


def _room_beside(ways: Ways, free: Int64s, chosen: Int64s, kept: Float64s) -> Int64s:
    """int64[N, R]: what a part of a solution leaves free."""
    requests = np.array([supply.requests for supply in ways.graph.supplies], dtype=np.int64)
    arriving = np.nonzero(ways.nodes[chosen] >= 0)[0]
    nodes, supplies = ways.nodes[chosen[arriving]], ways.supplies[chosen[arriving]]
    room = free.copy()
    np.subtract.at(room, nodes, requests[supplies] * kept[arriving].astype(np.int64)[:, np.newaxis])
    return room


def _room_left(ways: Ways, free: Int64s, chosen: Int64s, kept: Float64s) -> Float64s:
    """float64[K]: how many whole pods their nodes still have room for; infinite for ways that end elsewhere."""
    requests = np.array([supply.requests for supply in ways.graph.supplies], dtype=np.int64)
    arriving = np.nonzero(ways.nodes[chosen] >= 0)[0]
    nodes, supplies = ways.nodes[chosen[arriving]], ways.supplies[chosen[arriving]]
    room, asked = _room_beside(ways, free, chosen, kept), requests[supplies]
    fits = np.where(asked > 0, np.maximum(room[nodes], 0) // np.maximum(asked, 1), np.iinfo(np.int64).max)
    most = np.full(len(chosen), np.inf)
    most[arriving] = fits.min(axis=1, initial=np.iinfo(np.int64).max)
    return most


def _settled(ways: Ways, chosen: Int64s, values: Float64s, free: Int64s) -> tuple[Bools, Bools]:
    """bool[N] nodes and bool[C] pods of which a whole part may be kept: it leaves no minimum and no group open."""
    graph = ways.graph
    nodes, supplies = np.ones(len(free), dtype=np.bool_), np.ones(len(graph.supplies), dtype=np.bool_)
    units = np.zeros(len(ways), dtype=np.int64)
    units[chosen] = whole_part(ways, chosen, values).astype(np.int64)
    for arc in short_arcs(ways, units).tolist():
        nodes[nodes_behind(ways, arc)] = False
    _, placed = ways.flow(units)
    counts = np.zeros(len(graph.supplies), dtype=np.int64)
    for (number, node), count in placed.items():
        counts[number] += count if nodes[node] else 0
    for group in graph.groups:
        if group.domains or any(counts[list(members)].sum() < need for members, need in group.needs):
            supplies[list(group.members)] = False
    return nodes, supplies


def _is_flow(solution: NetworkSolution, free: Int64s) -> bool:
    try:
        check_solution(solution, free)
    except NetworkRefused:
        return False
    return True


def _why_none(ways: Ways, free: Int64s, seed: int, work: Work) -> NetworkRefused:
    """Why no flow was found: what is lacking at least, if that can be found out."""
    graph = ways.graph
    stated = Statement(ways, free, np.arange(len(ways)), elastic=True)
    program: LinearProgram = stated.program()
    seconds = work.seconds(_WORK_OF_REASON)
    solved = solve_mip(program, deterministic_time=seconds, seed=seed, hint=stated.nothing_placed())
    if solved is None or not solved.optimal or not solved.values @ program.costs:
        return NoFlowInTime()
    flows, _ = ways.flow(stated.units(solved.values))
    met = {arc: int(flows[arc]) for arc in np.nonzero(graph.minimums)[0].tolist()}
    return NetworkRefused(shortage(graph, met, solved.values[stated.stranded].astype(np.int64)))
