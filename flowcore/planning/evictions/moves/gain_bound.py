"""What moves for gain save at most in any plan, for lower bounds: each pod by itself, within budgets and limits.

The node that a pod leaves is as full then as any plan makes it, the node that it comes to as empty. What pods prefer
among each other, and arcs that depend on the load, are the dearest there and the cheapest here that they can be.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs.arcs import MOST_WRITTEN, machine_costs
from flowcore.costs.model import BoundedArcs, Float64s, Load
from flowcore.costs.pod_costs import PodCosts
from flowcore.costs.potential import NodePotential
from flowcore.costs.scale import OMEGA
from flowcore.model.cost_policy import Preferences
from flowcore.model.resources import PODS
from flowcore.planning.evictions.moves.move_prices import leaving_prices
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.evictions.moves.running_costs import MovableKind
from flowcore.planning.evictions.search.limits import limits_of_leaving, renumbered
from flowcore.planning.problem.bounds.resident_room import fullest
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import Residents
from flowcore.planning.problem.problem import Problem
from flowcore.rules.filters import taint_toleration
from flowcore.rules.topology.soft_affinity import affinity_weights

#: No arc of a model that does not say so costs more.
_DEAREST = 2**40
#: A pod pays at most so much more or less for being rounded: a half for each of two potentials.
_ROUNDING = 1.0


def most_gained(
    problem: Problem, residents: Residents, movers: Movers, kinds: Sequence[MovableKind], emptied: Snapshot
) -> int:
    """What all moves for gain of a plan gain at most beyond their prices.

    Args:
        kinds: of the residents that may move.
        emptied: no node is emptier in any plan.
    """
    before = problem.snapshot
    saved = np.zeros(len(residents.pods), dtype=np.int64)
    least, most = Load.of(emptied), fullest(Plan(before))
    changes: dict[NodePotential, tuple[Float64s, Float64s]] = {}
    for kind in kinds:
        costs = kind.costs
        if costs.potential not in changes:
            changes[costs.potential] = costs.potential.steepest(most), costs.potential.curvature(most)
        steepest, curvature = changes[costs.potential]
        counted = np.append(costs.size, 1.0)
        bent = curvature @ (counted * counted / 2)
        taken = np.column_stack([least.taken, least.pods])
        cheapest, dearest = _beside_load(costs, problem)
        leaving = dearest + steepest @ counted - bent + _ROUNDING
        entering = cheapest + np.maximum(bent + (curvature * taken) @ counted - _ROUNDING, 0.0)
        least_entering = float(entering[costs.allowed].min(initial=np.inf))
        rows = kind.residents
        pods = [residents.pods[number] for number in rows.tolist()]
        prices = leaving_prices(pods, residents.usage[rows], problem.policies, before)
        gains = leaving[residents.nodes[rows]] - least_entering - prices
        is_worth = costs.allowed[residents.nodes[rows]] & (gains >= kind.policy.rescheduling.min_gain)
        saved[rows] = np.where(is_worth, np.ceil(gains), 0)
    gaining = saved > 0
    rows_of = limits_of_leaving(residents, gaining, np.zeros_like(gaining), gaining, movers, None, ())
    limits = renumbered(rows_of, gaining)
    of_gaining, free = saved[gaining], np.ones(int(gaining.sum()), dtype=np.bool_)
    for limit in limits:
        free[limit.pods] = False
    return int(of_gaining[free].sum()) + sum(limit.most_saved(of_gaining[limit.pods]) for limit in limits)


def _beside_load(costs: PodCosts, problem: Problem) -> tuple[Int64s, Int64s]:
    """int64[N] each: the least and the most that a node costs beside its potential, whatever else the plan decides."""
    snapshot, cost, group = problem.snapshot, costs.policy.cost, costs.group
    weights, pod_class, constraints = cost.weights, group.pod_class, group.signature.constraints
    taints = taint_toleration.untolerated_preferences(pod_class, snapshot.table)
    most_taints = int(taints.max(initial=0)) if cost.preferences is Preferences.POINTS else int(taints.any())
    comers = any(pod.signature.constraints is not None for pod in snapshot.pending)
    has_own = constraints is not None and bool(constraints.preferred)
    prefers = has_own or comers or affinity_weights(group.signature, snapshot.pod_index, snapshot.table) is not None
    most_preferred = (
        weights.taint_preference * most_taints
        + weights.pod_affinity * prefers
        + weights.spread * (constraints is not None)
        + weights.image_locality * bool(pod_class.images)
        + (weights.device_alternatives + weights.free_storage) * (not pod_class.fits_by_amounts)
        + weights.idle_resources
    ) * OMEGA
    if constraints is not None:
        pods = int(snapshot.allocatable[:, snapshot.resources.index(PODS)].max(initial=0))
        most_preferred += pods * sum(each.suffered + each.inflicted for each in constraints.penalties)
    least, most = costs.written, costs.written
    if pod_class.preferred_affinity and cost.preferences is not Preferences.POINTS:
        # Scaled over the nodes that have room.
        by_weight = weights.node_preference * OMEGA
        is_bounded = not costs.policy.unscheduled.wait_for_cheaper_node
        least = np.zeros_like(least) if is_bounded else np.maximum(least - by_weight, 0)
        most = np.full_like(most, MOST_WRITTEN) if is_bounded else most + by_weight
    if cost.machines is not None:
        machines = machine_costs(group.signature, cost.machines, snapshot.table)
        least, most = least + machines, most + machines
    model = costs.model
    cheapest, dearest = model.arc_range(costs.size, weights) if isinstance(model, BoundedArcs) else (1, _DEAREST)
    return least + cheapest, most + dearest + most_preferred
