"""The CPU-memory model: spread by least requested and balance.

Sources: seeds "node selector and node affinity" and "taints and tolerations" (slot costs that rise by one step a pod;
the offset that keeps costs positive), Firmament cpu_cost_model.cc, kube-scheduler's LeastAllocated and
BalancedAllocation scores.

With ``u_cpu``, ``u_mem`` the utilisation of the node::

    slot(i) = 1000 * leastRequested * (u_cpu + u_mem) / 2            with i pods of this round there
            + 1000 * balance * |u_cpu - u_mem| / 2                   with i + 1 pods of this round there
    arc     = 1000
            + 1000 * leastRequested * (its cpu / node + its memory / node) / 2
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from flowcore.costs.model import Float64s, Load
from flowcore.costs.scale import MOST_SHARE, OMEGA, share
from flowcore.model.pods import PodClass
from flowcore.model.policies import CostWeights
from flowcore.model.snapshot import Int64s


class CPUMemory:
    """See the module."""

    name: ClassVar[str] = "CPUMemory"

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:  # noqa: ARG002
        """See CostModel."""
        brought = share(size[np.newaxis, :2], load.capacity[:, :2]).sum(axis=1) / 2
        cost: Int64s = OMEGA + np.rint(OMEGA * weights.least_requested * brought).astype(np.int64)
        return cost

    def slot_costs(self, load: Load, size: Float64s, levels: Int64s, weights: CostWeights) -> Int64s:
        """See CostModel."""
        steps = levels[np.newaxis, :, np.newaxis].astype(np.float64)
        pod, capacity = _levels(size), _levels(load.capacity)
        taken = _levels(load.taken) + steps * pod
        before, after = share(taken, capacity), share(taken + pod, capacity)
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
        capacity, taken = _levels(load.capacity), _levels(load.taken)
        small, large = _levels(smallest), _levels(largest)
        least, most = taken + steps * small, taken + steps * large
        requested = weights.least_requested * share(least, capacity).sum(axis=2) / 2
        low = share(least + small, capacity)
        high = share(most + large, capacity)
        apart = np.maximum(low - high[:, :, ::-1], 0).max(axis=2)
        # The small change keeps a sum that rounds up here from being one that rounds down in ``slot_costs``.
        floor: Int64s = np.rint(OMEGA * (requested + weights.balance * apart / 2) - 1e-6).astype(np.int64)
        return floor

    def dearest_slot(self, weights: CostWeights) -> int:
        """See CostModel."""
        return OMEGA * MOST_SHARE * (weights.least_requested + weights.balance)


def _levels(columns: Float64s) -> Float64s:
    """float64[N, 1, 2]: cpu and memory, ready for levels, and side by side, without which all else takes longer."""
    return np.ascontiguousarray(columns[:, :2])[:, np.newaxis, :]
