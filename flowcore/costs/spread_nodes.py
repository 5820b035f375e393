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

#: With at most this many zones the nodes of each are looked at by themselves.
_FEW_ZONES = 16


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
        #: Where a pod that comes counts: int64[K], the domain of each node, -1 where it does not count.
        self._domains: list[tuple[float, Int64s]] = []
        self._are_single_nodes: list[bool] = []
        raw = spread.raw[nodes]
        for weight, counter in zip(spread.weights, counters, strict=True):
            codes = counter.domains.codes[nodes]
            raw += weight * (counts.of(counter)[codes] - counter.initial[codes])
            if counter in raised:
                self._domains.append((weight, np.where(counter.counted_nodes[nodes], codes, -1)))
                self._are_single_nodes.append(counter.domains.are_single_nodes)
        self._everywhere = np.ones(len(nodes), dtype=np.bool_)
        self._spread = SpreadScore(raw, spread.unlabelled[nodes], spread.weights)

    def cost(self) -> Int64s:
        """int64[K]: of crowding (``spread_cost``)."""
        return spread_cost(self._spread, self._everywhere)

    def come(self, place: int, pods: int = 1) -> None:
        """Pods of the class come to a node; below zero: they go."""
        for weight, domains in self._domains:
            if domains[place] >= 0:
                self._spread.raw[domains == domains[place]] += pods * weight

    def alike(self, places: Int64s) -> Int64s:
        """int64[len(places)]: equal numbers for nodes that cost the same, as do others if a pod leaves one of them."""
        # It does not matter which node of its zone a node is, only whether a pod counts there.
        shared = [
            np.minimum(domains[places], 0) if single else domains[places]
            for (_, domains), single in zip(self._domains, self._are_single_nodes, strict=True)
        ]
        crowding = np.round(self._spread.raw[places] * 1024).astype(np.int64)  # sums differ by their order
        rows = np.array([*shared, crowding, self._spread.unlabelled[places]], dtype=np.int64)
        kinds: Int64s = np.unique(rows, axis=1, return_inverse=True)[1].ravel()
        return kinds


class DecidingNodes:
    """Which nodes are enough for a class."""

    def __init__(self, counters: Sequence[DomainCounter], allowed: Bools) -> None:
        """Counters of its constraints, and bool[N] the nodes that it may use."""
        self._counters, self._allowed = counters, allowed

    @cached_property
    def _zones(self) -> tuple[Int64s, int]:
        """int64[N]: the same number for nodes in the same zones of every constraint; and how many numbers there are."""
        zones, count = np.zeros(len(self._allowed), dtype=np.int64), 1
        for counter in self._counters:
            domains = counter.domains
            if not domains.are_single_nodes:
                zones, count = zones * (domains.count + 1) + domains.codes, count * (domains.count + 1)
                if count > len(zones):
                    _, zones = np.unique(zones, return_inverse=True)
                    count = int(zones.max(initial=0)) + 1
        return zones, count

    def of(self, counts: DomainCounts, most: int, cost: NDArray[np.float64] | None = None) -> Int64s:
        """int64[K], ascending: nodes that decide as long as pods come to fewer than ``most`` nodes.

        All on which counted pods are, and of each zone ``most`` others: the cheapest.

        Args:
            cost: float64[N], infinite where there is no room; None: any nodes will do.
        """
        even = self._allowed.copy()
        for counter in self._counters:
            if counter.domains.are_single_nodes:
                even[~counter.domains.labelled] = False
                even[counter.domains.first_nodes[np.nonzero(counts.of(counter)[:-1])[0]]] = False
        chosen = self._allowed & ~even
        nodes = np.nonzero(even)[0]
        zones, count = self._zones
        of_node = zones[nodes]
        if count <= _FEW_ZONES:
            for zone in range(count):
                inside = nodes[of_node == zone]
                if len(inside) > most:
                    inside = inside[:most] if cost is None else inside[np.argpartition(cost[inside], most - 1)[:most]]
                chosen[inside] = True
        else:
            order = nodes[np.lexsort((of_node,) if cost is None else (cost[nodes], of_node))]
            starts = np.searchsorted(zones[order], np.arange(count))
            rank = np.arange(len(order)) - starts[zones[order]]
            chosen[order[rank < most]] = True
        return np.nonzero(chosen)[0]
