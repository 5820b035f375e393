"""Networks that are rules of single pods: each pod takes the cheapest of its ways to its node that has room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil, floor

import numpy as np

from flowcore.cluster.arrays.node_matching import term_matches
from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod, Snapshot
from flowcore.costs.model import Load
from flowcore.costs.network_model import utilisation
from flowcore.costs.preferences import node_preference, taint_preference
from flowcore.model.cost_policy import CostPolicy, CostWeights
from flowcore.model.networks import UNSCHEDULED, ArcCost, CostPart, NetworkWay, PassedArc, PodEnd
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.model.selectors import NodeSelectorTerm
from flowcore.planning.drawn_networks.ways.drawing import NetworkStart
from flowcore.planning.drawn_networks.ways.placed_pods import placed_by
from flowcore.planning.problem.result import Placement
from flowcore.questions.scenario.flow.flow_rows import FlowRow


class RuleFlow:
    """The pods of a policy on the ways to their nodes.

    Attributes:
        lost: pods that no way leads to where they are.
    """

    def __init__(
        self,
        policy: Policy,
        ways: Sequence[tuple[NetworkStart, list[NetworkWay]]],
        after: Snapshot,
        placed: Sequence[Placement],
        pods: Iterable[PendingPod],
    ) -> None:
        """Pods that the plan placed, and all of the round: these say what parts of the costs of nodes pods pay."""
        self._ways, self._table, self._policy, self.lost = ways, after.table, policy, 0
        self._pods = {(each.pod_class, each.signature.labels) for each in pods}
        load = Load.of(after, policy.cost.utilisation)
        self._taken = utilisation(load)
        self._masks: dict[NodeSelectorTerm | None, Bools] = {}
        self._aggregators = {each.name for each in policy.network.aggregators} if policy.network is not None else set()
        #: int64[N], pods on each node that passed an arc on their way there; how many of them one of its units is.
        self._passed: dict[PassedArc, Int64s] = {}
        self._units = {arc: size for _, of_start in ways for way in of_start for arc, size in _sizes(way)}
        known = Counter[tuple[int, frozenset[int]]]()
        own = list(dict.fromkeys(start.selector for start, _ in ways if not start.runs))
        anybody = list(dict.fromkeys(start.selector for start, _ in ways if start.runs))
        selectors = [*((each, False) for each in own), *((each, True) for each in anybody)]
        of_selector = [
            [way for start, of_start in ways if (start.selector, start.runs) == each for way in of_start]
            for each in selectors
        ]
        for placement in placed if any(each.way for each in placed) else ():
            node, labels = after.table.index[placement.node], placement.pod.signature.labels
            matched = frozenset(number for number, (selector, _) in enumerate(selectors) if selector.matches(labels))
            taken = [way for number in matched for way in of_selector[number] if _names(way) == placement.way]
            if taken:
                self._pass(taken[:1], node, 1)
                known[node, matched] += 1
        for node, count, matched in placed_by(after, policy.selects, own, anybody):
            self._pass([way for number in matched for way in of_selector[number]], node, count - known[node, matched])

    @property
    def has_model(self) -> bool:
        """Whether costs of arcs have all that the cost model says, which differs by the pod."""
        paths = (arc for _, of_start in self._ways for way in of_start for arc in way.path)
        return any(arc.arc.cost.part is CostPart.MODEL for arc in paths)

    def _pass(self, ways: Iterable[NetworkWay], node: int, count: int) -> None:
        """Pods take the cheapest of some ways to a node, and the next one where that is full; the last takes all."""
        leading = [way for way in ways if self._mask(way)[node]]
        leading.sort(key=lambda way: way.cost + self._part(way.part, way.weight, node))
        if not leading:
            self.lost += count
        for number, way in enumerate(leading):
            rooms = [self._room(arc, size, node) for arc, size in _sizes(way)]
            taken = count if number == len(leading) - 1 else min(count, *rooms)
            count -= taken
            for arc, _ in _sizes(way):
                if arc not in self._passed:
                    self._passed[arc] = np.zeros(len(self._table.nodes), dtype=np.int64)
                self._passed[arc][node] += taken

    def _room(self, arc: PassedArc, size: Fraction, node: int) -> int:
        """How many more pods an arc takes to a node's domain."""
        if arc.arc.maximum is None:
            return 2**40
        passed = self._passed.get(arc, np.zeros(len(self._table.nodes), dtype=np.int64))
        for label in (arc.tail_label, arc.head_label):
            if label:
                codes = self._table.column(label).codes
                passed = np.where(codes == codes[node], passed, 0)
        return floor(arc.arc.maximum * size) - int(passed[node] if self._leads_to_nodes(arc) else passed.sum())

    def _leads_to_nodes(self, arc: PassedArc) -> bool:
        return arc.arc.head not in self._aggregators and arc.arc.head != UNSCHEDULED

    def _mask(self, way: NetworkWay) -> Bools:
        if way.nodes not in self._masks:
            everywhere = np.ones(len(self._table.nodes), dtype=np.bool_)
            self._masks[way.nodes] = everywhere if way.nodes is None else term_matches(way.nodes, self._table)
        return self._masks[way.nodes]

    def _part(self, part: CostPart | None, weight: int, node: int) -> int:
        return weight * int(self._taken[node]) if part is CostPart.UTILISATION else 0

    def rows(self) -> Iterable[FlowRow]:
        """A row for each end of each arc."""
        starts = {way.path[0]: start for start, of_start in self._ways for way in of_start}
        reached: dict[PassedArc, Bools] = {}
        classes: dict[PassedArc, set[PodClass]] = {}
        for start, of_start in self._ways:
            own = {each for each, labels in self._pods if not start.runs and start.selector.matches(labels)}
            for way in of_start:
                for arc, _ in _sizes(way):
                    reached[arc] = reached.get(arc, np.zeros_like(self._mask(way))) | self._mask(way)
                    classes.setdefault(arc, set()).update(own)
        for arc, mask in reached.items():
            yield from self._rows_of(arc, starts.get(arc), mask, self._parts(arc.arc.cost, classes[arc], mask))

    def _parts(self, cost: ArcCost, classes: Iterable[PodClass], mask: Bools) -> tuple[Int64s, Int64s] | None:
        """int64[N], twice: the least and the most that pods pay of what nodes cost; None: unknown.

        Args:
            mask: bool[N], nodes that the arc leads to; preferences are scaled among them.
        """
        unweighted = CostWeights(node_preference=1, taint_preference=1)
        scaled = CostPolicy(weights=unweighted, preferences=self._policy.cost.preferences)
        weights, table = self._policy.cost.weights, self._table
        match cost.part:
            case None:
                parts = [np.zeros(len(table.nodes), dtype=np.int64)]
            case CostPart.UTILISATION:
                parts = [cost.weight * self._taken]
            case CostPart.PREFERENCES:
                weight = cost.weight * weights.node_preference
                parts = [weight * node_preference(each, table, mask, scaled) for each in classes]
            case CostPart.TAINTS:
                weight = cost.weight * weights.taint_preference
                parts = [weight * taint_preference(each, table, mask, scaled) for each in classes]
            case CostPart.MODEL:
                parts = []
        return (np.minimum.reduce(parts), np.maximum.reduce(parts)) if parts else None

    def _rows_of(
        self, arc: PassedArc, start: NetworkStart | None, mask: Bools, parts: tuple[Int64s, Int64s] | None
    ) -> Iterable[FlowRow]:
        """A row for each end of an arc, with ways to these nodes.

        Args:
            mask: bool[N], the nodes.
            parts: what a unit pays there beside the cost of the arc, at least and at most.
        """
        passed = self._passed.get(arc, np.zeros(len(self._table.nodes), dtype=np.int64))
        to_nodes, size = self._leads_to_nodes(arc), self._units.get(arc, Fraction(1))
        rows: dict[tuple[str, str], FlowRow] = {}
        for node in np.nonzero(mask)[0].tolist():
            begins = PodEnd(start.selector, start.runs).text if start else self._point(arc.tail, arc.tail_label, node)
            ends = self._table.nodes[node].name if to_nodes else self._point(arc.arc.head, arc.head_label, node)
            row = rows.setdefault((begins, ends), FlowRow(arc.name, begins, ends, start is not None, to_nodes))
            row.flow += int(passed[node])
            row.minimum, row.maximum, row.whole_or_none = arc.arc.minimum, arc.arc.maximum, arc.arc.whole_or_none
            row.gain = str(arc.arc.factor)
            if parts is not None:
                row.price, row.spread = int(parts[0][node]), int(parts[1][node] - parts[0][node])
        for row in rows.values():
            row.flow = ceil(row.flow / size)
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


def _sizes(way: NetworkWay) -> list[tuple[PassedArc, Fraction]]:
    """The arcs of a way, and those beside it, each with how many pods one of its units is."""
    return [*zip(way.path, way.sizes, strict=True), *way.beside]


def _names(way: NetworkWay) -> tuple[str, ...]:
    return tuple(arc.name for arc in way.path)
