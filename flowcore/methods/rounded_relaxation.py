"""Candidates from the linear program: as many pods of each demand as it places, in the order of their shadow costs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowcore.methods.constructive import FixedPart, completed, in_parts
from flowcore.methods.greedy import greedy
from flowcore.methods.relaxation import RelaxedSolution, min_shadow_costs
from flowcore.problem.candidate import Candidate
from flowcore.problem.problem import Problem

#: Parts that each demand is placed in, by turns, so that nodes get a mix of all demands.
_PARTS = 4


def rounded_candidates(problem: Problem, relaxed: RelaxedSolution, fixed: FixedPart) -> Iterator[Candidate]:
    """Two candidates: with shadow prices as a part of what nodes cost, and without."""
    demands = problem.demands
    shadow_costs = min_shadow_costs(problem.cost_matrix, relaxed.shadow_prices)
    order = sorted(range(len(demands)), key=lambda at: (-shadow_costs[at], -demands[at].dominant_share, at))
    everyone = np.array([0 if demand.constraints.sequential else demand.count for demand in demands], dtype=np.int64)
    parts = in_parts(np.minimum(np.floor(relaxed.placed + 1e-6).astype(np.int64), everyone), order, _PARTS)
    for shadow_prices in (relaxed.shadow_prices, None):
        capacity = fixed.capacity.copy()
        placed = greedy(problem.cost_matrix, parts, capacity, shadow_prices)
        yield completed(problem, "shares", [*fixed.commits, *placed], capacity)
