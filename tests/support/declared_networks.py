"""Small networks as a cost model may declare them, and the best flow through each by trying all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import strategies as st

from flowcore.costs.network_model import UNSCHEDULED, Arc, End, Network, Pods
from flowcore.model.nodes import Node
from flowcore.planning.declared_networks import Graph, Supply, SupplyGroup, to_graph

#: Splits that ``cheapest`` looks at before it gives up, so that an unlucky network does not take minutes.
MOST_SPLITS = 60_000


class TooManySplits(Exception):
    """The network is too large to try all."""


def pods(name: str, prices: Sequence[int], nodes: int = 0) -> Pods:
    """Pods that ask for nothing in particular, at these prices."""
    falling = np.array(sorted(prices, reverse=True), dtype=np.int64)
    everywhere = np.full(nodes, len(prices), dtype=np.int64)
    return Pods(name, "default", {}, 0, {}, falling, np.ones(nodes, dtype=np.int64), everywhere)


@dataclass(frozen=True)
class DeclaredNetwork:
    """Pods with requests, nodes with what is free, and arcs between them.

    Attributes:
        requests: of each of the pods, for each resource.
        free: of each node, of each resource.
        banned: pods and nodes that do not go together.
        groups: pods that are placed together or not at all.
    """

    pods: tuple[Pods, ...]
    nodes: tuple[Node, ...]
    requests: tuple[tuple[int, ...], ...]
    free: tuple[tuple[int, ...], ...]
    arcs: tuple[Arc, ...]
    banned: frozenset[tuple[int, int]] = frozenset()
    groups: tuple[SupplyGroup, ...] = ()

    def capacity(self) -> np.ndarray:
        return np.array(self.free, dtype=np.int64)

    def fits(self, at: int, node: int) -> int:
        if (at, node) in self.banned:
            return 0
        pairs = zip(self.free[node], self.requests[at], strict=True)
        return min(max(0, has) // asked for has, asked in pairs if asked)

    def graph(self) -> Graph:
        supplies = [
            Supply(
                each.name,
                each.prices,
                np.array(self.requests[at], dtype=np.int64),
                np.array([self.fits(at, node) for node in range(len(self.nodes))], dtype=np.int64),
            )
            for at, each in enumerate(self.pods)
        ]
        index = {node.name: at for at, node in enumerate(self.nodes)}
        return to_graph(Network(self.arcs), self.pods, supplies, index, self.groups)

    def cheapest(self) -> int | None:
        """The least cost of all flows, None where there is none: every split of every flow at every vertex is tried."""
        arcs = list(self.arcs)
        arcs += [
            Arc(each, UNSCHEDULED)
            for each in self.pods
            if not any(arc.tail is each and arc.head is UNSCHEDULED for arc in arcs)
        ]
        aggregators = sorted({end for arc in arcs for end in (arc.tail, arc.head) if isinstance(end, str)})
        vertices: list[End] = [*self.pods, *aggregators]
        start = {
            ("pods", at): tuple(each.count if at == other else 0 for other in range(len(self.pods)))
            for at, each in enumerate(self.pods)
        }
        search = _Search(self, arcs, vertices)
        search.run(0, start, 0)
        return search.best


class _Search:
    def __init__(self, case: DeclaredNetwork, arcs: list[Arc], vertices: list[End]) -> None:
        self.case, self.arcs, self.vertices = case, arcs, vertices
        self.best: int | None = None
        self.splits = 0

    def key(self, end: End) -> tuple[str, object]:
        if isinstance(end, Pods):
            return "pods", next(at for at, each in enumerate(self.case.pods) if each is end)
        if isinstance(end, Node):
            return "node", self.case.nodes.index(end)
        return ("aggregator", end) if isinstance(end, str) else ("unscheduled", "")

    def run(self, place: int, here: dict, cost: int) -> None:
        """All splits from this vertex on."""
        self.splits += 1
        if self.splits > MOST_SPLITS:
            raise TooManySplits
        if place == len(self.vertices):
            self.conclude(here, cost)
            return
        vertex = self.vertices[place]
        none = (0,) * len(self.case.pods)
        units = here.get(self.key(vertex), none)
        out = [arc for arc in self.arcs if arc.tail is vertex or (isinstance(vertex, str) and arc.tail == vertex)]
        if not out:
            if not any(units):
                self.run(place + 1, here, cost)
            return
        for split in product(*(list(parts(count, len(out))) for count in units)):
            # split[c][a]: units of the pods c on the arc a
            self.send(place, here, cost, out, [tuple(each[a] for each in split) for a in range(len(out))])

    def send(self, place: int, here: dict, cost: int, out: list[Arc], sent: list[tuple[int, ...]]) -> None:
        arrivals: list[list[tuple[int, ...]]] = []
        for arc, units in zip(out, sent, strict=True):
            total, most = sum(units), arc.maximum
            if (total or not arc.whole_or_none) and (total < arc.minimum or (most is not None and total > most)):
                return
            cost += arc.cost * total
            if arc.gain == 1:
                arrivals.append([units])
                continue
            grown = total * Fraction(arc.gain)
            if grown.denominator != 1:
                return
            mixed = list(self.mixes(arc, int(grown)))
            arrivals.append(mixed)
        for chosen in product(*arrivals):
            after = dict(here)
            for arc, units in zip(out, chosen, strict=True):
                key = self.key(arc.head)
                before = after.get(key, (0,) * len(units))
                after[key] = tuple(a + b for a, b in zip(before, units, strict=True))
            self.run(place + 1, after, cost)

    def mixes(self, arc: Arc, total: int) -> Iterator[tuple[int, ...]]:
        """What may leave an arc with a gain: anything of pods that have a way to it."""
        for each in parts(total, len(self.case.pods)):
            if all(not count or self.reaches(self.case.pods[at], arc.tail) for at, count in enumerate(each)):
                yield each

    def reaches(self, start: End, end: End) -> bool:
        if start is end or (isinstance(start, str) and start == end):
            return True
        return any(
            self.reaches(arc.head, end)
            for arc in self.arcs
            if arc.tail is start or (isinstance(start, str) and arc.tail == start)
        )

    def conclude(self, here: dict, cost: int) -> None:
        case, placed = self.case, [0] * len(self.case.pods)
        where: list[set[int]] = [set() for _ in placed]
        for node in range(len(case.nodes)):
            units = here.get(("node", node), (0,) * len(placed))
            for at, count in enumerate(units):
                placed[at] += count
                where[at] |= {node} if count else set()
                if count > case.fits(at, node):
                    return
            for resource, has in enumerate(case.free[node]):
                asked = sum(count * case.requests[at][resource] for at, count in enumerate(units))
                if asked > has:
                    return
        if any(count > each.count for count, each in zip(placed, case.pods, strict=True)):
            return
        if not all(whole(group, placed, where) for group in case.groups):
            return
        cost += sum(int(each.prices[count:].sum()) for each, count in zip(case.pods, placed, strict=True))
        self.best = cost if self.best is None else min(self.best, cost)


def whole(group: SupplyGroup, placed: Sequence[int], where: Sequence[set[int]]) -> bool:
    """Whether a group is absent, or has what each of its gangs needs, each in one domain where it must be."""
    if not any(placed[at] for at in group.members):
        return True
    if any(sum(placed[at] for at in members) < need for members, need in group.needs):
        return False
    found = [{int(domains[node]) for at in members for node in where[at]} for members, domains in group.domains]
    return all(len(each) <= 1 and -1 not in each for each in found)


def parts(total: int, count: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of so many."""
    if count == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in parts(total - first, count - 1):
            yield first, *rest


@st.composite
def declared_networks(
    draw: st.DrawFn, *, gains: bool = True, sizes: bool = True, groups: bool = False
) -> DeclaredNetwork:
    """Networks of two kinds of pods and two nodes at most, small enough to try all flows.

    Args:
        gains: whether arcs may have gains.
        sizes: whether pods ask for different amounts, and some do not go on some nodes.
        groups: whether some pods need each other, in one domain or wherever they are.
    """
    kinds, count = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    nodes = tuple(Node(f"n{at}") for at in range(count))
    found = tuple(
        pods(f"p{at}", draw(st.lists(st.integers(5, 40), min_size=1, max_size=3 - at)), count) for at in range(kinds)
    )
    size = st.integers(1, 2) if sizes else st.just(1)
    aggregators = [f"a{at}" for at in range(draw(st.integers(0, 2)))]
    #: An arc leads from an earlier end to a later one, so there is no cycle.
    ends: list[End] = [*found, *aggregators]
    gain = st.sampled_from([1, 1, 1, 2, Fraction(1, 2)]) if gains else st.just(1)
    arcs = []
    for place, tail in enumerate(ends):
        heads: list[End] = [*(each for each in ends[place + 1 :] if isinstance(each, str)), *nodes]
        if not sizes and not gains:
            heads += [UNSCHEDULED] if isinstance(tail, Pods) else []
        else:
            heads.append(UNSCHEDULED)
        for head in draw(st.lists(st.sampled_from(heads), min_size=1, max_size=3)):
            minimum = draw(st.sampled_from([0] * 9 + [1]))
            maximum = draw(st.none() | st.integers(minimum, 3))
            whole = sizes and maximum != 0 and draw(st.sampled_from([False] * 5 + [True]))
            minimum = draw(st.integers(1, 2 if maximum is None else maximum)) if whole else minimum
            arcs.append(Arc(tail, head, draw(st.integers(0, 12)), minimum, maximum, draw(gain), whole))
    pairs = [(at, node) for at in range(kinds) for node in range(count)]
    drawn = DeclaredNetwork(
        found,
        nodes,
        tuple((draw(size), 1) for _ in range(kinds)),
        tuple((draw(st.integers(0, 4)), draw(st.integers(0, 4))) for _ in range(count)),
        tuple(arcs),
        frozenset(draw(st.lists(st.sampled_from(pairs), max_size=1))) if sizes else frozenset(),
    )
    return replace(drawn, groups=(draw(_groups(found, count)),)) if groups else drawn


@st.composite
def _groups(draw: st.DrawFn, found: Sequence[Pods], nodes: int) -> SupplyGroup:
    members = tuple(draw(st.lists(st.integers(0, len(found) - 1), min_size=1, max_size=2, unique=True)))
    need = draw(st.integers(1, sum(found[at].count for at in members)))
    domains = np.array(draw(st.lists(st.integers(-1, 1), min_size=nodes, max_size=nodes)), dtype=np.int64)
    return SupplyGroup("g", members, ((members, need),), draw(st.sampled_from(((), ((members, domains),)))))
