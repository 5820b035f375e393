"""Nodes that a relaxation need not tell apart: the same demands may use them at the same cost, and all else is equal.

Where that leaves too many states and room is short, nodes share one that have about as much room for what is asked of
them, resource by resource. Else nodes of one shape share one, however full they are; then nodes of all shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.merged_demands import MergedDemand
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import Demand

#: Most values of the costs of a class on its nodes.
_MOST_COSTS = 8
#: Nodes have one shape if, for each unit of the first resource, they have about as much of the others: by these steps
#: for each doubling.
_SHAPES = 4
#: Room for what is asked of a node, in doublings: beyond these it makes no difference how much there is.
_LEAST_ROOM, _MOST_ROOM = -3.0, 2.0
#: Points are the same if the squares of their distances from the mean add up to no more.
_SAME = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class NodeStates:
    """States of nodes.

    Attributes:
        of: int64[N], state of each node, -1 for nodes that no demand may use.
        sizes: float64[S], how many nodes are in each state.
        room: float64[N, R], room for what is asked of each node, in doublings, where nodes differ too much for so many
            states and room is short; None: elsewhere.
    """

    of: Int64s
    sizes: Float64s
    room: Float64s | None = None

    @classmethod
    def at_most(cls, cost_matrix: CostMatrix, classes: Sequence[MergedDemand], most: int) -> NodeStates:
        """The finest states of which there are at most ``most``, else the coarsest."""
        usable = np.any([merged_demand.demand.counts > 0 for merged_demand in classes], axis=0)
        nodes = np.nonzero(usable)[0]
        states = np.zeros(len(nodes), dtype=np.int64)
        room: Float64s | None = None
        for turn, states in enumerate(_ways(cost_matrix, [each.demand for each in classes], nodes)):
            if int(states.max(initial=-1)) < most:
                break
            room = room if turn else _room_for_what_is_asked(cost_matrix, classes)
        return cls.numbered(nodes, states, len(usable), room)

    @classmethod
    def numbered(cls, nodes: Int64s, states: Int64s, count: int, room: Float64s | None = None) -> NodeStates:
        """States int64[M] of some nodes of so many."""
        of = np.full(count, -1, dtype=np.int64)
        of[nodes] = states
        return cls(of, np.bincount(states).astype(np.float64), room)

    def divided(self, points: Float64s, most: int, *, anew: bool = False) -> NodeStates:
        """At most so many states, or as many as there are: nodes of one have nearly the same points.

        Args:
            points: float64[N, K].
            anew: nodes of several states may be in one.
        """
        nodes = np.nonzero(self.of >= 0)[0]
        groups = np.zeros(len(nodes), dtype=np.int64) if anew else self.of[nodes]
        return self.numbered(nodes, _divided(groups, points[nodes], most), len(self.of))

    def mean(self, values: Float64s | Int64s) -> Float64s:
        """float64[S, K]: mean of a value of nodes, [N, K], in each state."""
        return self.total(values) / self.sizes[:, np.newaxis]

    def total(self, values: Float64s | Int64s) -> Float64s:
        """float64[S, K]: sum of a value of nodes, [N, K], in each state."""
        nodes = np.nonzero(self.of >= 0)[0]
        of, count = self.of[nodes], len(self.sizes)
        return np.column_stack([np.bincount(of, column[nodes], count) for column in np.asarray(values).T])


def _ways(cost_matrix: CostMatrix, demands: Sequence[Demand], nodes: Int64s) -> Iterator[Int64s]:
    """int64[M]: states of some nodes, in ever coarser ways."""
    capacity = cost_matrix.capacity
    offered = capacity.before.allocatable[nodes]
    fitting = _kinds(demands, [demand.counts > 0 for demand in demands])[nodes]
    loads = [capacity.load(each) for each in dict.fromkeys(demand.potential.utilisation for demand in demands)]
    taken = [column[nodes] for load in loads for column in load.taken.T]
    yield _numbered(fitting, *offered.T, *capacity.free[nodes].T, *taken)
    whole = np.maximum(offered[:, :1], 1)
    shape = np.rint(_SHAPES * np.log2(np.maximum(offered, 1) / whole)).astype(np.int64).T
    yield _numbered(fitting, *shape, np.rint(np.log2(whole[:, 0])).astype(np.int64))
    yield _numbered(fitting, *shape)
    allowed = _kinds(demands, [demand.allowed for demand in demands])[nodes]
    yield _numbered(allowed, *shape)
    yield _numbered(allowed)


def _room_for_what_is_asked(cost_matrix: CostMatrix, classes: Sequence[MergedDemand]) -> Float64s | None:
    """float64[N, R]: room of nodes for what is asked of them, in doublings; None: there is enough of all resources.

    Each class asks for as much of each node that it may use.
    """
    usable = np.array([merged_demand.demand.counts > 0 for merged_demand in classes], dtype=np.float64)
    wanted = np.array([merged_demand.requests * merged_demand.pods for merged_demand in classes])
    spare = cost_matrix.spare
    if (wanted.sum(axis=0) <= spare.sum(axis=0, dtype=np.float64)).all():
        return None
    asked = usable.T @ (wanted / usable.sum(axis=1)[:, np.newaxis])
    ratio = np.where(asked > 0, spare / np.where(asked > 0, asked, 1.0), 2.0**_MOST_ROOM)
    room: Float64s = np.log2(np.clip(ratio, 2.0**_LEAST_ROOM, 2.0**_MOST_ROOM))
    return room


def _divided(groups: Int64s, points: Float64s, most: int) -> Int64s:
    """int64[M]: numbers of groups; one whose points are spread most is divided at their mean until there are ``most``.

    Args:
        groups: int64[M], 0, 1, ...; the first groups. points: float64[M, K].
    """
    heap: list[tuple[float, int, Int64s, int]] = []

    def push(members: Int64s) -> None:
        inside = points[members]
        spread = ((inside - inside.mean(axis=0)) ** 2).sum(axis=0)
        column = int(spread.argmax())
        heappush(heap, (-float(spread[column]), int(members[0]), members, column))

    for group in range(int(groups.max(initial=-1)) + 1):
        push(np.nonzero(groups == group)[0])
    while len(heap) < most and -heap[0][0] > _SAME:
        _, _, members, column = heappop(heap)
        values = points[members, column]
        above = values > values.mean()
        push(members[~above])
        push(members[above])
    numbers = np.empty(len(points), dtype=np.int64)
    for number, (_, _, members, _) in enumerate(heap):
        numbers[members] = number
    return numbers


def _kinds(demands: Sequence[Demand], usable: Sequence[Bools]) -> Int64s:
    """int64[N]: equal where the same demands may use nodes at the same cost.

    Args:
        usable: of each demand bool[N], nodes that it may use.
    """
    random = np.random.default_rng(0)
    kind = np.zeros(len(usable[0]), dtype=np.int64)
    for demand, where in zip(demands, usable, strict=True):
        numbers = random.integers(2**62, size=_MOST_COSTS + 1)
        arcs = demand.arc[where]
        if len(arcs) and (arcs != arcs[0]).any():
            values = np.unique(arcs)
            if len(values) > _MOST_COSTS:
                values = np.quantile(arcs, np.linspace(0, 1, _MOST_COSTS)).astype(np.int64)
            kind[where] ^= numbers[np.searchsorted(values, arcs, side="right")]
        else:
            kind[where] ^= numbers[0]
    return kind


def _numbered(*columns: Int64s | Float64s) -> Int64s:
    """int64[N]: 0, 1, ...; equal where all columns are."""
    numbers = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, place = np.unique(column, return_inverse=True)
        _, numbers = np.unique(numbers * (int(place.max(initial=0)) + 1) + place, return_inverse=True)
    return numbers
