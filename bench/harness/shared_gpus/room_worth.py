"""What a placement takes from the pods of the workload: the worth of room, GPUs left without cpu, and a tight fit."""

from __future__ import annotations

from typing import Final

import numpy as np

from harness.shared_gpus.prices import LEVELS, STEP, fill, mean_prices
from harness.shared_gpus.workload import Float64s, Remaining, Workload

#: Milli-cores for each thousandth of a GPU: where fewer are left the thousandth counts as without cpu, in parts.
_RATIOS: Final = (8, 12, 16)
#: Cost of a thousandth without cpu, by one of these ratios.
_WITHOUT_CPU: Final = 0.05
#: Cost of each milli-core that is left on the node: of nodes alike the one is filled first that has the least.
_LEFT: Final = 0.34 / 1000


class RoomWorth:
    """Costs by the prices of the workload's demands, in thousandths of a GPU."""

    def __init__(self, workload: Workload) -> None:
        """Prices of the workload's list; by them what is left of a GPU is worth the most that fits there."""
        prices = mean_prices(workload)
        self._worth = np.zeros((len(workload.shapes), LEVELS))
        for place, shape in enumerate(workload.shapes):
            chosen = [
                at
                for at, each in enumerate(workload.demands)
                if 0 < each.gpus <= shape.gpus and workload.allowed[at, place] and prices[at] > 0
            ]
            sizes = np.array([max(1, workload.demands[at].thousandths // STEP) for at in chosen], dtype=np.int64)
            gpus = np.array([workload.demands[at].gpus for at in chosen])
            self._worth[place], _ = fill(prices[chosen] / gpus, sizes)

    def costs(self, before: Remaining, after: Remaining, shape: int) -> Float64s:
        """float64[C]; see ``Method``."""
        rise = self.of(after, shape) - self.of(before, shape)
        return rise + _LEFT * after.cpu

    def of(self, room: Remaining, shape: int) -> Float64s:
        """float64[C]: thousandths without cpu, at their cost, less the worth of what is left."""
        left = room.free.sum(axis=1)
        without = sum(np.maximum(left - room.cpu / ratio, 0.0) for ratio in _RATIOS)
        return _WITHOUT_CPU * without - self._worth[shape][room.free // STEP].sum(axis=1)
