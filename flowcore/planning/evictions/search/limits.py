"""How many of the pods that may leave do so at most in any plan, as rows that a lower bound counts.

PodDisruptionBudgets, moves of a policy in a round, and what a queue has beyond its fair share. A pod is in one row at
most; other limits are left out, which makes a bound weaker and never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, PendingPod
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.evictions.search.reclaims import ReclaimEligibility
from flowcore.planning.problem.bounds.leaving_limits import LeavingLimit
from flowcore.planning.problem.placements.residents import Residents


def limits_of_leaving(
    residents: Residents,
    limited: Bools,
    only_reclaimed: Bools,
    only_moved: Bools,
    moves: Movers,
    reclaims: ReclaimEligibility | None,
    comers: Iterable[PendingPod],
) -> list[LeavingLimit]:
    """The rows, pods by their number among the residents.

    Args:
        limited: bool[V], residents that leave within PodDisruptionBudgets only.
        only_reclaimed: bool[V], those of them that leave for the share of a queue only.
        only_moved: bool[V], those of them that are moved only.
        comers: all pods that may come in the round.
    """
    rows = _of_budgets(residents, limited)
    open_ones = limited.copy()
    for row in rows:
        open_ones[row.pods] = False
    if reclaims is not None:
        rows += reclaims.limits(only_reclaimed & open_ones, comers)
    by_policy: dict[str, list[int]] = {}
    for number in np.nonzero(only_moved & open_ones)[0].tolist():
        by_policy.setdefault(residents.pods[number].policy, []).append(number)
    rows += [LeavingLimit.of_count(np.array(of), moves.most_moves(policy)) for policy, of in by_policy.items()]
    return [row for row in rows if not row.is_idle]


def _of_budgets(residents: Residents, limited: Bools) -> list[LeavingLimit]:
    """A row for each PodDisruptionBudget; a pod with several counts for the one that allows least."""
    budgets = residents.running.budgets
    by_budget: dict[str, list[int]] = {}
    for number in np.nonzero(limited)[0].tolist():
        names = residents.pods[number].budgets
        if names:
            tightest = min(names, key=lambda name: (budgets.get(name, 0), name))
            by_budget.setdefault(tightest, []).append(number)
    rows = [LeavingLimit.of_count(np.array(of), budgets.get(name, 0)) for name, of in by_budget.items()]
    return [row for row in rows if not row.is_idle]


def renumbered(rows: Iterable[LeavingLimit], chosen: Bools) -> tuple[LeavingLimit, ...]:
    """The rows with pods by their place among those that are chosen.

    Args:
        chosen: bool[V]; all pods of the rows are among them.
    """
    places = np.cumsum(chosen) - 1
    return tuple(replace(row, pods=places[row.pods]) for row in rows)
