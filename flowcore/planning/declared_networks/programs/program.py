"""Networks that are no plain minimum-cost flow: with gains, with groups, or with pods of different sizes on one node.

An integer program (``statement``): of all ways where they are few, which proves the best flow; else of those that lower
its cost in fractions (``generation``), of which the whole part is kept and the rest is decided.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.declared_networks.graph import Graph, NetworkRefused
from flowcore.planning.declared_networks.programs.completion import complete
from flowcore.planning.declared_networks.programs.generation import Relaxed, generate, relax
from flowcore.planning.declared_networks.programs.statement import Statement
from flowcore.planning.declared_networks.programs.ways import Float64s, Ways, ways_of
from flowcore.planning.declared_networks.programs.whole_part import whole_part
from flowcore.planning.declared_networks.solution import NetworkSolution, check_solution, shortage
from flowcore.planning.solvers import LinearProgram, solve_mip

#: A program of more ways is not stated as a whole.
MOST_COLUMNS = 10_000
#: CP-SAT's deterministic time, and that for finding out why there is no flow: roughly seconds.
_WORK, _WORK_OF_REASON = 2.0, 0.5
#: Ways that CP-SAT decides about beside the whole part: more take longer than its time.
_MOST_OPEN = 6_000
#: A value of the linear program that is so near to a whole number is taken for it; what comes of it is checked.
_WHOLE = 1e-6
#: Sums of whole numbers below this are exact as floats, so that the solver's proof holds for the program as stated.
_EXACT = 2.0**53


def solve_program(graph: Graph, free: Int64s, *, seed: int = 0) -> NetworkSolution:
    """The best flow that is found in the time of a round; the solution says whether it is proven to be of least cost.

    Args:
        free: int64[N, R], what is free on each node.

    Raises:
        NetworkRefused: the program is too large, no flow meets the minimums and maximums, or none was found in time.
    """
    ways = ways_of(graph)
    is_small = len(ways) <= MOST_COLUMNS
    relaxed = relax(ways, free, np.arange(len(ways))) if is_small else generate(ways, free, seed)
    bound = 0 if relaxed is None else relaxed.bound
    if relaxed is not None:
        # A corner of the relaxation is often whole.
        whole = np.rint(relaxed.solution.values)
        if np.abs(whole - relaxed.solution.values).max(initial=0.0) < _WHOLE:
            corner = NetworkSolution(graph, *ways.flow(relaxed.stated.units(whole)), bound)
            if _is_flow(corner, free):
                return replace(corner, bound=min(bound, corner.cost), proven=corner.cost <= bound)
    if relaxed is not None and not is_small:
        units = complete(ways, free, relaxed.stated.units(_around(ways, relaxed, seed)))
        solution = NetworkSolution(graph, *ways.flow(units), bound)
        return replace(solution, bound=min(bound, solution.cost), proven=solution.cost <= bound)
    return _whole_program(ways, free, relaxed, seed)


def bound_of_program(graph: Graph, free: Int64s, *, seed: int = 0) -> int:
    """A cost that no flow goes below.

    Raises:
        NetworkRefused: as ``solve_program`` says, as far as fractions tell.
    """
    ways = ways_of(graph)
    relaxed = relax(ways, free, np.arange(len(ways))) if len(ways) <= MOST_COLUMNS else generate(ways, free, seed)
    return 0 if relaxed is None else relaxed.bound


def _whole_program(ways: Ways, free: Int64s, relaxed: Relaxed | None, seed: int) -> NetworkSolution:
    """The best flow of all ways.

    Raises:
        NetworkRefused: none was found.
    """
    graph, bound = ways.graph, 0 if relaxed is None else relaxed.bound
    if relaxed is None:
        stated = Statement(ways, free, np.arange(len(ways)), elastic=False)
        program, hint = stated.program(), stated.nothing_placed()
    else:
        stated, program, hint = relaxed.stated, relaxed.program, np.rint(relaxed.solution.values)
    solved = solve_mip(program, deterministic_time=_WORK, seed=seed, hint=hint)
    if solved is None:
        raise NetworkRefused(_reason(ways, free, seed))
    solution = NetworkSolution(graph, *ways.flow(stated.units(solved.values)), bound)
    exact = float(np.abs(program.costs) @ program.variable_upper) < _EXACT
    proven = solution.cost <= bound or (solved.optimal and exact)
    return replace(solution, bound=min(bound, solution.cost), proven=proven)


def _around(ways: Ways, relaxed: Relaxed, seed: int) -> Float64s:
    """float64[V]: whole numbers near the program in fractions: its whole part, and the rest decided by CP-SAT.

    Raises:
        NetworkRefused: none was found, also without the whole part.
    """
    program, values = relaxed.program, relaxed.solution.values
    kept, chosen = np.zeros(len(values)), relaxed.stated.chosen
    kept[: len(chosen)] = whole_part(ways, chosen, values[: len(chosen)])
    used = np.zeros(len(program.row_lower))
    np.add.at(used, program.rows, program.coefficients * kept[program.columns])
    reduced = program.costs.copy()
    np.subtract.at(reduced, program.columns, program.coefficients * relaxed.solution.duals[program.rows])
    left = program.variable_upper - kept
    # Of the ways the cheapest, by how much a plan in fractions would cost more with them.
    dear = np.nonzero(left[: len(chosen)] > 0)[0]
    dear = dear[np.argsort(reduced[dear], kind="stable")[_MOST_OPEN:]]
    left[dear] = 0.0
    rest = replace(
        program,
        variable_upper=left,
        row_lower=program.row_lower - used,
        row_upper=program.row_upper - used,
    )
    solved = solve_mip(rest, deterministic_time=_WORK, seed=seed, hint=np.rint(values - kept))
    if solved is not None:
        return kept + solved.values
    solved = solve_mip(program, deterministic_time=_WORK, seed=seed, hint=np.rint(values))
    if solved is None:
        raise NetworkRefused("no flow that meets its minimums and maximums was found in the time of a round")
    return solved.values


def _is_flow(solution: NetworkSolution, free: Int64s) -> bool:
    try:
        check_solution(solution, free)
    except NetworkRefused:
        return False
    return True


def _reason(ways: Ways, free: Int64s, seed: int) -> str:
    """Why no flow was found: what is lacking at least, if that can be found out."""
    graph = ways.graph
    stated = Statement(ways, free, np.arange(len(ways)), elastic=True)
    program: LinearProgram = stated.program()
    solved = solve_mip(program, deterministic_time=_WORK_OF_REASON, seed=seed, hint=stated.nothing_placed())
    if solved is None or not solved.optimal or not solved.values @ program.costs:
        return "no flow that meets its minimums and maximums was found in the time of a round"
    flows, _ = ways.flow(stated.units(solved.values))
    met = {arc: int(flows[arc]) for arc in np.nonzero(graph.minimums)[0].tolist()}
    return shortage(graph, met, solved.values[stated.stranded].astype(np.int64))
