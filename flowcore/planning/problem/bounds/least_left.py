"""How much of what waits every plan leaves at least, computed by our own code from amounts alone.

A Lagrangian relaxation as in ``bounds``, with an objective that people read: a pod that is left counts for one, or for
what it asks of one resource. From any prices of resources, whichever solver they came from, a bound follows.

A plan is any choice of nodes for any of the pods that keeps within the room of the nodes. Filters, rules between pods,
gangs, priorities, limits and costs only remove plans, so the bound holds with them too. Who calls this counts the room
of running pods that may leave as room; then it holds for plans that evict or move pods too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s

#: Parts of a unit that sums count, as a power of two; fewer where sums would not fit 63 bits.
_FINENESS, _BITS = 20, 61
#: Floats are off by less than this part of them.
_FLOAT_ERROR = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class PooledRoom:
    """Pods in C classes, and nodes in S pools; the nodes of a pool count as one.

    What a plan does on nodes it does in their pools, so pooling loses plans none.

    Attributes:
        requests: int64[C, R], of a pod of each class.
        pods: int64[C].
        counts: int64[C, S], how many pods of each class at most the nodes of a pool take, if no others come.
        room: float64[S, R], what the pods can take in a pool.
    """

    requests: Int64s
    pods: Int64s
    counts: Int64s
    room: Float64s


def least_left(pooled: PooledRoom, weights: Int64s, prices: Float64s) -> int:
    """A sum of weights that the pods left by any plan do not go below.

    A pod pays its weight if it is left, else what it takes at the prices, where it pays least. What that overcharges
    is at most the price of all room.

    Args:
        weights: int64[C], of a pod of each class, not negative.
        prices: float64[S, R], of a unit of each resource in each pool, not negative.
    """
    highest = int((weights.astype(object) * pooled.pods.astype(object)).sum())
    parts = 2 ** max(0, min(_FINENESS, _BITS - highest.bit_length()))
    paid = pooled.requests.astype(np.float64) @ prices.T
    cost = np.floor(np.minimum(paid, weights[:, np.newaxis]) * (parts * (1 - _FLOAT_ERROR))).astype(np.int64)
    # Pods of a class take the cheapest pools first.
    order = np.argsort(cost, axis=1, kind="stable")
    taken = np.cumsum(np.minimum(np.take_along_axis(pooled.counts, order, axis=1), pooled.pods[:, np.newaxis]), axis=1)
    taken = np.diff(np.minimum(taken, pooled.pods[:, np.newaxis]), axis=1, prepend=0)
    left = pooled.pods - taken.sum(axis=1)
    total = int((taken * np.take_along_axis(cost, order, axis=1)).sum()) + int((left * weights).sum()) * parts
    given = math.fsum((pooled.room * prices).ravel().tolist()) * (1 + _FLOAT_ERROR)
    least: int = -(-(total - math.ceil(given * parts)) // parts)
    return max(0, least)
