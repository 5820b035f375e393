"""The flow of a plan in the network of a policy: arc by arc, as the plan was made.

A network that was solved as a whole has the flow that the solver found. In one that is rules of single pods a pod takes
the cheapest of its ways to its node: ways of a pod to one node pass the same limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import msgspec
import numpy as np

from flowcore.cluster.arrays.node_matching import term_matches
from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod, Snapshot
from flowcore.costs.model import Load
from flowcore.costs.network_model import UNSCHEDULED, Arc, End, NetworkView, PlacedPods, Pods
from flowcore.costs.preferences import node_preference, taint_preference
from flowcore.costs.scale import OMEGA
from flowcore.model.amount_text import counted
from flowcore.model.cost_policy import CostPolicy, CostWeights
from flowcore.model.networks import UNSCHEDULED as UNSCHEDULED_NAME
from flowcore.model.networks import ArcCost, CostPart, NetworkSpec, NetworkWay, PassedArc
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement
from flowcore.planning.drawn_networks.compile_networks import NetworkStart, ways_of
from flowcore.planning.problem.result import Placement, SolvedNetwork, Unplaced
from flowcore.questions.scenario.flow_arcs import FlowArc, together

#: How points begin that the drawing adds for an arc of pods, and what those have that it adds within an arc.
_OF_PODS, _WITHIN = "arcs[", " from "


@dataclass(slots=True)
class _Row:
    """An arc between two ends.

    Attributes:
        maximum: None: any number.
        price: of the next unit; None: see ``FlowArc``.
        parts: the point whose pods pay a part of what nodes cost beside it; "": none.
        spread: how much more some pods pay than others.
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
    parts: str = ""
    spread: int = 0

    @property
    def state(self) -> str:
        """As ``FlowArc`` says it."""
        if self.maximum is not None and self.flow >= self.maximum:
            return "full" if self.flow == self.maximum else "over"
        may_lack = self.whole_or_none and not self.flow
        return "short" if self.flow < self.minimum and not may_lack else ""

    @property
    def arc(self) -> FlowArc:
        """For people."""
        return FlowArc(
            self.tail,
            self.head,
            self.flow,
            self.minimum,
            self.maximum,
            self.gain,
            self.price,
            None if self.price is None else self.price + self.spread,
            self.state,
            1,
            int(self.state in ("full", "over")),
            self.whole_or_none,
            self.from_pods,
            self.to_nodes,
        )

    def add(self, arc: Arc, units: int) -> None:
        """Counts a part of the arc, with its limits."""
        most = None if arc.maximum is None else int(arc.maximum)
        self.flow, self.minimum = self.flow + units, self.minimum + int(arc.minimum)
        self.maximum = None if self.maximum is None or most is None else self.maximum + most
        self.gain, self.whole_or_none = str(arc.gain), self.whole_or_none or arc.whole_or_none
        if arc.maximum is None or units < arc.maximum:
            self.price = int(arc.cost) if self.price is None else min(self.price, int(arc.cost))


def drawn_flow(
    policy: Policy,
    solved: SolvedNetwork | None,
    after: Snapshot,
    placed: Sequence[Placement],
    left: Sequence[Unplaced],
    refused: str,
    *,
    nodes: bool,
) -> tuple[list[FlowArc], list[str]]:
    """The arcs of a policy's network with the flow of its pods, and notes about what they do not say.

    Args:
        solved: the network, where it was solved as a whole.
        after: the cluster with the plan.
        placed, left: pods of the policy that wait, by what the plan does with them.
        refused: why the network was not solved, a sentence; "": it was, or there was nothing to solve.
        nodes: whether each node has an arc of its own.
    """
    notes = list[str]()
    if solved is not None:
        rows, lost = list(_solved_rows(policy.network, solved)), solved.lost
    elif ways := [] if policy.network is None else ways_of(policy, after):
        flow = _RuleFlow(policy, ways, after, [*(each.pod for each in placed), *(each.pod for each in left)])
        rows, lost = list(flow.rows()), flow.lost
        if flow.has_model:
            notes.append("the cost model says what pods pay beside an arc's own cost: such arcs have no price here")
    else:
        rows, lost = [], 0
        notes.append(refused or f"no pod of policy {policy.name} waits, so its network was not solved")
    if lost:
        has, is_on = ("has", "is") if lost == 1 else ("have", "are")
        pods = f"{counted(lost, 'pod')} that {has} a node {is_on} on no arc"
        notes.append(f"{pods}: no way leads there, or none has room")
    ends = _ends_of_waiting(policy.network, solved)
    waiting = _prices_by_start(ends, left)
    if solved is None:
        drawn_ends = {_pods(selector.text): cost for selector, cost in sorted(ends, key=itemgetter(1), reverse=True)}
        rows += [
            _Row("arcs", start, UNSCHEDULED_NAME, True, False, len(waiting.get(start, ())), 0, None, "1", cost)
            for start, cost in drawn_ends.items()
        ]
    # Pods may wait, whether that is drawn or not.
    drawn = (row for row in rows if row.flow or row.name or row.head != UNSCHEDULED_NAME)
    arcs = [_priced(arc, waiting) for arc in _folded(drawn, nodes=nodes)]
    known = {arc.tail for arc in arcs if _waits(arc)}
    arcs += [
        _priced(FlowArc(start, UNSCHEDULED_NAME, len(prices), from_pods=True), waiting)
        for start, prices in waiting.items()
        if start not in known
    ]
    return arcs, notes


# --- pods that wait ---


def _ends_of_waiting(spec: NetworkSpec | None, solved: SolvedNetwork | None) -> list[tuple[LabelSelector, int]]:
    """The pods that have an arc to Unscheduled, and what it costs."""
    if spec is not None:
        arcs = (each for each in spec.arcs if each.arc.head == UNSCHEDULED_NAME and not each.tail.runs)
        return [(each.tail.selector, each.arc.cost.segments[0].cost) for each in arcs]
    starts = [] if solved is None else [arc.tail for arc in solved.arcs if isinstance(arc.tail, Pods)]
    return [(_selector(start), 0) for start in starts]


def _selector(pods: Pods) -> LabelSelector:
    return LabelSelector(tuple(Requirement(key, "In", (value,)) for key, value in sorted(pods.labels.items())))


def _prices_by_start(ends: Sequence[tuple[LabelSelector, int]], left: Iterable[Unplaced]) -> dict[str, list[int]]:
    """What pods pay that wait, by the start of the arc that they take: the cheapest that is drawn for them."""
    prices: dict[str, list[int]] = {}
    for each in left:
        own = [end for end in ends if end[0].matches(each.pod.signature.labels)]
        start = _pods(min(own, key=itemgetter(1))[0].text if own else "")
        prices.setdefault(start, []).append(each.price)
    return prices


def _waits(arc: FlowArc) -> bool:
    return arc.from_pods and arc.head == UNSCHEDULED_NAME


def _priced(arc: FlowArc, waiting: Mapping[str, Sequence[int]]) -> FlowArc:
    """An arc of pods to Unscheduled with what those pay that wait; any other as it is."""
    prices = waiting.get(arc.tail) if _waits(arc) else None
    return msgspec.structs.replace(arc, price=min(prices), highest_price=max(prices)) if prices else arc


# --- networks that were solved as a whole ---


def _solved_rows(spec: NetworkSpec | None, solved: SolvedNetwork) -> Iterable[_Row]:
    """What the solver found, without the points that the drawing adds."""
    rows: dict[tuple[str, str, str], _Row] = {}
    within: dict[str, _Row] = {}
    joints = list[tuple[str, Arc]]()
    #: What a part of the costs of nodes adds for the pods that come to a point. Where none comes it is unknown.
    parts: dict[str, list[int]] = {}
    parted, reached = _arcs_with_parts(spec), _of_waiting(solved)
    for arc, units in zip(solved.arcs, solved.units.tolist(), strict=True):
        tail, head = (end if spec is not None and isinstance(end, str) else "" for end in (arc.tail, arc.head))
        if _WITHIN in tail:
            joints.append((tail, arc))
            continue
        if head.startswith(_OF_PODS) and _WITHIN not in head:  # the arc of the pods goes on from there
            if isinstance(arc.tail, Pods):
                parts.setdefault(head, []).append(int(arc.cost))
            continue
        from_pods = not isinstance(arc.tail, str) or tail.startswith(_OF_PODS)
        start, end = _start(spec or NetworkSpec(), arc), _name(arc.head)
        row = rows.setdefault((arc.name, start, end), _Row(arc.name, start, end, from_pods, isinstance(arc.head, Node)))
        row.add(arc, units)
        if tail and (tail.startswith(_OF_PODS) or (arc.name in parted and tail not in reached)):
            row.parts = tail
        if _WITHIN in head:
            within[head] = row
    for tail, arc in joints:
        # What it says of its units together; its segments say what they cost, and end where it begins.
        row = within[tail]
        row.head, row.to_nodes, row.gain = _name(arc.head), isinstance(arc.head, Node), str(arc.gain)
        row.minimum, row.whole_or_none = int(arc.minimum), arc.whole_or_none
    for row in rows.values():
        if row.price is not None and row.parts:
            pays = parts.get(row.parts)
            row.price, row.spread = (row.price + min(pays), max(pays) - min(pays)) if pays else (None, 0)
    return rows.values()


def _arcs_with_parts(spec: NetworkSpec | None) -> set[str]:
    """Names of arcs that leave aggregators, and whose units pay a part of what nodes cost."""
    of_points = () if spec is None else spec.aggregators
    return {f"{each.name}.arcs[{n}]" for each in of_points for n, arc in enumerate(each.arcs) if arc.cost.part}


def _of_waiting(solved: SolvedNetwork) -> set[End]:
    """The points that waiting pods come to."""
    onward: dict[End, list[End]] = {}
    for arc in solved.arcs:
        if isinstance(arc.tail, str):
            onward.setdefault(arc.tail, []).append(arc.head)
    ends = [arc.head for arc in solved.arcs if isinstance(arc.tail, Pods)]
    reached = set[End]()
    while ends:
        end = ends.pop()
        if end not in reached:
            reached.add(end)
            ends += onward.get(end, [])
    return reached


def _start(spec: NetworkSpec, arc: Arc) -> str:
    """Where an arc begins, for people."""
    number = arc.tail.partition(" to ")[0] if isinstance(arc.tail, str) else arc.name
    for place, pod_arc in enumerate(spec.arcs):
        if number == f"arcs[{place}]":
            return _pods(pod_arc.tail.selector.text, runs=pod_arc.tail.runs)
    if isinstance(arc.tail, str):
        return arc.tail
    for aggregator in spec.aggregators:
        if aggregator.over.pods is not None and arc.head == aggregator.name:
            return _pods(aggregator.over.pods.text)
    if spec.arcs or not isinstance(arc.tail, Pods | PlacedPods):
        return _pods("")
    return _pods(",".join(f"{key}={value}" for key, value in sorted(arc.tail.labels.items())))


# --- networks that are rules of single pods ---


class _RuleFlow:
    """The pods of a policy on the ways to their nodes.

    Attributes:
        lost: pods that no way leads to where they are.
    """

    def __init__(
        self,
        policy: Policy,
        ways: Sequence[tuple[NetworkStart, list[NetworkWay]]],
        after: Snapshot,
        pods: Iterable[PendingPod],
    ) -> None:
        """``pods``: those of the round, which say what parts of the costs of nodes pods pay."""
        self._ways, self._table, self._policy, self.lost = ways, after.table, policy, 0
        self._pods = {(each.pod_class, each.signature.labels) for each in pods}
        load = Load.of(after, policy.cost.utilisation)
        view = NetworkView(policy.name, (), load, after, policy.selects)
        self._taken = np.array([int(OMEGA * view.taken(node)) for node in view.nodes], dtype=np.int64)
        self._masks: dict[NodeSelectorTerm | None, Bools] = {}
        self._aggregators = {each.name for each in policy.network.aggregators} if policy.network is not None else set()
        #: int64[N], pods on each node that passed an arc on their way there.
        self._passed: dict[PassedArc, Int64s] = {}
        own = list(dict.fromkeys(start.selector for start, _ in ways if not start.runs))
        anybody = list(dict.fromkeys(start.selector for start, _ in ways if start.runs))
        selectors = [*((each, False) for each in own), *((each, True) for each in anybody)]
        of_selector = [
            [way for start, of_start in ways if (start.selector, start.runs) == each for way in of_start]
            for each in selectors
        ]
        for placed, matched in view.placed_by(own, anybody):
            node = after.table.index[placed.node.name]
            self._pass([way for number in matched for way in of_selector[number]], node, placed.count)

    @property
    def has_model(self) -> bool:
        """Whether costs of arcs have all that the cost model says, which differs by the pod."""
        paths = (arc for _, of_start in self._ways for way in of_start for arc in way.path)
        return any(arc.arc.cost.part is CostPart.MODEL for arc in paths)

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
        classes: dict[PassedArc, set[PodClass]] = {}
        for start, of_start in self._ways:
            own = {each for each, labels in self._pods if not start.runs and start.selector.matches(labels)}
            for way in of_start:
                for arc in way.path:
                    reached[arc] = reached.get(arc, np.zeros_like(self._mask(way))) | self._mask(way)
                    classes.setdefault(arc, set()).update(own)
        for arc, mask in reached.items():
            yield from self._rows_of(arc, starts.get(arc), mask, self._parts(arc.arc.cost, classes[arc], mask))

    def _parts(self, cost: ArcCost, classes: Iterable[PodClass], mask: Bools) -> tuple[Int64s, Int64s] | None:
        """int64[N], twice: the least and the most that pods pay of what nodes cost; None: unknown.

        Args:
            mask: bool[N], nodes that the arc leads to; preferences are scaled among them.
        """
        one = CostPolicy(
            weights=CostWeights(node_preference=1, taint_preference=1), preferences=self._policy.cost.preferences
        )
        weights, table = self._policy.cost.weights, self._table
        match cost.part:
            case None:
                parts = [np.zeros(len(table.nodes), dtype=np.int64)]
            case CostPart.UTILISATION:
                parts = [cost.weight * self._taken]
            case CostPart.PREFERENCES:
                weight = cost.weight * weights.node_preference
                parts = [weight * node_preference(each, table, mask, one) for each in classes]
            case CostPart.TAINTS:
                weight = cost.weight * weights.taint_preference
                parts = [weight * taint_preference(each, table, mask, one) for each in classes]
            case CostPart.MODEL:
                parts = []
        return (np.minimum.reduce(parts), np.maximum.reduce(parts)) if parts else None

    def _rows_of(
        self, arc: PassedArc, start: NetworkStart | None, mask: Bools, parts: tuple[Int64s, Int64s] | None
    ) -> Iterable[_Row]:
        """A row for each end of an arc, with ways to these nodes.

        Args:
            mask: bool[N], the nodes.
            parts: what a unit pays there beside the cost of the arc, at least and at most.
        """
        passed = self._passed.get(arc, np.zeros(len(self._table.nodes), dtype=np.int64))
        to_nodes = arc.arc.head not in self._aggregators
        rows: dict[tuple[str, str], _Row] = {}
        for node in np.nonzero(mask)[0].tolist():
            begins = (
                _pods(start.selector.text, runs=start.runs) if start else self._point(arc.tail, arc.tail_label, node)
            )
            ends = self._table.nodes[node].name if to_nodes else self._point(arc.arc.head, arc.head_label, node)
            row = rows.setdefault((begins, ends), _Row(arc.name, begins, ends, start is not None, to_nodes))
            row.flow += int(passed[node])
            row.maximum = arc.arc.maximum
            if parts is not None:
                row.price, row.spread = int(parts[0][node]), int(parts[1][node] - parts[0][node])
        for row in rows.values():
            # What a further unit costs; no price where none may enter.
            if row.state:
                row.price = None
            elif row.price is not None:
                segments = arc.arc.cost.segments
                row.price += next(each.cost for each in segments if each.up_to is None or row.flow < each.up_to)
        return rows.values()

    def _point(self, name: str, label: str, node: int) -> str:
        """An aggregator, with the value of its label that a node has."""
        if not label:
            return name
        column = self._table.column(label)
        return f"{name} {column.values[int(column.codes[node])]}"


# --- for people ---


def _folded(rows: Iterable[_Row], *, nodes: bool) -> list[FlowArc]:
    """The rows as arcs; of those from one point to nodes one, unless each node is asked for."""
    folded: dict[tuple[str, str, str, str], list[FlowArc]] = {}
    for row in rows:
        end = "" if row.to_nodes and not nodes else row.head
        folded.setdefault((row.name, row.tail, end, row.gain), []).append(row.arc)
    return [
        together(arcs, arcs[0].tail, arcs[0].head if len(arcs) == 1 else counted(len(arcs), "node"))
        for arcs in folded.values()
    ]


def _name(end: End) -> str:
    return end if isinstance(end, str) else UNSCHEDULED_NAME if end is UNSCHEDULED else end.name


def _pods(selector: str, *, runs: bool = False) -> str:
    """Pods that a selector matches; "": all of the policy."""
    return f"{'running ' if runs else ''}pods{f' {selector}' if selector else ''}"
