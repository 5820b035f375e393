"""Progressive filling step by step: plain and slow, to compare ``flowcore.costs.shares.filling`` with.

All grow until one must stop, then those that are left, and so on.
"""

from collections.abc import Collection, Mapping

import numpy as np

from flowcore.costs.shares.filling import EPSILON, FilledQueue, Float64s, dominant_share


def filled_step_by_step(nodes: list[FilledQueue], capacity: Float64s) -> list[Float64s]:
    """What ``flowcore.costs.shares.filling.fill`` says."""
    return _Filling(nodes, capacity).run()


class _Filling:
    """The state: how much each node has."""

    def __init__(self, nodes: list[FilledQueue], capacity: Float64s) -> None:
        self._nodes, self._capacity = nodes, capacity
        self._has = [np.zeros(len(capacity)) for _ in nodes]
        self._free = capacity.copy()
        self._sizes = [dominant_share(node.demand, capacity) for node in nodes]
        self._limits = [node.limit for node in nodes]
        self._paths = [self._path(at) for at in range(len(nodes))]
        self._levels = [0.0] * len(nodes)
        self._tops = [at for at, node in enumerate(nodes) if node.parent < 0]

    def _path(self, at: int) -> list[int]:
        path = []
        while at >= 0:
            path.append(at)
            at = self._nodes[at].parent
        return path

    def run(self) -> list[Float64s]:
        """Guarantees, the deepest first, then everything."""
        own = [at for at, size in enumerate(self._sizes) if size > 0]
        depth = [len(path) for path in self._paths]
        guaranteed = [at for at, node in enumerate(self._nodes) if not np.isnan(node.guarantee).all()]
        for level in sorted({depth[at] for at in guaranteed}, reverse=True):
            # A guarantee is the limit of what is served first.
            limits, self._limits = self._limits, list(self._limits)
            served = [at for at in guaranteed if depth[at] == level]
            for at in served:
                listed, most = self._nodes[at].guarantee, limits[at]
                self._limits[at] = np.where(np.isnan(listed), most, np.minimum(np.fmax(listed, self._has[at]), most))
            self._grow([leaf for leaf in own if any(self._is_guaranteed(leaf, at) for at in served)])
            self._limits = limits
        self._grow(own)
        return self._has

    def _is_guaranteed(self, leaf: int, at: int) -> bool:
        """Whether a guarantee is about anything that a leaf below it asks for."""
        listed = ~np.isnan(self._nodes[at].guarantee)
        return at in self._paths[leaf] and bool((self._nodes[leaf].demand[listed] > 0).any())

    def _grow(self, leaves: Collection[int]) -> None:
        """Grows these leaves until none of them can any more."""
        self._levels = [dominant_share(has, self._capacity) for has in self._has]
        while active := [at for at in leaves if self._can_grow(at)]:
            speeds = self._speeds(set(active))
            growth = {
                at: speed * self._nodes[at].demand / self._sizes[at] for at, speed in speeds.items() if at in leaves
            }
            step = self._longest_step(speeds, growth)
            for at, more in growth.items():
                self._free -= step * more
                for above in self._paths[at]:
                    self._has[above] = self._has[above] + step * more
            for at, speed in speeds.items():
                self._levels[at] += step * speed

    def _can_grow(self, at: int) -> bool:
        demand = self._nodes[at].demand
        asked = demand > 0
        if dominant_share(demand - self._has[at], self._capacity) <= EPSILON:
            return False
        small = EPSILON * self._capacity
        if (self._free[asked] <= small[asked]).any():
            return False
        return not any(((self._limits[up] - self._has[up] <= small) & asked).any() for up in self._paths[at])

    def _speeds(self, active: set[int]) -> dict[int, float]:
        """By how much the dominant share of each growing node grows in a unit of time."""
        units: dict[int, Float64s] = {}
        parts: dict[int, dict[int, float]] = {}
        for at in reversed(range(len(self._nodes))):
            if at in active:
                units[at] = self._nodes[at].demand / self._sizes[at]
            growing = self._lowest([child for child in self._nodes[at].children if child in units])
            if growing:
                total = sum((self._nodes[child].weight * units[child] for child in growing), np.zeros(len(self._free)))
                size = dominant_share(total, self._capacity)
                units[at] = total / size
                parts[at] = {child: self._nodes[child].weight / size for child in growing}
        speeds: dict[int, float] = {}
        pending = [(at, self._nodes[at].weight) for at in self._lowest([at for at in self._tops if at in units])]
        while pending:
            at, speed = pending.pop()
            speeds[at] = speed
            pending += [(child, speed * part) for child, part in parts.get(at, {}).items()]
        return speeds

    def _lowest(self, siblings: list[int]) -> list[int]:
        """Those that have the least for their weight."""
        lowest = min((self._weighted(at) for at in siblings), default=0.0)
        return [at for at in siblings if self._weighted(at) <= lowest + EPSILON]

    def _weighted(self, at: int) -> float:
        return self._levels[at] / self._nodes[at].weight

    def _longest_step(self, speeds: Mapping[int, float], growth: Mapping[int, Float64s]) -> float:
        """How long all can grow like this until one must stop, or another has as little and grows too."""
        ends = []
        total = np.zeros(len(self._free))
        by_node: dict[int, Float64s] = {}
        for at, more in growth.items():
            total += more
            asked = more > 0
            ends.append(float(((self._nodes[at].demand - self._has[at])[asked] / more[asked]).min()))
            for above in self._paths[at]:
                by_node[above] = by_node.get(above, np.zeros(len(total))) + more
        grows = total > 0
        ends.append(float((self._free[grows] / total[grows]).min()))
        for at, more in by_node.items():
            bounded = (more > 0) & np.isfinite(self._limits[at])
            if bounded.any():
                ends.append(float(((self._limits[at] - self._has[at])[bounded] / more[bounded]).min()))
        for siblings in (self._tops, *(node.children for node in self._nodes)):
            growing = [at for at in siblings if at in speeds]
            if growing:
                first = growing[0]
                level, speed = self._weighted(first), speeds[first] / self._nodes[first].weight
                gaps = [self._weighted(at) - level for at in siblings if at not in speeds]
                ends += [gap / speed for gap in gaps if gap > EPSILON]
        return max(0.0, min(ends))
