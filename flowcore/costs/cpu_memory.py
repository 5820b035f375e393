"""The CPU-memory model: spread by least requested and balance, lean towards preferences.

Sources: seeds "node selector and node affinity" and "taints and tolerations" (slot costs that rise by one step a pod;
the offset that keeps costs positive), Firmament cpu_cost_model.cc, kube-scheduler's LeastAllocated and
BalancedAllocation scores.

With ``u_cpu``, ``u_mem`` the utilisation of the node::

    slot(i) = 1000 * leastRequested * (u_cpu + u_mem) / 2            with i pods of this round there
            + 1000 * balance * |u_cpu - u_mem| / 2                   with i + 1 pods of this round there
    arc     = 1000
            + 1000 * leastRequested * (its cpu / node + its memory / node) / 2
            +   10 * nodePreference * (weights of its preferred terms - weights of those the node matches)
            + 1000 * taintPreference * PreferNoSchedule taints it does not tolerate

Where the documents subtract matched weights and add an offset, this charges the unmatched ones, which is the same up
to a constant per class and keeps costs positive whatever the weights. A weight of 100 weighs as
much as a node going from empty to full; weights count absolutely, so that of two pods that want the same node the one
that wants it more gets it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from flowcore.costs.model import Float64s, Load
from flowcore.filters import node_affinity, taint_toleration
from flowcore.model.pods import PodClass
from flowcore.model.policies import CostWeights
from flowcore.model.snapshot import Int64s

#: Cost of one whole node's utilisation (Firmament's omega), and the offset of each arc.
OMEGA = 1000
#: No node counts as more than this many times full.
_MOST_SHARE = 16


class CPUMemory:
    """See the module."""

    name: ClassVar[str] = "CPUMemory"

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:
        """See CostModel."""
        brought = _share(size[np.newaxis, :], load.capacity).sum(axis=1) / 2
        cost: Int64s = OMEGA + np.rint(OMEGA * weights.least_requested * brought).astype(np.int64)
        if pod_class.preferred_affinity:
            wished = sum(max(term.weight, 0) for term in pod_class.preferred_affinity)
            matched = node_affinity.preference(pod_class, load.table)
            cost += (OMEGA // 100) * weights.node_preference * (wished - matched)
        cost += OMEGA * weights.taint_preference * taint_toleration.untolerated_preferences(pod_class, load.table)
        return cost

    def slot_costs(self, load: Load, size: Float64s, levels: Int64s, weights: CostWeights) -> Int64s:
        """See CostModel."""
        steps = levels[np.newaxis, :, np.newaxis].astype(np.float64)
        taken = load.taken[:, np.newaxis, :] + steps * size[:, np.newaxis, :]
        before = _share(taken, load.capacity[:, np.newaxis, :])
        after = _share(taken + size[:, np.newaxis, :], load.capacity[:, np.newaxis, :])
        requested = weights.least_requested * before.sum(axis=2) / 2
        imbalance = weights.balance * np.abs(after[:, :, 0] - after[:, :, 1]) / 2
        cost = np.rint(OMEGA * (requested + imbalance)).astype(np.int64)
        # A min-cost flow fills slots in order only if they never get cheaper; with balance above leastRequested
        # a pod that evens a node out would make them fall.
        rising: Int64s = np.maximum.accumulate(cost, axis=1)
        return rising

    def slot_floors(
        self, load: Load, smallest: Float64s, largest: Float64s, levels: Int64s, weights: CostWeights
    ) -> Int64s:
        """See CostModel: as full as the smallest pods make the node, and as balanced as any pods can make it."""
        steps = levels[np.newaxis, :, np.newaxis].astype(np.float64)
        capacity = load.capacity[:, np.newaxis, :]
        least = load.taken[:, np.newaxis, :] + steps * smallest[:, np.newaxis, :]
        most = load.taken[:, np.newaxis, :] + steps * largest[:, np.newaxis, :]
        requested = weights.least_requested * _share(least, capacity).sum(axis=2) / 2
        low = _share(least + smallest[:, np.newaxis, :], capacity)
        high = _share(most + largest[:, np.newaxis, :], capacity)
        apart = np.maximum(low - high[:, :, ::-1], 0).max(axis=2)
        # The small change keeps a sum that rounds up here from being one that rounds down in ``slot_costs``.
        floor: Int64s = np.rint(OMEGA * (requested + weights.balance * apart / 2) - 1e-6).astype(np.int64)
        return floor

    def dearest_slot(self, weights: CostWeights) -> int:
        """See CostModel."""
        return OMEGA * _MOST_SHARE * (weights.least_requested + weights.balance)


def _share(amount: Float64s, capacity: Float64s) -> Float64s:
    """Amount over capacity; a node without the resource counts as full."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(capacity > 0, amount / np.where(capacity > 0, capacity, 1), 1.0)
    return np.minimum(share, float(_MOST_SHARE))
