"""What no plan of a round can beat, computed by our own code from the demands and the room alone.

A Lagrangian relaxation (Ahuja, Magnanti, Orlin, Network Flows, chapter 16): from any prices for nodes and resources,
whichever solver they came from, a lower bound follows. Good prices make it tight, bad ones only weak.

Potentials of nodes are convex, so each is above its tangents. A tangent makes a node's cost a sum over its pods: a
slope times what each counts for, and a constant. Any loads give tangents and so a bound, and loads of a good plan a
good one. Where all pods that are priced alike count for the same, the least that a node can cost beyond a price for
each of its pods is found exactly, in whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.snapshot import Int64s
from flowcore.costs.model import Float64s, Load
from flowcore.costs.potential import NodePotential
from flowcore.problem.atomic_groups import AtomicGroup
from flowcore.problem.cost_matrix import CostMatrix
from flowcore.problem.demands import Demand
from flowcore.problem.least_cost import least_cost
from flowcore.topology.capacities import DomainCapacities, capacities_of, pods_by_counter
from flowcore.topology.counters import DomainCounter

#: Pods of a node that are looked at in one go.
_DEPTH = 8
#: Potentials are rounded to whole numbers.
_ROUNDING = 0.5
#: Sums of floats are off by less than this part of what was added up.
_FLOAT_ERROR = 1e-11


@dataclass(frozen=True, slots=True, eq=False)
class _Tangents:
    """For pods priced alike: the increase of a node's potential is at least the constant and what the pods pay.

    A pod pays ``slopes @ counted + curvature @ counted**2 / 2``.

    Attributes:
        slopes: float64[N, 4], along ``Demand.counted``.
        curvature: float64[N, 4]; zero for nodes that are expected to get any pods.
        constants: float64[N], none positive.
        magnitude: of the numbers that went into it.
    """

    slopes: Float64s
    curvature: Float64s
    constants: Float64s
    magnitude: float

    def paid_by(self, demand: Demand) -> Float64s:
        """float64[N]: what a pod pays on each node at least."""
        counted = demand.counted.astype(np.float64)
        found: Float64s = self.slopes @ counted + self.curvature @ (counted * counted / 2)
        return found


def lower_bound(
    cost_matrix: CostMatrix,
    *,
    shadow_prices: Float64s | None = None,
    marginal_costs: Int64s | None = None,
    loads: Mapping[NodePotential, Load] | None = None,
    atomic_groups: Sequence[AtomicGroup] = (),
) -> int:
    """A cost that no plan of the round goes below, whatever is passed.

    Each pod pays at least the cheaper of its price and of its cheapest node, where a node costs its arc, its slopes and
    tolls on what is taken. What that overcharges is at most the tolls on everything that is free, and the constants
    of the tangents. What pods prefer among each other is counted as the least that it can be: nothing. Pods whose own
    rules are capacities of domains pay as in their cheapest plan within those, as if no other pods were placed.

    Args:
        shadow_prices: float64[N, R], not negative; none if not given.
        marginal_costs: int64[N], what a pod on each node is taken to cost beyond the first one there; read where pods
            count for the same.
        loads: all nodes as full as they are expected to be for pods of each potential; read where pods differ in size.
        atomic_groups: pods that are placed together or not at all; without them the bound holds too, and is weaker.
    """
    demands = cost_matrix.demands
    tangents = {
        potential: _tangents(cost_matrix, potential, alike, marginal_costs, (loads or {}).get(potential))
        for potential, alike in _alike(demands).items()
    }
    total = 0.0
    paid = np.full(len(demands), np.inf)
    raising = pods_by_counter([(demand.constraints, demand.count) for demand in demands])
    grouped = {at for unit in atomic_groups for at in unit.demands}
    for at, demand in enumerate(demands):
        cost = _least_arc(demand, cost_matrix) + tangents[demand.potential].paid_by(demand)
        if shadow_prices is not None:
            asked = demand.requests > 0
            cost += shadow_prices[:, asked] @ demand.requests[asked]
        if demand.constraints.constrained and at not in grouped:
            total += _least_of_constrained(cost_matrix, at, cost, raising)
            continue
        cheapest = float(np.where(cost_matrix.counts[at] > 0, cost, np.inf).min(initial=np.inf))
        paid[at] = cheapest
        total += float(np.minimum(demand.prices, cheapest).sum())
    total += sum(_atomic_group_surcharge(unit, demands, paid) for unit in atomic_groups)
    over = -sum(float(each.constants.sum()) for each in tangents.values())
    if shadow_prices is not None:
        over += float((shadow_prices * np.maximum(cost_matrix.capacity.free, 0)).sum())
    error = _FLOAT_ERROR * (abs(total) + over + sum(each.magnitude for each in tangents.values()))
    return int(np.floor(total - over - error + 1e-6))


def _least_of_constrained(
    cost_matrix: CostMatrix, at: int, cost: Float64s, raising: Mapping[DomainCounter, int]
) -> float:
    """What all pods of a demand pay at least if its own rules bind them.

    Args:
        cost: float64[N], what a pod pays on each node.
        raising: see ``pods_by_counter``.
    """
    demand, counts = cost_matrix.demands[at], cost_matrix.counts[at]

    def capacities(below: int) -> DomainCapacities:
        constraints, pods = demand.constraints, demand.count
        return capacities_of(constraints, lambda counter: counter.initial, counts, pods, raising, below)

    return least_cost(cost, counts, demand.prices, capacities)[0]


def _alike(demands: Sequence[Demand]) -> dict[NodePotential, list[Demand]]:
    found: dict[NodePotential, list[Demand]] = {}
    for demand in demands:
        found.setdefault(demand.potential, []).append(demand)
    return found


def _least_arc(demand: Demand, cost_matrix: CostMatrix) -> Float64s:
    """float64[N]: the arc without what the class prefers among pods that run and those of the round."""
    soft_costs = demand.soft_costs(cost_matrix.capacity.snapshot)
    return (demand.arc if soft_costs is None else demand.arc - soft_costs.initial_cost).astype(np.float64)


def _tangents(
    cost_matrix: CostMatrix,
    potential: NodePotential,
    demands: Sequence[Demand],
    marginal_costs: Int64s | None,
    load: Load | None,
) -> _Tangents:
    start = cost_matrix.capacity.load(potential.utilisation)
    counted = np.unique([demand.counted for demand in demands], axis=0)
    if len(counted) == 1:
        most = np.minimum(np.max([demand.counts for demand in demands], axis=0), sum(each.count for each in demands))
        return _steps(potential, start, counted[0], most, marginal_costs)
    load = start if load is None else load
    moved = np.column_stack([load.taken - start.taken, load.pods - start.pods])
    before, exact, slopes = potential.values(start), potential.exact(load), potential.gradient(load)
    curvature = potential.curvature(_reach(start, cost_matrix, potential))
    touched = np.nonzero((moved[:, 0] != 0) | (moved[:, 1] != 0) | (moved[:, 2] != 0) | (moved[:, 3] != 0))[0]
    constants = np.zeros(len(before))
    constants[touched] = np.minimum(
        exact[touched] - (slopes[touched] * moved[touched]).sum(axis=1) - before[touched] - _ROUNDING, 0.0
    )
    # A node that is expected to stay as it is costs nothing; its first pod makes up for rounding. Squares of sums are
    # no less than sums of squares: each of its pods pays for the curvature by itself.
    curvature[touched] = 0.0
    first = np.maximum(before - exact + _ROUNDING, 0.0)
    first[touched] = 0.0
    slopes[:, 3] -= first
    return _Tangents(slopes, curvature, constants, float(np.abs(exact).sum()))


def _reach(start: Load, cost_matrix: CostMatrix, potential: NodePotential) -> Load:
    """No node is fuller than this for pods of a potential, whatever the plan."""
    alike = [at for at, demand in enumerate(cost_matrix.demands) if demand.potential == potential]
    pods = np.array([[cost_matrix.demands[at].count] for at in alike], dtype=np.int64)
    counted = np.array([cost_matrix.demands[at].counted for at in alike], dtype=np.float64)
    planned = np.minimum(cost_matrix.counts[alike], pods).T.astype(np.float64) @ counted
    return replace(start, taken=start.taken + planned[:, :3], pods=start.pods + planned[:, 3])


def _steps(
    potential: NodePotential, start: Load, counted: Int64s, most: Int64s, marginal_costs: Int64s | None
) -> _Tangents:
    """For pods that all count for the same: a price for each pod, and the least that a node costs beyond those."""
    size = counted[:3].astype(np.float64)
    price = potential.increase(start, size) + (0 if marginal_costs is None else np.maximum(marginal_costs, 0))
    least = np.zeros(len(price), dtype=np.int64)
    depth, before = 0, potential.values(start)
    # A node whose potential does not rise at all costs nothing beyond.
    full = start.at(np.arange(len(most)), most[:, np.newaxis] * size, most)
    nodes = np.nonzero((most > 0) & (potential.values(full) > before))[0]
    while len(nodes):
        levels = np.arange(depth + 1, depth + 1 + _DEPTH, dtype=np.int64)
        more = levels[:, np.newaxis] * counted
        beyond = np.array([
            potential.values(start.at(nodes, each[:3], int(each[3]))) - int(each[3]) * price[nodes] for each in more
        ]) - before[nodes]  # fmt: skip
        beyond[levels[:, np.newaxis] > most[nodes]] = 0
        least[nodes] = np.minimum(least[nodes], beyond.min(axis=0))
        depth += _DEPTH
        # Once the last steps rose by more than rounding can take away no later one makes up for them.
        deeper = (most[nodes] > depth) & (beyond[-1] <= beyond[-2] + 1)
        nodes = nodes[deeper]
    slopes = np.zeros((len(price), 4))
    slopes[:, 3] = price
    return _Tangents(slopes, np.zeros_like(slopes), least.astype(np.float64), 0.0)


def _atomic_group_surcharge(atomic_group: AtomicGroup, demands: Sequence[Demand], paid: Float64s) -> float:
    """What a unit's pods pay at least beyond what each would by itself: all are left, or enough of each gang placed.

    Args:
        paid: float64[C], what a placed pod of each demand pays at least.
    """
    places = {(at, place) for members in atomic_group.members for at, found in members.items() for place in found}
    alone = sum(min(float(demands[at].prices[place]), float(paid[at])) for at, place in places)
    unplaced_cost = sum(float(demands[at].prices[place]) for at, place in places)
    if atomic_group.unschedulable_reason:
        return unplaced_cost - alone
    forced = 0.0
    for gang, members in zip(atomic_group.gangs, atomic_group.members, strict=True):
        dearer = sorted(
            max(float(paid[at]) - float(demands[at].prices[place]), 0.0)
            for at, found in members.items()
            for place in found
        )
        # Pods that several gangs share are forced once: of gangs the one that forces most counts.
        forced = max(forced, sum(dearer[: max(0, gang.min_placed)]))
    return min(unplaced_cost - alone, forced)
