"""A bound for plans in which pods on nodes leave or move: the best that any known prices give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.planning.methods.relaxation import RelaxedSolution, relax
from flowcore.planning.problem.bounds.bounds import lower_bound
from flowcore.planning.problem.bounds.resident_room import ResidentRoom, demands_beside
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem


def bound_beside(problem: Problem, before: Snapshot, *, is_short: bool) -> int:
    """A cost that no plan of a problem goes below, wherever the pods are that were decided before it.

    Args:
        before: the cluster without those.
        is_short: whether pods of the problem wait.
    """
    nobody, start = np.zeros(0, dtype=np.int64), Plan(before)
    usage = np.zeros((0, start.free.shape[1]), dtype=np.int64)
    room = ResidentRoom(nobody, usage, nobody, nobody, start, start, others_come=True)
    return resident_bound(problem, room, is_short=is_short)


def resident_bound(
    problem: Problem, room: ResidentRoom, relaxed: Sequence[RelaxedSolution] = (), *, is_short: bool = True
) -> int:
    """A cost that no plan of a problem goes below, whoever of these pods leaves or moves.

    Args:
        relaxed: the round in fractions without evictions; its prices hold here too.
        is_short: whether pods wait although others leave: then the round in fractions is solved without these.
    """
    demands, groups = demands_beside(problem, room), problem.atomic_groups.certain
    if not demands:
        return 0  # no pods, no cost
    gone, best = room.gone, 0
    emptied = CostMatrix(demands, room.emptied)
    solution = relax(emptied) if is_short else None
    for prices in [None] if solution is None else [None, solution.shadow_prices]:
        best = max(best, lower_bound(emptied, shadow_prices=prices, atomic_groups=groups, residents=gone))
    if room.limits or bool((room.leave_prices > 0).any()):
        present = CostMatrix(demands, room.before)
        known = [*relaxed] if solution is None else [*relaxed, solution]
        if is_short and room.expected is not None and (likely := relax(CostMatrix(demands, room.expected))) is not None:
            known.append(likely)
        for solved in known:
            prices = solved.shadow_prices
            best = max(best, lower_bound(present, shadow_prices=prices, atomic_groups=groups, residents=room))
    return best
