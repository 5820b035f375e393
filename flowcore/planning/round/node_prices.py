"""What nodes cost one more pod after a plan: kube-scheduler may ask about other nodes than the planned ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod
from flowcore.costs.scale import OMEGA
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.commits import pods_by_node
from flowcore.planning.problem.placements.free_capacity import FreeCapacity
from flowcore.planning.problem.problem import Problem

#: A node that costs this much more is as good: one point of kube-scheduler's scores, a hundredth of a node.
_POINT = OMEGA // 100
#: The price of a node that the pods may not use, or that has no room for one more.
CLOSED = -1


@dataclass(frozen=True, slots=True, eq=False)
class NodePrices:
    """What one more pod costs on each node after a plan.

    Attributes:
        pods: that are alike.
        prices: int64[N], the arc and the increase of the potential; CLOSED.
        savings: by how much the cost falls if one of the pods leaves a node, by position of the node; of the nodes that
            the plan has for them.
        tolerance: a node that is this much dearer is as good. 0 where nodes are not priced by their load: there the
            order of the nodes is the point.
    """

    pods: Sequence[PendingPod]
    prices: Int64s
    savings: Mapping[int, int]
    tolerance: int


def priced_demands(problem: Problem, *, bound: bool = False) -> list[Demand]:
    """Demands of the pods that are bound one by one, the largest number of alike pods first.

    Pods that a preference or a penalty between pods prices are left out.

    Args:
        bound: whether they are bound by us; False: by kube-scheduler.
    """
    kept = [
        demand
        for demand in problem.demands
        if demand.policy.delivery.acts
        and demand.policy.delivery.through_kube_scheduler is not bound
        and demand.constraints.soft_constraints is None
        and not all(pod.gangs for pod in demand.group.pods)
    ]
    return sorted(kept, key=lambda demand: -demand.count)


def node_prices(problem: Problem, demands: Sequence[Demand], candidate: Candidate) -> Iterator[NodePrices]:
    """Prices for the pods of these demands. Rules between pods are not asked.

    Args:
        candidate: the plan, with all passes inverted.
    """
    capacity = candidate.capacity
    if candidate.held is not None:
        capacity = candidate.held.reserve(capacity, problem.demands)
    planned = pods_by_node(candidate.commits)
    positions = {id(demand): number for number, demand in enumerate(problem.demands)}
    for demand in demands:
        increases = capacity.next_increase(demand)
        prices = np.where(capacity.fit_counts(demand) > 0, demand.arc + increases, CLOSED)
        tolerance = _POINT * demand.policy.cost.weights.least_requested if increases.any() else 0
        nodes = np.array(sorted(planned.get(positions[id(demand)], ())), dtype=np.int64)
        savings = dict(zip(nodes.tolist(), _savings(demand, capacity, nodes).tolist(), strict=True))
        yield NodePrices(demand.group.pods, prices, savings, tolerance)


def _savings(demand: Demand, capacity: FreeCapacity, nodes: Int64s) -> Int64s:
    """int64[len(nodes)]: by how much the cost falls if one of the demand's pods leaves each of these nodes."""
    fewer = np.broadcast_to(-demand.counted, (len(nodes), 4))
    as_is, without = (capacity.load_at(nodes, demand.potential, more) for more in (None, fewer))
    savings: Int64s = demand.arc[nodes] + demand.potential.values(as_is) - demand.potential.values(without)
    return savings
