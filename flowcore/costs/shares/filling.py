"""Progressive filling: what is due to each queue of a tree.

The queues grow together from nothing, each along its own demand, so that their dominant shares, divided by their
weights, stay equal. A queue stops when it has what it asks for, when a resource that it asks for is used up, or when
it or a queue above it reaches a limit; the others go on. Guarantees are served first; who has more than the others by
its guarantee waits until they have as much. In a tree the same is done among the children of each queue. As a queue
that stopped counts no more for how fast its parent grows, a subtree never waits for a child that cannot grow
(Bhattacharya et al.: the nodes that are blocked are left out).

Queues are not grown step by step. Among siblings all who grow have the same level: their dominant share for their
weight. So what a queue has is a function of its level, made of straight pieces, and that of its parent is their sum
over the level of the children: sorting the ends of the pieces is enough. Only where a bound stops some of the queues
below it and others go on are these functions made anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Parts of a capacity that count as nothing.
EPSILON = 1e-9


@dataclass(slots=True)
class FilledQueue:
    """A queue of the tree as it is filled, or the pods that a queue with children has itself.

    Attributes:
        parent: position of its parent; -1: none.
        weight: above 0.
        demand: float64[R], what its own pods ask for in all, running ones included, but of resources without capacity;
            zeros for a queue with children.
        guarantee: float64[R]; NaN for resources without one.
        limit: float64[R]; infinite for resources without one.
        children: positions of its children.
    """

    parent: int
    weight: float
    demand: Float64s
    guarantee: Float64s
    limit: Float64s
    children: list[int] = field(default_factory=list)


def dominant_share(amounts: Float64s, capacity: Float64s) -> float:
    """The largest part of a capacity that amounts take; resources without capacity are left out.

    Args:
        amounts, capacity: float64[R].
    """
    asked = (amounts > 0) & (capacity > 0)
    return float((amounts[asked] / capacity[asked]).max()) if asked.any() else 0.0


def fill(nodes: list[FilledQueue], capacity: Float64s) -> list[Float64s]:
    """What is due to each queue: float64[R] a node, what is due to its children included.

    Args:
        nodes: parents before children.
        capacity: float64[R], what all of them can have.
    """
    return _Filling(nodes, capacity).run() if nodes else []


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """How queues of one parent grow: each piece is a straight line from one level of the siblings to another.

    Attributes:
        begin, end: float64[K], levels of the siblings.
        slopes: float64[K, R], growth for a unit of that level.
    """

    begin: Float64s
    end: Float64s
    slopes: Float64s


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """How a queue grows with the level of its children.

    Attributes:
        water: float64[K + 1], levels of the children, rising.
        levels: float64[K + 1], level of the queue itself there, before its weight.
        slopes: float64[K, R], growth for a unit of the children's level.
        valid: the level of the children from which on some of the queues below stop and others go on.
    """

    water: Float64s
    levels: Float64s
    slopes: Float64s
    valid: float

    @classmethod
    def of(cls, pieces: _Pieces, capacity: Float64s, level: float, valid: float) -> _Curve:
        """The sum of what its children have; at least one piece."""
        ends = np.concatenate([pieces.begin, pieces.end])
        order = np.argsort(ends, kind="stable")
        signs = np.repeat([1, -1], len(pieces.begin))
        growing = np.cumsum(signs[order])[:-1] > 0
        changes = np.concatenate([pieces.slopes, -pieces.slopes])[order]
        # What is left of sums of what stopped is rounding.
        slopes = np.where(growing[:, np.newaxis], np.maximum(np.cumsum(changes, axis=0)[:-1], 0.0), 0.0)
        water = ends[order]
        shares = _dominant_shares(slopes, capacity)
        return cls(water, level + np.concatenate([[0.0], np.cumsum(shares * np.diff(water))]), slopes, valid)

    def bounded(self, has: Float64s, limit: Float64s, asked: Bools, by_all: Bools) -> _Curve:
        """The curve until a limit is reached that stops all queues below; what reaches another is valid until there.

        Args:
            has: float64[R], what the queue has as the curve begins; limit: float64[R].
            asked: bool[R], resources that some growing queue below asks for; by_all: that all of them ask for.
        """
        bounds = np.nonzero(asked & np.isfinite(limit))[0]
        last, valid = np.inf, self.valid
        for resource in bounds.tolist():
            slopes = self.slopes[:, resource]
            amounts = has[resource] + np.concatenate([[0.0], np.cumsum(slopes * np.diff(self.water))])
            if amounts[-1] <= limit[resource]:
                continue
            # The first piece that passes the limit.
            index = max(0, int((amounts > limit[resource]).argmax()) - 1)
            reached = self.water[index] + max(0.0, limit[resource] - amounts[index]) / slopes[index]
            if by_all[resource]:
                last = min(last, reached)
            else:
                valid = min(valid, reached)
        if last >= self.water[-1]:
            return _Curve(self.water, self.levels, self.slopes, valid)
        kept = int(np.searchsorted(self.water, last, side="right"))
        water = np.append(self.water[:kept], last)
        levels = np.append(self.levels[:kept], np.interp(last, self.water, self.levels))
        return _Curve(water, levels, self.slopes[:kept], valid if valid < last else np.inf)

    def pieces(self, weight: float) -> _Pieces:
        """The curve over the level of the queue's siblings."""
        grown = np.diff(self.levels)
        grows = grown > 0
        rates = self.slopes[grows] * (np.diff(self.water)[grows] / grown[grows])[:, np.newaxis]
        return _Pieces(self.levels[:-1][grows] / weight, self.levels[1:][grows] / weight, rates * weight)

    def valid_level(self, weight: float) -> float:
        """``valid`` as a level of the queue's siblings."""
        return float(np.interp(self.valid, self.water, self.levels)) / weight if np.isfinite(self.valid) else np.inf


class _Filling:
    """The state: how much each node has. The root is one more node, the last: the cluster."""

    def __init__(self, nodes: list[FilledQueue], capacity: Float64s) -> None:
        count = len(nodes)
        self._nodes, self._capacity, self._root = nodes, capacity, count
        self._parents = np.array([node.parent if node.parent >= 0 else count for node in nodes], dtype=np.int64)
        self._depths = np.zeros(count + 1, dtype=np.int64)
        for index, parent in enumerate(self._parents.tolist()):
            self._depths[index] = self._depths[parent] + 1
        #: Nodes of each depth, the deepest first.
        self._by_depth = [np.nonzero(self._depths == depth)[0] for depth in range(int(self._depths.max()), 0, -1)]
        self._weights = np.array([float(node.weight) for node in nodes])
        self._demands = np.array([node.demand for node in nodes]).reshape(count, -1)
        self._sizes = _dominant_shares(self._demands, capacity)
        self._asked = self._demands > 0
        self._limits = np.array([*(node.limit for node in nodes), capacity]).reshape(count + 1, -1)
        self._has = np.zeros((count + 1, len(capacity)))
        self._levels = np.zeros(count + 1)

    def run(self) -> list[Float64s]:
        """Guarantees, the deepest first, then everything."""
        own = self._sizes > 0
        guarantees = np.array([node.guarantee for node in self._nodes]).reshape(len(self._nodes), -1)
        listed = ~np.isnan(guarantees)
        guaranteed = listed.any(axis=1)
        for depth in sorted(set(self._depths[:-1][guaranteed].tolist()), reverse=True):
            # A guarantee is the limit of what is served first.
            limits, self._limits = self._limits, self._limits.copy()
            served = np.nonzero(guaranteed & (self._depths[:-1] == depth))[0]
            least = np.fmax(guarantees[served], self._has[served])
            self._limits[served] = np.where(listed[served], np.minimum(least, limits[served]), limits[served])
            about = np.zeros_like(self._limits, dtype=np.bool_)
            about[served] = listed[served]
            for nodes in reversed(self._by_depth):
                about[nodes] |= about[self._parents[nodes]]
            self._grow(own & (about[:-1] & self._asked).any(axis=1))
            self._limits = limits
        self._grow(own)
        return list(self._has[:-1])

    def _grow(self, leaves: Bools) -> None:
        """Grows these leaves, bool[nodes], until none of them can any more."""
        self._levels = np.append(_dominant_shares(self._has[:-1], self._capacity), 0.0)
        # Each time but the last a bound stops a leaf at least.
        for _ in range(int(leaves.sum()) + 1):
            active = leaves & self._can_grow()
            if not active.any():
                return
            curves = self._curves(active)
            self._settle(curves, active)

    def _can_grow(self) -> Bools:
        """bool[nodes]."""
        small = EPSILON * self._capacity
        full = self._limits - self._has <= small
        for nodes in reversed(self._by_depth):
            full[nodes] |= full[self._parents[nodes]]
        wants = _dominant_shares(self._demands - self._has[:-1], self._capacity) > EPSILON
        growing: Bools = wants & ~(full[:-1] & self._asked).any(axis=1)
        return growing

    def _curves(self, active: Bools) -> dict[int, _Curve]:
        """The curve of each node with children that grow, the deepest first; of the root last."""
        some, every = np.zeros_like(self._has, dtype=np.bool_), np.ones_like(self._has, dtype=np.bool_)
        some[:-1], every[:-1] = self._asked & active[:, np.newaxis], self._asked | ~active[:, np.newaxis]
        ends = self._ends()
        curves: dict[int, _Curve] = {}
        for nodes in self._by_depth:
            np.logical_or.at(some, self._parents[nodes], some[nodes])
            np.logical_and.at(every, self._parents[nodes], every[nodes])
            growing = nodes[active[nodes] | np.isin(nodes, list(curves))]
            for parent in np.unique(self._parents[growing]).tolist():
                children = growing[self._parents[growing] == parent]
                pieces, valid = self._pieces(children, active, ends, curves)
                if len(pieces.begin):
                    curve = _Curve.of(pieces, self._capacity, float(self._levels[parent]), valid)
                    curves[parent] = curve.bounded(self._has[parent], self._limits[parent], some[parent], every[parent])
        return curves

    def _ends(self) -> Float64s:
        """float64[nodes]: level at which a leaf has all it asks for, or its own limit."""
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(self._asked, self._limits[:-1] / self._demands, np.inf).min(axis=1, initial=1.0)
        ends: Float64s = np.maximum(self._sizes * parts, self._levels[:-1])
        return ends

    def _pieces(
        self, children: Int64s, active: Bools, ends: Float64s, curves: dict[int, _Curve]
    ) -> tuple[_Pieces, float]:
        """The pieces of growing siblings, and the lowest level up to which all their curves are valid."""
        leaves = children[active[children]]
        weights = self._weights[leaves]
        pieces = [
            _Pieces(
                self._levels[leaves] / weights,
                ends[leaves] / weights,
                self._demands[leaves] * (weights / self._sizes[leaves])[:, np.newaxis],
            )
        ]
        valid = np.inf
        for child in children[~active[children]].tolist():
            weight = float(self._weights[child])
            pieces.append(curves[child].pieces(weight))
            valid = min(valid, curves[child].valid_level(weight))
        columns = zip(*((piece.begin, piece.end, piece.slopes) for piece in pieces), strict=True)
        return _Pieces(*(np.concatenate(column) for column in columns)), valid

    def _settle(self, curves: dict[int, _Curve], active: Bools) -> None:
        """All grow as far as their curves are valid."""
        ends, root = self._ends(), curves[self._root]
        water = np.full(len(self._nodes) + 1, -np.inf)
        water[self._root] = min(root.valid, float(root.water[-1]))
        for nodes in reversed(self._by_depth):
            reached = water[self._parents[nodes]] * self._weights[nodes]
            leaves = active[nodes]
            queues = nodes[leaves]
            self._levels[queues] = np.clip(reached[leaves], self._levels[queues], ends[queues])
            for node, level in zip(nodes[~leaves].tolist(), reached[~leaves].tolist(), strict=True):
                curve = curves.get(node)
                if curve is not None and level > curve.levels[0]:
                    water[node] = np.interp(level, curve.levels, curve.water)
                    self._levels[node] = min(level, float(curve.levels[-1]))
        self._has[:] = 0.0
        own = self._sizes > 0
        self._has[:-1][own] = self._demands[own] * (self._levels[:-1][own] / self._sizes[own])[:, np.newaxis]
        for nodes in self._by_depth:
            np.add.at(self._has, self._parents[nodes], self._has[nodes])


def _dominant_shares(amounts: Float64s, capacity: Float64s) -> Float64s:
    """float64[M]: ``dominant_share`` of each row of amounts, float64[M, R]."""
    offered = capacity > 0
    dominant: Float64s = (np.maximum(amounts[:, offered], 0.0) / capacity[offered]).max(axis=1, initial=0.0)
    return dominant
