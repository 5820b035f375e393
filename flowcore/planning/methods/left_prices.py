"""Prices of resources that show how much every plan leaves (``problem.bounds.least_left``).

Nodes with about the same room for the same pods are one pool, and classes of about the same size are one where there
are many. What the linear program of these says is worth something only through the bound, so rough ones do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.problem.bounds.least_left import PooledRoom
from flowcore.planning.problem.cost_matrix import FitCounts
from flowcore.planning.solvers.linear import LinearProgram, solve_lp

#: Most pools and most classes of the linear program.
_MOST_POOLS, _MOST_CLASSES = 96, 64
#: Amounts are alike within a step of these doublings; ever coarser until there are few enough.
_DOUBLINGS = (0.0, 0.25, 1.0, 4.0)


def pooled(requests: Int64s, pods: Int64s, counts: Sequence[FitCounts], spare: Int64s) -> PooledRoom:
    """The pools of some nodes.

    Args:
        requests: int64[C, R], of a pod of each class; pods: int64[C].
        counts: of each class [N], how many of its pods each node takes, if no others come.
        spare: int64[N, R], what pods can take of nodes, whatever the plan.
    """
    units = np.maximum(np.gcd.reduce(requests, axis=0), 1)
    room = spare // units * units
    pools = pools_of(counts, room)
    inside, count = pools >= 0, int(pools.max(initial=-1)) + 1
    by_pool = [
        np.bincount(pools[inside], np.minimum(each, pods_of)[inside], count)
        for each, pods_of in zip(counts, pods.tolist(), strict=True)
    ]
    return PooledRoom(
        requests,
        pods,
        np.array(by_pool, dtype=np.int64).reshape(len(pods), count),
        np.array([np.bincount(pools[inside], column[inside], count) for column in room.T]).T,
    )


def left_prices(pools: PooledRoom, weights: Int64s) -> Float64s:
    """float64[S, R]: prices of resources in each pool; zeros where the solver found none.

    Args:
        weights: int64[C], what a pod of each class that is left counts for.
    """
    prices = np.zeros_like(pools.room)
    usable = pools.counts.any(axis=1) & (pools.pods > 0) & (weights > 0)
    classes = np.nonzero(usable)[0]
    if not len(classes):
        return prices
    merged = merged_classes(pools, classes, weights)
    member = np.zeros((int(merged.max()) + 1, len(classes)))
    member[merged, np.arange(len(classes))] = pools.pods[classes]
    pods = member.sum(axis=1)
    mean = member / pods[:, np.newaxis]
    asked = np.nonzero(pools.requests[classes].any(axis=0))[0]
    scale = np.maximum(pools.room[:, asked].max(axis=0), 1.0)
    requests = mean @ (pools.requests[np.ix_(classes, asked)] / scale)
    most = np.minimum((member > 0).astype(np.float64) @ pools.counts[classes], pods[:, np.newaxis])
    worth = mean @ weights[classes]
    group, pool = np.nonzero(most)
    # A row for each class, then one for each pool and resource.
    rows, columns, coefficients = [group], [np.arange(len(group))], [np.ones(len(group))]
    for number in range(len(asked)):
        asking = np.nonzero(requests[group, number] > 0)[0]
        rows.append(len(pods) + pool[asking] * len(asked) + number)
        columns.append(asking)
        coefficients.append(requests[group[asking], number])
    room = (pools.room[:, asked] / scale).ravel()
    solution = solve_lp(
        LinearProgram(
            costs=-worth[group] / worth.max(),
            variable_upper=most[group, pool],
            row_lower=np.full(len(pods) + len(room), -np.inf),
            row_upper=np.concatenate([pods, room]),
            rows=np.concatenate(rows),
            columns=np.concatenate(columns),
            coefficients=np.concatenate(coefficients),
        )
    )
    if solution is None:
        return prices
    duals = np.maximum(-solution.duals[len(pods) :].reshape(len(pools.room), len(asked)), 0.0)
    prices[:, asked] = duals * worth.max() / scale
    return prices


def pools_of(counts: Sequence[FitCounts], room: Int64s) -> Int64s:
    """int64[N]: the pool of each node, -1 where no pod fits.

    Args:
        counts: of each class [N], how many of its pods each node takes, if no others come.
        room: int64[N, R], what pods can take of nodes.
    """
    random = np.random.default_rng(0)
    kind = np.zeros(len(room), dtype=np.int64)
    fits = np.zeros(len(room), dtype=np.bool_)
    for count in counts:
        here = count > 0
        kind[here] ^= int(random.integers(2**62))
        fits |= here
    nodes = np.nonzero(fits & room.any(axis=1))[0]
    columns = room[nodes][:, room.any(axis=0)]

    def ways() -> Iterator[Int64s]:
        if len(np.unique(kind[nodes])) <= _MOST_POOLS:
            yield from (_numbered([kind[nodes], *_in_steps(columns, step)]) for step in _DOUBLINGS)
        yield from (_numbered(_in_steps(columns, step)) for step in _DOUBLINGS)
        yield np.zeros(len(nodes), dtype=np.int64)

    pools = np.full(len(room), -1, dtype=np.int64)
    pools[nodes] = _first_of_at_most(_MOST_POOLS, ways())
    return pools


def merged_classes(pools: PooledRoom, classes: Int64s, weights: Int64s) -> Int64s:
    """int64[K]: the merged class of each class."""
    sizes, fits = pools.requests[classes], pools.counts[classes] > 0
    kinds = list(fits.T.astype(np.int64))

    def ways() -> Iterator[Int64s]:
        yield from (_numbered([weights[classes], *kinds, *_in_steps(sizes, step)]) for step in _DOUBLINGS)
        yield from (_numbered(_in_steps(sizes, step)) for step in _DOUBLINGS)
        yield np.zeros(len(classes), dtype=np.int64)

    return _first_of_at_most(_MOST_CLASSES, ways())


def _first_of_at_most(most: int, ways: Iterator[Int64s]) -> Int64s:
    """The first numbering with few enough numbers, else the last."""
    numbers = next(ways)
    while int(numbers.max(initial=-1)) >= most and (coarser := next(ways, None)) is not None:
        numbers = coarser
    return numbers


def _in_steps(amounts: Int64s, doublings: float) -> list[Int64s]:
    """Columns of [K, R] amounts, rounded to so many doublings; 0: as they are."""
    if not doublings:
        return list(amounts.T)
    steps = 1 + np.rint(np.log2(np.maximum(amounts, 1)) / doublings)
    return list(np.where(amounts > 0, steps, 0).astype(np.int64).T)


def _numbered(columns: Sequence[Int64s]) -> Int64s:
    """int64[K]: 0, 1, ...; equal where all columns are."""
    numbers = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, place = np.unique(column, return_inverse=True)
        _, numbers = np.unique(numbers * (int(place.max(initial=0)) + 1) + place, return_inverse=True)
    return numbers
