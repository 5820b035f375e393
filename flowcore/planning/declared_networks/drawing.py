"""A policy's drawing as arcs between the pods and nodes of a round: one for each value of a label and each segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from flowcore.cluster.arrays.snapshot import Int64s, NodeTable
from flowcore.costs.network_model import UNSCHEDULED, Arc, End, Network, NetworkView, PlacedPods, Pods
from flowcore.model.networks import (
    NODES,
    Aggregator,
    CostPart,
    NetworkArc,
    NetworkSpec,
    PodEnd,
    Segment,
)
from flowcore.model.networks import UNSCHEDULED as UNSCHEDULED_NAME
from flowcore.model.nodes import Node
from flowcore.model.selectors import Labels
from flowcore.planning.declared_networks.graph import MAX_ARCS, NetworkRefused

#: What a part of the cost is on each node for some pods, int64[N].
Priced = Callable[[Pods, CostPart], Int64s]


@dataclass(frozen=True, slots=True)
class _Point:
    """An aggregator, or that of one value of its label.

    Attributes:
        nodes: positions of those that its arcs to all nodes lead to.
        is_value: whether it is that of one value: no arc leads between two values that share no node.
    """

    name: str
    nodes: frozenset[int]
    is_value: bool = False


def draw(spec: NetworkSpec, view: NetworkView, priced: Priced, most: int = MAX_ARCS) -> Network:
    """The network of a round.

    Args:
        most: how many arcs it may have.

    Raises:
        NetworkRefused: an arc with a minimum leads nowhere, costs of several kinds of pods meet in one arc, or there
            are too many arcs.
    """
    drawing = _Drawing(spec, view, priced)
    count = drawing.most_arcs()
    if count > most:
        raise NetworkRefused(f"it draws up to {count} arcs for these nodes, and a round has time for {most}")
    return Network.of(drawing.arcs())


def why_no_way(spec: NetworkSpec, labels: Labels, table: NodeTable) -> str:
    """Why no way leads pods with these labels to any node, a clause."""
    heads = [each.arc.head for each in spec.arcs if not each.tail.runs and each.tail.selector.matches(labels)]
    heads += [each.name for each in spec.aggregators if each.over.pods is not None and each.over.pods.matches(labels)]
    heads = [head for head in dict.fromkeys(heads) if head != UNSCHEDULED_NAME]
    if not heads:
        return "no arc begins at it that leads to a node"
    aggregators = {each.name: each.over for each in spec.aggregators}
    for head in heads:
        if head not in aggregators and head != NODES and head not in table.index:
            return f"there is no node {head}, to which its arc leads"
        over = aggregators.get(head)
        if over is not None and over.node_label and not table.column(over.node_label).values:
            return f"no node has the label {over.node_label}, which aggregator {head} is over"
    return f"what its arcs lead to, such as {heads[0]}, has no way to any node"


class _Drawing:
    def __init__(self, spec: NetworkSpec, view: NetworkView, priced: Priced) -> None:
        self._spec, self._view, self._priced = spec, view, priced
        self._points = {each.name: self._points_of(each) for each in spec.aggregators}
        self._by_name: Mapping[str, Node] = {node.name: node for node in view.nodes}
        self._parts: dict[tuple[int, CostPart], Int64s] = {}
        ends = [each.tail for each in spec.arcs]
        ends += [PodEnd(each.over.pods) for each in spec.aggregators if each.over.pods is not None]
        own = list(dict.fromkeys(end.selector for end in ends if not end.runs))
        anybody = list(dict.fromkeys(end.selector for end in ends if end.runs))
        self._number = {PodEnd(selector): number for number, selector in enumerate(own)}
        self._number |= {PodEnd(selector, runs=True): number for number, selector in enumerate(anybody, len(own))}
        self._placed = view.placed_by(own, anybody)

    def most_arcs(self) -> int:
        """No network of the round has more arcs: each has its ends, its segments, and the pods that begin at it."""
        waiting, count = len(self._view.pods), 0
        for pod_arc in self._spec.arcs:
            ends = self._most_heads(pod_arc.arc, 1)
            count += ends * (waiting + len(pod_arc.arc.cost.segments) + 1) + len(self._placed)
        for aggregator in self._spec.aggregators:
            points = len(self._points[aggregator.name])
            count += waiting + len(self._placed)
            count += sum(self._most_heads(arc, points) * (len(arc.cost.segments) + 1) for arc in aggregator.arcs)
        return count

    def _most_heads(self, arc: NetworkArc, points: int) -> int:
        """How many ends an arc has at most that leaves so many points; two values with an arc share a node."""
        nodes = len(self._view.nodes)
        if arc.head == NODES:
            return nodes
        return min(points * len(self._points.get(arc.head, ".")), max(nodes, points))

    def arcs(self) -> Iterator[Arc]:
        """All arcs, those that end at a node that takes nothing included."""
        for number, pod_arc in enumerate(self._spec.arcs):
            yield from self._from_pods(pod_arc.tail, pod_arc.arc, f"arcs[{number}]")
        for aggregator in self._spec.aggregators:
            for point in self._points[aggregator.name]:
                if aggregator.over.pods is not None:
                    yield from (Arc(start, point.name) for start in self._starts(PodEnd(aggregator.over.pods)))
            pods = [each for each in self._view.pods if aggregator.name in self._reached[id(each)]]
            for number, arc in enumerate(aggregator.arcs):
                name, has_end = f"{aggregator.name}.arcs[{number}]", False
                for point in self._points[aggregator.name]:
                    for head, node in self._heads(arc, point):
                        has_end = True
                        yield from self._arc(point.name, arc, head, self._part(arc, node, pods), name)
                self._check_end(arc, name, has_end=has_end)

    def _points_of(self, aggregator: Aggregator) -> list[_Point]:
        view, over = self._view, aggregator.over
        if over.node_label:
            index = view.table.index
            return [
                _Point(f"{aggregator.name} {value}", frozenset(index[node.name] for node in nodes), is_value=True)
                for value, nodes in sorted(view.by_label(over.node_label).items())
            ]
        if over.nodes is not None:
            matching = (place for place, node in enumerate(view.nodes) if over.nodes.matches(node.labels))
            return [_Point(aggregator.name, frozenset(matching))]
        return [self._everywhere(aggregator.name)]

    def _everywhere(self, name: str) -> _Point:
        return _Point(name, frozenset(range(len(self._view.nodes))))

    @cached_property
    def _reached(self) -> dict[int, set[str]]:
        """The aggregators that pods have a way to, by the pods."""
        arcs = {each.name: [arc.head for arc in each.arcs] for each in self._spec.aggregators}
        reached = {}
        for pods in self._view.pods:
            ends = [each.arc.head for each in self._spec.arcs if not each.tail.runs and _matches(each.tail, pods)]
            over = ((each.name, each.over.pods) for each in self._spec.aggregators)
            ends += [name for name, selector in over if selector is not None and _matches(PodEnd(selector), pods)]
            known = set[str]()
            while ends:
                end = ends.pop()
                if end in arcs and end not in known:
                    known.add(end)
                    ends += arcs[end]
            reached[id(pods)] = known
        return reached

    def _from_pods(self, end: PodEnd, arc: NetworkArc, name: str) -> Iterator[Arc]:
        """The arcs of pods. What one says of units holds for those of all its pods together, also those that run."""
        is_joint = arc.minimum or arc.maximum is not None or len(arc.cost.segments) > 1 or arc.factor != 1
        starts, has_end = list(self._starts(end)), False
        for head, node in self._heads(arc, self._everywhere(name)):
            has_end, tail = True, f"{name} to {_named(head)}" if is_joint else ""
            if is_joint:
                yield from self._arc(tail, arc, head, 0, tail)
            for start in starts:
                if isinstance(start, PlacedPods):
                    if not isinstance(head, Node) or head is start.node:
                        yield Arc(start, tail or head, name=name)
                elif is_joint:
                    yield Arc(start, tail, self._part(arc, node, [start]), name=name)
                else:
                    yield from self._arc(start, arc, head, self._part(arc, node, [start]), name)
        self._check_end(arc, name, has_end=has_end)

    @staticmethod
    def _check_end(arc: NetworkArc, name: str, *, has_end: bool) -> None:
        if arc.minimum and not arc.whole_or_none and not has_end:
            raise NetworkRefused(f"{name} to {arc.head} has a minimum of {arc.minimum}, and there is no such node")

    def _starts(self, end: PodEnd) -> Iterator[Pods | PlacedPods]:
        """Waiting pods, and pods that have a node: of the policy, or whoever governs them where only these begin."""
        if not end.runs:
            yield from (pods for pods in self._view.pods if _matches(end, pods))
        number = self._number[end]
        yield from (placed for placed, matched in self._placed if number in matched)

    def _heads(self, arc: NetworkArc, point: _Point) -> Iterator[tuple[End, int]]:
        """Where an arc leads from a point, and the position of the node that it is; -1 for other ends."""
        if arc.head == NODES:
            yield from ((self._view.nodes[place], place) for place in sorted(point.nodes))
        elif arc.head == UNSCHEDULED_NAME:
            yield UNSCHEDULED, -1
        elif arc.head in self._points:
            for next_point in self._points[arc.head]:
                is_apart = next_point.is_value and point.is_value and next_point.nodes.isdisjoint(point.nodes)
                if not is_apart:
                    yield next_point.name, -1
        elif arc.head in self._by_name:
            yield self._by_name[arc.head], self._view.table.index[arc.head]

    def _part(self, arc: NetworkArc, node: int, pods: list[Pods]) -> int:
        """What a part of the nodes' cost adds to each unit on an arc.

        Args:
            node: that it ends at.
            pods: of which units may take it.

        Raises:
            NetworkRefused: it differs between them.
        """
        part = arc.cost.part
        if part is None:
            return 0
        costs = set[int]()
        for pods_of_kind in pods:
            key = id(pods_of_kind), part
            if key not in self._parts:
                self._parts[key] = self._priced(pods_of_kind, part)
            costs.add(int(self._parts[key][node]))
        if len(costs) > 1:
            named = f"{part} of node {self._view.nodes[node].name}"
            raise NetworkRefused(f"{named} differs between pods that share an arc: let the arc begin at pods")
        return arc.cost.weight * max(costs, default=0)

    def _arc(self, tail: Pods | str, arc: NetworkArc, head: End, part: int, name: str) -> Iterator[Arc]:
        """One arc for each segment of its cost; the cheap ones take the minimum.

        Args:
            part: is added for each unit.
            name: of the arc as it is declared.
        """
        before, least = 0, arc.minimum
        if len(arc.cost.segments) > 1 and (arc.whole_or_none or arc.factor != 1):
            # None or enough, and a gain, are said of all segments together.
            joint = f"{name} from {tail if isinstance(tail, str) else tail.name} to {_named(head)}"
            yield Arc(joint, head, 0, arc.minimum, arc.maximum, arc.factor, arc.whole_or_none, name)
            arc, head, least = msgspec.structs.replace(arc, minimum=0, whole_or_none=False, gain=(1, 1)), joint, 0
        for segment in arc.cost.segments:
            room = _room(segment, before, arc.maximum)
            if room is not None and room <= 0:
                return
            minimum = least if room is None else min(least, room)
            yield Arc(tail, head, segment.cost + part, minimum, room, arc.factor, arc.whole_or_none, name)
            before, least = before + (room or 0), least - minimum


def _named(end: End) -> str:
    return end if isinstance(end, str) else UNSCHEDULED_NAME if end is UNSCHEDULED else end.name


def _room(segment: Segment, before: int, maximum: int | None) -> int | None:
    """How many units a segment takes after those before it; None: any number."""
    ends = [end for end in (segment.up_to, maximum) if end is not None]
    return min(ends) - before if ends else None


def _matches(end: PodEnd, pods: Pods) -> bool:
    return end.selector.matches(tuple(sorted(pods.labels.items())))
