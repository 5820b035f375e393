"""What nodes cost one more pod after a plan: kube-scheduler may ask about other nodes than the planned ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod
from flowcore.costs.scale import OMEGA
from flowcore.model.policies import Steering
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import pods_by_node
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem, priced

#: A node that costs this much more is as good: one point of kube-scheduler's scores, a hundredth of a node.
_POINT = OMEGA // 100
#: The price of a node that the pods may not use.
CLOSED = -1


@dataclass(frozen=True, slots=True, eq=False)
class NodePrices:
    """What one more pod costs on each node after a plan.

    Attributes:
        pods: that are alike.
        prices: int64[N], the arc and the increase of the potential, of nodes with room and of full ones; CLOSED.
        open: bool[N], nodes that have room for one more.
        savings: by how much the cost falls if one of the pods leaves a node, by position of the node; of the nodes that
            the plan has for them.
        tolerance: a node that is this much dearer is as good. 0 where nodes are not priced by their load: there the
            order of the nodes is the point.
    """

    pods: Sequence[PendingPod]
    prices: Int64s
    open: Bools
    savings: Mapping[int, int]
    tolerance: int


def priced_demands(problem: Problem, *, bound: bool = False) -> list[Demand]:
    """Demands of the pods that kube-scheduler binds one by one, the largest number of alike pods first.

    Where a preference or a penalty between pods prices them, only those are kept that kube-scheduler may place itself.
    Pods that something keeps to some of the nodes of their class, as a gang that is bound in part, are left out, and
    those that wish for a node: the prices would be taken for those of all pods of the class.

    Args:
        bound: also those of pods that we bind.
    """
    kept = [
        demand
        for demand in problem.demands
        if demand.policy.delivery.acts
        and (bound or demand.policy.delivery.through_kube_scheduler)
        and (_is_placed_by_price(demand) or demand.policy.steering is Steering.PREFER)
        and not _is_kept_to_some(demand)
        and not demand.group.pod_class.wish
    ]
    return sorted(kept, key=lambda demand: -demand.count)


def node_prices(problem: Problem, demands: Sequence[Demand], candidate: Candidate) -> Iterator[NodePrices]:
    """Prices for the pods of these demands. Rules between pods are not asked.

    Args:
        candidate: the plan, with all passes inverted.
    """
    capacity = candidate.capacity
    if candidate.held is not None:
        capacity = capacity.copy().hold(problem.demands, candidate.held.commits)
    planned = pods_by_node(candidate.commits)
    positions = {id(demand): number for number, demand in enumerate(problem.demands)}
    for alike in _priced_alike(demands):
        unpriced, pods = alike[0], [pod for demand in alike for pod in demand.group.pods]
        # Where no node has room, prices matter for scores alone.
        demand = priced(problem, unpriced) if unpriced.policy.steering is Steering.PREFER else unpriced
        increases, fits = capacity.next_increase(demand), capacity.fit_counts(demand) > 0
        crowding = _crowding(demand, problem)
        arc = demand.arc if crowding is None else demand.arc - crowding
        prices = np.where(demand.allowed & demand.is_priced, arc + increases, CLOSED)
        if not _is_placed_by_price(demand):
            yield NodePrices(pods, prices, np.zeros_like(fits), {}, 0)
            continue
        tolerance = _POINT * demand.policy.cost.weights.least_requested if increases.any() else 0
        used = {node for each in alike for node in planned.get(positions[id(each)], ())}
        nodes = np.array(sorted(used), dtype=np.int64)
        saved = _savings(demand, capacity, nodes) - (crowding[nodes] if crowding is not None else 0)
        yield NodePrices(pods, prices, fits, dict(zip(nodes.tolist(), saved.tolist(), strict=True)), tolerance)


def of_pods(prices: Iterable[NodePrices], pod_of: Callable[[PendingPod], PendingPod]) -> Iterator[NodePrices]:
    """The prices with those of twins as those of one pod: the cheapest of its ways to each node.

    Args:
        pod_of: the pod that another one is a twin of; itself if it is none.
    """
    known: dict[tuple[str, ...], NodePrices] = {}
    for alike in prices:
        pods = [pod_of(pod) for pod in alike.pods]
        if all(pod is twin for pod, twin in zip(pods, alike.pods, strict=True)):
            yield alike
            continue
        keys = tuple(pod.key for pod in pods)
        before = known.get(keys)
        if before is None:
            known[keys] = replace(alike, pods=pods)
            continue
        is_open = (alike.prices != CLOSED) & ((before.prices == CLOSED) | (alike.prices < before.prices))
        known[keys] = NodePrices(
            pods,
            np.where(is_open, alike.prices, before.prices),
            before.open | alike.open,
            {**alike.savings, **before.savings},
            min(before.tolerance, alike.tolerance),
        )
    yield from known.values()


def _priced_alike(demands: Sequence[Demand]) -> list[list[Demand]]:
    """Demands that differ by their spread alone have one price: their arcs without it are the same."""
    alike: dict[object, list[Demand]] = {}
    for demand in demands:
        group = demand.group
        key = (group.pod_class, group.policy, group.foreseen, demand.allowed.tobytes())
        is_spread = demand.constraints.soft_constraints is not None and _is_placed_by_price(demand)
        alike.setdefault(key if is_spread else id(demand), []).append(demand)
    return list(alike.values())


def _is_kept_to_some(demand: Demand) -> bool:
    """Whether pods of a demand may not use all nodes that its class may use."""
    return demand.kept_to is not None and bool((demand.compared & ~demand.kept_to).any())


def _is_placed_by_price(demand: Demand) -> bool:
    """Whether a node's price is all that its pods pay, but for their spread: no other preference speaks of pods."""
    soft_constraints = demand.constraints.soft_constraints
    return soft_constraints is None or len(soft_constraints.reads) == len(soft_constraints.spread_counters)


def _crowding(demand: Demand, problem: Problem) -> Int64s | None:
    """int64[N]: what the spread of a demand adds to its arcs, and not to those of its class; None: nothing."""
    soft_costs = demand.soft_costs(problem.snapshot) if _is_placed_by_price(demand) else None
    return None if soft_costs is None else soft_costs.initial_cost


def _savings(demand: Demand, capacity: Plan, nodes: Int64s) -> Int64s:
    """int64[len(nodes)]: by how much the cost falls if one of the demand's pods leaves each of these nodes."""
    fewer = np.broadcast_to(-demand.counted, (len(nodes), 4))
    as_is, without = (capacity.load_at(nodes, demand.potential, more) for more in (None, fewer))
    savings: Int64s = demand.arc[nodes] + demand.potential.values(as_is) - demand.potential.values(without)
    return savings
