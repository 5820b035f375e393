"""Candidates from the relaxed problem: of each demand as many pods as it places, in the order of their shadow costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.constructive import FixedPart, completed, in_parts
from flowcore.planning.methods.greedy import greedy
from flowcore.planning.methods.relaxation import RelaxedSolution, min_shadow_costs
from flowcore.planning.problem.objective import unplaced_counts
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem

#: Parts that a first plan places demands in by turns where room is short.
_PARTS = 2


def shares_first(problem: Problem, relaxed: RelaxedSolution) -> Candidate:
    """A first plan: the share of each demand in about the time of ``fill``, and then all other pods that fit.

    Pods with rules have their share too, since no plan has placed them yet. Where room is short demands come by turns.
    """
    everyone = [demand.count for demand in problem.demands]
    order, chosen = _order_and_shares(problem, relaxed, np.array(everyone, dtype=np.int64))
    parts = _PARTS if int(chosen.sum()) < sum(everyone) else 1
    capacity = problem.start.copy()
    placed = greedy(problem.cost_matrix, in_parts(chosen, order, parts), capacity, relaxed.shadow_prices)
    placed += _rest(problem, relaxed, order, placed, capacity)
    return completed(problem, "shares", placed, capacity)


def _rest(
    problem: Problem, relaxed: RelaxedSolution, order: Sequence[int], placed: Sequence[Commit], capacity: Plan
) -> list[Commit]:
    """Commits of what fits beside the shares: pods that must be placed, then those whose room costs others least."""
    missing = problem.missing_pods(placed)
    unplaced = unplaced_counts(placed, problem.demands)
    turns = [(index, missing[index]) for index in order]
    others = [index for index in reversed(order) if not problem.demands[index].waits]
    turns += [(index, unplaced[index] - missing[index]) for index in others]
    return greedy(problem.cost_matrix, turns, capacity, relaxed.shadow_prices)


def roundings(problem: Problem, relaxed: RelaxedSolution, fixed: FixedPart) -> list[Callable[[], Candidate]]:
    """Two ways to round: with shadow prices as a part of what nodes cost, and without.

    Each builds a candidate; none changes anything for the others.
    """
    counts = np.array([demand.count for demand in problem.demands], dtype=np.int64)
    order, chosen = _order_and_shares(problem, relaxed, np.where(fixed.decided, counts, 0))

    def build(shadow_prices: Float64s | None) -> Candidate:
        capacity = fixed.capacity.copy()
        placed = greedy(problem.cost_matrix, in_parts(chosen, order), capacity, shadow_prices)
        return completed(problem, "shares", [*fixed.commits, *placed], capacity)

    return [partial(build, shadow_prices) for shadow_prices in (relaxed.shadow_prices, None)]


def _order_and_shares(problem: Problem, relaxed: RelaxedSolution, most: Int64s) -> tuple[list[int], Int64s]:
    """Demands by what their room costs others, the dearest first; and int64[C], how many pods of each are placed.

    Args:
        most: int64[C], of each at most.
    """
    demands = problem.demands
    shadow_costs = min_shadow_costs(problem.cost_matrix, relaxed.shadow_prices)
    order = sorted(range(len(demands)), key=lambda index: (-shadow_costs[index], -demands[index].dominant_share, index))
    return order, np.minimum(_shares(problem, relaxed, shadow_costs), most)


def _shares(problem: Problem, relaxed: RelaxedSolution, shadow_costs: Sequence[float]) -> Int64s:
    """int64[C]: how many pods of each demand are placed; of merged demands those worth most beyond what they pay.

    To the nearest whole number: rounded down, hundreds of demands would leave half a pod of room each.
    """
    counts = np.zeros(len(problem.demands), dtype=np.int64)
    for members, placed in zip(relaxed.members, np.rint(relaxed.placed).astype(np.int64), strict=True):
        worth = [problem.demands[index].prices - shadow_costs[index] for index in members]
        of = np.repeat(members, [len(each) for each in worth])
        first = np.argsort(-np.concatenate(worth), kind="stable")[:placed]
        np.add.at(counts, of[first], 1)
    return counts
