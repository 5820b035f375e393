"""Small networks as arcs between vertices, and the best flow through each by trying all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import strategies as st

from flowcore.planning.drawn_networks.joint import Graph, Supply, SupplyGroup
from flowcore.planning.drawn_networks.joint.arcs import ANY, Arc
from flowcore.planning.drawn_networks.joint.graph import to_graph

#: Splits that ``cheapest`` looks at before it gives up, so that an unlucky network does not take minutes.
MOST_SPLITS = 60_000
#: How many units of each kind of pods.
PerKind = tuple[int, ...]


class TooManySplits(Exception):
    """The network is too large to try all."""


@dataclass(frozen=True)
class SmallNetwork:
    """Kinds of pods, UNSCHEDULED, aggregators and nodes are the vertices, in this order.

    Attributes:
        prices: of the pods of each kind, falling.
        requests: of each kind, for each resource.
        free: of each node, of each resource.
        arcs: those to UNSCHEDULED that are implied not among them.
        banned: kinds and nodes that do not go together.
        groups: pods that are placed together or not at all.
    """

    prices: tuple[PerKind, ...]
    requests: tuple[PerKind, ...]
    free: tuple[PerKind, ...]
    aggregators: int
    arcs: tuple[Arc, ...]
    banned: frozenset[tuple[int, int]] = frozenset()
    groups: tuple[SupplyGroup, ...] = ()

    @property
    def unscheduled(self) -> int:
        return len(self.prices)

    @property
    def first_node(self) -> int:
        return len(self.prices) + 1 + self.aggregators

    @property
    def all_arcs(self) -> tuple[Arc, ...]:
        waiting = {arc.tail for arc in self.arcs if arc.head == self.unscheduled}
        return (*self.arcs, *(Arc(kind, self.unscheduled) for kind in range(self.unscheduled) if kind not in waiting))

    def capacity(self) -> np.ndarray:
        return np.array(self.free, dtype=np.int64)

    def fits(self, kind: int, node: int) -> int:
        if (kind, node) in self.banned:
            return 0
        pairs = zip(self.free[node], self.requests[kind], strict=True)
        return min(max(0, has) // asked for has, asked in pairs if asked)

    def graph(self) -> Graph:
        supplies = [
            Supply(
                f"p{kind}",
                np.array(prices, dtype=np.int64),
                np.array(self.requests[kind], dtype=np.int64),
                np.array([self.fits(kind, node) for node in range(len(self.free))], dtype=np.int64),
            )
            for kind, prices in enumerate(self.prices)
        ]
        names = [*(each.name for each in supplies), "Unscheduled", *(f"a{each}" for each in range(self.aggregators))]
        vertices = [*((name, -1) for name in names), *((f"n{node}", node) for node in range(len(self.free)))]
        return to_graph(supplies, vertices, self.all_arcs, [], [], self.groups)

    def cheapest(self) -> int | None:
        """The least cost of all flows, None where there is none: every split of every flow at every vertex is tried."""
        none = (0,) * len(self.prices)
        start = {kind: (*none[:kind], len(prices), *none[kind + 1 :]) for kind, prices in enumerate(self.prices)}
        search = _Search(self)
        search.run(0, start, 0)
        return search.best


class _Search:
    def __init__(self, case: SmallNetwork) -> None:
        self.case, self.arcs = case, case.all_arcs
        self.order = [vertex for vertex in range(case.first_node) if vertex != case.unscheduled]
        self.none = (0,) * len(case.prices)
        self.best: int | None = None
        self.splits = 0

    def run(self, place: int, here: dict[int, PerKind], cost: int) -> None:
        """All splits from this vertex on."""
        self.splits += 1
        if self.splits > MOST_SPLITS:
            raise TooManySplits
        if place == len(self.order):
            self.conclude(here, cost)
            return
        units = here.get(self.order[place], self.none)
        out = [arc for arc in self.arcs if arc.tail == self.order[place]]
        if not out:
            if not any(units):
                self.run(place + 1, here, cost)
            return
        for split in product(*(list(parts(count, len(out))) for count in units)):
            # split[c][a]: units of the pods c on the arc a
            self.send(place, here, cost, out, [tuple(each[a] for each in split) for a in range(len(out))])

    def send(self, place: int, here: dict[int, PerKind], cost: int, out: list[Arc], sent: list[PerKind]) -> None:
        arrivals: list[list[PerKind]] = []
        for arc, units in zip(out, sent, strict=True):
            total = sum(units)
            if (total or not arc.whole) and not arc.minimum <= total <= arc.maximum:
                return
            cost += arc.cost * total
            grown = total * arc.gain
            if grown.denominator != 1:
                return
            arrivals.append([units] if arc.gain == 1 else list(self.mixes(arc, int(grown))))
        for chosen in product(*arrivals):
            after = dict(here)
            for arc, units in zip(out, chosen, strict=True):
                after[arc.head] = tuple(map(sum, zip(after.get(arc.head, self.none), units, strict=True)))
            self.run(place + 1, after, cost)

    def mixes(self, arc: Arc, total: int) -> Iterator[PerKind]:
        """What may leave an arc with a gain: anything of pods that have a way to it."""
        for each in parts(total, len(self.none)):
            if all(not count or self.reaches(kind, arc.tail) for kind, count in enumerate(each)):
                yield each

    def reaches(self, start: int, end: int) -> bool:
        return start == end or any(self.reaches(arc.head, end) for arc in self.arcs if arc.tail == start)

    def conclude(self, here: dict[int, PerKind], cost: int) -> None:
        case, placed = self.case, [0] * len(self.none)
        where: list[set[int]] = [set() for _ in placed]
        for node, room in enumerate(case.free):
            units = here.get(case.first_node + node, self.none)
            for kind, count in enumerate(units):
                placed[kind] += count
                where[kind] |= {node} if count else set()
                if count > case.fits(kind, node):
                    return
            for resource, has in enumerate(room):
                if sum(count * case.requests[kind][resource] for kind, count in enumerate(units)) > has:
                    return
        if any(count > len(prices) for count, prices in zip(placed, case.prices, strict=True)):
            return
        if not all(whole(group, placed, where) for group in case.groups):
            return
        cost += sum(sum(prices[count:]) for prices, count in zip(case.prices, placed, strict=True))
        self.best = cost if self.best is None else min(self.best, cost)


def whole(group: SupplyGroup, placed: Sequence[int], where: Sequence[set[int]]) -> bool:
    """Whether a group is absent, or has what each of its gangs needs, each in one domain where it must be."""
    if not any(placed[kind] for kind in group.members):
        return True
    if any(sum(placed[kind] for kind in members) < need for members, need in group.needs):
        return False
    found = [{int(domains[node]) for kind in members for node in where[kind]} for members, domains in group.domains]
    return all(len(each) <= 1 and -1 not in each for each in found)


def parts(total: int, count: int) -> Iterator[PerKind]:
    """All ways to write a number as a sum of so many."""
    if count == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in parts(total - first, count - 1):
            yield first, *rest


@st.composite
def small_networks(draw: st.DrawFn, *, gains: bool = True, sizes: bool = True, groups: bool = False) -> SmallNetwork:
    """Networks of two kinds of pods and two nodes at most, small enough to try all flows.

    Args:
        gains: whether arcs may have gains.
        sizes: whether pods ask for different amounts, and some do not go on some nodes.
        groups: whether some pods need each other, in one domain or wherever they are.
    """
    kinds, nodes, aggregators = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
    price = st.integers(5, 40)
    prices = [draw(st.lists(price, min_size=1, max_size=3 - kind)) for kind in range(kinds)]
    size = st.integers(1, 2) if sizes else st.just(1)
    gain = st.sampled_from([1, 1, 1, 2, Fraction(1, 2)]) if gains else st.just(1)
    first_node = kinds + 1 + aggregators
    arcs = []
    for tail in (each for each in range(first_node) if each != kinds):
        # An arc leads from an earlier end to a later one, so there is no cycle.
        heads = [*range(max(tail, kinds) + 1, first_node + nodes)]
        heads += [kinds] if tail < kinds or sizes or gains else []
        for head in draw(st.lists(st.sampled_from(heads), min_size=1, max_size=3)):
            minimum = draw(st.sampled_from([0] * 9 + [1]))
            maximum = draw(st.just(ANY) | st.integers(minimum, 3))
            is_whole = sizes and maximum > 0 and draw(st.sampled_from([False] * 5 + [True]))
            minimum = draw(st.integers(1, min(2, maximum))) if is_whole else minimum
            arcs.append(Arc(tail, head, draw(st.integers(0, 12)), minimum, maximum, Fraction(draw(gain)), is_whole))
    pairs = [(kind, node) for kind in range(kinds) for node in range(nodes)]
    drawn = SmallNetwork(
        tuple(tuple(sorted(each, reverse=True)) for each in prices),
        tuple((draw(size), 1) for _ in range(kinds)),
        tuple((draw(st.integers(0, 4)), draw(st.integers(0, 4))) for _ in range(nodes)),
        aggregators,
        tuple(arcs),
        frozenset(draw(st.lists(st.sampled_from(pairs), max_size=1))) if sizes else frozenset(),
    )
    return replace(drawn, groups=(draw(_groups(drawn.prices, nodes)),)) if groups else drawn


@st.composite
def _groups(draw: st.DrawFn, prices: Sequence[PerKind], nodes: int) -> SupplyGroup:
    members = tuple(draw(st.lists(st.integers(0, len(prices) - 1), min_size=1, max_size=2, unique=True)))
    need = draw(st.integers(1, sum(len(prices[kind]) for kind in members)))
    domains = np.array(draw(st.lists(st.integers(-1, 1), min_size=nodes, max_size=nodes)), dtype=np.int64)
    return SupplyGroup("g", members, ((members, need),), draw(st.sampled_from(((), ((members, domains),)))))
