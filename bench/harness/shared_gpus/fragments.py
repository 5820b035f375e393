"""FGD's measure: thousandths of GPUs that typical pods of a workload could not use, were they to arrive now.

Source: "Beware of Fragmentation" (USENIX ATC 2023), section 4, and the authors' simulator: typical pods are the most
frequent demands that together are 95 % of the list; pods without GPUs are among them, and can use no GPU.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from harness.shared_gpus.workload import WHOLE, Float64s, Remaining, Workload

_TYPICAL: Final = 0.95


class Fragments:
    """The measure, for nodes of one workload, and as the cost of a placement how much it rises."""

    def __init__(self, workload: Workload, *, in_points: bool) -> None:
        """The typical pods of the workload's list.

        Args:
            in_points: the cost is the authors' score with the other sign: whole points, 100 at most, of the sigmoid of
                the rise in GPUs.
        """
        self._in_points = in_points
        demands, share = workload.demands, workload.frequencies
        order = sorted(range(len(demands)), key=lambda at: (share[at], _as_sorted_by_the_authors(demands[at])))[::-1]
        count = int(np.searchsorted(np.cumsum(share[order]), _TYPICAL - 1e-12)) + 1
        typical = np.array(order[:count])
        self._weights = share[typical] / share[typical].sum()
        self._cpu = np.array([demands[at].cpu for at in typical])
        self._gpus = np.array([demands[at].gpus for at in typical])
        self._thousandths = np.array([demands[at].thousandths for at in typical])
        self._allowed = workload.allowed[typical]

    def costs(self, before: Remaining, after: Remaining, shape: int) -> Float64s:
        """float64[C]; see ``Method``."""
        rise = self.of(after, shape) - self.of(before, shape)
        return -np.floor(100.0 / (1.0 + np.exp(rise / WHOLE))) if self._in_points else rise

    def of(self, room: Remaining, shape: int) -> Float64s:
        """float64[C]: fragments of nodes of one shape."""
        cpu, free = room.cpu, room.free
        usable = self._allowed[:, shape] & (self._gpus > 0)
        cut = free[:, np.newaxis, :] < self._thousandths[np.newaxis, usable, np.newaxis]
        fits = (~cut).sum(axis=2) >= self._gpus[usable]
        fits &= cpu[:, np.newaxis] >= self._cpu[usable]
        left = free.sum(axis=1)
        wasted = np.where(fits, np.where(cut, free[:, np.newaxis, :], 0).sum(axis=2), left[:, np.newaxis])
        result: Float64s = wasted @ self._weights[usable] + left * self._weights[~usable].sum()
        return result


def _as_sorted_by_the_authors(demand: tuple[int, int, int, tuple[str, ...]]) -> tuple[int, int, int, str]:
    cpu, gpus, thousandths, models = demand
    return cpu, thousandths, gpus, "|".join(models)
