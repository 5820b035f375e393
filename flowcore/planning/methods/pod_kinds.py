"""Kinds of pods in the round in fractions: classes that are taken for one where there are too many to tell all apart.

Merged classes may use the same nodes, ask for the same resources and have one potential. The widest range of a request
is halved, on a scale of doublings, until there are as many groups as there may be. So what is merged is alike in size.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.costs.potential import NodePotential
from flowcore.planning.problem.cost_matrix import CostMatrix, FitCounts


@dataclass(frozen=True, slots=True, eq=False)
class PodKind:
    """Pods of one class, or of several that are taken for one: then they count and pay as much as their mean pod.

    Attributes:
        members: places of the classes among all, rising.
        requests: [R], of a pod.
        pods: how many of them count.
        allowed: bool[N], nodes that any of them may ever use.
        counts: int64[N], how many of them each node takes by its room, if no others come.
        most: int64[N], the same by rules too, and no more than there are.
        arc, first_cost: [N], what a pod pays on each node whatever is there, and what a first one pays.
        potential: of nodes; None: pods pay for nothing but room.
        counted: float64[4], see ``Demand.counted``.
    """

    members: tuple[int, ...]
    requests: Int64s | Float64s
    pods: float
    allowed: Bools
    counts: FitCounts
    most: FitCounts
    arc: Int64s | Float64s
    first_cost: Int64s | Float64s
    potential: NodePotential | None
    counted: Float64s

    @classmethod
    def of_demand(cls, cost_matrix: CostMatrix, index: int, pods: float, raised: Int64s | int = 0) -> PodKind:
        """The pods of a demand, of which so many count.

        Args:
            raised: int64[N], by how much dearer nodes are than its arcs say.
        """
        demand = cost_matrix.demands[index]
        return cls(
            (index,),
            demand.requests.astype(np.float64),
            pods,
            demand.allowed,
            demand.counts,
            cost_matrix.most[index],
            demand.arc + raised,
            demand.first_cost + raised,
            demand.potential,
            demand.counted.astype(np.float64),
        )

    @classmethod
    def of_room(cls, place: int, requests: Int64s | Float64s, pods: int, allowed: Bools, counts: FitCounts) -> PodKind:
        """Pods of a class that pay for nothing but room."""
        nothing = np.zeros(len(counts))
        return cls(
            (place,), requests, pods, allowed, counts, np.minimum(counts, pods), nothing, nothing, None, np.zeros(4)
        )

    @classmethod
    def merged(cls, kinds: Sequence[PodKind]) -> PodKind:
        """Several kinds of one potential as one."""
        first = kinds[0]
        if len(kinds) == 1:
            return first
        pods = np.array([kind.pods for kind in kinds])
        counts, most, allowed = first.counts, first.most, first.allowed
        weighed, arcs = np.zeros(len(counts)), np.zeros(len(counts))
        # One after the other: all at once would be a matrix of kinds and nodes.
        for kind in kinds:
            usable = kind.pods * (kind.counts > 0)
            weighed += usable
            arcs += usable * kind.arc
            if kind is not first:
                counts = counts if kind.counts is counts else np.maximum(counts, kind.counts)
                most, allowed = most + kind.most, allowed | kind.allowed
        arc = np.rint(arcs / np.maximum(weighed, 1.0))
        return replace(
            first,
            members=tuple(sorted(member for kind in kinds for member in kind.members)),
            requests=np.average([kind.requests for kind in kinds], axis=0, weights=pods),
            pods=float(pods.sum()),
            allowed=allowed,
            counts=counts,
            most=np.minimum(most, counts),
            arc=arc,
            first_cost=arc + (first.first_cost - first.arc),
            counted=np.trunc(np.average([kind.counted for kind in kinds], axis=0, weights=pods)),
        )


def merged(kinds: Sequence[PodKind], most: int) -> list[PodKind]:
    """Merges kinds until at most ``most`` are left, or one for each potential; each stays alone if that is enough.

    Args:
        kinds: of one class each, with some pods.
        most: at least 1.
    """
    if len(kinds) <= most:
        return list(kinds)
    groups = _split(_alike(kinds, most), kinds, most)
    return [PodKind.merged([kinds[place] for place in group]) for group in sorted(groups)]


def _alike(kinds: Sequence[PodKind], most: int) -> list[list[int]]:
    """Groups of one potential, set of resources and set of nodes.

    Where that makes too many, small groups share one whatever their nodes, then whatever they ask for.
    """
    keys: list[tuple[Hashable, ...]] = [
        (kind.potential, tuple(np.nonzero(kind.requests)[0].tolist()), kind.allowed.tobytes()) for kind in kinds
    ]
    everything = np.maximum(np.sum([kind.requests * kind.pods for kind in kinds], axis=0), 1.0)
    for parts in (2, 1):
        amounts: dict[tuple[Hashable, ...], float] = {}
        for kind, key in zip(kinds, keys, strict=True):
            amounts[key] = amounts.get(key, 0.0) + float((kind.requests * kind.pods / everything).max())
        if len(amounts) <= most:
            break
        largest = set(sorted(amounts, key=amounts.__getitem__, reverse=True)[: most // 2])
        keys = [key if key in largest else key[:parts] for key in keys]
    groups: dict[tuple[Hashable, ...], list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    return list(groups.values())


def _split(groups: Sequence[list[int]], kinds: Sequence[PodKind], most: int) -> list[list[int]]:
    """Splits the groups with the widest ranges in two until there are ``most``."""
    heap: list[tuple[float, list[int], int, float]] = []
    for group in groups:
        heappush(heap, _widest(group, kinds))
    while len(heap) < most and heap[0][0] < 0:
        _, group, resource, middle = heappop(heap)
        small = [place for place in group if kinds[place].requests[resource] <= middle]
        large = [place for place in group if kinds[place].requests[resource] > middle]
        heappush(heap, _widest(small, kinds))
        heappush(heap, _widest(large, kinds))
    return [group for _, group, _, _ in heap]


def _widest(group: list[int], kinds: Sequence[PodKind]) -> tuple[float, list[int], int, float]:
    """The widest range of a request in a group, in doublings and negative; the group, the resource, and its middle."""
    doublings = np.log2(np.maximum([kinds[place].requests for place in group], 1.0))
    low, high = doublings.min(axis=0), doublings.max(axis=0)
    resource = int((high - low).argmax())
    return float(low[resource] - high[resource]), group, resource, float(2 ** ((low[resource] + high[resource]) / 2))
