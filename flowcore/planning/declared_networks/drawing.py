"""A policy's drawing as arcs between the pods and nodes of a round: one for each value of a label and each segment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from flowcore.cluster.arrays.snapshot import Int64s, NodeTable
from flowcore.costs.network_model import UNSCHEDULED, Arc, End, Network, NetworkView, PlacedPods, Pods
from flowcore.model.networks import (
    NODES,
    Aggregator,
    CostPart,
    NetworkArc,
    NetworkSpec,
    PodArc,
    PodEnd,
    Segment,
)
from flowcore.model.networks import UNSCHEDULED as UNSCHEDULED_NAME
from flowcore.model.nodes import Node
from flowcore.model.selectors import Labels, LabelSelector
from flowcore.planning.declared_networks.graph import NetworkRefused

#: What a part of the cost is on each node for some pods, int64[N].
Priced = Callable[[Pods, CostPart], Int64s]


@dataclass(frozen=True, slots=True)
class _Point:
    """An aggregator, or that of one value of its label.

    Attributes:
        nodes: positions of those that its arcs to all nodes lead to.
    """

    name: str
    nodes: frozenset[int]


def draw(spec: NetworkSpec, view: NetworkView, priced: Priced) -> Network:
    """The network of a round.

    Raises:
        NetworkRefused: an arc leads to a node that is not there, or costs of several kinds of pods meet in one arc.
    """
    return Network.of(_Drawing(spec, view, priced).arcs())


def why_no_way(spec: NetworkSpec, labels: Labels, table: NodeTable) -> str:
    """Why no way leads pods with these labels to any node, a clause."""
    heads = [each.arc.head for each in spec.arcs if not each.tail.runs and each.tail.selector.matches(labels)]
    heads += [each.name for each in spec.aggregators if each.over.pods is not None and each.over.pods.matches(labels)]
    if not set(heads) - {UNSCHEDULED_NAME}:
        return "no arc begins at it that leads to a node"
    keys = {each.name: each.over.node_label for each in spec.aggregators if each.over.node_label}
    unknown = [name for name in heads if name in keys and not table.column(keys[name]).values]
    if unknown:
        return f"no node has the label {keys[unknown[0]]}, which aggregator {unknown[0]} is over"
    return f"what its arcs lead to, such as {heads[0]}, has no way to any node"


class _Drawing:
    def __init__(self, spec: NetworkSpec, view: NetworkView, priced: Priced) -> None:
        self._spec, self._view, self._priced = spec, view, priced
        self._points = {each.name: self._points_of(each) for each in spec.aggregators}
        self._by_name: Mapping[str, Node] = {node.name: node for node in view.nodes}

    def arcs(self) -> Iterator[Arc]:
        """All arcs, those that end at a node that takes nothing included."""
        for number, pod_arc in enumerate(self._spec.arcs):
            yield from self._from_pods(pod_arc, f"arcs[{number}]")
        for aggregator in self._spec.aggregators:
            for point in self._points[aggregator.name]:
                if aggregator.over.pods is not None:
                    yield from (Arc(start, point.name) for start in self._starts(PodEnd(aggregator.over.pods)))
                for arc in aggregator.arcs:
                    for head, nodes in self._heads(arc, point.nodes):
                        yield from self._arc(point.name, arc, head, self._part(arc, nodes, self._view.pods))

    def _points_of(self, aggregator: Aggregator) -> list[_Point]:
        view, over = self._view, aggregator.over
        if over.node_label:
            index = view.table.index
            return [
                _Point(f"{aggregator.name} {value}", frozenset(index[node.name] for node in nodes))
                for value, nodes in sorted(view.by_label(over.node_label).items())
            ]
        if over.nodes is not None:
            matching = (place for place, node in enumerate(view.nodes) if over.nodes.matches(node.labels))
            return [_Point(aggregator.name, frozenset(matching))]
        return [_Point(aggregator.name, frozenset(range(len(view.nodes))))]

    def _from_pods(self, pod_arc: PodArc, name: str) -> Iterator[Arc]:
        """The arcs of pods. What one says of units holds for those of all its pods together, also those that run."""
        arc, everywhere = pod_arc.arc, frozenset(range(len(self._view.nodes)))
        is_joint = arc.minimum or arc.maximum is not None or len(arc.cost.segments) > 1 or arc.factor != 1
        starts = list(self._starts(pod_arc.tail))
        for head, nodes in self._heads(arc, everywhere):
            tail = f"{name} by {self._name(head)}" if is_joint else ""
            if is_joint:
                yield from self._arc(tail, arc, head, 0)
            for start in starts:
                if isinstance(start, PlacedPods):
                    if not isinstance(head, Node) or head is start.node:
                        yield Arc(start, tail or head)
                elif is_joint:
                    yield Arc(start, tail, self._part(arc, nodes, (start,)))
                else:
                    yield from self._arc(start, arc, head, self._part(arc, nodes, (start,)))

    def _starts(self, end: PodEnd) -> Iterator[Pods | PlacedPods]:
        """Waiting pods, and pods that have a node: of the policy, or whoever governs them where only these begin."""
        if not end.runs:
            yield from (pods for pods in self._view.pods if _matches(end.selector, pods))
        yield from self._view.placed_by(end.selector, own=not end.runs)

    @staticmethod
    def _name(end: End) -> str:
        return end if isinstance(end, str) else UNSCHEDULED_NAME if end is UNSCHEDULED else end.name

    def _heads(self, arc: NetworkArc, nodes: frozenset[int]) -> Iterator[tuple[End, frozenset[int]]]:
        """Where an arc leads from a point with these nodes; and the node that it is.

        Of an aggregator over a label it leads to the values that share a node with the point.

        Raises:
            NetworkRefused: there is no such node.
        """
        if arc.head == NODES:
            yield from ((self._view.nodes[place], frozenset((place,))) for place in sorted(nodes))
        elif arc.head == UNSCHEDULED_NAME:
            yield UNSCHEDULED, frozenset()
        elif arc.head in self._points:
            points = self._points[arc.head]
            yield from ((point.name, frozenset()) for point in points if not point.nodes.isdisjoint(nodes))
        elif arc.head in self._by_name:
            yield self._by_name[arc.head], frozenset((self._view.table.index[arc.head],))
        else:
            raise NetworkRefused(f"it has an arc to {arc.head}, and there is no node of that name")

    def _part(self, arc: NetworkArc, nodes: frozenset[int], pods: Iterable[Pods]) -> int:
        """What a part of the nodes' cost adds to each unit on an arc.

        Args:
            nodes: the node that it ends at; none for other ends.
            pods: of which units may take it.

        Raises:
            NetworkRefused: it differs between them.
        """
        if arc.cost.part is None:
            return 0
        (node,) = nodes
        costs = {int(self._priced(each, arc.cost.part)[node]) for each in pods}
        if len(costs) > 1:
            named = f"{arc.cost.part} of node {self._view.nodes[node].name}"
            raise NetworkRefused(f"{named} differs between pods that share an arc: let the arc begin at pods")
        return arc.cost.weight * max(costs, default=0)

    def _arc(self, tail: Pods | str, arc: NetworkArc, head: End, part: int) -> Iterator[Arc]:
        """One arc for each segment of its cost; the cheap ones take the minimum.

        Args:
            part: is added for each unit.
        """
        before, least = 0, arc.minimum
        if arc.whole_or_none and len(arc.cost.segments) > 1:
            # None or enough is said of all segments together.
            joint = f"{tail if isinstance(tail, str) else tail.name} -> {self._name(head)}, whole"
            yield Arc(tail, joint, 0, arc.minimum, arc.maximum, whole_or_none=True)
            arc, tail, least = msgspec.structs.replace(arc, minimum=0, whole_or_none=False), joint, 0
        for segment in arc.cost.segments:
            room = _room(segment, before, arc.maximum)
            if room is not None and room <= 0:
                return
            minimum = least if room is None else min(least, room)
            yield Arc(tail, head, segment.cost + part, minimum, room, arc.factor, arc.whole_or_none)
            before, least = before + (room or 0), least - minimum


def _room(segment: Segment, before: int, maximum: int | None) -> int | None:
    """How many units a segment takes after those before it; None: any number."""
    ends = [end for end in (segment.up_to, maximum) if end is not None]
    return min(ends) - before if ends else None


def _matches(selector: LabelSelector, pods: Pods) -> bool:
    return selector.matches(tuple(sorted(pods.labels.items())))
