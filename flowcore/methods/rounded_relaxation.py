"""Candidates from the round in fractions: as many pods of each demand as it places, in order of their shadow costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.methods.constructive import FixedPart, completed, in_parts
from flowcore.methods.greedy import greedy
from flowcore.methods.relaxation import RelaxedSolution, min_shadow_costs
from flowcore.problem.candidate import Candidate
from flowcore.problem.problem import Problem


def roundings(problem: Problem, relaxed: RelaxedSolution, fixed: FixedPart) -> list[Callable[[], Candidate]]:
    """Two ways to round: with shadow prices as a part of what nodes cost, and without.

    Each builds a candidate; none changes anything for the others.
    """
    demands = problem.demands
    shadow_costs = min_shadow_costs(problem.cost_matrix, relaxed.shadow_prices)
    order = sorted(range(len(demands)), key=lambda at: (-shadow_costs[at], -demands[at].dominant_share, at))
    everyone = np.array([0 if demand.constraints.sequential else demand.count for demand in demands], dtype=np.int64)
    chosen = np.minimum(np.floor(relaxed.placed + 1e-6).astype(np.int64), everyone)

    def build(shadow_prices: Float64s | None) -> Candidate:
        capacity = fixed.capacity.copy()
        placed = greedy(problem.cost_matrix, in_parts(chosen, order), capacity, shadow_prices)
        return completed(problem, "shares", [*fixed.commits, *placed], capacity)

    return [partial(build, shadow_prices) for shadow_prices in (relaxed.shadow_prices, None)]
