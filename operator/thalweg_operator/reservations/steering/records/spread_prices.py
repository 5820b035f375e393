"""Prices of the last plan for a pod that is spread among others: crowding costs what it costs in a round."""

from __future__ import annotations

from array import array

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.costs.preferences import spread_cost
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import PodClass
from flowcore.rules.topology.soft_spread import spread_score
from thalweg_operator.reservations.steering.records.planned_prices import (
    MOST_STEPS,
    NO_ROOM,
    NOT_ALLOWED,
    PlannedPrices,
    codes_of,
)


def with_spread(
    prices: PlannedPrices, pod_class: PodClass, signature: PodSignature, pod_index: PodIndex, table: NodeTable,
    weight: int
) -> PlannedPrices | None:  # fmt: skip
    """What nodes cost a pod with these rules as long as the prices hold; None: only a round can tell.

    Args:
        prices: of its class, which do not know of spread.
        table: of the nodes in the order of the prices.
        weight: of spread.
    """
    if prices.step > 1:
        return None
    codes = codes_of(prices).astype(np.int64)
    allowed, passing = codes != NOT_ALLOWED, codes < NO_ROOM
    spread = spread_score(pod_class, signature, pod_index, table, passing)
    if spread is None:
        return prices
    steps = np.where(allowed, (codes & (NO_ROOM - 1)) + weight * spread_cost(spread, passing), 0)
    if int(steps.max(initial=0)) > MOST_STEPS:
        return None
    crowded = np.where(allowed, np.where(codes < NO_ROOM, steps, NO_ROOM + steps), NOT_ALLOWED)
    return msgspec.structs.replace(prices, codes=array("H", crowded.astype("<u2").tobytes()))
