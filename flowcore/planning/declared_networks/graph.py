"""A network that a cost model declared, checked and as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.network_model import UNSCHEDULED, Arc, End, Network, PlacedPods, Pods
from flowcore.model.nodes import Node
from flowcore.planning.declared_networks.placed_units import PlacedStart, placed_units

#: More flow than this on one arc is a mistake of the model; sums stay far from overflow.
MAX_FLOW = 2**31
#: No unit of flow on one arc costs more.
MAX_COST = 10**12
#: More arcs than this take longer than a round has, as objects and as arrays.
MAX_ARCS = 500_000
#: Numerator and denominator of a gain are no larger.
MAX_GAIN = 10**6
_ONE = Fraction(1)


class NetworkRefused(Exception):
    """A network that is not solved. The text is a clause for people: what is wrong, with the names of the ends."""


class NetworkTooLarge(NetworkRefused):
    """A network that a round has no time for.

    Attributes:
        share: which part of it a round has time for.
    """

    def __init__(self, problem: str, share: float) -> None:
        """``problem``: a clause for people."""
        super().__init__(problem)
        self.share = share


class NoFlowInTime(NetworkRefused):
    """A network of which no flow was found in the time of a round: there may be one."""

    def __init__(self, more: str = "") -> None:
        """``more``: to be said after that, for people."""
        super().__init__(f"no flow that meets its minimums and maximums was found in the time of a round{more}")


@dataclass(frozen=True, slots=True, eq=False)
class Supply:
    """What the solver reads of one ``Pods``.

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

    def may_fit(self, supplies: Sequence[Supply]) -> bool:
        """Whether each of its gangs has a domain with room for what it needs, if only that gang goes there."""
        for members, domains in self.domains:
            room, known = np.zeros(int(domains.max(initial=-1)) + 1, dtype=np.int64), domains >= 0
            for member in members:
                of_member = np.zeros_like(room)
                np.add.at(of_member, domains[known], supplies[member].fits[known])
                room += np.minimum(of_member, supplies[member].count)
            if room.max(initial=0) < max((need for of, need in self.needs if of == members), default=0):
                return False
        return True


@dataclass(frozen=True, eq=False)
class Graph:
    """A checked network: V vertices, of which the first C are pods and the next one is UNSCHEDULED, and A arcs.

    Attributes:
        supplies: the C pods.
        names: of the vertices, for sentences.
        tails, heads, costs, minimums, maximums: int64[A]; a maximum is no more than can ever come through.
        gains: of the arcs.
        wholes: int64[A], how many units enter it at least if any do; 0: any number.
        nodes: int64[V], the position of the node that a vertex is, -1 for others.
        order: the vertices, each after all that lead to it.
        groups: pods that are placed together or not at all.
        declared: the arcs before the units of pods that have a node, and after them the arcs of these pods.
        begun: int64[A + arcs of pods that have a node], their units.
    """

    supplies: tuple[Supply, ...]
    names: tuple[str, ...]
    tails: Int64s
    heads: Int64s
    costs: Int64s
    minimums: Int64s
    maximums: Int64s
    gains: tuple[Fraction, ...]
    wholes: Int64s
    nodes: Int64s
    order: tuple[int, ...]
    groups: tuple[SupplyGroup, ...] = ()
    declared: tuple[Arc, ...] = ()
    begun: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def unscheduled(self) -> int:
        """The vertex UNSCHEDULED."""
        return len(self.supplies)

    @cached_property
    def out_arcs(self) -> list[list[int]]:
        """For each vertex the arcs that begin there."""
        arcs: list[list[int]] = [[] for _ in self.names]
        for arc, tail in enumerate(self.tails.tolist()):
            arcs[tail].append(arc)
        return arcs

    @cached_property
    def reached_by(self) -> list[int]:
        """For each vertex the pods that have a way there: bit c for the pods c."""
        reached = [1 << vertex if vertex < len(self.supplies) else 0 for vertex in range(len(self.names))]
        for vertex in self.order:
            for arc in self.out_arcs[vertex]:
                reached[self.heads[arc]] |= reached[vertex]
        return reached

    @property
    def is_pure(self) -> bool:
        """Whether no unit of flow is lost or won anywhere, and each by itself may enter an arc."""
        return all(gain == 1 for gain in self.gains) and not self.wholes.any()

    def arc_name(self, arc: int) -> str:
        """An arc as sentences name it."""
        return f"{self.names[self.tails[arc]]} -> {self.names[self.heads[arc]]}"


def to_graph(
    network: Network,
    pods: Sequence[Pods],
    supplies: Sequence[Supply],
    index: Mapping[str, int],
    groups: tuple[SupplyGroup, ...] = (),
) -> Graph:
    """A network as arrays.

    Args:
        supplies: of ``pods``, in the same order.
        index: positions of the nodes by name.
        groups: of supplies, placed together or not at all.

    Raises:
        NetworkRefused: it contradicts itself.
    """
    if not isinstance(network, Network) or not isinstance(network.arcs, tuple):
        kind = type(network.arcs if isinstance(network, Network) else network).__name__
        raise NetworkRefused(f"the model returned {kind} in place of a Network, which has a tuple of arcs")
    if len(network.arcs) > MAX_ARCS:
        problem = f"it has {len(network.arcs)} arcs, and a round has time for {MAX_ARCS}"
        raise NetworkTooLarge(problem, MAX_ARCS / len(network.arcs))
    vertices = _Vertices(pods, index)
    for arc in network.arcs:
        _check_arc(arc, vertices)
    of_placed = [arc for arc in network.arcs if isinstance(arc.tail, PlacedPods)]
    own = tuple(arc for arc in network.arcs if not isinstance(arc.tail, PlacedPods)) if of_placed else network.arcs
    declared = {arc.tail for arc in own if arc.head is UNSCHEDULED}
    arcs = (*own, *(Arc(each, UNSCHEDULED) for each in pods if each not in declared))
    tails = np.array([vertices.number(arc.tail) for arc in arcs], dtype=np.int64)
    heads = np.array([vertices.number(arc.head) for arc in arcs], dtype=np.int64)
    starts = _placed_starts(of_placed, vertices)
    names, gains = tuple(vertices.names), tuple(_ONE if arc.gain == 1 else Fraction(arc.gain) for arc in arcs)
    order = _topological(tails, heads, names)
    as_declared, begun, sent = (*arcs, *of_placed), [0] * len(arcs), dict[int, int]()
    if starts:
        begun, sent = placed_units(starts, arcs, tails.tolist(), heads.tolist(), order)
        arcs = _beside(arcs, begun)
    maximums = _reachable_maximums(arcs, tails, heads, gains, order, [each.count for each in supplies], names)
    for arc, most in zip(arcs, maximums.tolist(), strict=True):
        if arc.minimum > most and not arc.whole_or_none:
            raise NetworkRefused(
                f"arc {vertices.arc_name(arc)} has a minimum of {arc.minimum}, and at most {most} can reach it"
            )
    return Graph(
        supplies=tuple(supplies),
        names=names,
        tails=tails,
        heads=heads,
        costs=np.array([arc.cost for arc in arcs], dtype=np.int64),
        minimums=np.array([0 if arc.whole_or_none else arc.minimum for arc in arcs], dtype=np.int64),
        maximums=maximums,
        gains=gains,
        wholes=np.array([arc.minimum if arc.whole_or_none else 0 for arc in arcs], dtype=np.int64),
        nodes=np.array(vertices.nodes, dtype=np.int64),
        order=order,
        groups=groups,
        declared=as_declared,
        begun=np.array([*begun, *(sent.get(id(arc), 0) for arc in of_placed)], dtype=np.int64),
    )


def _placed_starts(arcs: Sequence[Arc], vertices: _Vertices) -> list[PlacedStart]:
    """Pods that have a node, with their arcs."""
    pods: dict[int, PlacedPods] = {}
    by_pods: dict[int, list[tuple[int, Arc]]] = {}
    for arc in arcs:
        if isinstance(arc.tail, PlacedPods) and arc.head is not UNSCHEDULED:
            pods[id(arc.tail)] = arc.tail
            by_pods.setdefault(id(arc.tail), []).append((vertices.number(arc.head), arc))
    return [PlacedStart(vertices.number(pods[key].node), pods[key].count, of_pods) for key, of_pods in by_pods.items()]


def _beside(arcs: Sequence[Arc], units: Sequence[int]) -> tuple[Arc, ...]:
    """The arcs with what placed pods leave of their bounds."""
    return tuple(
        replace(
            arc,
            minimum=max(0, arc.minimum - sent),
            maximum=None if arc.maximum is None else arc.maximum - sent,
        )
        if sent
        else arc
        for arc, sent in zip(arcs, units, strict=True)
    )


class _Vertices:
    """Numbers of the ends of arcs, given as they are asked for."""

    def __init__(self, pods: Sequence[Pods], index: Mapping[str, int]) -> None:
        self._index = index
        self.names = [each.name for each in pods]
        self.names.append(UNSCHEDULED.name)
        self.nodes = [-1] * len(self.names)
        self._pods = {id(pods_of_class): place for place, pods_of_class in enumerate(pods)}
        self._known: dict[tuple[bool, str], int] = {}

    def knows(self, end: End) -> bool:
        """Whether it is a pod of the round, a node of the cluster, or any aggregator."""
        if isinstance(end, Pods):
            return id(end) in self._pods
        if isinstance(end, PlacedPods):
            return end.node.name in self._index
        return end.name in self._index if isinstance(end, Node) else isinstance(end, str) or end is UNSCHEDULED

    def name(self, end: object) -> str:
        """An end as sentences name it."""
        if isinstance(end, Pods | PlacedPods | Node):
            return end.name
        return end if isinstance(end, str) else UNSCHEDULED.name if end is UNSCHEDULED else repr(end)

    def arc_name(self, arc: Arc) -> str:
        """An arc as sentences name it."""
        return f"{self.name(arc.tail)} -> {self.name(arc.head)}"

    def number(self, end: End) -> int:
        """The vertex of an end that is known."""
        if isinstance(end, Pods):
            return self._pods[id(end)]
        if not isinstance(end, Node | str):
            return len(self._pods)
        key = isinstance(end, Node), self.name(end)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.names)
            self.names.append(key[1])
            self.nodes.append(self._index[key[1]] if key[0] else -1)
        return number


def _check_arc(arc: Arc, vertices: _Vertices) -> None:
    """One arc by itself.

    Raises:
        NetworkRefused: a sentence with its ends and the field.
    """
    if not isinstance(arc, Arc):
        raise NetworkRefused(f"the network has {type(arc).__name__} among its arcs")
    name = f"arc {vertices.arc_name(arc)}"
    for end in (arc.tail, arc.head):
        if not vertices.knows(end):
            raise NetworkRefused(f"{name} has an end that is not in the view: {vertices.name(end)}")
    if isinstance(arc.tail, PlacedPods) and arc.minimum:
        raise NetworkRefused(f"{name} begins at pods that have a node, and has a minimum: such arcs have none")
    if isinstance(arc.tail, Node) or arc.tail is UNSCHEDULED:
        raise NetworkRefused(f"{name} begins where flow ends: arcs begin at pods and aggregators")
    if isinstance(arc.head, Pods | PlacedPods):
        raise NetworkRefused(f"{name} ends at pods: arcs end at aggregators, nodes and UNSCHEDULED")
    for what, value, most in (("cost", arc.cost, MAX_COST), ("minimum", arc.minimum, MAX_FLOW)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not 0 <= value <= most:
            raise NetworkRefused(f"{name} has the {what} {value}: it must be a whole number from 0 to {most}")
    if arc.maximum is not None:
        if not isinstance(arc.maximum, int | np.integer) or isinstance(arc.maximum, bool) or arc.maximum < 0:
            raise NetworkRefused(f"{name} has the maximum {arc.maximum}: it must be a whole number from 0, or None")
        if arc.minimum > arc.maximum:
            raise NetworkRefused(f"{name} has a minimum of {arc.minimum} above its maximum of {arc.maximum}")
    if not isinstance(arc.gain, int | Fraction) or isinstance(arc.gain, bool):
        raise NetworkRefused(f"{name} has the gain {arc.gain}: it must be a whole number or a Fraction")
    gain = _ONE if arc.gain == 1 else Fraction(arc.gain)
    if not 0 < gain.numerator <= MAX_GAIN or gain.denominator > MAX_GAIN:
        raise NetworkRefused(f"{name} has the gain {gain}: it must be above 0, of numbers up to {MAX_GAIN}")


def _topological(tails: Int64s, heads: Int64s, names: Sequence[str]) -> tuple[int, ...]:
    """The vertices, each after all that lead to it.

    Raises:
        NetworkRefused: there is a cycle; a minimum could be met in it by flow that no pod sends.
    """
    follow: list[list[int]] = [[] for _ in names]
    waits = [0] * len(names)
    for tail, head in zip(tails.tolist(), heads.tolist(), strict=True):
        follow[tail].append(head)
        waits[head] += 1
    ready = [vertex for vertex, count in enumerate(waits) if not count]
    order = []
    while ready:
        vertex = ready.pop()
        order.append(vertex)
        for head in follow[vertex]:
            waits[head] -= 1
            if not waits[head]:
                ready.append(head)
    if len(order) < len(names):
        cycle = _cycle(tails, heads, {vertex for vertex, count in enumerate(waits) if count})
        listed = " -> ".join(names[vertex] for vertex in cycle)
        raise NetworkRefused(f"its arcs form a cycle, in which flow could turn without a pod: {listed}")
    return tuple(order)


def _cycle(tails: Int64s, heads: Int64s, among: set[int]) -> list[int]:
    """A cycle among vertices that all have a predecessor among them; its first vertex comes again at the end."""
    before = {h: t for t, h in zip(tails.tolist(), heads.tolist(), strict=True) if t in among and h in among}
    walked, vertex = list[int](), min(among)
    while vertex not in walked:
        walked.append(vertex)
        vertex = before[vertex]
    return [vertex, *reversed(walked[walked.index(vertex) :])]


def _reachable_maximums(
    arcs: Sequence[Arc],
    tails: Int64s,
    heads: Int64s,
    gains: Sequence[Fraction],
    order: Sequence[int],
    counts: Sequence[int],
    names: Sequence[str],
) -> Int64s:
    """int64[A]: the maximum of each arc, or less where less can ever reach it.

    Raises:
        NetworkRefused: gains, or layers of arcs without a maximum, make more flow of the pods than a round can count.
    """
    most: list[int | Fraction] = [*counts, *[0] * (len(order) - len(counts))]
    out: list[list[int]] = [[] for _ in order]
    for arc, tail in enumerate(tails.tolist()):
        out[tail].append(arc)
    maximums = np.zeros(len(arcs), dtype=np.int64)
    for vertex in order:
        for arc in out[vertex]:
            reaches, maximum = int(most[vertex]), arcs[arc].maximum
            maximums[arc] = reaches if maximum is None else min(reaches, maximum)
            head = int(heads[arc])
            most[head] += int(maximums[arc]) if gains[arc] == 1 else int(maximums[arc]) * gains[arc]
            if most[head] > MAX_FLOW:
                raise NetworkRefused(f"its arcs let more than {MAX_FLOW} units of flow come to {names[head]}")
    return maximums
