"""Candidates that are built in one go: greedy over the demands in some order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.methods.greedy import greedy
from flowcore.planning.methods.one_by_one import place_one_by_one
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit, placed_counts
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import MOST_REFILLS, WaitPrices, settled, wait_prices, waiting_demands

#: Parts that each demand is placed in by turns, so that nodes get a mix of all demands.
_PARTS = 4


def fill(problem: Problem) -> Candidate:
    """Each demand in the order of the queue takes the cheapest slots that there are."""
    return completed(problem, "fill", [], problem.start.copy())


def constrained_first(problem: Problem) -> Candidate:
    """Demands with constraints between pods go first; those that block domains for others block few."""
    order = sorted(problem.queue, key=lambda index: not problem.demands[index].constraints.constrained)

    def place(capacity: Plan, wait_prices: WaitPrices) -> list[Commit]:
        counts = ((index, problem.demands[index].count) for index in order)
        return greedy(problem.cost_matrix, counts, capacity, packed=True, wait_prices=wait_prices)

    return _placed(problem, "rules first", place)


def one_by_one(problem: Problem, order: Sequence[int]) -> Candidate:
    """One pod after the other, each on the node that is the cheapest at its turn.

    Args:
        order: demand of each pod.
    """

    def place(capacity: Plan, wait_prices: WaitPrices) -> list[Commit]:
        return place_one_by_one(problem.cost_matrix, order, capacity, wait_prices)

    return _placed(problem, "one by one", place)


def kube_scheduler_order(problem: Problem) -> list[int]:
    """Demand of each pending pod in kube-scheduler's order (plugins/queuesort): by priority, then by age."""
    places = {pod.key: place for place, pod in enumerate(problem.snapshot.pending)}
    entries = sorted(
        (-demand.group.pod_class.priority, pod.created, places[pod.key], index)
        for index, demand in enumerate(problem.demands)
        for pod in demand.group.pods
    )
    return [index for *_, index in entries]


def interleaved(problem: Problem) -> Candidate:
    """Demands take the cheapest slots by turns, some of their pods each time: nearly as one by one, but sooner."""
    counts = np.array([demand.count for demand in problem.demands], dtype=np.int64)

    def place(capacity: Plan, wait_prices: WaitPrices) -> list[Commit]:
        parts = in_parts(counts, problem.by_size[::-1])
        return greedy(problem.cost_matrix, parts, capacity, wait_prices=wait_prices)

    return _placed(problem, "by turns", place)


def in_parts(counts: Int64s, order: Sequence[int], parts: int = _PARTS) -> list[tuple[int, int]]:
    """Pods of each demand, int64[C], in some parts, the demands by turns in an order."""
    return [
        (demand, int(counts[demand]) * (turn + 1) // parts - int(counts[demand]) * turn // parts)
        for turn in range(parts)
        for demand in order
    ]


def completed(problem: Problem, method: str, commits: Sequence[Commit], capacity: Plan) -> Candidate:
    """A candidate of commits and of all other pods that fit beside them, in the order of the queue.

    Args:
        capacity: what the commits leave free; the further pods are placed into it.
    """
    nobody = np.zeros(len(problem.atomic_groups.all), dtype=np.bool_)
    return problem.candidate(method, *refilled(problem, problem.cost_matrix, commits, capacity, nobody))


def refilled(
    problem: Problem, cost_matrix: CostMatrix, commits: Sequence[Commit], capacity: Plan, admitted: Bools
) -> tuple[list[Commit], Plan]:
    """Commits and all other pods that fit beside them, in the order of the queue, and what these leave free.

    Args:
        cost_matrix: of the demands of the problem, some perhaps kept to fewer nodes.
        capacity: what the commits leave free; the further pods are placed into it.
        admitted: bool[U], groups that are placed.
    """
    filled = list(commits)
    for _ in range(MOST_REFILLS):
        placed = placed_counts(filled, len(problem.demands))
        missing, groups = problem.missing_pods(filled), problem.atomic_groups
        order = [
            *((demand, missing[demand]) for demand in problem.queue if missing[demand]),
            *(
                (demand, len(groups.placement_order(demand, admitted)) - placed[demand] - missing[demand])
                for demand in problem.queue
            ),
        ]
        waiting = wait_prices(problem, placed, admitted)
        filled += greedy(cost_matrix, order, capacity, wait_prices=waiting)
        # Pods that wait for cheaper nodes may have become too dear where they are, and leave room for others.
        kept = settled(problem, filled, capacity, admitted)
        if kept is None:
            break
        filled, capacity = kept
    return filled, capacity


@dataclass(frozen=True, slots=True, eq=False)
class FixedPart:
    """Pods with rules that a method does not know, fixed where a candidate has them: it decides the others beside.

    Attributes:
        decided: bool[C], the demands of the others.
    """

    commits: tuple[Commit, ...]
    capacity: Plan
    decided: Bools

    @classmethod
    def none(cls, problem: Problem) -> FixedPart:
        """Nothing fixed."""
        return cls((), problem.start, np.ones(len(problem.demands), dtype=np.bool_))

    @classmethod
    def of(cls, problem: Problem, candidate: Candidate, decided: Bools) -> FixedPart:
        """All but the demands bool[C] ``decided``; what depends on pods that are not fixed is left to ``completed``."""
        capacity, commits = problem.start.copy(), []
        for commit in candidate.commits:
            demand = problem.demands[commit.demand]
            placed = 0 if decided[commit.demand] else capacity.place(demand, commit.node, commit.count)
            if placed:
                commits.append(Commit(commit.demand, commit.node, placed))
        return cls(tuple(commits), capacity, decided)


def by_price(demands: Sequence[Demand], unplaced: Sequence[int]) -> list[int]:
    """Demand of each unplaced pod, the highest price first; among equals large pods first: they need first choice."""
    entries = [
        (-int(price), -demand.dominant_share, index)
        for index, (demand, count) in enumerate(zip(demands, unplaced, strict=True))
        for price in demand.prices_of_last(count)
    ]
    return [index for *_, index in sorted(entries)]


def _placed(problem: Problem, method: str, place: Callable[[Plan, WaitPrices], list[Commit]]) -> Candidate:
    capacity = problem.start.copy()
    nobody = np.zeros(len(problem.atomic_groups.all), dtype=np.bool_)
    commits = place(capacity, wait_prices(problem, [0] * len(problem.demands), nobody))
    if waiting_demands(problem):
        return completed(problem, method, commits, capacity)
    return problem.candidate(method, commits, capacity)
