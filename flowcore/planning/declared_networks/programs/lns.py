"""A flow of whole numbers, made better part by part: what ends at some nodes is decided again, all else stays.

Large neighbourhood search (Shaw 1998). The flow in fractions shares nodes among many pods, so of its whole part pods
that need most of a node are left out. Here some nodes that take such pods are decided anew, for these and for what is
there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.declared_networks.programs.statement import Statement
from flowcore.planning.declared_networks.programs.ways import Ways
from flowcore.planning.declared_networks.programs.whole_part import whole_part
from flowcore.planning.declared_networks.programs.work import Work
from flowcore.planning.declared_networks.solution import NetworkSolution
from flowcore.planning.solvers import solve_mip

#: Neighbourhoods that are tried, those in a row that may bring nothing; nodes of one, and arcs that lack
#: something.
_MOST, _PATIENCE, _NODES, _ARCS = 24, 5, 30, 10
#: A flow that costs at most so much more than the bound, as a part of it, is left as it is.
_CLOSE = 0.02
#: A gain below this part of the cost is none.
_GAIN = 1e-4
#: CP-SAT's deterministic time for one: roughly seconds.
_WORK = 0.3
#: What one counts for, as columns of a linear program.
_COLUMNS = 5_000


def improve(ways: Ways, free: Int64s, units: Int64s, bound: int, seed: int, work: Work) -> Int64s:
    """int64[E]: a flow that lacks less, or costs no more and has more pods on nodes.

    Args:
        free: int64[N, R], what is free on each node.
        units: int64[E], a flow, whatever it lacks.
        bound: what no flow costs less than; one that costs little more is left as it is.
    """
    random, fruitless = np.random.default_rng(seed), 0
    for number in range(_MOST):
        waiting, opened = _waiting(ways, units), np.zeros(len(free), dtype=np.bool_)
        short = short_arcs(ways, units)
        if work.is_done or fruitless == _PATIENCE or (not len(short) and _cost(ways, units) <= bound * (1.0 + _CLOSE)):
            break
        for arc in random.permutation(short)[:_ARCS].tolist():
            opened[nodes_behind(ways, arc)] = True
        # Nodes for those that wait, or any that have pods.
        arriving = ways.nodes >= 0
        if waiting.any():
            arriving &= ways.supplies == random.choice(len(waiting), p=waiting / waiting.sum())
        else:
            arriving &= units > 0
        opened[random.permutation(np.unique(ways.nodes[arriving]))[:_NODES]] = True
        coming = np.ones_like(waiting, dtype=np.bool_) if len(short) else waiting > 0
        work.program(len(ways), _COLUMNS)
        better = decide(ways, free, units, opened, coming, seed + number)
        fruitless = 0 if better is not None else fruitless + 1
        units = units if better is None else better
    return units


def _cost(ways: Ways, units: Int64s) -> int:
    flows, placed = ways.flow(units)
    return NetworkSolution(ways.graph, flows, placed, 0).cost


def short_arcs(ways: Ways, units: Int64s) -> Int64s:
    """The arcs that get less than their minimum."""
    flows, _ = ways.flow(units)
    return np.nonzero(flows < ways.graph.minimums)[0]


def lacks_something(ways: Ways, units: Int64s) -> bool:
    """Whether an arc gets less than its minimum, or pods go nowhere."""
    gone = np.zeros(len(ways.ends), dtype=np.int64)
    np.add.at(gone, ways.tails, units)
    counts = [supply.count for supply in ways.graph.supplies]
    return bool(len(short_arcs(ways, units)) or (gone[ways.starts] != counts).any())


def nodes_behind(ways: Ways, arc: int) -> list[int]:
    """The nodes that an arc leads to, if they are few; else none."""
    graph, behind = ways.graph, set[int]()
    vertices = {int(graph.heads[arc])}
    seen = set(vertices)
    while vertices and len(behind) <= _NODES:
        vertex = vertices.pop()
        if graph.nodes[vertex] >= 0:
            behind.add(int(graph.nodes[vertex]))
        onward = {int(graph.heads[way]) for way in graph.out_arcs[vertex]} - seen
        seen |= onward
        vertices |= onward
    return sorted(behind) if len(behind) <= _NODES else []


def lack_price(ways: Ways) -> float:
    """What each unit that is lacking costs while a flow is sought: more than any pod is worth and any way costs."""
    dearest = float(ways.dearest(np.where(ways.leaves, 0, ways.graph.costs[ways.arcs]))[ways.starts].max(initial=0.0))
    return 10.0 * (max(float(supply.prices.max(initial=1)) for supply in ways.graph.supplies) + dearest)


def _waiting(ways: Ways, units: Int64s) -> Int64s:
    """int64[C]: how many of each of the pods have no node."""
    counts = np.array([supply.count for supply in ways.graph.supplies], dtype=np.int64)
    arriving = ways.nodes >= 0
    np.subtract.at(counts, ways.supplies[arriving], units[arriving])
    return counts


def decide(ways: Ways, free: Int64s, units: Int64s, nodes: Bools, waiting: Bools, seed: int) -> Int64s | None:
    """int64[E]: a cheaper flow that differs at some nodes; None: none was found.

    Args:
        nodes: bool[N], those that are decided again.
        waiting: bool[C], pods that may come there, beside those that are there.
    """
    everything = np.arange(len(ways))
    kept = whole_part(ways, everything, units.astype(np.float64), nodes=~nodes).astype(np.int64)
    coming = waiting.copy()
    coming[ways.supplies[units > kept]] = True
    chosen = np.nonzero((units > 0) | _leading_to(ways, nodes, coming))[0]
    stated = Statement(ways, free, chosen, lack_price=lack_price(ways))
    program = stated.program()
    before = np.zeros(len(program.costs))
    before[: len(chosen)] = kept[chosen]
    known = stated.values(units)
    used = np.zeros(len(program.row_lower))
    np.add.at(used, program.rows, program.coefficients * before[program.columns])
    rest = replace(
        program,
        variable_upper=program.variable_upper - before,
        row_lower=program.row_lower - used,
        row_upper=program.row_upper - used,
    )
    solved = solve_mip(rest, deterministic_time=_WORK, seed=seed, hint=known - before)
    cost = float(program.costs @ known)
    if solved is None or float(program.costs @ (before + solved.values)) >= cost - max(0.5, _GAIN * cost):
        return None
    return stated.units(before + solved.values)


def _leading_to(ways: Ways, nodes: Bools, coming: Bools) -> Bools:
    """bool[E]: ways on paths of these pods to some nodes or to UNSCHEDULED."""
    wanted = coming[ways.supplies] & ways.ends[ways.heads] & ((ways.nodes < 0) | nodes[ways.nodes])
    reached = np.zeros(len(ways.ends), dtype=np.bool_)
    reached[ways.tails[wanted]] = True
    for level in ways.levels:
        taken = slice(level.first, level.end)
        wanted[taken] |= reached[ways.heads[taken]] & coming[ways.supplies[taken]]
        reached[ways.tails[taken][wanted[taken]]] = True
    return wanted
