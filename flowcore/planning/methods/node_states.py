"""Nodes that a relaxation need not tell apart: the same pods may use them at the same cost, and all else is equal.

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
from flowcore.planning.methods.pod_kinds import PodKind

#: Most values of the costs of a class on its nodes.
_MOST_COSTS = 8
#: Nodes have one shape if, for each unit of the first resource, they have about as much of the others: by these steps
#: for each doubling.
_SHAPES = 4
#: Room for what is asked of a node, in doublings: beyond these it makes no difference how much there is.
_LEAST_ROOM, _MOST_ROOM = -3.0, 8.0
#: Points are the same if the squares of their distances from the mean add up to no more.
_SAME = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class NodeStates:
    """States of nodes.

    Attributes:
        of: int64[N], state of each node, -1 for nodes that no kind may use.
        sizes: float64[S], how many nodes are in each state.
        is_exact: whether nodes of a state are alike in everything that counts.
    """

    of: Int64s
    sizes: Float64s
    is_exact: bool

    @classmethod
    def at_most(
        cls, kinds: Sequence[PodKind], offered: Int64s, alike: Sequence[Int64s | Float64s], most: int
    ) -> NodeStates:
        """The finest states of which there are at most ``most``, else the coarsest.

        Args:
            offered: int64[N, R], what nodes have, by which they have a shape.
            alike: [N] each, what else is equal on nodes of a state where that leaves few enough.
        """
        usable = np.any([kind.counts > 0 for kind in kinds], axis=0)
        nodes = np.nonzero(usable)[0]
        ways = _ways(kinds, offered[nodes], [column[nodes] for column in alike], nodes)
        states = next(ways)
        is_exact = int(states.max(initial=-1)) < most
        while int(states.max(initial=-1)) >= most and (coarser := next(ways, None)) is not None:
            states = coarser
        return cls.numbered(nodes, states, len(usable), is_exact=is_exact)

    @classmethod
    def by_room(
        cls, kinds: Sequence[PodKind], spare: Int64s, ratio: Float64s, most: int, apart: Bools | None = None
    ) -> NodeStates:
        """At most so many states, of nodes with nearly the same room.

        Args:
            spare: int64[N, R], what the pods can take of nodes.
            ratio: float64[N, R], the same in some unit; nodes differ in its doublings.
            apart: bool[N], no such node is in a state with others.
        """
        usable = [kind.counts > 0 for kind in kinds]
        nodes = np.nonzero(np.any(usable, axis=0))[0]
        groups = np.zeros(len(nodes), dtype=np.int64) if apart is None else _numbered(apart[nodes])
        states = _numbered(groups, *spare[nodes].T)
        if int(states.max(initial=-1)) < most:
            states = _numbered(states, _users(kinds, usable)[nodes])
        if int(states.max(initial=-1)) >= most:
            points = np.log2(np.clip(ratio, 2.0**_LEAST_ROOM, 2.0**_MOST_ROOM))
            states = _divided(groups, points[nodes], most)
        return cls.numbered(nodes, states, len(spare))

    @classmethod
    def numbered(cls, nodes: Int64s, states: Int64s, count: int, *, is_exact: bool = False) -> NodeStates:
        """States int64[M] of some nodes of so many."""
        of = np.full(count, -1, dtype=np.int64)
        of[nodes] = states
        return cls(of, np.bincount(states).astype(np.float64), is_exact)

    def divided(self, points: Float64s, most: int) -> NodeStates:
        """At most so many states, or as many as there are: nodes of one have nearly the same points, float64[N, K]."""
        nodes = np.nonzero(self.of >= 0)[0]
        return self.numbered(nodes, _divided(self.of[nodes], points[nodes], most), len(self.of))

    def mean(self, values: Float64s | Int64s) -> Float64s:
        """float64[S, K]: mean of a value of nodes, [N, K], in each state."""
        return self.total(values) / self.sizes[:, np.newaxis]

    def total(self, values: Float64s | Int64s) -> Float64s:
        """float64[S, K]: sum of a value of nodes, [N, K], in each state."""
        nodes = np.nonzero(self.of >= 0)[0]
        of, count = self.of[nodes], len(self.sizes)
        return np.column_stack([np.bincount(of, column[nodes], count) for column in np.asarray(values).T])


def _ways(
    kinds: Sequence[PodKind], offered: Int64s, alike: Sequence[Int64s | Float64s], nodes: Int64s
) -> Iterator[Int64s]:
    """int64[M]: states of some nodes, in ever coarser ways."""
    fitting = _users(kinds, [kind.counts > 0 for kind in kinds])[nodes]
    yield _numbered(fitting, *offered.T, *alike)
    whole = np.maximum(offered[:, :1], 1)
    shape = np.rint(_SHAPES * np.log2(np.maximum(offered, 1) / whole)).astype(np.int64).T
    yield _numbered(fitting, *shape, np.rint(np.log2(whole[:, 0])).astype(np.int64))
    yield _numbered(fitting, *shape)
    allowed = _users(kinds, [kind.allowed for kind in kinds])[nodes]
    yield _numbered(allowed, *shape)
    yield _numbered(allowed)


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


def _users(kinds: Sequence[PodKind], usable: Sequence[Bools]) -> Int64s:
    """int64[N]: equal where the same kinds may use nodes at the same cost.

    Args:
        usable: of each kind bool[N], nodes that it may use.
    """
    random = np.random.default_rng(0)
    users = np.zeros(len(usable[0]), dtype=np.int64)
    for kind, where in zip(kinds, usable, strict=True):
        numbers = random.integers(2**62, size=_MOST_COSTS + 1)
        arcs = kind.arc[where]
        if len(arcs) and (arcs != arcs[0]).any():
            values = np.unique(arcs)
            if len(values) > _MOST_COSTS:
                values = np.quantile(arcs, np.linspace(0, 1, _MOST_COSTS)).astype(np.int64)
            users[where] ^= numbers[np.searchsorted(values, arcs, side="right")]
        else:
            users[where] ^= numbers[0]
    return users


def _numbered(*columns: Int64s | Float64s | Bools) -> Int64s:
    """int64[N]: 0, 1, ...; equal where all columns are."""
    order = np.lexsort(columns[::-1])
    is_new = np.zeros(len(order), dtype=np.bool_)
    for column in columns:
        is_new[1:] |= np.diff(column[order]) != 0
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(is_new)
    return numbers
