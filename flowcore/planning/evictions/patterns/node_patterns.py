"""The patterns of a node: which waiting pods may come to it together, and which of its pods leave for them.

Pods of a node that are alike are one kind: what counts is how many of them leave. For each number of waiting pods of
each demand the sets of kinds are compared that make room, by what it is to lose them (P. C. Gilmore and R. E. Gomory,
"A linear programming approach to the cutting-stock problem", 1961, calls what fits into one piece a pattern).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s

#: Sets of a node that may leave, and numbers of waiting pods that may come; of more, smaller ones are looked at.
_MOST_SETS, _MOST_ARRIVALS = 256, 64


@dataclass(frozen=True, slots=True, eq=False)
class LeavingKind:
    """Pods of one node that are alike.

    Attributes:
        members: their numbers, the least important first: they leave in this order.
        usage: int64[R], of each.
        loss: what it is to lose one, positive.
        limits: names of what each counts for.
    """

    members: tuple[int, ...]
    usage: Int64s
    loss: int
    limits: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Patterns:
    """The patterns of a node that no other one of it dominates: at least as many pods of each demand for no more loss.

    Attributes:
        counts: int64[P, D], waiting pods of each demand.
        losses: int64[P].
        limited: for each limit int64[P], how many of those that leave count for it.
    """

    counts: Int64s
    losses: Int64s
    limited: Mapping[str, Int64s]


class NodePatterns:
    """One node, with all sets that may leave it."""

    def __init__(self, free: Int64s, kinds: Sequence[LeavingKind], limits: Mapping[str, int]) -> None:
        """Lists the sets.

        Args:
            free: int64[R], with nobody leaving.
            limits: how many may leave that count for each name.
        """
        self._free, self._kinds = free, kinds
        counts = _grid([len(kind.members) for kind in kinds], _MOST_SETS)
        self._limited = {
            name: counts @ np.array([name in kind.limits for kind in kinds], dtype=np.int64)
            for name in sorted({name for kind in kinds for name in kind.limits})
        }
        losses = counts @ np.array([kind.loss for kind in kinds], dtype=np.int64)
        within = np.ones(len(counts), dtype=np.bool_)
        for name, number in self._limited.items():
            within &= number <= limits[name]
        order = np.argsort(losses, kind="stable")
        order = order[within[order]]
        usage = np.array([kind.usage for kind in kinds], dtype=np.int64).reshape(len(kinds), len(free))
        self._sets, self._losses, self._freed = counts[order], losses[order], counts[order] @ usage
        self._limited = {name: number[order] for name, number in self._limited.items()}

    def work(self, requests: Int64s) -> int:
        """How many numbers are compared at most for the patterns of some demands, int64[D, R]."""
        return len(self._sets) * _most_arrivals(requests) * int(requests.shape[1])

    def patterns(self, requests: Int64s, most: Int64s) -> Patterns:
        """The patterns for some demands.

        Args:
            requests: int64[D, R].
            most: int64[D], pods that may come at most.
        """
        fitting = np.minimum(most, self._fitting(requests))
        counts = _grid(fitting.tolist(), _most_arrivals(requests))
        chosen = self._cheapest(counts @ requests)
        counts, chosen = counts[chosen >= 0], chosen[chosen >= 0]
        losses = self._losses[chosen]
        kept = _undominated(counts, losses)
        limited = {name: number[chosen[kept]] for name, number in self._limited.items()}
        return Patterns(counts[kept], losses[kept], limited)

    def members(self, asked: Int64s) -> tuple[int, ...] | None:
        """The pods that leave for an amount, int64[R], at the least loss; None: no set is enough."""
        chosen = int(self._cheapest(asked[np.newaxis])[0])
        if chosen < 0:
            return None
        counts = self._sets[chosen].tolist()
        return tuple(member for kind, count in zip(self._kinds, counts, strict=True) for member in kind.members[:count])

    def _fitting(self, requests: Int64s) -> Int64s:
        """int64[D]: how many pods of each demand fit alone once everybody who may leave has left."""
        room = self._free + self._freed.max(axis=0, initial=0)
        fitting = np.full(len(requests), 2**31, dtype=np.int64)
        for column in range(len(room)):
            asked = requests[:, column]
            fitting = np.where(asked > 0, np.minimum(fitting, room[column] // np.maximum(asked, 1)), fitting)
        clipped: Int64s = np.maximum(fitting, 0)
        return clipped

    def _cheapest(self, asked: Int64s) -> Int64s:
        """int64[Q]: the first set that frees each amount, int64[Q, R]; -1: none. What is not asked for may lack."""
        room = self._freed + self._free
        enough = np.all((room[np.newaxis] >= asked[:, np.newaxis]) | (asked[:, np.newaxis] <= 0), axis=2)
        first: Int64s = np.where(enough.any(axis=1), enough.argmax(axis=1), -1)
        return first


def _most_arrivals(requests: Int64s) -> int:
    return max(_MOST_ARRIVALS, 1 << len(requests))


def _grid(most: Sequence[int], limit: int) -> Int64s:
    """int64[Q, K]: all numbers up to ``most``, in ``limit`` rows at most: the largest are cut, then the last ones."""
    lowest, highest = 1, max(most, default=0)
    while lowest < highest:
        middle = (lowest + highest + 1) // 2
        if math.prod(min(count, middle) + 1 for count in most) <= limit:
            lowest = middle
        else:
            highest = middle - 1
    chosen = [place for place, count in enumerate(most) if count > 0]
    if lowest == 1:
        chosen = chosen[: limit.bit_length() - 1]
    shape = [min(most[place], lowest) + 1 for place in chosen]
    rows = math.prod(shape)
    grid: Int64s = np.zeros((rows, len(most)), dtype=np.int64)
    if chosen:
        grid[:, chosen] = np.indices(shape, dtype=np.int64).reshape(len(shape), -1).T
    return grid


def _undominated(counts: Int64s, losses: Int64s) -> Int64s:
    """int64[K]: patterns for which no other one has as many pods of each demand and no more loss; none without pods."""
    as_many = np.all(counts[:, np.newaxis] >= counts[np.newaxis], axis=2)  # [i, j]: i has as many as j
    as_good = as_many & (losses[:, np.newaxis] <= losses[np.newaxis])
    np.fill_diagonal(as_good, val=False)
    # Rows differ in their counts, so no two patterns dominate each other.
    kept: Int64s = np.nonzero(~as_good.any(axis=0) & counts.any(axis=1))[0]
    return kept
