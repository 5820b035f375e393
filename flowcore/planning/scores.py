"""What prices say of nodes in kube-scheduler's terms: for pods that kube-scheduler may place itself."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s

#: MaxExtenderPriority of kube-scheduler.
BEST = 10


def scores_of(prices: Int64s, allowed: Bools) -> Int64s:
    """int64[N]: 10 for the nodes that cost one more pod least, 0 for those that cost it most or that it may not use.

    Args:
        prices: int64[N], what one more pod costs on each node.
        allowed: bool[N], nodes that the pod may use.
    """
    if not allowed.any():
        return np.zeros(len(prices), dtype=np.int64)
    dearest, cheapest = prices[allowed].max(), prices[allowed].min()
    scores: Int64s = np.where(allowed, BEST * (dearest - prices) // max(1, dearest - cheapest), 0)
    return scores
