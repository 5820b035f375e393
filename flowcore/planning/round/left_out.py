"""How many pods of some demands there are, and how many of them a plan leaves out."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.planning.problem.candidate import Candidate
from flowcore.planning.problem.objective import unplaced_counts
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import lacking


def pods_of(problem: Problem, demands: Bools) -> int:
    """Pods of these demands, bool[C]."""
    return sum(problem.demands[at].count for at in np.nonzero(demands)[0].tolist())


def hopeless_of(problem: Problem, demands: Bools) -> int:
    """Pods of these demands, bool[C], that the limits of their own group keep out of every plan."""
    return sum(
        max(0, demand.count - demand.constraints.max_placeable(demand.counts))
        for demand, mine in zip(problem.demands, demands, strict=True)
        if mine and demand.constraints.limits
    )


def unplaced_of(problem: Problem, candidate: Candidate, demands: Bools) -> int:
    """Pods of these demands, bool[C], that a plan should place, and a candidate does not."""
    unplaced = unplaced_counts(candidate.commits, problem.demands)
    return sum(lacking(problem, at, problem.demands[at].count - unplaced[at]) for at in np.nonzero(demands)[0].tolist())
