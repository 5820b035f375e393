"""What pods pay at least for the potentials of nodes, whatever else is placed.

Potentials are convex, so each is above its tangents, and above every mixture of them. A tangent makes a node's cost a
sum over its pods: a slope times what each counts for, and a constant. Any loads give tangents and so a bound; loads as
the best plan makes them give a good one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s, Load, by_column
from flowcore.costs.potential import NodePotential
from flowcore.model.cost_policy import Utilisation
from flowcore.model.resources import CPU, MEMORY
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.filters.node_resources_fit import count_fitting

#: Pods of a node that are looked at in one go.
_DEPTH = 8
#: Potentials are rounded to whole numbers.
_ROUNDING = 0.5
#: Nothing that is divided by is smaller.
_TINY = 1e-300
#: Sums of floats are off by less than this part of what was added up.
_FLOAT_ERROR = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """How full some nodes are expected to be. At a kink of the potential several loads together have its slope.

    Attributes:
        nodes: int64[M].
        loads: of those nodes.
        weights: of the loads, float64[M] each, none negative.
    """

    nodes: Int64s
    loads: tuple[Load, ...]
    weights: tuple[Float64s, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tangents:
    """For pods priced alike: the increase of a node's potential is at least the constant and what the pods pay.

    A pod pays ``slopes @ counted + curvature @ max(counted - added, 0)**2 / 2``: the potential is above its tangent by
    the curvature times the square of how far the load is from where the tangent touches. Pods larger than what is
    expected there lead beyond that point, the more of them the further.

    Attributes:
        slopes: float64[N, 4], along ``Demand.counted``.
        curvature: float64[N, 4].
        added: float64[N, 4], what nodes are expected to get, none negative.
        constants: float64[N], none positive.
    """

    slopes: Float64s
    curvature: Float64s | None
    added: Float64s
    constants: Float64s

    def paid_by(self, demand: Demand) -> Float64s:
        """float64[N]: what a pod pays on each node at least."""
        paid = np.zeros(len(self.slopes))
        for column, counted in enumerate(demand.counted.astype(np.float64).tolist()):
            if counted:
                paid += self.slopes[:, column] * counted
                if self.curvature is not None:
                    beyond = np.maximum(counted - self.added[:, column], 0.0)
                    paid += self.curvature[:, column] * (beyond * beyond / 2)
        return paid

    @classmethod
    def of(
        cls,
        cost_matrix: CostMatrix,
        potential: NodePotential,
        demands: Sequence[Demand],
        marginal_costs: Int64s | None,
        expected: Mixture | None,
    ) -> Tangents:
        """Tangents for the demands with a potential; ``bounds.lower_bound`` explains the arguments."""
        start = cost_matrix.capacity.load(potential.utilisation)
        if is_one_size(demands):
            most = _most_pods(demands, cost_matrix.capacity.free)
            return _steps(potential, start, demands[0].counted, most, marginal_costs)
        before, exact = potential.values(start), potential.exact(start)
        slopes = potential.gradient(start)
        # A node that is expected to stay as it is costs nothing; its first pod makes up for rounding. Squares of sums
        # are no less than sums of squares: each of its pods pays for the curvature by itself.
        fullest = _fullest(cost_matrix.capacity, start, potential.utilisation, demands)
        slopes[:, 3] -= np.maximum(before - exact + _ROUNDING, 0.0)
        constants, added = np.zeros(len(before)), np.zeros_like(slopes)
        touched: tuple[Load, ...] = () if expected is None else expected.loads
        nodes = np.zeros(0, dtype=np.int64) if expected is None else expected.nodes
        for load in touched:
            fullest.taken[nodes] = np.maximum(fullest.taken[nodes], load.taken)
            fullest.pods[nodes] = np.maximum(fullest.pods[nodes], load.pods)
        curvature = potential.curvature(fullest)
        if expected is not None and len(nodes):
            own, highest = start.at(nodes), fullest.at(nodes)
            slopes[nodes], curvature[nodes] = 0.0, 0.0
            whole = np.maximum(sum(expected.weights), 1.0)
            above = -before[nodes] - _ROUNDING
            for load, weight in zip(touched, expected.weights, strict=True):
                share = weight / whole
                moved = np.column_stack([load.taken - own.taken, load.pods - own.pods])
                value, gradient = potential.exact(load), potential.gradient(load)
                bends = share[:, np.newaxis] * potential.curvature(highest)
                slopes[nodes] += share[:, np.newaxis] * gradient
                curvature[nodes] += bends
                # Of several points the mean will do: what pods pay beyond one is convex in it.
                added[nodes] += bends * np.maximum(moved, 0.0)
                linear = gradient * moved
                error = _FLOAT_ERROR * (np.abs(value) + np.abs(linear).sum(axis=1))
                above = above + share * (value - linear.sum(axis=1) - error)
            constants[nodes] = np.minimum(above, 0.0)
            added[nodes] /= np.maximum(curvature[nodes], _TINY)
        return cls(by_column(slopes), by_column(curvature), by_column(added), constants)


def is_one_size(demands: Sequence[Demand]) -> bool:
    """Whether pods of all demands count for the same."""
    first = demands[0].counted
    return all((demand.counted == first).all() for demand in demands[1:])


def _fullest(capacity: Plan, start: Load, utilisation: Utilisation, demands: Sequence[Demand]) -> Load:
    """No node is fuller than this for pods of the demands, whatever the plan.

    Args:
        start: the load as the round begins.
    """
    taken, pods = start.taken.copy(order="K"), start.pods.copy()
    for demand, times in _equal(demands):
        most = np.minimum(demand.counts, demand.count) * times
        for column, counted in enumerate(demand.counted[:3].tolist()):
            if counted:
                taken[:, column] += most * counted
        pods += most
    np.minimum(pods, np.maximum(start.pods_allowed, start.pods), out=pods)
    if utilisation is Utilisation.REQUESTED:
        # Requests take no more than what is free, and containers without requests count for more.
        for column, name in enumerate((CPU, MEMORY)):
            resource = capacity.before.resources.index(name)
            free = np.maximum(capacity.free[:, resource], 0)
            beyond = max(float(demand.counted[column] - demand.requests[resource]) for demand in demands)
            most_taken = start.taken[:, column] + free + max(beyond, 0.0) * (pods - start.pods)
            taken[:, column] = np.minimum(taken[:, column], most_taken)
    return Load(start.table, start.capacity, taken, start.pods_allowed, pods)


def _equal(demands: Sequence[Demand]) -> list[tuple[Demand, int]]:
    """Demands that take the same of each node, once, and how often."""
    times: dict[tuple[int, int, bytes], list[Demand]] = {}
    for demand in demands:
        times.setdefault((id(demand.counts), demand.count, demand.size.tobytes()), []).append(demand)
    return [(each[0], len(each)) for each in times.values()]


def _most_pods(demands: Sequence[Demand], free: Int64s) -> Int64s:
    """int64[N]: no node gets more pods of the demands than this, whatever the plan.

    More of several demands may fit than of any by itself: each may be held back by another resource, or by its ports.
    """
    least = np.min([demand.requests for demand in demands], axis=0)
    pods = sum(np.minimum(demand.counts, demand.count) * times for demand, times in _equal(demands))
    most: Int64s = np.minimum(pods, count_fitting(least, free))
    return most


def _steps(
    potential: NodePotential, start: Load, counted: Int64s, most: Int64s, marginal_costs: Int64s | None
) -> Tangents:
    """For pods that all count for the same: a price for each pod, and the least that a node costs beyond those."""
    size = counted[:3].astype(np.float64)
    price = potential.increase(start, size) + (0 if marginal_costs is None else np.maximum(marginal_costs, 0))
    depth, before = 0, potential.values(start)
    full = start.at(np.arange(len(most)), most[:, np.newaxis] * size, most)
    rises = potential.values(full) > before
    # A node whose potential does not rise at all owes what its pods pay by these prices.
    least = np.where(rises, 0, -most * price)
    nodes = np.nonzero((most > 0) & rises)[0]
    while len(nodes):
        levels = np.arange(depth + 1, depth + 1 + _DEPTH, dtype=np.int64)
        more = levels[:, np.newaxis] * counted
        added = [
            potential.values(start.at(nodes, amounts[:3], int(amounts[3]))) - int(amounts[3]) * price[nodes]
            for amounts in more
        ]
        beyond = np.array(added) - before[nodes]
        beyond[levels[:, np.newaxis] > most[nodes]] = 0
        least[nodes] = np.minimum(least[nodes], beyond.min(axis=0))
        depth += _DEPTH
        # Once the last steps rose by more than rounding can take away no later one makes up for them.
        deeper = (most[nodes] > depth) & (beyond[-1] <= beyond[-2] + 1)
        nodes = nodes[deeper]
    slopes = np.zeros((len(price), 4))
    slopes[:, 3] = price
    return Tangents(slopes, None, np.zeros_like(slopes), least.astype(np.float64))
