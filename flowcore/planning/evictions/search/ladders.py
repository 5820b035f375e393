"""For all nodes at once: up to which priority, and how many pods at least, must leave for a waiting pod.

Resources alone decide these bounds, so no choice of victims is better. Nodes are then looked at one by one in the order
of their bounds, and most of them never are. A demand that needs no eviction never asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.plan_key import PRIORITY_OFFSET
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import Residents

#: Most distinct priorities; with more, neighbours count as the lowest of them.
_MAX_TIERS = 16
#: Sums of floats may be too small by this much.
_ROUNDING = 1 + 1e-9
#: Where more than one in so many nodes has changed, the bounds of all are found anew: that is quicker.
_FEW_OF_NODES = 8


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


@dataclass(frozen=True, slots=True)
class NodeBounds:
    """The same for some nodes in their order, M of them.

    Attributes:
        suffices: bool[M], whether there is room once all have left that may; of no other node the rest means anything.
        priority, total, count: as in ``Bounds``.
    """

    suffices: Bools
    priority: Int64s
    total: NDArray[np.float64]
    count: Int64s

    @classmethod
    def unknown(cls, count: int) -> NodeBounds:
        """The bounds of nodes of which none suffices as far as is known.

        Args:
            count: how many nodes there are.
        """
        suffices, numbers = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.int64)
        return cls(suffices, numbers, np.zeros(count), numbers.copy())

    def put(self, rows: Int64s, others: NodeBounds) -> None:
        """Some of them become others."""
        self.suffices[rows] = others.suffices
        self.priority[rows] = others.priority
        self.total[rows] = others.total
        self.count[rows] = others.count

    def best_first(self, possible: Bools) -> Bounds:
        """The bounds of the nodes that suffice and are possible, the best first. These are the bounds of all nodes.

        Args:
            possible: bool[N].
        """
        nodes = np.nonzero(possible & self.suffices)[0]
        nodes = nodes[np.lexsort((self.total[nodes], self.priority[nodes]))]
        return Bounds(nodes, self.priority[nodes], self.total[nodes], self.count[nodes])


class Ladders:
    """Residents of each node by what they use of each resource, the largest first."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._orders: dict[int, Int64s] = {}

    def tiers(self, may_leave: Bools) -> Int64s:
        """int64[T]: priorities of residents that may leave, bool[V], at which tiers begin, rising."""
        levels, level_of = self._levels
        priorities = levels[np.bincount(level_of[may_leave], minlength=len(levels)) > 0]
        if len(priorities) > _MAX_TIERS:
            priorities = priorities[np.linspace(0, len(priorities) - 1, _MAX_TIERS).astype(np.int64)]
        return priorities

    @cached_property
    def _levels(self) -> tuple[Int64s, Int64s]:
        """int64[L], all priorities, rising; and int64[V], the place of each resident's among them."""
        levels, level_of = np.unique(self._residents.priorities, return_inverse=True)
        return levels, level_of.ravel()

    def of_all_nodes(
        self, may_leave: Bools, tiers: Int64s, free: Int64s, requests: Int64s, weights: Int64s
    ) -> NodeBounds:
        """Bounds for one pod on all nodes.

        Args:
            may_leave: bool[V], residents that may leave, one at least.
            tiers: theirs.
            free: int64[N, R].
            requests: int64[R].
            weights: int64[V], what is summed.
        """
        columns = np.nonzero(requests > 0)[0]
        largest_first = [order[may_leave[order]] for order in map(self._order, columns.tolist())]
        members, rows, missing = np.nonzero(may_leave)[0], np.arange(len(free)), requests[columns] - free[:, columns]
        return self._bounds(members, largest_first, rows, tiers, columns, missing, weights)

    def of_nodes(
        self, nodes: Int64s, may_leave: Bools, tiers: Int64s, free: Int64s, requests: Int64s, weights: Int64s
    ) -> NodeBounds:
        """Bounds for one pod on some nodes, int64[M]; the rest as above."""
        residents, columns = self._residents, np.nonzero(requests > 0)[0]
        here = np.array([resident for node in nodes.tolist() for resident in residents.on(node)], dtype=np.int64)
        members = here[may_leave[here]]
        largest_first = [
            members[np.lexsort((-residents.usage[members, column], residents.nodes[members]))]
            for column in columns.tolist()
        ]
        rows = np.zeros(len(free), dtype=np.int64)
        rows[nodes] = np.arange(len(nodes))
        missing = requests[columns] - free[np.ix_(nodes, columns)]
        return self._bounds(members, largest_first, rows, tiers, columns, missing, weights)

    def _bounds(
        self,
        members: Int64s,
        largest_first: Sequence[Int64s],
        rows: Int64s,
        tiers: Int64s,
        columns: Int64s,
        missing: Int64s,
        weights: Int64s,
    ) -> NodeBounds:
        """Bounds of M nodes.

        Args:
            members: their residents that may leave.
            largest_first: for each column the same, node by node, the largest first.
            rows: int64[N], the row of each of the nodes.
            columns: int64[C], resources that the pod asks for.
            missing: int64[M, C], what they lack.
            weights: int64[V], what is summed.
        """
        residents = self._residents
        lowest, suffices = self._lowest_priorities(members, rows, tiers, columns, missing)
        ends = np.append(tiers[1:], 2**40)
        # The priority at which the next tier begins.
        end = ends[np.clip(np.searchsorted(tiers, lowest, side="right") - 1, 0, len(tiers) - 1)]
        count = np.zeros(len(missing), dtype=np.int64)
        for place, (column, order) in enumerate(zip(columns.tolist(), largest_first, strict=True)):
            within = order[residents.priorities[order] < end[rows[residents.nodes[order]]]]
            count = np.maximum(count, self._at_least(column, within, rows, missing[:, place]))
        least = np.full(len(missing), 2**62, dtype=np.int64)
        within = members[residents.priorities[members] < end[rows[residents.nodes[members]]]]
        np.minimum.at(least, rows[residents.nodes[within]], weights[within])
        total = count.astype(np.float64) * np.where(least == 2**62, 2**32, least)
        return NodeBounds(suffices, lowest, total, count)

    def _lowest_priorities(
        self, members: Int64s, rows: Int64s, tiers: Int64s, columns: Int64s, missing: Int64s
    ) -> tuple[Int64s, Bools]:
        """int64[M]: the tier up to which all must leave; bool[M]: whether that suffices."""
        residents = self._residents
        lowest = np.full(len(missing), tiers[0], dtype=np.int64)
        freed = np.zeros(missing.shape)
        suffices = np.all(missing <= 0, axis=1)
        tier_of = np.searchsorted(tiers, residents.priorities[members], side="right") - 1
        for number, tier in enumerate(tiers.tolist()):
            chosen = members[tier_of == number]
            chosen_rows = rows[residents.nodes[chosen]]
            for place, column in enumerate(columns.tolist()):
                freed[:, place] += np.bincount(chosen_rows, residents.usage[chosen, column], minlength=len(missing))
            enough = np.all(freed * _ROUNDING >= missing, axis=1)
            lowest[enough & ~suffices] = tier
            suffices |= enough
        return lowest, np.asarray(suffices)

    def _order(self, column: int) -> Int64s:
        """int64[V]: all residents, node by node, the largest users of a resource first."""
        order = self._orders.get(column)
        if order is None:
            residents = self._residents
            order = self._orders[column] = np.lexsort((-residents.usage[:, column], residents.nodes))
        return order

    def _at_least(self, column: int, largest_first: Int64s, rows: Int64s, missing: Int64s) -> Int64s:
        """int64[M]: how many of the largest users of a resource must leave, at least."""
        nodes = self._residents.nodes[largest_first]
        usage = self._residents.usage[largest_first, column].astype(np.float64)
        sums = np.cumsum(usage)
        first = np.ones(len(nodes), dtype=np.bool_)
        first[1:] = nodes[1:] != nodes[:-1]
        before = (sums - usage)[first]
        inside = sums - np.repeat(before, np.diff(np.append(np.nonzero(first)[0], len(nodes))))
        of_node = rows[nodes]
        lacking = inside * _ROUNDING < missing[of_node]
        counts: Int64s = np.bincount(of_node[lacking], minlength=len(missing)) + (missing > 0)
        return counts


class BoundsOfDemand:
    """Bounds for one pod of a demand; after a decision only the nodes are judged again that it has changed.

    Attributes:
        weights: int64[V], what is summed.
    """

    def __init__(
        self,
        state: Plan,
        ladders: Ladders,
        requests: Int64s,
        weights: Int64s | None = None,
        nodes: Bools | None = None,
    ) -> None:
        """For one pod.

        Args:
            requests: int64[R].
            weights: int64[V], what is summed; None: priorities with kube-scheduler's offset.
            nodes: bool[N], the only ones that are asked about; None: any.
        """
        self._state, self._ladders, self._requests, self._nodes = state, ladders, requests, nodes
        self.weights = state.residents.priorities + PRIORITY_OFFSET if weights is None else weights
        #: Who may leave, their tiers, the bounds of all nodes, and the changes before that.
        self._known: tuple[Bools, Int64s, NodeBounds, int] | None = None

    def best_first(self, possible: Bools, may_leave: Bools) -> Bounds:
        """Bounds of the possible nodes, bool[N], with all decisions so far; ``may_leave``: bool[V], who may leave."""
        if not may_leave.any():
            nobody = np.zeros(0, dtype=np.int64)
            return Bounds(nobody, nobody, np.zeros(0), nobody)
        state, ladders = self._state, self._ladders
        tiers, stale = ladders.tiers(may_leave), np.ones(len(possible), dtype=np.bool_)
        if self._known is not None and np.array_equal(tiers, self._known[1]):
            stale[:] = False
            stale[state.changed_since(self._known[3])] = True
            stale[state.residents.nodes[may_leave != self._known[0]]] = True
        if self._nodes is not None:
            stale &= self._nodes
        nodes = np.nonzero(stale)[0]
        if len(nodes) * _FEW_OF_NODES > len(possible):
            bounds = ladders.of_all_nodes(may_leave, tiers, state.free, self._requests, self.weights)
        else:
            bounds = NodeBounds.unknown(len(possible)) if self._known is None else self._known[2]
            bounds.put(nodes, ladders.of_nodes(nodes, may_leave, tiers, state.free, self._requests, self.weights))
        self._known = may_leave, tiers, bounds, state.changes
        return bounds.best_first(possible)
