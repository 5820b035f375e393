"""The ways of pods through a network: each arc once for each of the pods that can pass it, and the cheapest of them.

A state is a vertex with the pods whose units are there. An arc with a gain has a state of its own: units enter it from
any of the pods that reach its tail, and leave it as any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.declared_networks.graph import Graph, NetworkTooLarge

Float64s = NDArray[np.float64]
#: More ways than this take longer than a round has, as arrays.
MOST_WAYS = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class WayLevel:
    """The ways that begin at states of one distance from the ends.

    Attributes:
        first, end: the ways; those that begin at one state follow each other.
        runs: where those of each state begin, counted from ``first``.
        states: these states.
    """

    first: int
    end: int
    runs: Int64s
    states: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Ways:
    """The E ways of a graph, and its states.

    Attributes:
        arcs: int64[E].
        supplies: int64[E], whose units take it.
        leaves: bool[E], whether it is what leaves an arc with a gain; what enters such an arc is another way.
        tails, heads: int64[E], states.
        factors: float64[E], how many units arrive for each that enters.
        maximums: int64[E], how many units may take it.
        nodes: int64[E], the position of the node where it ends, -1 for others.
        starts: int64[C], the state where each of the pods begins.
        ends: bool[S], states at nodes and at UNSCHEDULED.
        waypoints: bool[S], states of aggregators: what comes there goes on.
        units: int64[N, R], the greatest amount of each resource of which all pods that can come to a node ask for
            multiples; 0: they ask for none.
        levels: the ways by the distance of their tails from the ends, the nearest first.
    """

    graph: Graph
    arcs: Int64s
    supplies: Int64s
    leaves: Bools
    tails: Int64s
    heads: Int64s
    factors: Float64s
    maximums: Int64s
    nodes: Int64s
    starts: Int64s
    ends: Bools
    waypoints: Bools
    units: Int64s
    levels: tuple[WayLevel, ...]

    def __len__(self) -> int:
        return len(self.arcs)

    def costs(self, weights: Float64s) -> Float64s:
        """float64[S]: what the cheapest way from each state to an end costs; infinite: there is none.

        Args:
            weights: float64[E], what a unit pays that takes a way.
        """
        costs = np.where(self.ends, 0.0, np.inf)
        for level in self.levels:
            taken = slice(level.first, level.end)
            onward = weights[taken] + self.factors[taken] * costs[self.heads[taken]]
            costs[level.states] = np.minimum.reduceat(onward, level.runs)
        return costs

    def dearest(self, weights: Float64s) -> Float64s:
        """float64[S]: what the dearest way from each state to an end costs; 0 where there is none.

        Args:
            weights: float64[E], not negative: what a unit pays that takes a way.
        """
        costs = np.zeros(len(self.ends))
        for level in self.levels:
            taken = slice(level.first, level.end)
            onward = weights[taken] + self.factors[taken] * costs[self.heads[taken]]
            costs[level.states] = np.maximum.reduceat(onward, level.runs)
        return costs

    def least_arrivals(self) -> Float64s:
        """float64[S]: how many units come to each state at least for one that starts; infinite: none can."""
        arrivals = np.full(len(self.ends), np.inf)
        arrivals[self.starts] = 1.0
        for level in reversed(self.levels):
            taken = slice(level.first, level.end)
            np.minimum.at(arrivals, self.heads[taken], arrivals[self.tails[taken]] * self.factors[taken])
        return arrivals

    def flow(self, units: Int64s) -> tuple[Int64s, dict[tuple[int, int], int]]:
        """Flows int64[A], and how many of the pods c go to the node n, by (c, n).

        Args:
            units: int64[E], how many take each way.
        """
        flows = np.zeros(len(self.graph.tails), dtype=np.int64)
        np.add.at(flows, self.arcs[~self.leaves], units[~self.leaves])
        placed: dict[tuple[int, int], int] = {}
        for way in np.nonzero((units > 0) & (self.nodes >= 0))[0].tolist():
            key = int(self.supplies[way]), int(self.nodes[way])
            placed[key] = placed.get(key, 0) + int(units[way])
        return flows, placed

    def cheap_paths(
        self, weights: Float64s, prices: Float64s | None, *, count: int, pressed: Bools, ranks: Int64s, least: float
    ) -> Int64s:
        """int64[K]: ways on paths that cost less than ``prices``, sorted.

        Args:
            weights: float64[E], what a unit pays that takes a way.
            prices: float64[C], what a unit of each of the pods pays now; None: paths count by how much they cost more
                than the cheapest, and any may.
            count: how many last ways of paths are chosen for each of the pods that may arrive: that many cheap ones,
                and as many by ``ranks`` alone.
            pressed: bool[A], arcs that are each to be on a path, if one of them costs less.
            ranks: int64[E], which of equally cheap ways come first.
            least: by how much a path must cost less.
        """
        costs = self.costs(weights)
        with np.errstate(invalid="ignore"):  # the difference of what is infinite both times
            slack = weights + self.factors * costs[self.heads] - costs[self.tails]
        slack[~np.isfinite(slack)] = np.inf
        passed = np.full(len(self.ends), np.inf)
        reachable = np.isfinite(costs[self.starts])
        passed[self.starts[reachable]] = 0.0 if prices is None else (costs[self.starts] - prices)[reachable]
        reduced = np.full(len(self), np.inf)
        for level in reversed(self.levels):
            taken = slice(level.first, level.end)
            reduced[taken] = passed[self.tails[taken]] + slack[taken]
            np.minimum.at(passed, self.heads[taken], reduced[taken])
        cheap = np.isfinite(reduced) if prices is None else reduced < -least
        last = np.nonzero(cheap & self.ends[self.heads])[0]
        # Some at random too: what is cheapest for one of the pods mostly is for others, and has room for few of them.
        chosen = [
            _first_of_each(last, self.supplies, reduced, ranks, count),
            _first_of_each(last, self.supplies, np.zeros(len(self)), ranks, count),
        ]
        entered = np.nonzero(cheap & ~self.leaves & pressed[self.arcs])[0]
        chosen.append(_first_of_each(entered, self.arcs, reduced, ranks, 1))
        through = np.concatenate(chosen)
        return np.unique(
            np.concatenate([through, *self._before(through, reduced, passed), *self._after(through, slack)])
        )

    def _before(self, chosen: Int64s, reduced: Float64s, passed: Float64s) -> Iterator[Int64s]:
        """The ways on the cheapest paths to the chosen ones."""
        before = np.full(len(self.ends), -1)
        cheapest = np.nonzero(np.isfinite(reduced) & (reduced == passed[self.heads]))[0]
        before[self.heads[cheapest]] = cheapest
        while len(chosen):
            chosen = before[self.tails[chosen]]
            chosen = np.unique(chosen[chosen >= 0])
            yield chosen

    def _after(self, chosen: Int64s, slack: Float64s) -> Iterator[Int64s]:
        """The ways on the cheapest paths from the chosen ones."""
        after = np.full(len(self.ends), -1)
        cheapest = np.nonzero(slack == 0)[0]
        after[self.tails[cheapest]] = cheapest
        while len(chosen):
            chosen = after[self.heads[chosen]]
            chosen = np.unique(chosen[chosen >= 0])
            yield chosen


def _first_of_each(ways: Int64s, groups: Int64s, reduced: Float64s, ranks: Int64s, count: int) -> Int64s:
    """Of the ways of each group the cheapest ones, so many."""
    ways = ways[np.lexsort((ranks[ways], reduced[ways], groups[ways]))]
    of_group = groups[ways]
    return ways[np.arange(len(ways)) - np.searchsorted(of_group, of_group) < count]


def count_ways(graph: Graph) -> int:
    """How many ways a graph has, those through gains counted once."""
    return sum(graph.reached_by[tail].bit_count() for tail in graph.tails.tolist())


def ways_of(graph: Graph) -> Ways:
    """The ways of a graph.

    Raises:
        NetworkTooLarge: there are more than a round has time for.
    """
    count = count_ways(graph)
    if count > MOST_WAYS:
        raise NetworkTooLarge(
            f"its pods have {count} ways through its arcs, and a round has time for {MOST_WAYS}: use fewer arcs, or "
            "fewer kinds of pods for each",
            MOST_WAYS / count,
        )
    vertices, pods = _states(graph)
    first = np.searchsorted(vertices, np.arange(len(graph.names) + 1))
    passing = np.diff(first)[graph.tails]
    arcs = np.repeat(np.arange(len(graph.tails)), passing)
    tails = first[graph.tails[arcs]] + np.arange(count) - np.repeat(np.cumsum(passing) - passing, passing)
    supplies, kinds = pods[tails], len(graph.supplies)
    heads = np.searchsorted(vertices * kinds + pods, graph.heads[arcs] * kinds + supplies)
    gaining = np.array([gain != 1 for gain in graph.gains], dtype=np.bool_)
    inside = len(vertices) + np.cumsum(gaining) - 1
    leaving = np.nonzero(gaining[arcs])[0]
    enters = np.where(gaining[arcs], inside[arcs], heads)
    #: First what enters arcs, then what leaves those with a gain.
    leaves = np.arange(count + len(leaving)) >= count
    tails, heads = np.concatenate([tails, inside[arcs[leaving]]]), np.concatenate([enters, heads[leaving]])
    arcs, supplies = np.concatenate([arcs, arcs[leaving]]), np.concatenate([supplies, supplies[leaving]])
    nodes = np.where(gaining[arcs] & ~leaves, -1, graph.nodes[graph.heads[arcs]])
    gains = np.array([float(gain) for gain in graph.gains])
    grown = np.array([int(most * gain) for most, gain in zip(graph.maximums.tolist(), graph.gains, strict=True)])
    maximums = np.where(leaves, grown[arcs], graph.maximums[arcs])
    fits = np.array([supply.fits for supply in graph.supplies])
    if fits.size:
        maximums = np.where(nodes >= 0, np.minimum(maximums, fits[supplies, nodes]), maximums)
    levels = _distances(graph)
    of_states = np.concatenate([levels[vertices], levels[graph.heads[gaining]] + 1])
    open_ways = np.nonzero(maximums > 0)[0]
    order = open_ways[np.lexsort((arcs[open_ways], tails[open_ways], of_states[tails[open_ways]]))]
    ends, waypoints = np.zeros((2, len(of_states)), dtype=np.bool_)
    ends[: len(vertices)] = (graph.nodes[vertices] >= 0) | (vertices == graph.unscheduled)
    waypoints[: len(vertices)] = (graph.nodes[vertices] < 0) & (vertices > graph.unscheduled)
    return Ways(
        graph=graph,
        arcs=arcs[order],
        supplies=supplies[order],
        leaves=leaves[order],
        tails=tails[order],
        heads=heads[order],
        factors=np.where(gaining[arcs] & ~leaves, gains[arcs], 1.0)[order],
        maximums=maximums[order],
        nodes=nodes[order],
        starts=np.arange(kinds, dtype=np.int64),
        ends=ends,
        waypoints=waypoints,
        units=_units(graph, supplies[order], nodes[order], fits.shape[1]),
        levels=tuple(_levels(tails[order], of_states)),
    )


def _states(graph: Graph) -> tuple[Int64s, Int64s]:
    """int64[S] twice: vertices and the pods whose units may be there, sorted; those where pods begin come first."""
    vertices, pods = [], []
    for vertex, reached in enumerate(graph.reached_by):
        left = reached
        while left:
            lowest = left & -left
            vertices.append(vertex)
            pods.append(lowest.bit_length() - 1)
            left ^= lowest
    return np.array(vertices, dtype=np.int64), np.array(pods, dtype=np.int64)


def _distances(graph: Graph) -> Int64s:
    """int64[V]: how many ways the longest path from each vertex has; through an arc with a gain there are two."""
    distances = [0] * len(graph.names)
    for vertex in reversed(graph.order):
        for arc in graph.out_arcs[vertex]:
            onward = distances[graph.heads[arc]] + (1 if graph.gains[arc] == 1 else 2)
            distances[vertex] = max(distances[vertex], onward)
    return np.array(distances, dtype=np.int64)


def _levels(tails: Int64s, of_states: Int64s) -> Iterator[WayLevel]:
    distances = of_states[tails]
    bounds = [*np.nonzero(np.diff(distances, prepend=-1))[0].tolist(), len(tails)]
    for first, end in pairwise(bounds):
        begins = tails[first:end]
        runs = np.nonzero(np.diff(begins, prepend=-1))[0]
        yield WayLevel(first, end, runs, begins[runs])


def _units(graph: Graph, supplies: Int64s, nodes: Int64s, count: int) -> Int64s:
    requests = np.array([supply.requests for supply in graph.supplies], dtype=np.int64)
    units = np.zeros((count, requests.shape[1] if len(requests) else 0), dtype=np.int64)
    arriving = np.nonzero(nodes >= 0)[0]
    arriving = arriving[np.argsort(nodes[arriving], kind="stable")]
    if len(arriving):
        first = np.nonzero(np.diff(nodes[arriving], prepend=-1))[0]
        units[nodes[arriving[first]]] = np.gcd.reduceat(requests[supplies[arriving]], first, axis=0)
    return units


def gain_of(ways: Ways, way: int) -> Fraction:
    """How many units arrive for each that takes a way, without rounding."""
    return Fraction(1) if ways.leaves[way] else Fraction(ways.graph.gains[ways.arcs[way]])
