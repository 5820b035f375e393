"""What all cost models share: the scale, shares of a node, and the price of what a pod prefers.

1000 is the cost of one whole node. Where the documents subtract matched weights and add an offset, this charges the
unmatched ones, which is the same up to a constant per class and keeps costs positive whatever the weights. A weight of
100 weighs as much as a node going from empty to full; weights count absolutely, so that of two pods that want
the same node the one that wants it more gets it.
"""

from __future__ import annotations

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.filters import node_affinity, taint_toleration
from flowcore.model.pods import PodClass
from flowcore.model.policies import CostWeights
from flowcore.model.snapshot import Int64s, NodeTable

#: Cost of one whole node's utilisation (Firmament's omega), and the offset of each arc.
OMEGA = 1000
#: No node counts as more than this many times full.
MOST_SHARE = 16


def share(amount: Float64s, capacity: Float64s) -> Float64s:
    """Amount over capacity; a node without the resource counts as full."""
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(capacity > 0, amount / np.where(capacity > 0, capacity, 1), 1.0)
    return np.minimum(part, float(MOST_SHARE))


def preferences(pod_class: PodClass, table: NodeTable, weights: CostWeights) -> Int64s:
    """int64[N], none negative: what each node costs a class for falling short of what it prefers.

    ::

          10 * nodePreference * (weights of its preferred terms - weights of those the node matches)
      + 1000 * taintPreference * PreferNoSchedule taints it does not tolerate
    """
    cost = OMEGA * weights.taint_preference * taint_toleration.untolerated_preferences(pod_class, table)
    if pod_class.preferred_affinity:
        wished = sum(max(term.weight, 0) for term in pod_class.preferred_affinity)
        matched = node_affinity.preference(pod_class, table)
        cost += (OMEGA // 100) * weights.node_preference * (wished - matched)
    return cost
