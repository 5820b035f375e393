"""Prices of single nodes, where a relaxation takes alike ones for one state.

At given prices of classes each node has prices by itself that are best for a bound: its room costs as little as it can
while pods that it takes pay for what they take. Each node tries some multiples of what its state has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s

#: Multiples of the prices of a state that are tried: of all resources together, then of each alone.
_TOGETHER = (0.6, 0.8, 1.25, 1.7)
_ALONE = (0.0, 0.7, 1.4)

#: What is tried need not be exact: any prices are valid.
_Float32s = NDArray[np.float32]


def own_prices(
    prices: Float64s, requests: Float64s, worth: Float64s | _Float32s, most: Int64s | _Float32s, spare: Int64s
) -> Float64s:
    """float64[M, K]: prices of resources on each node.

    Args:
        prices: float64[M, K], of the state of each node.
        requests: float64[C, K], of a pod of each class.
        worth: [C, M], what a pod is worth on a node: its class's price less what it costs there.
        most: [C, M], how many pods of each class a node takes at most.
        spare: int64[M, K], what pods can take of a node.
    """
    own, room = prices.copy(), prices * spare
    paid = (requests @ prices.T).astype(np.float32)
    worth, most = worth.astype(np.float32, copy=False), most.astype(np.float32, copy=False)

    def lost(paid: _Float32s, room: Float64s) -> Float64s:
        """float64[M]: what the bound loses on each node: its room, and what pods are worth beyond what they pay."""
        beyond = np.maximum(worth - paid, np.float32(0))
        beyond *= most
        loss: Float64s = beyond.sum(axis=0, dtype=np.float64) + room
        return loss

    def factors(multiples: tuple[float, ...], of_paid: _Float32s, of_room: Float64s) -> Float64s:
        """float64[M]: the multiple of a part of the prices that loses least, 1 where none is better."""
        factor, least = np.ones(len(prices)), lost(paid, room.sum(axis=1))
        for multiple in multiples:
            loss = lost(paid + of_paid * np.float32(multiple - 1), room.sum(axis=1) + of_room * (multiple - 1))
            better = loss < least
            factor[better], least[better] = multiple, loss[better]
        return factor

    factor = factors(_TOGETHER, paid, room.sum(axis=1))
    own *= factor[:, np.newaxis]
    room *= factor[:, np.newaxis]
    paid *= factor.astype(np.float32)
    for resource in np.nonzero(prices.any(axis=0))[0].tolist():
        of_paid = np.outer(requests[:, resource], own[:, resource]).astype(np.float32)
        factor = factors(_ALONE, of_paid, room[:, resource])
        own[:, resource] *= factor
        room[:, resource] *= factor
        paid += of_paid * (factor - 1).astype(np.float32)
    return own
