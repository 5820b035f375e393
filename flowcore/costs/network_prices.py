"""What the ways of a policy's network cost a pod on each node, where they are rules of the pod."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.node_matching import term_matches
from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.model import Load
from flowcore.costs.network_model import utilisation
from flowcore.costs.preferences import node_preference, taint_preference
from flowcore.model.cost_policy import CostPolicy, CostWeights
from flowcore.model.inter_pod_constraints import InterPodConstraints, NodePrice
from flowcore.model.networks import CostPart
from flowcore.model.pods import PodClass
from flowcore.rules.topology.domain_limits import limit_counter
from flowcore.rules.topology.round_constraints.rising_price import RisingPrice

#: More than any way costs.
_NO_WAY = 2**40
#: Parts of costs are as large as their arc says.
_ONCE = CostWeights(node_preference=1, taint_preference=1)


def network_prices(
    rules: InterPodConstraints | None,
    pod_class: PodClass,
    snapshot: Snapshot,
    load: Load,
    passing: Bools,
    cost: CostPolicy,
) -> Int64s:
    """int64[N], none negative: the cheapest way to each node, and what its arcs cost by the pods that run there.

    Args:
        load: of all nodes, as the round begins.
        passing: bool[N], nodes among which preferences are scaled.
    """
    prices = np.zeros(len(snapshot.table.nodes), dtype=np.int64)
    if rules is None:
        return prices
    if rules.node_prices:
        ways = [_price(each, pod_class, snapshot, load, passing, cost) for each in rules.node_prices]
        cheapest = np.minimum.reduce(ways)
        prices = np.where(cheapest < _NO_WAY, cheapest, 0)
    for price in rules.count_prices:
        counter = limit_counter(price, snapshot.pod_index, snapshot.table)
        prices = prices + RisingPrice.of(counter, price.segments).by_node(counter.initial)
    return prices


def _price(
    way: NodePrice, pod_class: PodClass, snapshot: Snapshot, load: Load, passing: Bools, cost: CostPolicy
) -> Int64s:
    """int64[N]: the price of a way, _NO_WAY where it does not lead."""
    table, part = snapshot.table, np.zeros(len(snapshot.table.nodes), dtype=np.int64)
    scaled = CostPolicy(weights=_ONCE, preferences=cost.preferences)
    match way.part:
        case CostPart.UTILISATION:
            part = utilisation(load)
        case CostPart.PREFERENCES:
            part = node_preference(pod_class, table, passing, scaled)
        case CostPart.TAINTS:
            part = taint_preference(pod_class, table, passing, scaled)
        case _:
            pass
    price = way.cost + way.weight * part
    return price if way.nodes is None else np.where(term_matches(way.nodes, table), price, _NO_WAY)
