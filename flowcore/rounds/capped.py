"""The cheapest slots under caps on domains: at most so many pods in each.

Slots of a node rise in cost, so taking slots from the cheapest on, and passing over those whose domain is full, gives
the cheapest plan of a class wherever domains lie within each other (a matroid; figure 11 of the seed
pod-affinity-and-gangs.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Bools, Int64s


def promising(cost: Float64s, domains: Int64s, room: Int64s) -> Bools:
    """bool[M]: nodes that a class may need: of each domain the cheapest, as many as it takes pods.

    Args:
        cost: float64[M], of the next pod on each node.
        domains: int64[M]; room: int64[D], how many pods each takes.
    """
    return _rank(np.argsort(cost, kind="stable"), domains) < room[domains]


def cheapest_within(cost: Float64s, caps: Sequence[tuple[Int64s, Int64s]], count: int) -> Int64s:
    """int64[M]: how many of at most ``count`` pods each node gets.

    Args:
        cost: float64[M, L], of each slot of each node, rising; infinite where there is none.
        caps: for each, int64[M] the nodes' domains and int64[D] how many pods each domain takes; at least one.
    """
    nodes, depth = cost.shape
    order = np.argsort(cost, axis=None, kind="stable")
    order = order[: int(np.isfinite(cost).sum())]
    if len(caps) == 1:
        domains, room = caps[0]
        at = order // depth
        chosen = at[_rank(np.arange(len(at)), domains[at]) < room[domains[at]]][:count]
        return np.bincount(chosen, minlength=nodes)
    given: Int64s = np.zeros(nodes, dtype=np.int64)
    left = [room.tolist() for _, room in caps]
    places = list(zip(*(domains.tolist() for domains, _ in caps), strict=True))
    for node in (order // depth).tolist():
        if count and all(room[domain] for room, domain in zip(left, places[node], strict=True)):
            count -= 1
            given[node] += 1
            for room, domain in zip(left, places[node], strict=True):
                room[domain] -= 1
    return given


def _rank(order: Int64s, domains: Int64s) -> Int64s:
    """int64[M]: the how manyth of its domain each is in this order."""
    rank: Int64s = np.empty(len(order), dtype=np.int64)
    grouped = order[np.argsort(domains[order], kind="stable")]
    starts = np.flatnonzero(np.diff(domains[grouped], prepend=-1))
    rank[grouped] = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return rank
