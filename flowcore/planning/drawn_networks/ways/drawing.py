"""The ways of a network that a policy draws, from pods to nodes, and the arcs on them that count their units.

A way of a pod to a node passes the aggregators of that node's own values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import floor

import msgspec
import numpy as np

from flowcore.cluster.arrays.node_matching import term_matches
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.model.amount_text import counted as number_of
from flowcore.model.inter_pod_constraints import EACH_NODE, HOSTNAME
from flowcore.model.networks import (
    NODES,
    ONE_POD,
    UNSCHEDULED,
    Aggregator,
    CostPart,
    NetworkArc,
    NetworkUnit,
    NetworkWay,
    PassedArc,
)
from flowcore.model.policies import Policy
from flowcore.model.selectors import TOPOLOGY_SEPARATOR, LabelSelector, NodeSelectorTerm, Requirement
from flowcore.planning.drawn_networks.ways.pod_counts import pod_segments

#: A network with more ways than this is refused.
_MOST_WAYS = 256


class NetworkRefused(Exception):
    """Why no plan can keep to a network, a clause that names an arc."""


@dataclass(frozen=True, slots=True)
class NetworkStart:
    """Pods that an arc begins at.

    Attributes:
        name: where the arc is declared; "": pods are over an aggregator.
        runs: they have a node.
    """

    selector: LabelSelector
    arc: NetworkArc
    name: str
    runs: bool = False


@dataclass(frozen=True, slots=True)
class CountedArc:
    """An arc that counts the units on it, for a limit, a minimum or a price that rises.

    Attributes:
        key: topology key in whose domains they are counted; "": all together; or each node by itself (``EACH_NODE``).
        size: how many pods a unit is.
        instances: bool[N], nodes for which there is an arc, where a domain is of nodes.
    """

    name: str
    key: str
    arc: NetworkArc
    size: Fraction
    instances: Bools


@dataclass(frozen=True, slots=True)
class _Step:
    """An arc on a way so far.

    Attributes:
        key: in whose domains its units are counted.
        tail: the aggregator that it leaves; None: pods.
        beside: arcs to UNSCHEDULED that take all units but one of those that the gain of this one makes again.
    """

    passed: PassedArc
    key: str
    tail: Aggregator | None
    beside: tuple[_Step, ...] = ()


class Drawing:
    """A network on the nodes of a round.

    Attributes:
        counted: arcs that count units, by their numbers in ways.
        waiting: pods that have an arc to UNSCHEDULED, and what the cheapest way there costs them.
    """

    def __init__(self, policy: Policy, table: NodeTable) -> None:
        """A policy that has a network."""
        assert policy.network is not None  # noqa: S101 - see above
        self._policy, self._spec, self._table = policy, policy.network, table
        self._aggregators = {each.name: each for each in self._spec.aggregators}
        self.counted: list[CountedArc] = []
        self._numbers: dict[str, int] = {}
        self._masks: dict[NodeSelectorTerm | None, Bools] = {}
        own = (each for each in self._spec.arcs if each.arc.head == UNSCHEDULED and not each.tail.runs)
        self.waiting = [(each.tail.selector, each.arc.cost.segments[0].cost) for each in own]
        self._priced_ends = tuple(self.waiting)

    @property
    def has_model(self) -> bool:
        """Whether what the cost model says is paid on some arc."""
        return any(arc.cost.part is CostPart.MODEL for _, arc in self._named)

    def mask(self, term: NodeSelectorTerm | None) -> Bools:
        """bool[N]: nodes of a way."""
        if term not in self._masks:
            everywhere = np.ones(len(self._table.nodes), dtype=np.bool_)
            self._masks[term] = everywhere if term is None else term_matches(term, self._table)
        return self._masks[term]

    def ways(self) -> list[tuple[NetworkStart, list[NetworkWay]]]:
        """The ways by their starts.

        Raises:
            NetworkRefused: single pods cannot keep to the network.
        """
        if self._spec.refused:
            raise NetworkRefused(self._spec.refused)
        ways, left = list[tuple[NetworkStart, list[NetworkWay]]](), _MOST_WAYS
        for start in self._starts():
            # One more than there may be: layers of aggregators have more ways than can be listed.
            of_start = list(islice(self._onward(start, start.arc, start.name), left + 1))
            left -= len(of_start)
            if left < 0:
                raise NetworkRefused(f"it has more than {_MOST_WAYS} ways from its pods to nodes: draw fewer arcs")
            ways.append((start, [way for way in of_start if way is not None]))
        self._check_minimums([way for _, of_start in ways for way in of_start])
        return ways

    def _starts(self) -> Iterator[NetworkStart]:
        for number, pod_arc in enumerate(self._spec.arcs):
            if pod_arc.arc.head != UNSCHEDULED:
                yield NetworkStart(pod_arc.tail.selector, pod_arc.arc, f"arcs[{number}]", pod_arc.tail.runs)
        for aggregator in self._spec.aggregators:
            if aggregator.over.pods is not None:
                yield NetworkStart(aggregator.over.pods, NetworkArc(aggregator.name), "")

    def _onward(
        self,
        start: NetworkStart,
        arc: NetworkArc,
        name: str,
        passed: tuple[_Step, ...] = (),
        tail: Aggregator | None = None,
        beside: tuple[_Step, ...] = (),
    ) -> Iterator[NetworkWay | None]:
        """The ways that go on with an arc; None: one that places no pod.

        Args:
            tail: that it leaves; None: pods.
        """
        steps = (*passed, self._step(arc, name, tail, beside))
        if arc.head == UNSCHEDULED:
            if not start.runs:
                self._end(start, steps)
            yield None
        elif arc.head not in self._aggregators:
            yield self._way(steps)
        else:
            head = self._aggregators[arc.head]
            beside = self._beside(head)
            for number, onward in enumerate(head.arcs):
                if not beside or onward.factor != 1:
                    yield from self._onward(start, onward, f"{head.name}.arcs[{number}]", steps, head, beside)

    def _step(self, arc: NetworkArc, name: str, tail: Aggregator | None, beside: tuple[_Step, ...] = ()) -> _Step:
        labels = _label(tail), _label(self._aggregators.get(arc.head))
        key = TOPOLOGY_SEPARATOR.join(dict.fromkeys(filter(None, labels)))
        if arc.head not in self._aggregators and arc.head != UNSCHEDULED:
            key = EACH_NODE
        return _Step(PassedArc(name, "" if tail is None else tail.name, labels[0], arc, labels[1]), key, tail, beside)

    def _beside(self, tail: Aggregator) -> tuple[_Step, ...]:
        """Where the two arcs of an aggregator are one with a gain and one to UNSCHEDULED: the other one's way.

        Of as many units as the gain makes of one, one passes it and the others end. Figure 10 of the seed draws this.
        """
        gains, ends = [arc for arc in tail.arcs if arc.factor > 1], [arc for arc in tail.arcs if arc.factor == 1]
        if len(gains) != 1 or len(ends) != 1 or gains[0].gain[1] != 1:
            return ()
        steps, point, number = list[_Step](), tail, tail.arcs.index(ends[0])
        while True:
            arc = point.arcs[number]
            steps.append(self._step(arc, f"{point.name}.arcs[{number}]", point))
            if arc.head == UNSCHEDULED:
                return tuple(steps)
            if arc.factor != 1 or arc.head not in self._aggregators or len(self._aggregators[arc.head].arcs) > 1:
                return ()
            point, number = self._aggregators[arc.head], 0

    def _end(self, start: NetworkStart, steps: Sequence[_Step]) -> None:
        """Notes a way on which a pod waits.

        Raises:
            NetworkRefused: units that wait meet minimums, or wait for less where not all of them may.
        """
        arcs = [step.passed for step in steps]
        wanting = next((each for each in arcs if each.arc.minimum), None)
        if wanting is not None:
            raise NetworkRefused(f"{wanting.name} has a minimum, and leads to {UNSCHEDULED} too")
        cost = sum(each.arc.cost.segments[0].cost for each in arcs)
        for selector, price in self._priced_ends:
            if price <= cost or exclude(selector, start.selector):
                continue
            for passed in arcs:
                if passed.arc.maximum is not None or len(passed.arc.cost.segments) > 1 or passed.arc.factor != 1:
                    why = "has a limit, a gain or a cost that rises, and pods wait for less behind it"
                    raise NetworkRefused(f"{passed.name} {why}")
            self.waiting.append((both(selector, start.selector), cost))

    def _way(self, steps: Sequence[_Step]) -> NetworkWay:
        """The way of these arcs, of which the last one leads to nodes.

        Raises:
            NetworkRefused: its gains are none of whole pods.
        """
        last, size, total, unit = steps[-1], Fraction(1), Fraction(0), ONE_POD
        limited, sizes, beside = list[int](), list[Fraction](), list[tuple[PassedArc, Fraction]]()
        counted = list[tuple[_Step, Fraction]]()
        labels = [step.passed.head_label for step in steps]
        term = self._term(last, dict.fromkeys(filter(None, labels)))
        for number, step in reversed([*enumerate(steps)]):
            arc = step.passed.arc
            has_gain = arc.gain != (1, 1)
            size = size * arc.factor if has_gain else size
            sizes.insert(0, size)
            counted.append((step, size))
            if has_gain and size.numerator > 1:
                if unit.size > 1:
                    raise NetworkRefused(f"{step.passed.name} has a gain, and so has an arc behind it")
                key = self._gang_key(step, labels[: number + 1], self.mask(term))
                unit = NetworkUnit(size.numerator, key, tuple(each.passed.name for each in steps[: number + 1]))
            if step.beside:
                of_ends = size / (arc.factor - 1)
                beside += [(each.passed, of_ends) for each in step.beside]
                counted += [(each, of_ends) for each in step.beside]
                size /= arc.factor
        for step, of_step in counted:
            arc = step.passed.arc
            cost = arc.cost.segments
            is_rising = len(cost) > 1 and len(pod_segments(arc, of_step)) > 1
            if arc.maximum is not None or is_rising or arc.minimum:
                limited.append(self._number(step, of_step))
            if cost[0].cost and not is_rising:
                total += cost[0].cost / of_step
        part = last.passed.arc.cost.part
        weight = last.passed.arc.cost.weight * self._scale(part) / sizes[-1]
        if part is not None and weight.denominator > 1:
            raise NetworkRefused(f"{last.passed.name} has a gain that does not divide the weight of its cost")
        way = NetworkWay(
            term,
            floor(total),
            part,
            floor(weight),
            frozenset(limited),
            tuple(step.passed for step in steps),
            tuple(sizes),
            tuple(beside),
            unit=unit,
        )
        if self.mask(term).any():
            return way
        return msgspec.structs.replace(way, ends_nowhere=why_nowhere(last.passed.arc.head, last.tail, self._table))

    def _term(self, last: _Step, labels: Iterable[str]) -> NodeSelectorTerm | None:
        """Nodes that have all labels of the way and that its last arc leads to."""
        expressions, fields = tuple(Requirement(key, "Exists", ()) for key in labels), tuple[Requirement, ...]()
        if last.passed.arc.head != NODES:
            fields = (Requirement("metadata.name", "In", (last.passed.arc.head,)),)
        elif last.tail is not None and last.tail.over.nodes is not None:
            expressions = (*expressions, *last.tail.over.nodes.requirements)
        return NodeSelectorTerm(expressions, fields) if expressions or fields else None

    def _number(self, step: _Step, size: Fraction) -> int:
        """The number of an arc that counts its units.

        Raises:
            NetworkRefused: a unit is not as many pods on all ways.
        """
        name = step.passed.name
        number = self._numbers.setdefault(name, len(self.counted))
        if number == len(self.counted):
            self.counted.append(CountedArc(name, step.key, step.passed.arc, size, self._instances(step)))
        elif self.counted[number].size != size:
            sizes = f"{self.counted[number].size} pods on one way and {size} on another"
            raise NetworkRefused(f"a unit on {name} is {sizes}")
        return number

    def _instances(self, step: _Step) -> Bools:
        """bool[N]: nodes that its ends have the labels of, and that it leads to if it leads to nodes."""
        nodes = np.ones(len(self._table.nodes), dtype=np.bool_)
        for label in filter(None, (step.passed.tail_label, step.passed.head_label)):
            nodes &= self._table.column(label).codes >= 0
        return nodes & self.mask(self._term(step, ())) if step.key == EACH_NODE else nodes

    def _scale(self, part: CostPart | None) -> int:
        """How much a part counts by the policy's weights."""
        weights = self._policy.cost.weights
        if part is CostPart.TAINTS:
            return weights.taint_preference
        return weights.node_preference if part is CostPart.PREFERENCES else 1

    def _gang_key(self, step: _Step, labels: Sequence[str], nodes: Bools) -> str:
        """The topology key by whose values gangs choose where the units of an arc with a gain go.

        Args:
            nodes: bool[N], where the way leads.

        Raises:
            NetworkRefused: nodes are no domains of a label.
        """
        if step.key != EACH_NODE:
            return TOPOLOGY_SEPARATOR.join(dict.fromkeys(filter(None, labels)))
        codes = self._table.column(HOSTNAME).codes
        if (codes[nodes] < 0).any() or len(np.unique(codes[codes >= 0])) < np.count_nonzero(codes >= 0):
            raise NetworkRefused(f"{step.passed.name} has a gain, and not each node has a label {HOSTNAME} of its own")
        return HOSTNAME

    def domains(self, arc: CountedArc) -> Int64s:
        """int64[N]: in which domain each node is where an arc counts its units; -1: in none."""
        codes = np.arange(len(self._table.nodes), dtype=np.int64)
        if arc.key != EACH_NODE:
            codes = self._table.column(arc.key).codes.astype(np.int64) if arc.key else np.zeros_like(codes)
        return codes

    def _check_minimums(self, ways: Sequence[NetworkWay]) -> None:
        """Wherever there is an arc that must have units, some way passes it.

        Raises:
            NetworkRefused: none does.
        """
        for name, arc in self._named:
            if arc.minimum and not arc.whole_or_none and name not in self._numbers:
                raise NetworkRefused(f"{name} needs {number_of(arc.minimum, 'unit')}, and no way passes it")
        for number, of_arc in enumerate(self.counted):
            arc = of_arc.arc
            if not arc.minimum or arc.whole_or_none:
                continue
            reached = np.zeros(len(self._table.nodes), dtype=np.bool_)
            for way in ways:
                if number in way.arcs:
                    reached |= self.mask(way.nodes)
            codes, where = self.domains(of_arc), " for all that it leads to" if of_arc.key else ""
            if not reached.any() or not np.isin(codes[of_arc.instances], codes[reached]).all():
                units = number_of(arc.minimum, "unit")
                raise NetworkRefused(f"{of_arc.name} needs {units}{where}, and no way passes it")

    @property
    def _named(self) -> Iterator[tuple[str, NetworkArc]]:
        """All arcs by where they are declared."""
        yield from ((f"arcs[{number}]", each.arc) for number, each in enumerate(self._spec.arcs))
        for tail in self._spec.aggregators:
            yield from ((f"{tail.name}.arcs[{number}]", arc) for number, arc in enumerate(tail.arcs))


def why_nowhere(head: str, tail: Aggregator | None, table: NodeTable) -> str:
    """Why an arc leads to no node, a clause.

    Args:
        head: NODES or the name of a node.
        tail: the aggregator that it leaves; None: pods.
    """
    if head != NODES:
        return f"there is no node {head}, to which its arc leads"
    if tail is not None and tail.over.node_label and not table.column(tail.over.node_label).values:
        return f"no node has the label {tail.over.node_label}, which aggregator {tail.name} is over"
    return f"aggregator {tail.name} has no way to any node" if tail is not None else ""


def _label(tail: Aggregator | None) -> str:
    """The label that an aggregator is over; "": none."""
    return "" if tail is None else tail.over.node_label


def exclude(first: LabelSelector, second: LabelSelector) -> bool:
    """Whether one label of a pod would have two values if both selected it."""
    wanted = {each.key: each.values for each in first.requirements if each.operator == "In"}
    return any(
        each.operator == "In" and each.key in wanted and set(wanted[each.key]).isdisjoint(each.values)
        for each in second.requirements
    )


def both(first: LabelSelector, second: LabelSelector) -> LabelSelector:
    """Selects what both select."""
    return LabelSelector((*first.requirements, *second.requirements))
