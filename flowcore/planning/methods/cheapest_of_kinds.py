"""The cheapest node of each kind, where nodes of a kind differ by a cost of their own."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s


class CheapestOfKinds:
    """Places, each of a kind and with a cost; infinite: it is closed."""

    def __init__(self, costs: Float64s, kinds: Int64s) -> None:
        """float64[K], cost of each place; int64[K], its kind."""
        self._costs, self._kinds = costs.tolist(), kinds.tolist()
        #: Cost and place, the cheapest first and of equals the first; some entries no longer hold.
        self._heaps: list[list[tuple[float, int]]] = [[] for _ in range(int(kinds.max(initial=-1)) + 1)]
        for place in np.nonzero(np.isfinite(costs))[0].tolist():
            self._heaps[self._kinds[place]].append((self._costs[place], place))
        for heap in self._heaps:
            heapify(heap)
        #: Of the cheapest place of each kind.
        self._least = np.array([heap[0][0] if heap else np.inf for heap in self._heaps])

    def cheapest(self, added: Int64s) -> tuple[int, int]:
        """Kind and place of the least cost, of equals the first place; -1: all are closed.

        Args:
            added: what each kind costs beside.
        """
        costs = self._least + added
        kind = int(costs.argmin()) if len(costs) else -1
        if kind < 0 or costs[kind] == np.inf:
            return -1, -1
        equal = np.nonzero(costs == costs[kind])[0]
        if len(equal) > 1:
            kind = min(equal.tolist(), key=lambda each: self._heaps[each][0][1])
        return kind, self._heaps[kind][0][1]

    def move(self, place: int, kind: int, after: int) -> None:
        """A place becomes one of another kind, which may be new."""
        if after == len(self._heaps):
            self._heaps.append([])
            self._least = np.append(self._least, np.inf)
        self._kinds[place] = after
        if after != kind:
            heappush(self._heaps[after], (self._costs[place], place))
            self._tidy(kind)
            self._tidy(after)

    def price(self, places: Int64s, costs: Float64s) -> None:
        """Some places cost something else now."""
        touched = set[int]()
        for place, cost in zip(places.tolist(), costs.tolist(), strict=True):
            kind = self._kinds[place]
            if cost != self._costs[place]:
                self._costs[place] = cost
                touched.add(kind)
                if cost < np.inf:
                    heappush(self._heaps[kind], (cost, place))
        for kind in touched:
            self._tidy(kind)

    def _tidy(self, kind: int) -> None:
        heap = self._heaps[kind]
        while heap and (self._kinds[heap[0][1]] != kind or self._costs[heap[0][1]] != heap[0][0]):
            heappop(heap)
        self._least[kind] = heap[0][0] if heap else np.inf
