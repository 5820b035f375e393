"""Some of the nodes in place of all: enough of them to price the spread of a class as pods come one by one.

What a node costs for its crowding follows from the least and the most crowded node. Nodes of the same zone that no
counted pod runs on are equally crowded, so a few of them stand for all. Zones stand here for any topology whose domains
are several nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.preferences import spread_cost
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.round_constraints.domain_counts import DomainCounts
from flowcore.rules.topology.soft_spread import SpreadScore

_Value = TypeVar("_Value", bound=np.generic)
#: Sums of weights, which are logarithms, that differ by less are equal.
_EQUAL = 1 / 1024
#: Numbers of kinds stay below this.
_MOST_KEYS = 2**62


class AlikeNodes:
    """Some nodes by kinds, as pods of a class come to them: nodes of a kind are equally crowded.

    They are in the same domains of all topologies but those of single nodes, and have as many counted pods. A pod that
    comes to a node crowds the kinds of its zone, and its node becomes one of another kind.

    Attributes:
        nodes: int64[K].
        kinds: int64[K], the number of each node's kind. It is not kept up as pods come: see ``come``.
    """

    def __init__(
        self,
        nodes: Int64s,
        spread: SpreadScore,
        passing: Bools,
        counters: Sequence[DomainCounter],
        raised: Collection[DomainCounter],
        counts: DomainCounts,
    ) -> None:
        """Kinds of nodes.

        Args:
            spread: of all nodes, as the round begins.
            passing: bool[N], nodes among which it is scaled.
            counters: of its constraints, in their order.
            raised: those that a pod of the class raises.
            counts: of all pods of the round so far.
        """
        self.nodes = nodes
        raw, unlabelled, own = spread.raw[nodes], spread.unlabelled[nodes], np.zeros(len(nodes))
        told_apart, shared = [unlabelled.astype(np.int64), passing[nodes].astype(np.int64)], []
        for weight, counter in zip(spread.weights, counters, strict=True):
            codes, counted = counter.domains.codes[nodes], counter.counted_nodes[nodes]
            now = counts.of(counter)
            if now is not counter.initial:
                raw += weight * (now[codes] - counter.initial[codes])
            # A node that shares its domain with others cannot be told from those, nor one without a domain.
            single = counter.domains.are_single_nodes and bool(counter.domains.labelled[nodes].all())
            if not single:
                told_apart.append(codes)
            if counter in raised:
                told_apart.append(counted.astype(np.int64))
                if single:
                    own += weight * counted
                else:
                    shared.append((weight, codes, counted))
        told_apart.append(np.round(raw * 1024).astype(np.int64))  # sums differ by their order
        first, self.kinds = _numbered(told_apart)
        #: float64[G], bool[G]: of each kind, as in SpreadScore; bool[G]: whether it is scaled among them.
        self._raw, self._unlabelled, self._passing = raw[first], unlabelled[first], passing[nodes][first]
        #: int64[G], nodes of each kind now; float64[G], what a pod crowds its own node alone.
        self._members, self._own = np.bincount(self.kinds, minlength=len(first)), own[first]
        #: For each topology of several nodes what a pod crowds its domain, the domain of each kind, and where it does.
        self._shared = [(weight, codes[first], counted[first]) for weight, codes, counted in shared]
        #: What a node of a kind becomes as a pod comes to it.
        self._next: dict[int, int] = {}

    def cost(self) -> Int64s:
        """int64[G]: of crowding, for a node of each kind (``spread_cost``)."""
        return spread_cost(SpreadScore(self._raw, self._unlabelled, ()), self._passing & (self._members > 0))

    def cost_without(self, kind: int) -> int:
        """What a node of a kind costs a pod of the class that is there, for all pods but itself."""
        raw, members = _with_last(self._raw, kind), _with_last(self._members, kind)
        raw[-1] -= self._own[kind]
        for weight, codes, counted in self._shared:
            if counted[kind]:
                raw[:-1][codes == codes[kind]] -= weight
                raw[-1] -= weight
        members[kind] -= 1
        members[-1] = 1
        spread = SpreadScore(raw, _with_last(self._unlabelled, kind), ())
        return int(spread_cost(spread, _with_last(self._passing, kind) & (members > 0))[-1])

    def come(self, kind: int) -> int:
        """A pod of the class comes to a node of a kind; the kind of that node from now on."""
        for weight, codes, counted in self._shared:
            if counted[kind]:
                self._raw[codes == codes[kind]] += weight
        if not self._own[kind]:
            return kind
        after = self._next.get(kind)
        if after is None:
            after = self._next[kind] = self._become(kind)
        self._members[kind] -= 1
        self._members[after] += 1
        return after

    def _become(self, kind: int) -> int:
        """The number of the kind with a pod more on the node alone, which may be a new one."""
        raw = self._raw[kind] + self._own[kind]
        alike = (self._unlabelled == self._unlabelled[kind]) & (self._own == self._own[kind])
        alike &= self._passing == self._passing[kind]
        for _, codes, counted in self._shared:
            alike &= (codes == codes[kind]) & (counted == counted[kind])
        known = np.nonzero(alike & (np.abs(self._raw - raw) < _EQUAL))[0]
        if len(known):
            return int(known[0])
        self._raw = _with_last(self._raw, kind)
        self._raw[-1] = raw
        self._unlabelled, self._own = _with_last(self._unlabelled, kind), _with_last(self._own, kind)
        self._passing = _with_last(self._passing, kind)
        self._members = np.append(self._members, 0)
        self._shared = [
            (weight, _with_last(codes, kind), _with_last(counted, kind)) for weight, codes, counted in self._shared
        ]
        return len(self._raw) - 1


def _with_last(values: NDArray[_Value], place: int) -> NDArray[_Value]:
    """The values and once more that of a place."""
    return np.concatenate((values, values[place : place + 1]))


def _numbered(columns: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
    """The first row of each kind, and int64[K] the number of each row's kind: rows of a kind are equal."""
    key, size = np.zeros_like(columns[0]), 1
    for column in columns:
        least, most = int(column.min(initial=0)), int(column.max(initial=0))
        if size * (most - least + 1) > _MOST_KEYS:
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            size = len(column)
        if most > least:
            key = key * (most - least + 1) + (column - least)
            size *= most - least + 1
    _, first, kinds = np.unique(key, return_index=True, return_inverse=True)
    return first, kinds


class DecidingNodes:
    """Which nodes are enough for a class."""

    def __init__(self, counters: Sequence[DomainCounter], passing: Bools) -> None:
        """Counters of its constraints, and bool[N] the nodes among which its spread is scaled."""
        self._counters, self._passing = counters, passing

    @cached_property
    def _zones(self) -> list[Int64s]:
        """The passing nodes of each zone: one domain of every constraint but those of single nodes."""
        shared = [counter.domains for counter in self._counters if not counter.domains.are_single_nodes]
        if len(shared) == 1:
            every = map(shared[0].nodes, range(shared[0].count + 1))
            return [nodes[self._passing[nodes]] for nodes in every]
        nodes = np.nonzero(self._passing)[0]
        if not shared:
            return [nodes]
        zones = _numbered([domains.codes[nodes] for domains in shared])[1]
        order = np.argsort(zones, kind="stable")
        return np.split(nodes[order], np.cumsum(np.bincount(zones))[:-1])

    @cached_property
    def _odd(self) -> Int64s:
        """Passing nodes that have no name as their label: what they cost is not that of others."""
        odd = np.zeros(len(self._passing), dtype=np.bool_)
        for counter in self._counters:
            if counter.domains.are_single_nodes:
                odd |= ~counter.domains.labelled
        return np.nonzero(odd & self._passing)[0]

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
                chosen.append(crowded[self._passing[crowded]])
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
