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
        cpu, memory = (_filled(load, size, part, levels) for part in (0, 1))
        own_cpu, own_memory = (_filled(load, size, part, levels + 1) for part in (0, 1))
        requested = weights.least_requested * (cpu + memory) / 2
        imbalance = weights.balance * np.abs(own_cpu - own_memory) / 2
        cost = np.rint(OMEGA * (requested + imbalance)).astype(np.int64)
        # A min-cost flow fills slots in order only if they never get cheaper; with balance above leastRequested
        # a pod that evens a node out would make them fall.
        rising: Int64s = np.maximum.accumulate(cost, axis=1)
        return rising

    def slot_floors(
        self, load: Load, smallest: Float64s, largest: Float64s, levels: Int64s, weights: CostWeights
    ) -> Int64s:
        """See CostModel: as full as the smallest pods make the node, and as balanced as any pods can make it."""
        requested = (_filled(load, smallest, 0, levels) + _filled(load, smallest, 1, levels)) / 2
        low = [_filled(load, smallest, part, levels + 1) for part in (0, 1)]
        high = [_filled(load, largest, part, levels + 1) for part in (0, 1)]
        apart = np.maximum(np.maximum(low[0] - high[1], low[1] - high[0]), 0) / 2
        # The small change keeps a sum that rounds up here from being one that rounds down in ``slot_costs``.
        cost = OMEGA * (weights.least_requested * requested + weights.balance * apart)
        floor: Int64s = np.rint(cost - 1e-6).astype(np.int64)
        return floor

    def dearest_slot(self, weights: CostWeights) -> int:
        """See CostModel."""
        return OMEGA * MOST_SHARE * (weights.least_requested + weights.balance)


def _filled(load: Load, size: Float64s, part: int, levels: Int64s) -> Float64s:
    """float64[N, K]: share of cpu (part 0) or memory (1) that is taken once ``levels`` such pods came."""
    taken = load.taken[:, part, np.newaxis] + levels.astype(np.float64) * size[:, part, np.newaxis]
    return share(taken, load.capacity[:, part, np.newaxis])
