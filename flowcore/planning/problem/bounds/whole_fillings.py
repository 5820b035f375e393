"""What whole pods are worth on a node at most, where prices say what a pod of each class is worth.

Gilmore and Gomory (A Linear Programming Approach to the Cutting Stock Problem, Operations Research 9, 1961) add up the
best fillings of nodes by whole pods. The best filling by parts of pods is worth more: a node with room for a pod and a
half counts as such. Here the first pods of a filling are whole, and what they leave is filled by parts. That is at
least what the best whole filling is worth, whatever the prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s

#: How many classes of a node are told apart, and how many pods of a filling are whole.
_CLASSES, _WHOLE = 6, 3
#: A pod fits if it takes no more than the room and this part of it: floats are off by less.
_FLOAT_ERROR = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class WholeFillings:
    """The best fillings of M nodes, or better than these.

    Attributes:
        worth: float64[M], none negative.
        pods: float64[C, M], what they hold.
    """

    worth: Float64s
    pods: Float64s


def fill_nodes(worth: Float64s, requests: Int64s, room: Int64s, most: Int64s, usage_prices: Float64s) -> WholeFillings:
    """Fills each node by itself.

    The classes that are worth most for what they take are told apart, the others taken for as good as the best of
    them that takes nothing but room. A filling is looked at in the order of its classes, so each comes once.

    Args:
        worth: float64[C, M], of a pod of each class on each node; nothing that is not positive is placed.
        requests: int64[C, R]; room: int64[M, R].
        most: int64[C, M], pods of each class that a node takes at most.
        usage_prices: float64[M, R], not negative: what pods take is measured by these. Any are valid.
    """
    search = _Search(worth, requests.astype(np.float64), room.astype(np.float64), most, usage_prices)
    nodes = np.arange(worth.shape[1])
    search.extend(nodes, np.zeros(len(nodes)), search.room, ())
    return WholeFillings(search.best * (1 + _FLOAT_ERROR), search.pods())


class _Search:
    """Fillings in the order of their classes, of all nodes at once.

    Attributes:
        room: float64[M, R].
        best: float64[M].
    """

    def __init__(
        self, worth: Float64s, requests: Float64s, room: Float64s, most: Int64s, usage_prices: Float64s
    ) -> None:
        classes, nodes = worth.shape
        count = min(_CLASSES, classes)
        rows = np.arange(nodes)
        useful = (worth > 0) & (most > 0)
        usage = np.zeros_like(worth)
        for asked, price in zip(requests.T, usage_prices.T, strict=True):
            usage += np.multiply.outer(asked, price)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            efficiency = np.where(useful, worth / usage, 0.0)  # infinite where it takes nothing that counts
        #: int64[K + 1, M], the classes told apart on each node, the most efficient first, and the best of the others.
        self._classes = np.zeros((count + 1, nodes), dtype=np.int64)
        if classes > count:
            first = np.argpartition(-efficiency, count, axis=0)[: count + 1]
            self._others = efficiency[first[count], rows]
            self._classes[count] = first[count]
            first = first[:count]
        else:
            first = np.broadcast_to(np.arange(count)[:, np.newaxis], (count, nodes))
            self._others = np.zeros(nodes)
        order = np.argsort(-efficiency[first, rows], axis=0, kind="stable")
        self._classes[:count] = np.take_along_axis(first, order, axis=0)
        told = self._classes[:count]
        self._worth, self._most, self._efficiency = worth[told, rows], most[told, rows], efficiency[told, rows]
        self._requests, self._least = requests[told], requests.min(axis=0)
        self._worth_of_all = worth
        self._prices, self._slack = usage_prices, room * _FLOAT_ERROR
        self.room, self.best = room, np.zeros(nodes)
        #: Of the best fillings: int64[M, W] the whole pods as places in ``_classes``, -1 for none; and parts of pods.
        self._whole = np.full((nodes, _WHOLE), -1, dtype=np.int64)
        self._part, self._parts = np.zeros(nodes, dtype=np.int64), np.zeros(nodes)

    def extend(self, nodes: Int64s, value: Float64s, rest: Float64s, placed: tuple[int, ...]) -> None:
        """Looks at all fillings that begin with some whole pods.

        Args:
            nodes: int64[K], where they fit; value: float64[K], what they are worth.
            rest: float64[K, R], the room that they leave.
            placed: their places in ``_classes``, rising.
        """
        slack = self._slack[nodes]
        left = (self._prices[nodes] * np.maximum(rest, 0.0)).sum(axis=1)
        by = np.where((rest + slack >= self._least).all(axis=1), self._others[nodes], 0.0)
        part = np.full(len(nodes), len(self._worth))
        first = placed[-1] if placed else 0
        if len(placed) == _WHOLE:
            for place in range(len(self._worth) - 1, first - 1, -1):
                fits = (rest + slack >= self._requests[place, nodes]).all(axis=1) & (self._efficiency[place, nodes] > 0)
                by = np.where(fits, self._efficiency[place, nodes], by)
                part = np.where(fits, place, part)
        with np.errstate(invalid="ignore"):
            beyond = np.where(np.isinf(by), np.inf, by * left)
        self._keep(nodes, value, beyond, placed, part)
        if len(placed) == _WHOLE:
            return
        for place in range(first, len(self._worth)):
            after = rest - self._requests[place, nodes]
            again = placed.count(place)
            fits = (after + slack >= 0).all(axis=1) & (self._efficiency[place, nodes] > 0)
            fits &= self._most[place, nodes] > again
            if fits.any():
                more = value[fits] + self._worth[place, nodes[fits]]
                self.extend(nodes[fits], more, after[fits], (*placed, place))

    def _keep(self, nodes: Int64s, value: Float64s, beyond: Float64s, placed: tuple[int, ...], part: Int64s) -> None:
        better = value + beyond > self.best[nodes]
        chosen = nodes[better]
        self.best[chosen] = (value + beyond)[better]
        self._whole[chosen] = -1
        self._whole[chosen, : len(placed)] = placed
        self._part[chosen], self._parts[chosen] = part[better], beyond[better]

    def pods(self) -> Float64s:
        """float64[C, M]: pods of the best fillings."""
        pods, rows = np.zeros(self._worth_of_all.shape), np.arange(len(self.best))
        for place in self._whole.T:
            taken = place >= 0
            pods[self._classes[place[taken], rows[taken]], rows[taken]] += 1.0
        taken = self._parts > 0
        of = self._classes[self._part[taken], rows[taken]]
        pods[of, rows[taken]] += self._parts[taken] / self._worth_of_all[of, rows[taken]]
        return pods
