"""Nodes that a relaxation need not tell apart: the same classes may use them, at the same cost, and they are as full.

Where that leaves too many states, nodes that are about as full share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.problem.cost_matrix import CostMatrix
from flowcore.problem.demands import Demand

#: Costs of a class on its nodes are told apart up to so many values.
_MOST_COSTS = 8
#: How finely nodes of different fullness are told apart, if all of them are too many: shares of their capacity.
_LEVELS = (64, 16, 8, 4, 2, 1)


@dataclass(frozen=True, slots=True, eq=False)
class NodeStates:
    """States of nodes.

    Attributes:
        of: int64[N], state of each node, -1 for nodes that no demand may use.
        sizes: float64[S], how many nodes are in each state.
    """

    of: Int64s
    sizes: Float64s

    @classmethod
    def at_most(cls, cost_matrix: CostMatrix, demands: Sequence[Demand], most: int) -> NodeStates:
        """As few states as tell nodes apart, or about ``most`` that do so roughly."""
        usable, kinds = _kinds(demands, len(cost_matrix.capacity.free))
        nodes = np.nonzero(usable)[0]
        capacity = cost_matrix.capacity
        free = capacity.free[nodes]
        loads = [capacity.load(each) for each in dict.fromkeys(demand.potential.utilisation for demand in demands)]
        offered = capacity.snapshot.allocatable[nodes]
        shape = _numbered(kinds[nodes], *offered.T)
        taken = [load.taken[nodes] for load in loads]
        found = _numbered(shape, *free.T, *(column for each in taken for column in each.T))
        for level in _LEVELS:
            if int(found.max(initial=-1)) < most:
                break
            part = np.floor(level * free / np.maximum(offered, 1)).astype(np.int64)
            used = [
                np.floor(level * each / np.maximum(load.capacity[nodes], 1.0)).astype(np.int64)
                for each, load in zip(taken, loads, strict=True)
            ]
            found = _numbered(shape, *part.T, *(column for each in used for column in each.T))
        if int(found.max(initial=-1)) >= most:
            found = _numbered(kinds[nodes])
        of = np.full(len(usable), -1, dtype=np.int64)
        of[nodes] = found
        return cls(of, np.bincount(found).astype(np.float64))

    def mean(self, values: Float64s | Int64s) -> Float64s:
        """float64[S, K]: mean of a value of nodes, [N, K], in each state."""
        return self.total(values) / self.sizes[:, np.newaxis]

    def total(self, values: Float64s | Int64s) -> Float64s:
        """float64[S, K]: sum of a value of nodes, [N, K], in each state."""
        nodes = np.nonzero(self.of >= 0)[0]
        of, count = self.of[nodes], len(self.sizes)
        return np.column_stack([np.bincount(of, column[nodes], count) for column in np.asarray(values).T])


def _kinds(demands: Sequence[Demand], nodes: int) -> tuple[Int64s, Int64s]:
    """bool[N] nodes that a demand may use; int64[N], equal where the same demands may use them at the same cost."""
    random = np.random.default_rng(0)
    kind, usable = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.bool_)
    for demand in demands:
        fits = demand.counts > 0
        usable |= fits
        arcs = demand.arc[fits]
        numbers = random.integers(2**62, size=_MOST_COSTS + 1)
        values = np.unique(arcs)
        if len(values) > _MOST_COSTS:
            values = np.quantile(arcs, np.linspace(0, 1, _MOST_COSTS)).astype(np.int64)
        kind[fits] ^= numbers[np.searchsorted(values, arcs, side="right")] if len(values) > 1 else numbers[0]
    return usable, kind


def _numbered(*columns: Int64s | Float64s) -> Int64s:
    """int64[N]: 0, 1, ...; equal where all columns are."""
    found = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, place = np.unique(column, return_inverse=True)
        _, found = np.unique(found * (int(place.max(initial=0)) + 1) + place, return_inverse=True)
    return found
