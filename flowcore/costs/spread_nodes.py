"""Some of the nodes in place of all: enough of them to price the spread of a class as pods come one by one.

What a node costs for its crowding follows from the least and the most crowded node. Nodes of the same zone that no
counted pod runs on are equally crowded, so a few of them stand for all. Zones stand here for any topology whose domains
are several nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.preferences import spread_cost
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.round_constraints.domain_counts import DomainCounts
from flowcore.rules.topology.soft_spread import SpreadScore


class SpreadNodes:
    """What the spread of a class costs on some nodes, as its pods come.

    Attributes:
        nodes: int64[K].
    """

    def __init__(
        self,
        nodes: Int64s,
        spread: SpreadScore,
        counters: Sequence[DomainCounter],
        raised: Collection[DomainCounter],
        counts: DomainCounts,
    ) -> None:
        """Prices of nodes.

        Args:
            spread: of all nodes, as the round begins.
            counters: of its constraints, in their order.
            raised: those that a pod of the class raises.
            counts: of all pods of the round so far.
        """
        self.nodes = nodes
        #: Where a pod that comes counts: int64[K], the domain of each node, -1 where it does not count; and whether no
        #: two nodes share one.
        self._domains: list[tuple[float, Int64s, bool]] = []
        raw = spread.raw[nodes]
        for weight, counter in zip(spread.weights, counters, strict=True):
            codes = counter.domains.codes[nodes]
            raw += weight * (counts.of(counter)[codes] - counter.initial[codes])
            if counter in raised:
                counted = np.where(counter.counted_nodes[nodes], codes, -1)
                single = counter.domains.are_single_nodes and bool(counter.domains.labelled[nodes].all())
                self._domains.append((weight, counted, single))
        self._everywhere = np.ones(len(nodes), dtype=np.bool_)
        self._spread = SpreadScore(raw, spread.unlabelled[nodes], spread.weights)

    def cost(self) -> Int64s:
        """int64[K]: of crowding (``spread_cost``)."""
        return spread_cost(self._spread, self._everywhere)

    def come(self, place: int, pods: int = 1) -> None:
        """Pods of the class come to a node; below zero: they go."""
        for weight, domains, single in self._domains:
            if domains[place] >= 0:
                self._spread.raw[place if single else domains == domains[place]] += pods * weight

    def alike(self, places: Int64s) -> Int64s:
        """int64[len(places)]: equal numbers for nodes that cost the same, as do others if a pod leaves one of them."""
        # It does not matter which node of its zone a node is, only whether a pod counts there.
        shared = [np.minimum(domains[places], 0) if single else domains[places] for _, domains, single in self._domains]
        crowding = np.round(self._spread.raw[places] * 1024).astype(np.int64)  # sums differ by their order
        rows = zip(*(each.tolist() for each in (*shared, crowding, self._spread.unlabelled[places])), strict=True)
        numbers: dict[tuple[int, ...], int] = {}
        return np.array([numbers.setdefault(row, len(numbers)) for row in rows], dtype=np.int64)


class DecidingNodes:
    """Which nodes are enough for a class."""

    def __init__(self, counters: Sequence[DomainCounter], allowed: Bools) -> None:
        """Counters of its constraints, and bool[N] the nodes that it may use."""
        self._counters, self._allowed = counters, allowed

    @cached_property
    def _zones(self) -> list[Int64s]:
        """The nodes that the class may use in each zone: one domain of every constraint but those of single nodes."""
        shared = [counter.domains for counter in self._counters if not counter.domains.are_single_nodes]
        if len(shared) == 1 and self._allowed.all():
            return [shared[0].nodes(zone) for zone in range(shared[0].count + 1)]
        nodes = np.nonzero(self._allowed)[0]
        if not shared:
            return [nodes]
        codes = np.array([domains.codes[nodes] for domains in shared])
        _, zones = np.unique(codes, axis=1, return_inverse=True)
        order = np.argsort(zones.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(zones.ravel()))[:-1]
        return np.split(nodes[order], ends)

    @cached_property
    def _odd(self) -> Int64s:
        """Nodes that the class may use and that have no name as their label: what they cost is not that of others."""
        odd = np.zeros(len(self._allowed), dtype=np.bool_)
        for counter in self._counters:
            if counter.domains.are_single_nodes:
                odd |= ~counter.domains.labelled
        return np.nonzero(odd & self._allowed)[0]

    def with_nodes(self, counts: DomainCounts, nodes: Int64s) -> Int64s:
        """int64[K], ascending: nodes that decide as long as no pod comes, and these."""
        return _union(self.of(counts, 1), nodes)

    def of(self, counts: DomainCounts, most: int, cost: NDArray[np.float64] | None = None) -> Int64s:
        """int64[K], ascending: nodes that decide as long as pods come to fewer than ``most`` nodes.

        All on which counted pods are, and of each zone ``most`` others at least: the cheapest.

        Args:
            cost: float64[N], infinite where there is no room; None: any nodes will do.
        """
        chosen = [self._odd]
        for counter in self._counters:
            if counter.domains.are_single_nodes:
                crowded = counter.domains.first_nodes[np.nonzero(counts.of(counter)[:-1])[0]]
                chosen.append(crowded[self._allowed[crowded]])
        # Of the cheapest ones some may be crowded.
        more = most + sum(map(len, chosen))
        for inside in self._zones:
            if len(inside) <= more:
                chosen.append(inside)
            elif cost is None:
                chosen.append(inside[:more])
            else:
                chosen.append(inside[np.argpartition(cost[inside], more - 1)[:more]])
        return _union(*chosen)


def _union(*nodes: Int64s) -> Int64s:
    """All of these nodes, each once, ascending; np.unique takes five times as long for so few."""
    every = np.sort(np.concatenate(nodes))
    once = np.ones(len(every), dtype=np.bool_)
    np.not_equal(every[1:], every[:-1], out=once[1:])
    ascending: Int64s = every[once]
    return ascending
