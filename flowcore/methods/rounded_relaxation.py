"""Candidates from the linear program: as many pods of each demand as it places, in the order of their shadow costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from flowcore.cluster.snapshot import Int64s
from flowcore.methods.constructive import FixedPart, completed
from flowcore.methods.greedy import greedy
from flowcore.methods.relaxation import RelaxedSolution, min_shadow_costs
from flowcore.problem.candidate import Candidate
from flowcore.problem.commits import Commit
from flowcore.problem.problem import Problem
from flowcore.problem.waiting import replay
from flowcore.solve import Executor

#: Parts that each demand is placed in, by turns: with many parts each node gets a mix of all demands, with few the
#: demands with high shadow costs come first.
_PARTS = (4, 16)
_METHOD = "shares"


@dataclass(frozen=True, slots=True)
class _Rounding:
    """One way to round: number of parts, whether to begin with all pods, and whether shadow prices count."""

    parts: int
    everyone: bool
    priced: bool


_ROUNDINGS = tuple(
    _Rounding(parts, everyone, priced) for parts in _PARTS for everyone in (False, True) for priced in (False, True)
)


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
    """Candidates that differ in the number of parts, in the pods to begin with, and in whether shadow prices count.

    Args:
        executor: runs the ways to round.
    """
    demands = problem.demands
    shadow_costs = min_shadow_costs(problem.cost_matrix, relaxed.shadow_prices)
    order = sorted(range(len(demands)), key=lambda at: (-shadow_costs[at], -demands[at].dominant_share, at))
    everyone = np.array([0 if demand.constraints.sequential else demand.count for demand in demands], dtype=np.int64)
    chosen = np.minimum(np.floor(relaxed.placed + 1e-6).astype(np.int64), everyone)
    #: Candidates that were made in this process.
    made: dict[_Rounding, Candidate] = {}

    def run(rounding: _Rounding) -> tuple[int, Int64s]:
        """Cost, and int64[M, 3] demand, node and count of each commit."""
        capacity = fixed.capacity.copy()
        counts = _in_parts(everyone if rounding.everyone else chosen, order, rounding.parts)
        placed = greedy(problem.cost_matrix, counts, capacity, relaxed.shadow_prices if rounding.priced else None)
        made[rounding] = candidate = completed(problem, _METHOD, [*fixed.commits, *placed], capacity)
        commits = [(commit.demand, commit.node, commit.count) for commit in candidate.commits]
        return candidate.cost, np.array(commits, dtype=np.int64).reshape(-1, 3)

    def make(rounding: _Rounding, commits: Int64s) -> Candidate:
        if rounding in made:
            return made[rounding]
        found, capacity = replay(problem, [Commit(*row) for row in commits.tolist()])
        return problem.candidate(_METHOD, found, capacity)

    tasks = executor.start(run)
    for rounding in _ROUNDINGS:
        tasks.put(rounding)
    try:
        for rounding in _ROUNDINGS:
            cost, commits = tasks.take()
            yield Rounded(cost, partial(make, rounding, commits))
            made.clear()
    finally:
        tasks.close()


def _in_parts(counts: Int64s, order: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """Each demand's pods in so many parts, the demands by turns."""
    return [
        (at, int(counts[at]) * (part + 1) // parts - int(counts[at]) * part // parts)
        for part in range(parts)
        for at in order
    ]
