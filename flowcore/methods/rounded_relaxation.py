"""Candidates from the linear program: as many pods of each demand as it places, in the order of their shadow costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from flowcore.cluster.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.methods.constructive import FixedPart, completed
from flowcore.methods.greedy import greedy
from flowcore.methods.relaxation import RelaxedSolution, min_shadow_costs
from flowcore.problem.candidate import Candidate
from flowcore.problem.problem import Problem

#: Parts that each demand is placed in, by turns: with many parts each node gets a mix of all demands, with few the
#: demands with high shadow costs come first.
_PARTS = (4, 16)


def roundings(problem: Problem, relaxed: RelaxedSolution, fixed: FixedPart) -> list[Callable[[], Candidate]]:
    """Ways to round that differ in the number of parts, in the pods to begin with, and in whether shadow prices count.

    Each builds a candidate; none changes anything for the others.
    """
    demands = problem.demands
    shadow_costs = min_shadow_costs(problem.cost_matrix, relaxed.shadow_prices)
    order = sorted(range(len(demands)), key=lambda at: (-shadow_costs[at], -demands[at].dominant_share, at))
    everyone = np.array([0 if demand.constraints.sequential else demand.count for demand in demands], dtype=np.int64)
    chosen = np.minimum(np.floor(relaxed.placed + 1e-6).astype(np.int64), everyone)

    def build(parts: int, counts: Int64s, shadow_prices: Float64s | None) -> Candidate:
        capacity = fixed.capacity.copy()
        placed = greedy(problem.cost_matrix, _in_parts(counts, order, parts), capacity, shadow_prices)
        return completed(problem, "shares", [*fixed.commits, *placed], capacity)

    return [
        partial(build, parts, counts, shadow_prices)
        for parts in _PARTS
        for counts in (chosen, everyone)
        for shadow_prices in (None, relaxed.shadow_prices)
    ]


def _in_parts(counts: Int64s, order: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """Each demand's pods in so many parts, the demands by turns."""
    return [
        (at, int(counts[at]) * (part + 1) // parts - int(counts[at]) * part // parts)
        for part in range(parts)
        for at in order
    ]
