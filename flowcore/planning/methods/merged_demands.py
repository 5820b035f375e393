"""Demands that the round in fractions takes for one, where there are too many to tell all apart.

Merged demands may use the same nodes, ask for the same resources and have one potential. The widest range of a request
is halved, on a scale of doublings, until there are as many groups as there may be. So what is merged is alike in size.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.problem.demands.demands import Demand


@dataclass(frozen=True, slots=True, eq=False)
class MergedDemand:
    """Demands that are taken for one.

    Attributes:
        members: their places among all demands, rising.
        demand: may use all nodes that any of them may use. A pod of it counts and pays as much as their mean pod.
        requests: float64[R], of their mean pod.
        pods: how many of them count.
    """

    members: tuple[int, ...]
    demand: Demand
    requests: Float64s
    pods: float

    @classmethod
    def of(cls, demands: Sequence[Demand], members: Sequence[int], pods: Float64s) -> MergedDemand:
        """Merges some demands of one potential; ``pods``: float64[C], how many of each count."""
        first = demands[members[0]]
        if len(members) == 1:
            return cls(tuple(members), first, first.requests.astype(np.float64), float(pods[members[0]]))
        chosen = [demands[index] for index in members]
        weights = pods[list(members)]
        counts = first.counts
        weighed, arcs = np.zeros(len(counts)), np.zeros(len(counts))
        # One after the other: all at once would be a matrix of demands and nodes.
        for demand, weight in zip(chosen, weights.tolist(), strict=True):
            usable = weight * (demand.counts > 0)
            weighed += usable
            arcs += usable * demand.arc
            counts = counts if demand.counts is counts else np.maximum(counts, demand.counts)
        return cls(
            tuple(members),
            replace(
                first,
                size=np.average([demand.size for demand in chosen], axis=0, weights=weights),
                allowed=np.logical_or.reduce([demand.allowed for demand in chosen]),
                counts=counts,
                arc=np.rint(arcs / np.maximum(weighed, 1.0)).astype(np.int64),
            ),
            np.average([demand.requests for demand in chosen], axis=0, weights=weights),
            float(weights.sum()),
        )


def merged(demands: Sequence[Demand], chosen: Int64s, pods: Float64s, most: int) -> list[MergedDemand]:
    """Merges demands until at most ``most`` are left, or one for each potential; each stays alone if that is enough.

    Args:
        chosen: int64[K], places of the demands that count.
        pods: float64[C], how many pods of each demand count; positive for those chosen.
        most: at least 1.
    """
    if len(chosen) <= most:
        groups = [[index] for index in chosen.tolist()]
    else:
        groups = _split(_alike(demands, chosen.tolist(), pods, most), demands, most)
    return [MergedDemand.of(demands, group, pods) for group in sorted(groups)]


def _alike(demands: Sequence[Demand], chosen: Sequence[int], pods: Float64s, most: int) -> list[list[int]]:
    """Groups of one potential, set of resources and set of nodes.

    Where that makes too many, small groups share one whatever their nodes, then whatever they ask for.
    """
    kinds: list[tuple[Hashable, ...]] = [
        (demand.potential, tuple(np.nonzero(demand.requests)[0].tolist()), demand.allowed.tobytes())
        for demand in (demands[index] for index in chosen)
    ]
    for parts in (2, 1):
        amounts: dict[tuple[Hashable, ...], float] = {}
        for index, kind in zip(chosen, kinds, strict=True):
            amounts[kind] = amounts.get(kind, 0.0) + float(pods[index]) * demands[index].dominant_share
        if len(amounts) <= most:
            break
        largest = set(sorted(amounts, key=amounts.__getitem__, reverse=True)[: most // 2])
        kinds = [kind if kind in largest else kind[:parts] for kind in kinds]
    groups: dict[tuple[Hashable, ...], list[int]] = {}
    for index, kind in zip(chosen, kinds, strict=True):
        groups.setdefault(kind, []).append(index)
    return list(groups.values())


def _split(groups: Sequence[list[int]], demands: Sequence[Demand], most: int) -> list[list[int]]:
    """Splits the groups with the widest ranges in two until there are ``most``."""
    heap: list[tuple[float, list[int], int, float]] = []
    for group in groups:
        heappush(heap, _widest(group, demands))
    while len(heap) < most and heap[0][0] < 0:
        _, group, resource, middle = heappop(heap)
        small = [index for index in group if demands[index].requests[resource] <= middle]
        large = [index for index in group if demands[index].requests[resource] > middle]
        heappush(heap, _widest(small, demands))
        heappush(heap, _widest(large, demands))
    return [group for _, group, _, _ in heap]


def _widest(group: list[int], demands: Sequence[Demand]) -> tuple[float, list[int], int, float]:
    """The widest range of a request in a group, in doublings and negative; the group, the resource, and its middle."""
    requests = np.array([demands[index].requests for index in group], dtype=np.float64)
    doublings = np.log2(np.maximum(requests, 1.0))
    low, high = doublings.min(axis=0), doublings.max(axis=0)
    resource = int((high - low).argmax())
    return float(low[resource] - high[resource]), group, resource, float(2 ** ((low[resource] + high[resource]) / 2))
