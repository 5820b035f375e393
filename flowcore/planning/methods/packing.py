"""A plan of the most pods, whatever they cost on their nodes: an integer program over demands and nodes (CP-SAT).

Leaving a pod pending costs far more than any node, so capacity decides first where it is short. Without the costs of
nodes the program is much easier: most instances of some hundred pairs are solved to the optimum in a tenth of a second.
Its answer is a proposal like any other; other methods then lower what the nodes cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.constructive import FixedPart, completed
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit, pods_by_node
from flowcore.planning.problem.problem import Problem
from flowcore.planning.solvers import LinearProgram, solve_mip

#: Pairs of a demand and a node that fit: with more CP-SAT seldom finds a better plan in time.
_MOST_PAIRS = 1_500
#: The highest value of a pod.
_COARSE = 16
#: Where prices lie further apart: binary digits of a value, and how many times as high the highest value is at most.
_BITS, _WIDEST = 3, 2.0**24


@dataclass(frozen=True, slots=True)
class Packing:
    """A candidate that leaves less pending, None: none was found; and whether the solver says that none leaves less."""

    candidate: Candidate | None
    proven: bool


def packable(problem: Problem) -> Bools:
    """bool[C]: demands whose pods only take resources of their nodes."""
    return np.array([demand.takes_resources_only for demand in problem.demands], dtype=np.bool_)


def worth_packing(problem: Problem, demands: Bools) -> bool:
    """Whether the program is small enough.

    Args:
        demands: bool[C], those that it decides.
    """
    pairs = [int(np.count_nonzero(problem.demands[index].counts)) for index in np.nonzero(demands)[0].tolist()]
    return sum(pairs) <= _MOST_PAIRS


def pack(problem: Problem, known: Candidate, decided: Bools, *, work: float, seed: int) -> Packing:
    """Looks for a candidate that leaves less pending than a known one.

    Args:
        decided: bool[C], packable demands; the others stay where they are.
        work: CP-SAT's deterministic time.
    """
    fixed = FixedPart.of(problem, known, decided)
    classes = np.nonzero(decided)[0]
    demands = [problem.demands[index] for index in classes.tolist()]
    most = np.array([fixed.capacity.fit_counts(demand) for demand in demands])
    program, demand_of, node = packing_program(
        requests=np.array([demand.requests for demand in demands], dtype=np.int64),
        free=fixed.capacity.free,
        most=most,
        counts=np.array([demand.count for demand in demands], dtype=np.int64),
        least=np.array([problem.must_place[index] for index in classes.tolist()], dtype=np.int64),
        values=coarse_values(np.array([demand.prices.mean() for demand in demands])),
    )
    placed = pods_by_node(known.commits)
    hint = np.array(
        [
            placed.get(demand, {}).get(where, 0)
            for demand, where in zip(classes[demand_of].tolist(), node.tolist(), strict=True)
        ],
        dtype=np.float64,
    )
    solution = solve_mip(program, deterministic_time=work, seed=seed, hint=hint)
    if solution is None or program.costs @ solution.values >= program.costs @ hint:
        return Packing(None, proven=solution is not None and solution.optimal)
    pods = solution.values.astype(np.int64)
    capacity, used = fixed.capacity.copy(), pods > 0
    arcs = classes[demand_of[used]], node[used], pods[used]
    fits = capacity.place_all(problem.demands, *arcs)
    commits = [
        Commit(*arc)
        for arc, took in zip(zip(*(each.tolist() for each in arcs), strict=True), fits, strict=True)
        if took
    ]
    candidate = completed(problem, "packing", [*fixed.commits, *commits], capacity)
    return Packing(candidate, proven=solution.optimal)


def coarse_values(prices: Float64s) -> Int64s:
    """Prices in about the same proportions as small whole numbers: the fewer distinct ones, the easier a program is.

    Where some are many times as high as others, as those of levels are, each is rounded by itself.
    """
    highest = max(float(prices.max(initial=0.0)), 1.0)
    values = np.maximum(prices, 1.0) / max(float(prices.min(initial=highest)), highest / _WIDEST)
    if values.max(initial=1.0) <= _COARSE:
        coarse: Int64s = np.maximum(np.rint(prices / highest * _COARSE), 1).astype(np.int64)
        return coarse
    unit = np.exp2(np.maximum(np.floor(np.log2(np.maximum(values, 1.0))) - _BITS, 0))
    rounded: Int64s = np.maximum(np.rint(values / unit) * unit, 1).astype(np.int64)
    return rounded


def packing_program(
    *, requests: Int64s, free: Int64s, most: Int64s, counts: Int64s, least: Int64s, values: Int64s
) -> tuple[LinearProgram, Int64s, Int64s]:
    """The program, and int64[V] demand and node of each of its columns.

    Args:
        requests: int64[C, R], what a pod of each demand asks for.
        free: int64[N, R], what each node has.
        most: int64[C, N], pods of each demand that each node takes.
        counts, least: int64[C], how many pods there are, and how many must be placed.
        values: int64[C], what placing a pod is worth.
    """
    demand, node = np.nonzero(most)
    # In units that divide all requests the numbers are small, and the same plans fit.
    units = np.maximum(np.gcd.reduce(requests, axis=0, initial=0), 1)
    requests, free = requests // units, np.maximum(free, 0) // units
    pair, resource = np.nonzero(requests[demand] > 0)
    columns = np.arange(len(demand))
    return (
        LinearProgram(
            costs=-values[demand].astype(np.float64),
            variable_upper=np.minimum(most[demand, node], counts[demand]).astype(np.float64),
            row_lower=np.concatenate([np.where(least > 0, least, -np.inf), np.full(free.size, -np.inf)]),
            row_upper=np.concatenate([counts, free.ravel()]).astype(np.float64),
            rows=np.concatenate([demand, len(counts) + node[pair] * free.shape[1] + resource]),
            columns=np.concatenate([columns, pair]),
            coefficients=np.concatenate([np.ones(len(demand)), requests[demand[pair], resource]]),
        ),
        demand,
        node,
    )
