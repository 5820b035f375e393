"""A policy's drawing as a graph of the pods and nodes of a round: an arc for each value of a label and each segment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from flowcore.cluster.arrays.snapshot import Int64s, NodeTable, Snapshot
from flowcore.model.networks import NODES, UNSCHEDULED, Aggregator, CostPart, NetworkArc, NetworkSpec, PodEnd
from flowcore.model.policies import Selects
from flowcore.model.selectors import Labels
from flowcore.planning.drawn_networks.compile_networks import why_nowhere
from flowcore.planning.drawn_networks.joint.arcs import ANY, Arc
from flowcore.planning.drawn_networks.joint.graph import Graph, NetworkRefused, Supply, SupplyGroup, to_graph
from flowcore.planning.drawn_networks.joint.placed_units import PlacedStart
from flowcore.planning.drawn_networks.placed_pods import placed_by
from flowcore.planning.problem.result import SolvedArc

#: What a part of the cost is on each node for some pods by their number, int64[N].
Priced = Callable[[int, CostPart], Int64s]


@dataclass(frozen=True, slots=True)
class DrawnPods:
    """The pods that a network decides.

    Attributes:
        supplies: by kind.
        labels: of each kind, those that the network reads.
        groups: which are placed together or not at all.
        priced: what parts of costs are for them.
    """

    supplies: Sequence[Supply]
    labels: Sequence[Labels]
    groups: tuple[SupplyGroup, ...]
    priced: Priced


@dataclass(frozen=True, slots=True)
class _Point:
    """An aggregator, or that of one value of its label.

    Attributes:
        nodes: positions of those that its arcs to all nodes lead to.
        is_value: whether it is that of one value: no arc leads between two values that share no node.
    """

    vertex: int
    name: str
    nodes: frozenset[int]
    is_value: bool = False


def draw(spec: NetworkSpec, pods: DrawnPods, snapshot: Snapshot, selects: Selects, most: int) -> Graph:
    """The network of a round.

    Args:
        selects: which pods the policy governs.
        most: how many arcs it may have.

    Raises:
        NetworkRefused: a minimum cannot be met, costs of several kinds of pods meet in one arc, or there are too many
            arcs.
    """
    drawing = _Drawing(spec, pods, snapshot, selects, most)
    drawing.add_arcs()
    return to_graph(
        pods.supplies,
        drawing.vertices,
        drawing.arcs,
        [start for start, _, _ in drawing.placed if start.arcs],
        drawing.drawn,
        pods.groups,
    )


def why_no_way(spec: NetworkSpec, labels: Labels, table: NodeTable) -> str:
    """Why no way leads pods with these labels to any node, a clause."""
    aggregators = {each.name: each for each in spec.aggregators}
    heads = _heads_of(spec, labels)
    if not heads:
        return "no arc begins at it that leads to a node"
    ends: list[tuple[str, Aggregator | None]] = [(head, None) for head in heads if head not in aggregators]
    for name in _reached(spec, heads):
        tail = aggregators[name]
        ends += [(arc.head, tail) for arc in tail.arcs if arc.head not in (UNSCHEDULED, *aggregators)]
    whys = (why_nowhere(head, tail, table) for head, tail in ends)
    return next(whys, f"what its arcs lead to, such as {heads[0]}, has no way to any node")


def _heads_of(spec: NetworkSpec, labels: Labels) -> list[str]:
    """Where arcs lead that begin at waiting pods with these labels."""
    heads = [each.arc.head for each in spec.arcs if not each.tail.runs and each.tail.selector.matches(labels)]
    heads += [each.name for each in spec.aggregators if each.over.pods is not None and each.over.pods.matches(labels)]
    return [head for head in dict.fromkeys(heads) if head != UNSCHEDULED]


def _reached(spec: NetworkSpec, heads: Sequence[str]) -> Collection[str]:
    """The aggregators among some ends, and all that they lead to."""
    arcs = {each.name: [arc.head for arc in each.arcs] for each in spec.aggregators}
    ends, known = list(heads), dict[str, None]()
    while ends:
        end = ends.pop(0)
        if end in arcs and end not in known:
            known[end] = None
            ends += arcs[end]
    return known


class _Drawing:
    """Arcs as they are drawn.

    Attributes:
        vertices: their names, and the position of the node that each is; -1: none.
        placed: pods that have a node, with its position and the ends that match them.
    """

    def __init__(self, spec: NetworkSpec, pods: DrawnPods, snapshot: Snapshot, selects: Selects, most: int) -> None:
        self._spec, self._pods, self._table, self._most = spec, pods, snapshot.table, most
        self.vertices = [*((each.name, -1) for each in pods.supplies), (UNSCHEDULED, -1)]
        self._unscheduled = len(pods.supplies)
        self._nodes: dict[int, int] = {}
        self.arcs: list[Arc] = []
        self.drawn: list[SolvedArc] = []
        self._drawn: dict[tuple[str, str, str], int] = {}
        self._parts: dict[tuple[int, CostPart], Int64s] = {}
        self._points = {each.name: self._points_of(each) for each in spec.aggregators}
        self._everywhere = frozenset(range(len(self._table.nodes)))
        reached = [_reached(spec, _heads_of(spec, labels)) for labels in pods.labels]
        self._reaching = {
            each.name: [kind for kind, names in enumerate(reached) if each.name in names] for each in spec.aggregators
        }
        ends = [each.tail for each in spec.arcs]
        ends += [PodEnd(each.over.pods) for each in spec.aggregators if each.over.pods is not None]
        own = list(dict.fromkeys(end.selector for end in ends if not end.runs))
        anybody = list(dict.fromkeys(end.selector for end in ends if end.runs))
        starting = [*map(PodEnd, own), *(PodEnd(selector, runs=True) for selector in anybody)]
        self.placed = [
            (PlacedStart(self._node(node), count, []), node, {starting[number] for number in matched})
            for node, count, matched in placed_by(snapshot, selects, own, anybody)
        ]

    def add_arcs(self) -> None:
        """All arcs, those that end at a node that takes nothing included."""
        waits = set[int]()
        for number, pod_arc in enumerate(self._spec.arcs):
            self._add_pod_arc(pod_arc.tail, pod_arc.arc, f"arcs[{number}]")
            if pod_arc.arc.head == UNSCHEDULED:
                waits.update(self._kinds(pod_arc.tail))
        for aggregator in self._spec.aggregators:
            points = self._points[aggregator.name]
            if aggregator.over.pods is not None:
                self._add_starts(PodEnd(aggregator.over.pods), NetworkArc(aggregator.name), points[0])
            for number, arc in enumerate(aggregator.arcs):
                name, has_end = f"{aggregator.name}.arcs[{number}]", False
                for point in points:
                    for head, head_name, node in self._heads(arc, point):
                        has_end = True
                        part = self._part(arc, node, self._reaching[aggregator.name])
                        drawn = self._drawn_arc(SolvedArc(name, point.name, head_name, arc, to_nodes=node >= 0))
                        self._add(point.vertex, arc, head, part, drawn)
                _check_end(arc, name, has_end=has_end)
        for kind in range(self._unscheduled):
            if kind not in waits:
                arc = NetworkArc(UNSCHEDULED)
                drawn = self._drawn_arc(SolvedArc("", "pods", UNSCHEDULED, arc, from_pods=True))
                self._add(kind, arc, self._unscheduled, 0, drawn)

    # --- ends ---

    def _vertex(self, name: str, node: int = -1) -> int:
        self.vertices.append((name, node))
        return len(self.vertices) - 1

    def _node(self, node: int) -> int:
        if node not in self._nodes:
            self._nodes[node] = self._vertex(self._table.nodes[node].name, node)
        return self._nodes[node]

    def _points_of(self, aggregator: Aggregator) -> list[_Point]:
        name, over, nodes = aggregator.name, aggregator.over, range(len(self._table.nodes))
        if over.node_label:
            column = self._table.column(over.node_label)
            of_value: dict[str, list[int]] = {value: [] for value in sorted(column.values)}
            for node, code in enumerate(column.codes.tolist()):
                if code >= 0:
                    of_value[column.values[code]].append(node)
            values = ((f"{name} {value}", frozenset(inside)) for value, inside in of_value.items())
            return [_Point(self._vertex(each), each, inside, is_value=True) for each, inside in values]
        matching = (node for node in nodes if over.nodes is None or over.nodes.matches(self._table.nodes[node].labels))
        return [_Point(self._vertex(name), name, frozenset(matching))]

    def _kinds(self, end: PodEnd) -> list[int]:
        """The waiting pods that an arc begins at."""
        return [] if end.runs else [kind for kind, each in enumerate(self._pods.labels) if end.selector.matches(each)]

    def _heads(self, arc: NetworkArc, point: _Point | None) -> Iterator[tuple[int, str, int]]:
        """Where an arc leads from a point: the vertex, its name, and the position of the node that it is; -1: none.

        Args:
            point: None: pods.
        """
        names = self._table.nodes
        if arc.head == NODES:
            for node in sorted(self._everywhere if point is None else point.nodes):
                yield self._node(node), names[node].name, node
        elif arc.head == UNSCHEDULED:
            yield self._unscheduled, UNSCHEDULED, -1
        elif arc.head in self._points:
            for after in self._points[arc.head]:
                from_value = point is not None and point.is_value and after.is_value
                if point is None or not from_value or not after.nodes.isdisjoint(point.nodes):
                    yield after.vertex, after.name, -1
        elif arc.head in self._table.index:
            node = self._table.index[arc.head]
            yield self._node(node), arc.head, node

    # --- arcs ---

    def _add_pod_arc(self, end: PodEnd, arc: NetworkArc, name: str) -> None:
        """The arcs of pods. What one says of units holds for those of all its pods together, also those that run."""
        is_joint = arc.minimum or arc.maximum is not None or len(arc.cost.segments) > 1 or arc.factor != 1
        kinds, has_end = self._kinds(end), False
        for head, head_name, node in self._heads(arc, None):
            has_end = True
            drawn = self._drawn_arc(SolvedArc(name, end.text, head_name, arc, from_pods=True, to_nodes=node >= 0))
            tail = self._vertex(f"{name} to {head_name}") if is_joint else -1
            if is_joint:
                self._add(tail, arc, head, 0, drawn)
            for kind in kinds:
                part = self._part(arc, node, [kind])
                if is_joint:
                    self._append(Arc(kind, tail, part))
                else:
                    self._add(kind, arc, head, part, drawn)
            for start, on_node, ends in self.placed:
                if end in ends and head != self._unscheduled and node in (-1, on_node):
                    start.arcs.append((tail, -1) if is_joint else (head, drawn))
        _check_end(arc, name, has_end=has_end)

    def _add_starts(self, end: PodEnd, arc: NetworkArc, point: _Point) -> None:
        """Free arcs of pods to the aggregator over them."""
        drawn = self._drawn_arc(SolvedArc("", end.text, point.name, arc, from_pods=True))
        for kind in self._kinds(end):
            self._add(kind, arc, point.vertex, 0, drawn)
        for start, _, ends in self.placed:
            if end in ends:
                start.arcs.append((point.vertex, drawn))

    def _drawn_arc(self, arc: SolvedArc) -> int:
        key = arc.name, arc.tail, arc.head
        if key not in self._drawn:
            self._drawn[key] = len(self.drawn)
            self.drawn.append(arc)
        return self._drawn[key]

    def _part(self, arc: NetworkArc, node: int, kinds: Sequence[int]) -> int:
        """What a part of the nodes' cost adds to each unit on an arc.

        Args:
            node: that it ends at.
            kinds: pods of which units may take it.

        Raises:
            NetworkRefused: it differs between them.
        """
        part = arc.cost.part
        if part is None:
            return 0
        costs = set[int]()
        for kind in kinds:
            if (kind, part) not in self._parts:
                self._parts[kind, part] = self._pods.priced(kind, part)
            costs.add(int(self._parts[kind, part][node]))
        if len(costs) > 1:
            named = f"{part} on {self._table.nodes[node].name}"
            raise NetworkRefused(f"{named} differs between pods that share an arc: let the arc begin at pods")
        return arc.cost.weight * max(costs, default=0)

    def _add(self, tail: int, arc: NetworkArc, head: int, part: int, drawn: int) -> None:
        """One arc for each segment of its cost; the cheap ones take the minimum.

        Args:
            part: is added for each unit.
        """
        before, least, gain, whole = 0, arc.minimum, arc.factor, arc.whole_or_none
        if len(arc.cost.segments) > 1 and (whole or gain != 1):
            # None or enough, and a gain, are said of all segments together.
            middle = self._vertex(f"{self.vertices[tail][0]} to {self.vertices[head][0]}")
            self._append(Arc(middle, head, 0, least, _most(arc.maximum), gain, whole))
            head, least, gain, whole = middle, 0, Fraction(1), False
        for segment in arc.cost.segments:
            room = min(_most(segment.up_to), _most(arc.maximum)) - before
            if room <= 0:
                return
            minimum = min(least, room)
            self._append(Arc(tail, head, segment.cost + part, minimum, room, gain, whole, drawn))
            before, least = before + room, least - minimum

    def _append(self, arc: Arc) -> None:
        """One arc more.

        Raises:
            NetworkRefused: there are too many.
        """
        if len(self.arcs) >= self._most:
            raise NetworkRefused(f"it draws more than {self._most} arcs for these nodes and pods, too many for a round")
        self.arcs.append(arc)


def _most(maximum: int | None) -> int:
    return ANY if maximum is None else maximum


def _check_end(arc: NetworkArc, name: str, *, has_end: bool) -> None:
    if arc.minimum and not arc.whole_or_none and not has_end:
        raise NetworkRefused(f"{name} to {arc.head} has a minimum of {arc.minimum}, and there is no such node")
