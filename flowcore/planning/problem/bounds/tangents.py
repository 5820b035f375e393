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
from flowcore.costs.model import Float64s, Load
from flowcore.costs.potential import NodePotential
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import Demand
from flowcore.rules.filters.node_resources_fit import count_fitting

#: Pods of a node that are looked at in one go.
_DEPTH = 8
#: Potentials are rounded to whole numbers.
_ROUNDING = 0.5
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

    A pod pays ``slopes @ counted + curvature @ counted**2 / 2``.

    Attributes:
        slopes: float64[N, 4], along ``Demand.counted``.
        curvature: float64[N, 4]; zero for nodes that are expected to get any pods.
        constants: float64[N], none positive.
    """

    slopes: Float64s
    curvature: Float64s | None
    constants: Float64s

    def paid_by(self, demand: Demand) -> Float64s:
        """float64[N]: what a pod pays on each node at least."""
        paid = np.zeros(len(self.slopes))
        for column, counted in enumerate(demand.counted.astype(np.float64).tolist()):
            if counted:
                paid += self.slopes[:, column] * counted
                if self.curvature is not None:
                    paid += self.curvature[:, column] * (counted * counted / 2)
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
        curvature = potential.curvature(_fullest(start, demands))
        slopes[:, 3] -= np.maximum(before - exact + _ROUNDING, 0.0)
        constants = np.zeros(len(before))
        if expected is not None and len(expected.nodes):
            nodes, own = expected.nodes, start.at(expected.nodes)
            curvature[nodes], slopes[nodes] = 0.0, 0.0
            whole = np.maximum(sum(expected.weights), 1.0)
            above = -before[nodes] - _ROUNDING
            for load, weight in zip(expected.loads, expected.weights, strict=True):
                share = weight / whole
                moved = np.column_stack([load.taken - own.taken, load.pods - own.pods])
                value, gradient = potential.exact(load), potential.gradient(load)
                slopes[nodes] += share[:, np.newaxis] * gradient
                linear = gradient * moved
                error = _FLOAT_ERROR * (np.abs(value) + np.abs(linear).sum(axis=1))
                above = above + share * (value - linear.sum(axis=1) - error)
            constants[nodes] = np.minimum(above, 0.0)
        return cls(slopes, curvature, constants)


def is_one_size(demands: Sequence[Demand]) -> bool:
    """Whether pods of all demands count for the same."""
    first = demands[0].counted
    return all((demand.counted == first).all() for demand in demands[1:])


def _fullest(start: Load, demands: Sequence[Demand]) -> Load:
    """No node is fuller than this for pods of the demands, whatever the plan."""
    taken, pods = start.taken.copy(order="K"), start.pods.copy()
    for demand in demands:
        most = np.minimum(demand.counts, demand.count)
        for column, counted in enumerate(demand.counted[:3].tolist()):
            if counted:
                taken[:, column] += most * counted
        pods += most
    return Load(start.table, start.capacity, taken, start.pods_allowed, pods)


def _most_pods(demands: Sequence[Demand], free: Int64s) -> Int64s:
    """int64[N]: no node gets more pods of the demands than this, whatever the plan.

    More of several demands may fit than of any by itself: each may be held back by another resource, or by its ports.
    """
    least = np.min([demand.requests for demand in demands], axis=0)
    pods = np.sum([np.minimum(demand.counts, demand.count) for demand in demands], axis=0)
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
    return Tangents(slopes, None, least.astype(np.float64))
