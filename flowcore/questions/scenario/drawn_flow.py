"""The flow of the pods that have a node, in the network that their policy draws: arc by arc."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs.model import CostModel, Load
from flowcore.costs.network_model import UNSCHEDULED, Arc, End, NetworkModel, NetworkView, PlacedPods, Pods
from flowcore.costs.scale import OMEGA
from flowcore.model.amount_text import counted
from flowcore.model.networks import UNSCHEDULED as UNSCHEDULED_NAME
from flowcore.model.networks import CostPart, NetworkArc, NetworkSpec
from flowcore.model.nodes import Node
from flowcore.model.policies import Policy
from flowcore.model.selectors import Labels
from flowcore.planning.declared_networks.drawing import draw
from flowcore.planning.declared_networks.graph import NetworkRefused, flow_of_placed

#: A maximum that stands for none, so that arcs of pods are drawn with a point of their own.
_ANY: Final = 2**40
#: Kinds of pods whose costs on nodes are looked at.
_MOST_KINDS: Final = 20
#: Points that the drawing adds: for an arc of pods, and for an arc with a gain or ``wholeOrNone`` and several prices.
_OF_PODS: Final = re.compile(r"arcs\[(\d+)\] to ")
_BETWEEN: Final = re.compile(r"\S*arcs\[\d+\] from ")


class FlowArc(msgspec.Struct, frozen=True, rename="camel"):
    """An arc of a network, or one for each of several nodes that leave the same point, with its flow.

    Attributes:
        tail: where it begins: pods, a workload, or an aggregator with the value of its label.
        head: where it ends: an aggregator, a node or a group of nodes, or Unscheduled.
        flow: units that enter it.
        minimum: units that must enter it.
        maximum: units that may enter it; null: any number.
        gain: units that leave it for each that enters, such as "1/2".
        price: of the next unit, of several arcs the lowest; null: no further unit may enter. To Unscheduled, and where
            the policy draws nothing, it is what pods pay on average.
        highest_price: the highest of several arcs.
        state: "full": the flow is the maximum; "short": it is below the minimum; "": neither.
        arcs: how many it stands for, one for each node.
        full: how many of these are full.
    """

    tail: str = msgspec.field(name="from")
    head: str = msgspec.field(name="to")
    flow: int
    minimum: int = 0
    maximum: int | None = None
    gain: str = "1"
    price: int | None = None
    highest_price: int | None = None
    state: str = ""
    arcs: int = 1
    full: int = 0


@dataclass(slots=True)
class _Row:
    """Arcs between the same two ends, such as one for each segment of a cost.

    Attributes:
        price: of the next unit; None: none may enter.
        may_lack: fewer units than its minimum are no want.
    """

    tail: str
    head: End
    gain: str
    flow: int = 0
    minimum: int = 0
    maximum: int = 0
    price: int | None = None
    may_lack: bool = False

    def add(self, arc: Arc, units: int) -> None:
        """Counts an arc."""
        most = _ANY if arc.maximum is None else arc.maximum
        self.flow, self.minimum, self.maximum = self.flow + units, self.minimum + arc.minimum, self.maximum + most
        if units < most:
            self.price = min(arc.cost, arc.cost if self.price is None else self.price)
        self.may_lack |= arc.whole_or_none and not units

    @property
    def is_short(self) -> bool:
        """Whether it has fewer units than it must have."""
        return self.flow < self.minimum and not self.may_lack

    def raise_price(self, price: int | None) -> None:
        """Each unit costs so much more; None: none may enter."""
        self.price = None if self.price is None or price is None else self.price + price


def drawn_flow(
    policy: Policy, model: CostModel, after: Snapshot, kinds: Iterable[Labels], *, nodes: bool
) -> tuple[list[FlowArc], list[str]]:
    """The arcs of a policy's network with the flow of its pods, and notes about what they do not say.

    Args:
        model: of its cost.
        after: the cluster, with all pods that have a node.
        kinds: labels of pods of the policy.
        nodes: whether each node has an arc of its own.
    """
    try:
        return _DrawnFlow(policy, model, after, kinds).listed(nodes=nodes)
    except NetworkRefused as error:
        return [], [f"the network of policy {policy.name} is refused: {error}"]


class _DrawnFlow:
    """A network drawn once more, for pods that all have a node.

    Attributes:
        names: of starts of arcs that are no aggregators, for people, by their points.
    """

    def __init__(self, policy: Policy, model: CostModel, after: Snapshot, kinds: Iterable[Labels]) -> None:
        self._after, self.names, self.notes = after, dict[str, str](), list[str]()
        spec, load = policy.network, Load.of(after, policy.cost.utilisation)
        self._spec = NetworkSpec() if spec is None else _with_points(spec)
        view = NetworkView(policy.name, (), load, after, policy.selects)
        if spec is not None:
            taken = np.array([int(OMEGA * view.taken(node)) for node in view.nodes], dtype=np.int64)
            none = np.zeros_like(taken)
            parts = {arc.cost.part for arc in _all_arcs(spec)}
            if CostPart.UTILISATION in parts:
                view = replace(view, pods=_of_kinds(spec, kinds, len(taken)))
            if left_out := [part for part in CostPart if part in parts and part is not CostPart.UTILISATION]:
                self.notes.append(f"prices are without {' and '.join(map(str, left_out))}: these differ by the pod")
            drawing = draw(self._spec, view, lambda _, part: taken if part is CostPart.UTILISATION else none)
            self._arcs = drawing.arcs
            return
        try:
            assert isinstance(model, NetworkModel)  # noqa: S101 - else it draws nothing
            self._arcs = tuple(arc for arc in model.network(view).arcs if isinstance(arc, Arc))
        except Exception as error:  # whatever a stranger's code does
            raise NetworkRefused(f"its method network raised {error!r}") from error
        if not any(isinstance(arc.tail, PlacedPods) for arc in self._arcs):
            self.notes.append(f"cost model {model.name} draws no arcs for pods that have a node, so no flow is known")

    def listed(self, *, nodes: bool) -> tuple[list[FlowArc], list[str]]:
        """The arcs and the notes."""
        arcs, beside = list[Arc](), dict[str, int]()
        ends = {arc.tail for arc in self._arcs if arc.head is UNSCHEDULED and isinstance(arc.tail, str)}
        for arc in self._arcs:
            if isinstance(arc.tail, Pods):
                if isinstance(arc.head, str):
                    beside[arc.head] = min(arc.cost, beside.get(arc.head, arc.cost))
            elif isinstance(arc.tail, PlacedPods):
                arcs += self._begun(arc)
            elif arc.head is not UNSCHEDULED:
                arcs.append(arc)
        rows = _rows(flow_of_placed(arcs, self._after.table.index))
        if ends:
            self.notes.append("units that aggregators send to Unscheduled are not counted on the arcs to these")
        for row in rows:
            row.may_lack |= row.head in ends
            row.raise_price(beside.get(row.tail, 0))
        return self._folded(rows, nodes=nodes), self.notes

    def _begun(self, arc: Arc) -> Iterator[Arc]:
        """An arc of pods that have a node, with a point for all pods of its kind."""
        assert isinstance(arc.tail, PlacedPods)  # noqa: S101 - see listed
        if arc.head is UNSCHEDULED or (isinstance(arc.head, str) and _OF_PODS.match(arc.head)):
            yield arc
            return
        over = {each.name: each.over.pods for each in self._spec.aggregators}
        selector = over.get(arc.head) if isinstance(arc.head, str) else None
        labels = ",".join(f"{key}={value}" for key, value in sorted(arc.tail.labels.items()))
        pods = _pods(labels if selector is None else selector.text)
        point = f"{pods} to {_name(arc.head)}"
        if point not in self.names:
            self.names[point] = pods
            yield Arc(point, arc.head)
        yield replace(arc, head=point)

    def _folded(self, rows: Iterable[_Row], *, nodes: bool) -> list[FlowArc]:
        """The rows as arcs; of those from one point to nodes one, unless each node is asked for."""
        folded: dict[tuple[str, str, str], list[_Row]] = {}
        for row in rows:
            number = _OF_PODS.match(row.tail)
            start = number[0] if number else self.names.get(row.tail, row.tail)
            to_nodes = isinstance(row.head, Node) and not nodes
            folded.setdefault((start, "" if to_nodes else _name(row.head), row.gain), []).append(row)
        return [_arc(self._shown(together[0].tail), together) for together in folded.values()]

    def _shown(self, point: str) -> str:
        """A start of arcs for people."""
        number = _OF_PODS.match(point)
        if not number:
            return self.names.get(point, point)
        end = self._spec.arcs[int(number[1])].tail
        return f"running {_pods(end.selector.text)}" if end.runs else _pods(end.selector.text)


def _with_points(spec: NetworkSpec) -> NetworkSpec:
    """The same drawing, in which each arc of pods has a point of its own; without those to Unscheduled."""
    arcs = [each for each in spec.arcs if each.arc.head != UNSCHEDULED_NAME]
    replaced = msgspec.structs.replace
    with_points = (
        replaced(each, arc=replaced(each.arc, maximum=_ANY if each.arc.maximum is None else each.arc.maximum))
        for each in arcs
    )
    return replaced(spec, arcs=tuple(with_points))


def _all_arcs(spec: NetworkSpec) -> Iterator[NetworkArc]:
    yield from (each.arc for each in spec.arcs)
    for aggregator in spec.aggregators:
        yield from aggregator.arcs


def _of_kinds(spec: NetworkSpec, kinds: Iterable[Labels], count: int) -> tuple[Pods, ...]:
    """Pods that only say which arcs lead them where, so that these have a price; ``count``: of the nodes."""
    read = {tuple(each for each in labels if each[0] in spec.pod_labels) for labels in kinds}
    none, no_prices = np.zeros(count, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return tuple(Pods("", "", dict(labels), 0, {}, no_prices, none, none) for labels in sorted(read)[:_MOST_KINDS])


def _rows(flow: Iterable[tuple[Arc, int]]) -> list[_Row]:
    """Parallel arcs together, and no points between two parts of one arc."""
    rows: dict[tuple[End, End], _Row] = {}
    for arc, units in flow:
        row = rows.setdefault((arc.tail, arc.head), _Row(str(arc.tail), arc.head, str(arc.gain)))
        row.add(arc, units)
    onward: Mapping[str, _Row] = {row.tail: row for row in rows.values() if _BETWEEN.match(row.tail)}
    for row in rows.values():
        while isinstance(row.head, str) and row.head in onward:
            second = onward[row.head]
            row.raise_price(second.price)
            row.head = second.head
    return [row for row in rows.values() if row.tail not in onward]


def _arc(tail: str, rows: list[_Row]) -> FlowArc:
    prices = [row.price for row in rows if row.price is not None]
    full, maximum = sum(row.flow >= row.maximum for row in rows), sum(row.maximum for row in rows)
    return FlowArc(
        tail,
        _name(rows[0].head) if len(rows) == 1 else counted(len(rows), "node"),
        sum(row.flow for row in rows),
        sum(row.minimum for row in rows),
        None if maximum >= _ANY else maximum,
        rows[0].gain,
        min(prices, default=None),
        max(prices, default=None),
        "short" if any(row.is_short for row in rows) else "full" if full == len(rows) else "",
        len(rows),
        full,
    )


def _name(end: End) -> str:
    return end if isinstance(end, str) else UNSCHEDULED_NAME if end is UNSCHEDULED else end.name


def _pods(selector: str) -> str:
    """Pods that a selector matches; "": all of the policy."""
    return f"pods {selector}" if selector else "pods"
