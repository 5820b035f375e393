"""What a placement takes from the pods of the workload: the worth of what its node has left, less what fits badly.

What is left of a node is worth the most that pods could hold there, each pod at its price. GPUs and cpu are both
short on some node, and which of them differs by node. So cpu has a price too, and on each node the one that makes the
node worth the least: a bound of Lagrange. Where cpu is plenty it is nothing, and where GPUs lack cpu they are worth
little and the cpu much.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from harness.shared_gpus.prices import LEVELS, STEP, fill, mean_prices
from harness.shared_gpus.workload import WHOLE, Float64s, Int64s, Remaining, Workload

#: Prices of 1000 milli-cores, in thousandths of a GPU.
_OF_CPU: Final = (0, 2, 5, 10, 20, 40, 80)
#: Milli-cores for each thousandth of a GPU: where fewer are left the thousandth counts as without cpu, in parts.
_RATIOS: Final = (8, 12, 16)
#: Cost of a thousandth without cpu, by one of these ratios.
_WITHOUT_CPU: Final = 0.07
#: Cost of a thousandth that pods of several GPUs could not use, were all pods such pods.
_SEVERAL: Final = 0.1
#: Cost of each milli-core that is left on the node: of nodes alike the one is filled first that has the least.
_LEFT: Final = 0.34 / 1000


class RoomWorth:
    """Costs by the prices of the workload's demands, in thousandths of a GPU."""

    def __init__(self, workload: Workload) -> None:
        """Prices of the workload's list; by them what is left of a GPU is worth the most that fits there."""
        prices, demands = mean_prices(workload), workload.demands
        self._shapes = workload.shapes
        self._worth = np.zeros((len(workload.shapes), LEVELS, len(_OF_CPU)))
        cpu = np.array([demand.cpu for demand in demands]) / 1000
        gpus = np.array([demand.gpus for demand in demands])
        sizes = np.array([max(1, demand.thousandths // STEP) for demand in demands], dtype=np.int64)
        for place, shape in enumerate(workload.shapes):
            for step, of_cpu in enumerate(_OF_CPU):
                net = prices - of_cpu * cpu
                chosen = (gpus > 0) & (gpus <= shape.gpus) & workload.allowed[:, place] & (net > 0)
                self._worth[place, :, step], _ = fill(net[chosen] / gpus[chosen], sizes[chosen])
        self._several = _several(workload)

    def costs(self, before: Remaining, after: Remaining, shape: int) -> Float64s:
        """float64[C]; see ``Method``."""
        rise = self.of(after, shape) - self.of(before, shape)
        return rise + _LEFT * after.cpu

    def of(self, room: Remaining, shape: int) -> Float64s:
        """float64[C]: what fits badly, at its cost, less the worth of what is left."""
        cpu, free = room.cpu, room.free
        worth = (self._worth[shape][free // STEP].sum(axis=1) + np.multiply.outer(cpu / 1000, _OF_CPU)).min(axis=1)
        left, whole = free.sum(axis=1), (free == WHOLE).sum(axis=1)
        without = sum(np.maximum(left - cpu / ratio, 0.0) for ratio in _RATIOS)
        unusable = np.zeros(len(cpu))
        for gpus, typical, share in self._several:
            if gpus <= self._shapes[shape].gpus:
                pods = np.minimum(whole // gpus, cpu // typical)
                unusable += share * (left - WHOLE * gpus * pods)
        result: Float64s = _WITHOUT_CPU * without + _SEVERAL * unusable - worth
        return result


def _several(workload: Workload) -> list[tuple[int, float, float]]:
    """For each number of GPUs above one: the mean cpu of its pods, and which share of the list's pods they are."""
    cpu = np.array([demand.cpu for demand in workload.demands])
    gpus: Int64s = np.array([demand.gpus for demand in workload.demands])
    shares = workload.frequencies
    return [
        (int(count), float(shares[same] @ cpu[same] / shares[same].sum()), float(shares[same].sum()))
        for count in np.unique(gpus[gpus > 1])
        for same in [gpus == count]
    ]
