"""A network of a round as arrays, for those that are solved as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from graphlib import TopologicalSorter

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.drawn_networks.joint.arcs import Arc
from flowcore.planning.drawn_networks.joint.placed_units import PlacedStart, placed_units
from flowcore.planning.problem.result import SolvedArc

#: More units than this at one point are a mistake; sums stay far from overflow.
_MOST_UNITS = 2**31


class NetworkRefused(Exception):
    """A network that is not solved. The text is a clause for people: what is wrong, with the names of the ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Supply:
    """Pods that are alike, also by the labels that the network reads.

    Attributes:
        name: for sentences.
        prices: int64[count], what leaving each pod pending costs, falling: the first to be placed is the dearest.
        requests: int64[R], what one pod asks for.
        fits: int64[N], how many of them each node takes if only they go there; it may be more than there are.
        host_ports: whether two of them, or one and another pod with ports, may exclude each other on a node.
    """

    name: str
    prices: Int64s
    requests: Int64s
    fits: Int64s
    host_ports: bool = False

    @property
    def count(self) -> int:
        """How many pods."""
        return len(self.prices)


@dataclass(frozen=True, slots=True, eq=False)
class SupplyGroup:
    """Pods that are placed together or not at all.

    Attributes:
        name: for sentences, and of the placements.
        members: positions of its pods among the supplies.
        needs: of each of its gangs the pods and how many of them need a node at once.
        domains: of gangs whose pods go to one domain: the pods, and int64[N], the domain of each node, -1 for none.
        required: of members, how many are the first that it asks for; a pod that several gangs need counts once.
        is_begun: some of what it needs has a node already: it comes before others.
    """

    name: str
    members: tuple[int, ...]
    needs: tuple[tuple[tuple[int, ...], int], ...]
    domains: tuple[tuple[tuple[int, ...], Int64s], ...] = ()
    required: tuple[tuple[int, int], ...] = ()
    is_begun: bool = False

    @property
    def size(self) -> int:
        """How many pods it asks for."""
        return sum(count for _, count in self.required)


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: V vertices, of which the first C are pods and the next one is UNSCHEDULED, and A arcs.

    Attributes:
        supplies: the C pods.
        names: of the vertices, for sentences.
        arcs: the A arcs, beside the units of pods that have a node.
        tails, heads, costs, minimums, maximums: int64[A], of the arcs; a maximum is no more than can ever come through.
        wholes: int64[A], how many units enter it at least if any do; 0: any number.
        nodes: int64[V], the position of the node that a vertex is, -1 for others.
        order: the vertices, each after all that lead to it.
        groups: pods that are placed together or not at all.
        drawn: the arcs as people know them, without their flow.
        begun: int64[drawn], the units of pods that have a node.
        lost: pods that have a node and that no way has room for.
    """

    supplies: tuple[Supply, ...]
    names: tuple[str, ...]
    arcs: tuple[Arc, ...]
    maximums: Int64s
    nodes: Int64s
    order: tuple[int, ...]
    groups: tuple[SupplyGroup, ...]
    drawn: tuple[SolvedArc, ...]
    begun: Int64s
    lost: int

    @property
    def unscheduled(self) -> int:
        """The vertex UNSCHEDULED."""
        return len(self.supplies)

    @cached_property
    def tails(self) -> Int64s:
        """int64[A]."""
        return np.array([arc.tail for arc in self.arcs], dtype=np.int64)

    @cached_property
    def heads(self) -> Int64s:
        """int64[A]."""
        return np.array([arc.head for arc in self.arcs], dtype=np.int64)

    @cached_property
    def costs(self) -> Int64s:
        """int64[A]."""
        return np.array([arc.cost for arc in self.arcs], dtype=np.int64)

    @cached_property
    def minimums(self) -> Int64s:
        """int64[A], 0 where no unit may enter too."""
        return np.array([0 if arc.whole else arc.minimum for arc in self.arcs], dtype=np.int64)

    @cached_property
    def wholes(self) -> Int64s:
        """int64[A], how many units enter it at least if any do; 0: any number."""
        return np.array([arc.minimum if arc.whole else 0 for arc in self.arcs], dtype=np.int64)

    @cached_property
    def out_arcs(self) -> list[list[int]]:
        """For each vertex the arcs that begin there."""
        return _by_tail(self.arcs, len(self.names))

    @cached_property
    def reached_by(self) -> list[int]:
        """For each vertex the pods that have a way there: bit c for the pods c."""
        reached = [1 << vertex if vertex < len(self.supplies) else 0 for vertex in range(len(self.names))]
        for vertex in self.order:
            for arc in self.out_arcs[vertex]:
                reached[self.arcs[arc].head] |= reached[vertex]
        return reached

    @property
    def is_pure(self) -> bool:
        """Whether no unit of flow is lost or won anywhere, and each by itself may enter an arc."""
        return not any(arc.whole or arc.gain != 1 for arc in self.arcs)

    def arc_name(self, arc: int) -> str:
        """An arc as sentences name it."""
        return _arc_name(self.arcs[arc], self.names)


def to_graph(
    supplies: Sequence[Supply],
    vertices: Sequence[tuple[str, int]],
    arcs: Sequence[Arc],
    starts: Sequence[PlacedStart],
    drawn: Sequence[SolvedArc],
    groups: tuple[SupplyGroup, ...],
) -> Graph:
    """Vertices and arcs as a graph, in which the units of pods that have a node are sent.

    Args:
        vertices: their names, and the position of the node that each is.
        starts: pods that have a node.

    Raises:
        NetworkRefused: a minimum cannot be met, or gains make too many units.
    """
    names, before = tuple(name for name, _ in vertices), {vertex: list[int]() for vertex in range(len(vertices))}
    for arc in arcs:
        before[arc.head].append(arc.tail)
    order = tuple(TopologicalSorter(before).static_order())
    units, begun = [0] * len(arcs), np.zeros(len(drawn), dtype=np.int64)
    if starts:
        units, sent = placed_units(starts, arcs, order)
        for arc, count in zip(arcs, units, strict=True):
            begun[arc.drawn] += count if arc.drawn >= 0 else 0
        for number, count in sent.items():
            begun[number] += count if number >= 0 else 0
        arcs = [
            arc._replace(minimum=max(0, arc.minimum - count), maximum=arc.maximum - count) if count else arc
            for arc, count in zip(arcs, units, strict=True)
        ]
    return Graph(
        supplies=tuple(supplies),
        names=names,
        arcs=tuple(arcs),
        maximums=_reachable_maximums(arcs, order, [each.count for each in supplies], names),
        nodes=np.array([node for _, node in vertices], dtype=np.int64),
        order=order,
        groups=groups,
        drawn=tuple(drawn),
        begun=begun,
        lost=sum(start.lost for start in starts),
    )


def _arc_name(arc: Arc, names: Sequence[str]) -> str:
    return f"{names[arc.tail]} -> {names[arc.head]}"


def _by_tail(arcs: Sequence[Arc], vertices: int) -> list[list[int]]:
    by_tail: list[list[int]] = [[] for _ in range(vertices)]
    for number, arc in enumerate(arcs):
        by_tail[arc.tail].append(number)
    return by_tail


def _reachable_maximums(
    arcs: Sequence[Arc], order: Sequence[int], counts: Sequence[int], names: Sequence[str]
) -> Int64s:
    """int64[A]: the maximum of each arc, or less where less can ever reach it.

    Raises:
        NetworkRefused: less than a minimum can, or gains make more flow of the pods than a round can count.
    """
    most: list[int | Fraction] = [*counts, *[0] * (len(order) - len(counts))]
    out, maximums = _by_tail(arcs, len(order)), np.zeros(len(arcs), dtype=np.int64)
    for vertex in order:
        for number in out[vertex]:
            arc = arcs[number]
            reaching = min(int(most[vertex]), arc.maximum)
            if arc.minimum > reaching and not arc.whole:
                name = _arc_name(arc, names)
                raise NetworkRefused(f"arc {name} has a minimum of {arc.minimum}, and at most {reaching} can reach it")
            maximums[number] = reaching
            most[arc.head] += reaching if arc.gain == 1 else reaching * arc.gain
            if most[arc.head] > _MOST_UNITS:
                raise NetworkRefused(f"its arcs let more than {_MOST_UNITS} units of flow come to {names[arc.head]}")
    return maximums
