"""Prices of the last plan for a pod that prefers nodes by what runs there: that costs what it costs in a round."""

from __future__ import annotations

from array import array

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.costs.preferences import affinity_cost, spread_cost
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import PodClass
from flowcore.rules.topology.soft_affinity import affinity_weights
from flowcore.rules.topology.soft_spread import spread_score
from thalweg_operator.reservations.steering.records.planned_prices import (
    MOST_STEPS,
    NO_ROOM,
    NOT_ALLOWED,
    PlannedPrices,
    codes_of,
)


def with_others(
    prices: PlannedPrices, pod_class: PodClass, signature: PodSignature, pod_index: PodIndex, table: NodeTable,
    cost: CostPolicy
) -> PlannedPrices | None:  # fmt: skip
    """What nodes cost a pod with these rules as long as the prices hold; None: only a round can tell.

    Args:
        prices: of pods without preferences for others.
        table: of the nodes in the order of the prices.
        cost: of the pod's policy.
    """
    if prices.step > 1:
        return None
    codes = codes_of(prices).astype(np.int64)
    allowed, passing = codes != NOT_ALLOWED, codes < NO_ROOM
    steps = codes & (NO_ROOM - 1)
    spread = spread_score(pod_class, signature, pod_index, table, passing)
    if spread is not None:
        steps = steps + cost.weights.spread * spread_cost(spread, passing)
    wants = signature.constraints is not None and bool(signature.constraints.preferred)
    weights = affinity_weights(signature, pod_index, table) if wants and passing.any() else None
    if weights is not None:
        steps = steps + cost.weights.pod_affinity * affinity_cost(weights, passing, cost.preferences)
    steps = np.where(allowed, steps, 0)
    if int(steps.max(initial=0)) > MOST_STEPS:
        return None
    crowded = np.where(allowed, np.where(passing, steps, NO_ROOM + steps), NOT_ALLOWED)
    return msgspec.structs.replace(prices, codes=array("H", crowded.astype("<u2").tobytes()))
