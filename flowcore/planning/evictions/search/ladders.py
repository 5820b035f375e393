"""For all nodes at once: up to which priority, and how many pods at least, must leave for a waiting pod.

Resources alone decide these bounds, so no choice of victims is better. Nodes are then looked at one by one in the order
of their bounds, and most of them never are. A demand that needs no eviction never asks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.evictions.residents import PRIORITY_OFFSET, Residents

#: Most distinct priorities; with more, neighbours count as the lowest of them.
_MAX_TIERS = 16
#: Sums of floats may be too small by this much.
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Bounds:
    """Nodes that may take a pod once others have left, the most promising first.

    Attributes:
        nodes: int64[M].
        priority: int64[M], lower bound of the highest priority among the pods that leave.
        total: float64[M], the sum of priorities (with kube-scheduler's offset), or of other weights, is at least this.
        count: int64[M], lower bound of the pods that leave.
    """

    nodes: Int64s
    priority: Int64s
    total: NDArray[np.float64]
    count: Int64s


class Ladders:
    """Residents of each node by what they use of each resource, the largest first."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._orders: dict[int, Int64s] = {}

    def bounds(
        self, possible: Bools, may_leave: Bools, free: Int64s, requests: Int64s, weights: Int64s | None = None
    ) -> Bounds:
        """Bounds for one pod.

        Args:
            possible: bool[N], nodes to look at.
            may_leave: bool[V], residents that may leave.
            free: int64[N, R].
            requests: int64[R].
            weights: int64[V], what is summed; None: priorities with kube-scheduler's offset.
        """
        if not may_leave.any():
            nobody = np.zeros(0, dtype=np.int64)
            return Bounds(nobody, nobody, np.zeros(0), nobody)
        columns = np.nonzero(requests > 0)[0]
        missing = requests[columns] - free[:, columns]
        lowest, suffices = self._lowest_priorities(may_leave, missing, columns)
        nodes = np.nonzero(possible & suffices)[0]
        residents = self._residents
        within = may_leave & (residents.priorities < self._tier_ends(may_leave, lowest)[residents.nodes])
        count = np.zeros(len(free), dtype=np.int64)
        for place, column in enumerate(columns.tolist()):
            count = np.maximum(count, self._at_least(column, within, missing[:, place]))
        count = count[nodes]
        summed = residents.priorities + PRIORITY_OFFSET if weights is None else weights
        total = count.astype(np.float64) * self._least(summed, within, len(free))[nodes]
        order = np.lexsort((nodes, total, lowest[nodes]))
        return Bounds(nodes[order], lowest[nodes][order], total[order], count[order])

    def _tiers(self, may_leave: Bools) -> Int64s:
        """int64[T]: priorities at which tiers begin, rising."""
        priorities = np.unique(self._residents.priorities[may_leave])
        if len(priorities) > _MAX_TIERS:
            priorities = priorities[np.linspace(0, len(priorities) - 1, _MAX_TIERS).astype(np.int64)]
        return priorities

    def _tier_ends(self, may_leave: Bools, lowest: Int64s) -> Int64s:
        """int64[N]: the priority at which the next tier begins."""
        tiers = self._tiers(may_leave)
        ends = np.append(tiers[1:], 2**40)
        tier_ends: Int64s = ends[np.clip(np.searchsorted(tiers, lowest, side="right") - 1, 0, len(tiers) - 1)]
        return tier_ends

    def _lowest_priorities(self, may_leave: Bools, missing: Int64s, columns: Int64s) -> tuple[Int64s, Bools]:
        """int64[N]: the tier up to which all must leave; bool[N]: whether that suffices."""
        residents = self._residents
        tiers = self._tiers(may_leave)
        lowest = np.full(len(missing), tiers[0], dtype=np.int64)
        freed = np.zeros(missing.shape)
        suffices = np.all(missing <= 0, axis=1)
        for tier, end in zip(tiers.tolist(), [*tiers[1:].tolist(), 2**40], strict=True):
            chosen = np.nonzero(may_leave & (residents.priorities >= tier) & (residents.priorities < end))[0]
            np.add.at(freed, residents.nodes[chosen], residents.usage[np.ix_(chosen, columns)].astype(np.float64))
            enough = np.all(freed * _ROUNDING >= missing, axis=1)
            lowest[enough & ~suffices] = tier
            suffices |= enough
        return lowest, np.asarray(suffices)

    def _at_least(self, column: int, may_leave: Bools, missing: Int64s) -> Int64s:
        """int64[N]: how many of the largest users of a resource must leave, at least."""
        order = self._orders.get(column)
        if order is None:
            residents = self._residents
            order = self._orders[column] = np.lexsort((-residents.usage[:, column], residents.nodes))
        chosen = order[may_leave[order]]
        nodes = self._residents.nodes[chosen]
        usage = self._residents.usage[chosen, column].astype(np.float64)
        sums = np.cumsum(usage)
        first = np.ones(len(nodes), dtype=np.bool_)
        first[1:] = nodes[1:] != nodes[:-1]
        before = (sums - usage)[first]
        inside = sums - np.repeat(before, np.diff(np.append(np.nonzero(first)[0], len(nodes))))
        lacking = inside * _ROUNDING < missing[nodes]
        counts: Int64s = np.bincount(nodes[lacking], minlength=len(missing)) + (missing > 0)
        return counts

    def _least(self, weights: Int64s, may_leave: Bools, count: int) -> Int64s:
        """int64[N]: the least weight of a resident that may leave; 2**32: none may."""
        least = np.full(count, 2**62, dtype=np.int64)
        chosen = np.nonzero(may_leave)[0]
        np.minimum.at(least, self._residents.nodes[chosen], weights[chosen])
        least[least == 2**62] = 2**32
        return least
