"""Candidates that do not depend on each other are built side by side, each as a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.problem.candidate import Candidate
from flowcore.planning.problem.commits import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import replay
from flowcore.planning.solvers import Executor


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate of which the cost is known.

    Attributes:
        cost: of the candidate.
        candidate: makes it. If it was built by another process, its commits are placed again.
    """

    cost: int
    candidate: Callable[[], Candidate]


def built_side_by_side(
    problem: Problem, builders: Sequence[Callable[[], Candidate]], executor: Executor
) -> Iterator[Proposal]:
    """What the builders build, in their order.

    Args:
        builders: each builds a candidate of the problem, in which no group is admitted.
    """
    #: The candidate that was built last in this process.
    made: dict[int, Candidate] = {}

    def run(number: int) -> tuple[str, int, Int64s]:
        """Method, cost, and int64[M, 3] demand, node and count of each commit."""
        made.clear()
        made[number] = candidate = builders[number]()
        commits = [(commit.demand, commit.node, commit.count) for commit in candidate.commits]
        return candidate.method, candidate.cost, np.array(commits, dtype=np.int64).reshape(-1, 3)

    def make(number: int, method: str, commits: Int64s) -> Candidate:
        if number in made:
            return made[number]
        found, capacity = replay(problem, [Commit(*row) for row in commits.tolist()])
        return problem.candidate(method, found, capacity)

    tasks = executor.start(run)
    try:
        for number in range(len(builders)):
            tasks.put(number)
        for number in range(len(builders)):
            method, cost, commits = tasks.take()
            yield Proposal(cost, partial(make, number, method, commits))
    finally:
        tasks.close()
