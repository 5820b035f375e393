"""Prices of single nodes, where a relaxation takes alike ones for one state.

At given prices of classes each node has the prices that are best for a bound by itself: its room costs as little as it
can while pods that it takes pay for what they take. All nodes are tried at once, each with some multiples of what its
state has.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s

#: Multiples of the prices of a state that are tried: of all resources together, then of each alone.
_TOGETHER = (0.5, 0.71, 0.84, 1.19, 1.41, 2.0)
_ALONE = (0.0, 0.6, 0.85, 1.2, 1.7)


def own_prices(
    prices: Float64s, requests: Float64s, worth: Float64s, most: Float64s | Int64s, spare: Float64s | Int64s
) -> Float64s:
    """float64[M, K]: prices of resources on each node.

    Args:
        prices: float64[M, K], of the state of each node.
        requests: float64[C, K], of a pod of each class.
        worth: float64[M, C], what a pod is worth on a node: its class's price less what it costs there.
        most: [M, C], how many pods of each class a node takes at most.
        spare: [M, K], what pods can take of a node.
    """
    own = prices.copy()
    taken = (prices @ requests.T).astype(np.float32)
    worth, most = worth.astype(np.float32), most.astype(np.float32)
    room = np.where(prices > 0, prices * spare, 0.0)

    def loss(paid: Float64s, given: Float64s) -> Float64s:
        """float64[M]: what the bound loses on each node: its room, and what pods are worth beyond what they pay."""
        gained = np.maximum(worth - paid, 0)
        gained *= most
        lost: Float64s = gained.sum(axis=1, dtype=np.float64) + given
        return lost

    best = loss(taken, room.sum(axis=1))
    factor = np.ones(len(prices))
    for multiple in _TOGETHER:
        lost = loss(taken * np.float32(multiple), multiple * room.sum(axis=1))
        better = lost < best
        factor[better], best[better] = multiple, lost[better]
    own *= factor[:, np.newaxis]
    taken *= factor[:, np.newaxis].astype(np.float32)
    room *= factor[:, np.newaxis]
    for resource in np.nonzero(prices.any(axis=0))[0].tolist():
        paid = (own[:, resource, np.newaxis] * requests[:, resource]).astype(np.float32)
        factor = np.ones(len(prices))
        for multiple in _ALONE:
            lost = loss(taken + paid * np.float32(multiple - 1), room.sum(axis=1) + room[:, resource] * (multiple - 1))
            better = lost < best
            factor[better], best[better] = multiple, lost[better]
        own[:, resource] *= factor
        taken += paid * (factor[:, np.newaxis] - 1).astype(np.float32)
        room[:, resource] *= factor
    return own
