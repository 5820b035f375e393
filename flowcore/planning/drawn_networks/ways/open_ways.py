"""How many pods each class of ways still lets in, where, as pods decide one after the other before the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from flowcore.cluster.arrays.node_matching import term_matches
from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod, Snapshot
from flowcore.model.constraint_limits import maximum_of, minimum_of
from flowcore.model.networks import NetworkUnit, NetworkWay
from flowcore.model.policies import Policy
from flowcore.planning.problem.demands.demands import Demand
from flowcore.rules.topology.domain_limits import UNLIMITED, limit_counter
from flowcore.rules.topology.round_constraints.rising_price import Minimum

#: So many domains are tried in vain that may have room.
_MOST_FAILED = 16
#: Parts of nodes are summed up as fractions.
_ROUNDING = 1e-6
#: More than any way costs.
NO_WAY = 2**40


@dataclass(frozen=True, slots=True, eq=False)
class PodsAlike:
    """Waiting pods of one demand that have the same classes of ways.

    Attributes:
        counts: int64[N], how many of them each node has room for.
        values: the classes, the cheapest first, as they are without others.
        prices: of each class int64[N], what its ways cost to each node.
    """

    demand: Demand
    counts: Int64s
    values: tuple[str, ...]
    pods: list[PendingPod]
    prices: Mapping[str, Int64s]

    @property
    def if_others_left(self) -> PodsAlike:
        """The same where limits alone keep them out."""
        return replace(self, counts=np.where(self.demand.allowed, UNLIMITED, 0))


class OpenPlace(NamedTuple):
    """Room for a pod on a node, its share of the node, what it pays, and arcs that it passes, by policy and number."""

    node: int
    share: float
    price: int
    arcs: tuple[tuple[str, int], ...]


class OpenWays:
    """How many pods each class of ways still lets in, where."""

    def __init__(self, snapshot: Snapshot, policies: Mapping[str, Policy]) -> None:
        table = self._table = snapshot.table
        self._classes: dict[str, tuple[str, Sequence[tuple[NetworkWay, Bools]]]] = {}
        #: By policy and number of the arc: int64[N], the domain of each node; int64[D + 1], how many more it takes.
        self._left: dict[tuple[str, int], tuple[Int64s, Int64s]] = {}
        #: The same of arcs that must have pods: how many they lack.
        self._lacking: dict[tuple[str, int], tuple[Int64s, Int64s]] = {}
        #: float64[N]: which part of each node is given to pods.
        self._given = np.zeros(len(table.nodes))
        for name, policy in policies.items():
            rules = policy.network_rules
            assert rules is not None  # noqa: S101 - its pods have a choice
            for number, arc in enumerate(rules.arcs):
                if (limit := maximum_of(arc, rules)) is not None:
                    counter = limit_counter(limit, snapshot.pod_index, table)
                    left = np.maximum(limit.max_pods - counter.initial, 0)
                    left[-1] = UNLIMITED
                    self._left[name, number] = counter.domains.codes, left
                if (minimum := minimum_of(arc, rules)) is not None and not minimum.or_none:
                    counter = limit_counter(minimum, snapshot.pod_index, table)
                    lacking = Minimum.at_least(counter, minimum).lacking(counter.initial)
                    self._lacking[name, number] = counter.domains.codes, np.append(lacking, 0)
            for value, ways in rules.classes:
                self._classes[value] = (
                    name,
                    [
                        (
                            way,
                            np.ones(len(table.nodes), dtype=np.bool_)
                            if way.nodes is None
                            else term_matches(way.nodes, table),
                        )
                        for way in ways
                    ],
                )

        every = np.full(len(table.nodes), UNLIMITED)
        #: bool[N] by class: where its limits let one in before anybody decided.
        self.had_room = {value: self._room(value, every) > 0 for value in self._classes}

    def leads(self, value: str) -> Bools:
        """bool[N]: where the ways of a class lead."""
        leads: Bools = np.logical_or.reduce([nodes for _, nodes in self._classes[value][1]])
        return leads

    def lacks(self, value: str) -> bool:
        """Whether an arc of the ways of a class lacks pods."""
        name, ways = self._classes[value]
        arcs = {arc for way, _ in ways for arc in self._arcs(name, way)}
        return any((lacking > 0).any() for _, lacking in _of(self._lacking, arcs))

    def take(self, value: str, some: PodsAlike, count: int, unit: NetworkUnit) -> list[OpenPlace]:
        """Lets up to so many pods in, in units."""
        size, key = unit.size, unit.topology_key
        if count < size:
            return []
        room, prices = self._room(value, some.counts), some.prices[value]
        if not key:
            return self._fill(value, room, some, count // size * size, size)
        codes, paid, failed = self._table.column(key).codes, list[OpenPlace](), 0
        inside = np.bincount(codes + 1, weights=room)[1:]
        cheapest = np.full(len(inside), NO_WAY)
        np.minimum.at(cheapest, codes[codes >= 0], prices[codes >= 0])
        for domain in np.lexsort((cheapest, inside < size)).tolist():
            wanted = (count - len(paid)) // size * size
            if not wanted or failed >= _MOST_FAILED or inside[domain] < size:
                break
            more = self._fill(value, np.where(codes == domain, room, 0), some, wanted, size)
            failed += not more
            paid += more
        return paid

    def take_lacking(self, value: str, some: PodsAlike, count: int) -> list[OpenPlace]:
        """Lets up to so many pods in where arcs that must have some lack them."""
        if not self.lacks(value):
            return []
        return self._fill(value, self._room(value, some.counts), some, count, 1, lacking=True)

    def _room(self, value: str, counts: Int64s) -> Int64s:
        """int64[N]: how many more pods each node takes by itself."""
        name, ways = self._classes[value]
        room = np.zeros_like(counts)
        by_share = np.floor(counts * (1 - self._given) + _ROUNDING).astype(np.int64)
        by_share = np.where(counts < UNLIMITED, by_share, counts)
        for way, nodes in ways:
            most = by_share
            for codes, left in _of(self._left, self._arcs(name, way)):
                most = np.minimum(most, left[codes])
            room = np.where(nodes, most, room)
        return np.maximum(room, 0)

    def _arcs(self, name: str, way: NetworkWay) -> tuple[tuple[str, int], ...]:
        """The arcs of a way that have a maximum or a minimum."""
        return tuple(
            (name, number) for number in way.arcs if (name, number) in self._left or (name, number) in self._lacking
        )

    def _fill(
        self, value: str, room: Int64s, some: PodsAlike, count: int, size: int, *, lacking: bool = False
    ) -> list[OpenPlace]:
        """Lets up to so many pods in, a multiple of ``size``, where nodes have room: the cheapest first.

        Args:
            lacking: only as many as arcs lack.
        """
        (name, ways), prices = self._classes[value], some.prices[value]
        places = list[OpenPlace]()
        for node in np.lexsort((-room, prices, room == 0))[: np.count_nonzero(room)].tolist():
            arcs = self._arcs(name, next(way for way, nodes in ways if nodes[node]))
            most = [int(left[codes[node]]) for codes, left in _of(self._left, arcs)]
            if lacking:
                most.append(max((int(lack[codes[node]]) for codes, lack in _of(self._lacking, arcs)), default=0))
            place = OpenPlace(node, 1 / int(some.counts[node]), int(prices[node]), arcs)
            more = [place] * min(count - len(places), int(room[node]), *most)
            self.claim(more)
            places += more
            if len(places) == count:
                break
        whole = len(places) // size * size
        self.release(places[whole:])
        return places[:whole]

    def release(self, places: Iterable[OpenPlace]) -> None:
        """Nobody takes some places after all."""
        self._change(places, 1)

    def claim(self, places: Iterable[OpenPlace]) -> None:
        """Pods take some places."""
        self._change(places, -1)

    def _change(self, places: Iterable[OpenPlace], more: int) -> None:
        for place in places:
            self._given[place.node] -= more * place.share
            for codes, left in chain(_of(self._left, place.arcs), _of(self._lacking, place.arcs)):
                left[codes[place.node]] += more


def _of(
    counts: Mapping[tuple[str, int], tuple[Int64s, Int64s]], arcs: Iterable[tuple[str, int]]
) -> Iterator[tuple[Int64s, Int64s]]:
    return (counts[arc] for arc in arcs if arc in counts)
