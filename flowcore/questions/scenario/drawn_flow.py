"""The flow of a plan in the network of a policy: arc by arc, as the plan was made.

A network that was solved as a whole has the flow that the solver found. In one that is rules of single pods a pod takes
the cheapest of its ways to its node: ways of a pod to one node pass the same limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from flowcore.cluster.arrays.node_matching import term_matches
from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.model import Load
from flowcore.costs.network_model import utilisation
from flowcore.model.amount_text import counted
from flowcore.model.networks import NODES, UNSCHEDULED, CostPart, NetworkWay, PassedArc, PodEnd
from flowcore.model.policies import Policy
from flowcore.model.selectors import NodeSelectorTerm
from flowcore.planning.drawn_networks.compile_networks import NetworkStart, ways_of
from flowcore.planning.drawn_networks.placed_pods import placed_by
from flowcore.planning.problem.result import SolvedArc, SolvedNetwork, Unplaced


class FlowArc(msgspec.Struct, frozen=True, rename="camel"):
    """An arc of a network, or one for each of several nodes that leave the same point, with its flow.

    Attributes:
        tail: where it begins: pods, a workload, or an aggregator with the value of its label.
        head: where it ends: an aggregator, a node or a group of nodes, or Unscheduled.
        flow: units that enter it.
        minimum: units that must enter it.
        maximum: units that may enter it; null: any number.
        gain: units that leave it for each that enters, such as "1/2".
        price: of the next unit, of several arcs the lowest; null: it differs by the pod, or no further unit may enter.
            To Unscheduled, and where the policy draws nothing, it is what pods pay, and the average of these.
        highest_price: the highest of several.
        state: "full": the flow is the maximum; "over": it is above; "short": it is below the minimum; "": none of
            these.
        arcs: how many it stands for, one for each node.
        full: how many of these are full.
        whole_or_none: no unit may enter it too, in place of the minimum.
        from_pods, to_nodes: whether it begins at pods, and ends at nodes.
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
    whole_or_none: bool = False
    from_pods: bool = False
    to_nodes: bool = False


@dataclass(slots=True)
class _Row:
    """An arc between two ends.

    Attributes:
        maximum: None: any number.
        price: of the next unit; None: see ``FlowArc``.
    """

    name: str
    tail: str
    head: str
    from_pods: bool
    to_nodes: bool
    flow: int = 0
    minimum: int = 0
    maximum: int | None = 0
    gain: str = "1"
    price: int | None = None
    whole_or_none: bool = False

    @property
    def state(self) -> str:
        """As ``FlowArc`` says it."""
        if self.maximum is not None and self.flow >= self.maximum:
            return "full" if self.flow == self.maximum else "over"
        may_lack = self.whole_or_none and not self.flow
        return "short" if self.flow < self.minimum and not may_lack else ""


def drawn_flow(
    policy: Policy,
    solved: SolvedNetwork | None,
    after: Snapshot,
    left: Sequence[Unplaced],
    refused: str,
    *,
    nodes: bool,
) -> tuple[list[FlowArc], list[str]]:
    """The arcs of a policy's network with the flow of its pods, and notes about what they do not say.

    Args:
        solved: the network, where it was solved as a whole.
        after: the cluster with the plan.
        left: pods of the policy that the plan leaves.
        refused: why the network was not solved, a sentence; "": it was, or there was nothing to solve.
        nodes: whether each node has an arc of its own.
    """
    notes = list[str]()
    if solved is not None:
        rows, lost = [_solved_row(arc) for arc in solved.arcs], solved.lost
    elif ways := [] if policy.network is None else ways_of(policy, after):
        flow = _RuleFlow(policy, ways, after)
        rows, lost = list(flow.rows()), flow.lost
        if flow.has_parts:
            notes.append("prices that differ by the pod are left out")
    else:
        rows, lost = [], 0
        notes.append(refused or f"no pod of policy {policy.name} waits, so its network was not solved")
    if lost:
        notes.append(f"{counted(lost, 'pod')} with a node on no arc: no way leads there, or none has room")
    # Pods may wait, whether that is drawn or not.
    drawn = (row for row in rows if row.flow or row.name or row.head != UNSCHEDULED)
    arcs = _folded(drawn, nodes=nodes)
    waits = [arc for arc in arcs if arc.from_pods and arc.head == UNSCHEDULED]
    if left and not waits:
        arcs.append(FlowArc("pods", UNSCHEDULED, len(left), from_pods=True))
    prices = [each.price for each in left]
    return [_priced(arc, prices) if arc.from_pods and arc.head == UNSCHEDULED else arc for arc in arcs], notes


def _priced(arc: FlowArc, prices: Sequence[int]) -> FlowArc:
    """An arc to Unscheduled with what the pods pay that wait."""
    lowest, highest = (min(prices), max(prices)) if prices else (arc.price, arc.highest_price)
    return msgspec.structs.replace(arc, price=lowest, highest_price=highest)


# --- networks that were solved as a whole ---


def _solved_row(arc: SolvedArc) -> _Row:
    drawn = arc.arc
    return _Row(
        arc.name,
        arc.tail,
        arc.head,
        arc.from_pods,
        arc.to_nodes,
        arc.flow,
        drawn.minimum,
        drawn.maximum,
        str(drawn.factor),
        arc.price,
        drawn.whole_or_none,
    )


# --- networks that are rules of single pods ---


class _RuleFlow:
    """The pods of a policy on the ways to their nodes.

    Attributes:
        lost: pods that no way leads to where they are.
    """

    def __init__(self, policy: Policy, ways: Sequence[tuple[NetworkStart, list[NetworkWay]]], after: Snapshot) -> None:
        self._ways, self._table, self.lost = ways, after.table, 0
        load = Load.of(after, policy.cost.utilisation)
        self._taken = utilisation(load)
        self._masks: dict[NodeSelectorTerm | None, Bools] = {}
        #: int64[N], pods on each node that passed an arc on their way there.
        self._passed: dict[PassedArc, Int64s] = {}
        own = list(dict.fromkeys(start.selector for start, _ in ways if not start.runs))
        anybody = list(dict.fromkeys(start.selector for start, _ in ways if start.runs))
        selectors = [*((each, False) for each in own), *((each, True) for each in anybody)]
        of_selector = [
            [way for start, of_start in ways if (start.selector, start.runs) == each for way in of_start]
            for each in selectors
        ]
        for node, count, matched in placed_by(after, policy.selects, own, anybody):
            self._pass([way for number in matched for way in of_selector[number]], node, count)

    @property
    def has_parts(self) -> bool:
        """Whether costs of arcs have parts that differ by the pod."""
        parts = (arc.arc.cost.part for _, of_start in self._ways for way in of_start for arc in way.path)
        return any(part not in (None, CostPart.UTILISATION) for part in parts)

    def _pass(self, ways: Iterable[NetworkWay], node: int, count: int) -> None:
        """Pods take the cheapest of some ways to a node."""
        leading = [way for way in ways if self._mask(way)[node]]
        if not leading:
            self.lost += count
            return
        cheapest = min(leading, key=lambda way: way.cost + self._part(way.part, way.weight, node))
        for arc in cheapest.path:
            if arc not in self._passed:
                self._passed[arc] = np.zeros(len(self._table.nodes), dtype=np.int64)
            self._passed[arc][node] += count

    def _mask(self, way: NetworkWay) -> Bools:
        if way.nodes not in self._masks:
            everywhere = np.ones(len(self._table.nodes), dtype=np.bool_)
            self._masks[way.nodes] = everywhere if way.nodes is None else term_matches(way.nodes, self._table)
        return self._masks[way.nodes]

    def _part(self, part: CostPart | None, weight: int, node: int) -> int:
        return weight * int(self._taken[node]) if part is CostPart.UTILISATION else 0

    def rows(self) -> Iterable[_Row]:
        """A row for each end of each arc."""
        starts = {way.path[0]: start for start, of_start in self._ways for way in of_start}
        reached: dict[PassedArc, Bools] = {}
        for _, of_start in self._ways:
            for way in of_start:
                for arc in way.path:
                    reached[arc] = reached.get(arc, np.zeros_like(self._mask(way))) | self._mask(way)
        for arc, mask in reached.items():
            yield from self._rows_of(arc, starts.get(arc), np.nonzero(mask)[0])

    def _rows_of(self, arc: PassedArc, start: NetworkStart | None, nodes: Int64s) -> Iterable[_Row]:
        """A row for each end of an arc, with ways to these nodes."""
        passed = self._passed.get(arc, np.zeros(len(self._table.nodes), dtype=np.int64))
        to_nodes = not arc.head_label and (arc.arc.head == NODES or arc.arc.head in self._table.index)
        rows: dict[tuple[str, str], _Row] = {}
        for node in nodes.tolist():
            begins = PodEnd(start.selector, start.runs).text if start else self._point(arc.tail, arc.tail_label, node)
            ends = self._table.nodes[node].name if to_nodes else self._point(arc.arc.head, arc.head_label, node)
            row = rows.setdefault((begins, ends), _Row(arc.name, begins, ends, start is not None, to_nodes))
            row.flow += int(passed[node])
            row.maximum = arc.arc.maximum
            if to_nodes:
                row.price = self._part(arc.arc.cost.part, arc.arc.cost.weight, node)
        for row in rows.values():
            self._price(row, arc)
        return rows.values()

    @staticmethod
    def _price(row: _Row, arc: PassedArc) -> None:
        """What a further unit costs, beside what a node costs; None where none may enter, or pods pay differently."""
        cost = arc.arc.cost
        if row.state or cost.part not in (None, CostPart.UTILISATION):
            row.price = None
            return
        segment = next(each for each in cost.segments if each.up_to is None or row.flow < each.up_to)
        row.price = segment.cost + (row.price or 0)

    def _point(self, name: str, label: str, node: int) -> str:
        """An aggregator, with the value of its label that a node has."""
        if not label:
            return name
        column = self._table.column(label)
        return f"{name} {column.values[int(column.codes[node])]}"


# --- for people ---


def _folded(rows: Iterable[_Row], *, nodes: bool) -> list[FlowArc]:
    """The rows as arcs; of those from one point to nodes one, unless each node is asked for."""
    folded: dict[tuple[str, str, str, str], list[_Row]] = {}
    for row in rows:
        end = "" if row.to_nodes and not nodes else row.head
        folded.setdefault((row.name, row.tail, end, row.gain), []).append(row)
    return [_arc(together) for together in folded.values()]


def _arc(rows: Sequence[_Row]) -> FlowArc:
    first, prices = rows[0], [row.price for row in rows if row.price is not None]
    states = [row.state for row in rows]
    full = sum(state in ("full", "over") for state in states)
    most = [row.maximum for row in rows]
    state = next((each for each in ("over", "short") if each in states), "full" if full == len(rows) else "")
    return FlowArc(
        first.tail,
        first.head if len(rows) == 1 else counted(len(rows), "node"),
        sum(row.flow for row in rows),
        sum(row.minimum for row in rows),
        None if None in most else sum(each for each in most if each is not None),
        first.gain,
        min(prices, default=None),
        max(prices, default=None),
        state,
        len(rows),
        full,
        first.whole_or_none,
        first.from_pods,
        first.to_nodes,
    )
