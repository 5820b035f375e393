"""What moves for gain save at most in any plan, for lower bounds: the better of two bounds, within budgets and limits.

Each pod by itself: the node that it leaves is as full then as any plan makes it, the node that it comes to as empty.
What pods prefer among each other, and arcs that depend on the load, are the dearest there and the cheapest here that
they can be.

All together, where nothing but the load counts, and nobody else comes or leaves: pods that are priced alike gain by
what the potential of all nodes falls. It is above its tangents, wherever these touch: so each pod gains at most the
difference of two slopes, and all of them at most the constants of the tangents beside that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs.arcs import MOST_WRITTEN, machine_costs
from flowcore.costs.model import BoundedArcs, Float64s, Load
from flowcore.costs.pod_costs import PodCosts
from flowcore.costs.potential import NodePotential
from flowcore.costs.preferences import offers_more
from flowcore.costs.scale import OMEGA
from flowcore.model.cost_policy import Preferences
from flowcore.model.resources import PODS
from flowcore.planning.evictions.moves.load_moves import follows_load
from flowcore.planning.evictions.moves.move_prices import leaving_prices
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.evictions.moves.running_costs import MovableKind
from flowcore.planning.evictions.search.limits import limits_of_leaving, renumbered
from flowcore.planning.problem.bounds.leaving_limits import most_saved
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
#: Loads where tangents touch: nodes as the plan leaves them, so far on the way to equally full.
_EVENED = (0.0, 0.25, 0.5, 0.75)
#: Sums of floats are off by less than this part of what was added up.
_FLOAT_ERROR = 1e-9


def most_gained(
    problem: Problem,
    residents: Residents,
    movers: Movers,
    kinds: Sequence[MovableKind],
    emptied: Snapshot,
    around: tuple[Snapshot, Snapshot] | None,
) -> int:
    """What all moves for gain of a plan gain at most beyond their prices.

    Args:
        kinds: of the residents that may move.
        emptied: no node is emptier in any plan.
        around: the cluster before these moves and after those of a plan; None: other pods come, or leave.
    """
    if not kinds:
        return 0
    before, numbers = problem.snapshot, np.concatenate([kind.residents for kind in kinds])
    pods = [residents.pods[number] for number in numbers.tolist()]
    prices = leaving_prices(pods, residents.usage[numbers], problem.policies, before)
    kind_of = np.repeat(np.arange(len(kinds)), [len(kind.residents) for kind in kinds])
    homes = residents.nodes[numbers]
    least_gains = np.array([kind.policy.rescheduling.min_gain for kind in kinds])
    movable = np.array([kind.costs.allowed for kind in kinds])[kind_of, homes]

    def at_most(saved: Float64s) -> int:
        """What those gain together that may move in one plan, of float64[numbers]."""
        gains = np.zeros(len(residents.pods), dtype=np.int64)
        gains[numbers] = np.where(movable & (saved > 0), np.ceil(saved), 0)
        gaining = gains > 0
        rows = limits_of_leaving(residents, gaining, np.zeros_like(gaining), gaining, movers, None, ())
        return most_saved(gains[gaining], renumbered(rows, gaining))

    beside = [_beside_load(kind.costs, problem) for kind in kinds]
    alone = _each_by_itself(problem, kinds, beside, emptied)[kind_of, homes] - prices
    bound = at_most(np.where(alone >= least_gains[kind_of], alone, 0.0))
    potentials = {kind.costs.potential for kind in kinds}
    is_known = all((least == most).all() for least, most in beside)
    if around is None or len(potentials) > 1 or not (is_known and all(follows_load(kind, before) for kind in kinds)):
        return bound
    start, end = (Load.of(each) for each in around)
    (potential,) = potentials
    counted = np.array([np.append(kind.costs.size, 1.0) for kind in kinds])
    usable = np.array([kind.costs.allowed for kind in kinds])
    for share in _EVENED:
        touched = _evened(end, share)
        slopes = potential.gradient(touched)
        moved = np.column_stack([start.taken - touched.taken, start.pods - touched.pods])
        above = potential.values(start) - potential.exact(touched) - (slopes * moved).sum(axis=1)
        error = _FLOAT_ERROR * float((np.abs(potential.exact(touched)) + np.abs(slopes * moved).sum(axis=1)).sum())
        costs = counted @ slopes.T + np.array([least for least, _ in beside])
        least = np.where(usable, costs, np.inf).min(axis=1)
        saved = costs[kind_of, homes] - least[kind_of] - prices
        bound = min(bound, at_most(saved) + math.ceil(float(above.sum()) + error + len(start.pods)))
    return bound


def _each_by_itself(
    problem: Problem, kinds: Sequence[MovableKind], beside: Sequence[tuple[Int64s, Int64s]], emptied: Snapshot
) -> Float64s:
    """float64[K, N]: what a pod of each kind on each node gains at most by any move; ``beside``: see _beside_load."""
    least, most = Load.of(emptied), fullest(Plan(problem.snapshot))
    changes: dict[NodePotential, tuple[Float64s, Float64s]] = {}
    gains = np.empty((len(kinds), len(least.pods)))
    taken = np.column_stack([least.taken, least.pods])
    for number, kind in enumerate(kinds):
        costs = kind.costs
        if costs.potential not in changes:
            changes[costs.potential] = costs.potential.steepest(most), costs.potential.curvature(most)
        steepest, curvature = changes[costs.potential]
        counted = np.append(costs.size, 1.0)
        bent = curvature @ (counted * counted / 2)
        cheapest, dearest = beside[number]
        entering = cheapest + np.maximum(bent + (curvature * taken) @ counted - _ROUNDING, 0.0)
        leaving = dearest + steepest @ counted - bent + _ROUNDING
        gains[number] = leaving - float(entering[costs.allowed].min(initial=np.inf))
    return gains


def _evened(load: Load, share: float) -> Load:
    """The load with each node so far on the way to as full as all together, along each column."""
    whole = np.maximum(load.capacity.sum(axis=0), 1.0)
    full = load.capacity * (load.taken.sum(axis=0) / whole)
    pods = load.pods_allowed * (load.pods.sum() / max(float(load.pods_allowed.sum()), 1.0))
    return replace(load, taken=load.taken + share * (full - load.taken), pods=load.pods + share * (pods - load.pods))


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
    ) * OMEGA
    if constraints is not None:
        pods = int(snapshot.allocatable[:, snapshot.resources.index(PODS)].max(initial=0))
        most_preferred += pods * sum(each.suffered + each.inflicted for each in constraints.penalties)
    idle = np.where(offers_more(pod_class, snapshot), OMEGA * weights.idle_resources, 0)
    least, most = costs.written + idle, costs.written + idle
    if pod_class.preferred_affinity and cost.preferences is not Preferences.POINTS:
        # Scaled over the nodes that have room.
        by_weight = weights.node_preference * OMEGA
        is_bounded = not costs.policy.unscheduled.wait_for_cheaper_node
        least = idle if is_bounded else np.maximum(least - by_weight, idle)
        most = idle + MOST_WRITTEN if is_bounded else most + by_weight
    if cost.machines is not None:
        machines = machine_costs(group.signature, cost.machines, snapshot.table)
        least, most = least + machines, most + machines
    model = costs.model
    cheapest, dearest = model.arc_range(costs.size, weights) if isinstance(model, BoundedArcs) else (1, _DEAREST)
    return least + cheapest, most + dearest + most_preferred
