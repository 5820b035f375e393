"""What the plan's costs say of each node, in kube-scheduler's terms: for pods that kube-scheduler may place itself."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Load
from flowcore.planning.problem.demands.demands import Demand

#: MaxExtenderPriority of kube-scheduler.
BEST = 10


def scores_of(demand: Demand, load: Load) -> Int64s:
    """int64[N]: 10 for the nodes that cost one more pod least, 0 for those that cost it most or that it may not use.

    Args:
        load: how full the nodes are once the plan is carried out.
    """
    prices = demand.potential.increase(load, demand.size) + demand.arc
    if not demand.allowed.any():
        return np.zeros(len(prices), dtype=np.int64)
    dearest, cheapest = prices[demand.allowed].max(), prices[demand.allowed].min()
    scores: Int64s = np.where(demand.allowed, BEST * (dearest - prices) // max(1, dearest - cheapest), 0)
    return scores
