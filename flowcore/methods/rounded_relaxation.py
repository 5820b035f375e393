"""Candidates from the linear program: as many pods of each demand as it places, in the order of their shadow costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from flowcore.cluster.snapshot import Int64s
from flowcore.methods.constructive import FixedPart, completed, in_parts
from flowcore.methods.greedy import greedy
from flowcore.methods.relaxation import RelaxedSolution, min_shadow_costs
from flowcore.problem.candidate import Candidate
from flowcore.problem.commits import Commit
from flowcore.problem.problem import Problem
from flowcore.problem.waiting import replay
from flowcore.solve import Executor

#: Parts that each demand is placed in, by turns, so that nodes get a mix of all demands.
_PARTS = 4
#: Ways to round: whether shadow prices count as a part of what nodes cost.
_PRICED = (True, False)
_METHOD = "shares"


@dataclass(frozen=True, slots=True)
class Rounded:
    """A candidate that is made only if its cost is of interest.

    Attributes:
        cost: of the candidate.
        candidate: makes it.
    """

    cost: int
    candidate: Callable[[], Candidate]


def rounded_candidates(
    problem: Problem, relaxed: RelaxedSolution, fixed: FixedPart, executor: Executor
) -> Iterator[Rounded]:
    """Two candidates: with shadow prices as a part of what nodes cost, and without.

    Args:
        executor: runs the ways to round.
    """
    demands = problem.demands
    shadow_costs = min_shadow_costs(problem.cost_matrix, relaxed.shadow_prices)
    order = sorted(range(len(demands)), key=lambda at: (-shadow_costs[at], -demands[at].dominant_share, at))
    everyone = np.array([0 if demand.constraints.sequential else demand.count for demand in demands], dtype=np.int64)
    counts = in_parts(np.minimum(np.floor(relaxed.placed + 1e-6).astype(np.int64), everyone), order, _PARTS)
    #: Candidates that were made in this process.
    made: dict[bool, Candidate] = {}

    def run(priced: bool) -> tuple[int, Int64s]:  # noqa: FBT001
        """Cost, and int64[M, 3] demand, node and count of each commit."""
        capacity = fixed.capacity.copy()
        placed = greedy(problem.cost_matrix, counts, capacity, relaxed.shadow_prices if priced else None)
        made[priced] = candidate = completed(problem, _METHOD, [*fixed.commits, *placed], capacity)
        commits = [(commit.demand, commit.node, commit.count) for commit in candidate.commits]
        return candidate.cost, np.array(commits, dtype=np.int64).reshape(-1, 3)

    def make(priced: bool, commits: Int64s) -> Candidate:  # noqa: FBT001
        if priced in made:
            return made[priced]
        found, capacity = replay(problem, [Commit(*row) for row in commits.tolist()])
        return problem.candidate(_METHOD, found, capacity)

    tasks = executor.start(run)
    for priced in _PRICED:
        tasks.put(priced)
    try:
        for priced in _PRICED:
            cost, commits = tasks.take()
            yield Rounded(cost, partial(make, priced, commits))
            made.clear()
    finally:
        tasks.close()
