"""Networks that policies draw, compiled into rules of their pods where single pods can keep to them.

A way of a pod to a node passes the aggregators of that node's own values. What its arcs limit together, or price by how
many units they have, is a limit or a price in a domain, and counts pods that run. So these pods are planned with all
others, and running pods leave for them. A network with a gain, a minimum or ``wholeOrNone``, or in which ways that pass
different limits lead to one node, is solved as a whole (``joint``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import msgspec
import numpy as np

from flowcore.cluster.arrays.node_matching import term_matches
from flowcore.cluster.arrays.snapshot import Bools, NodeTable, Snapshot
from flowcore.costs import CostModel
from flowcore.costs.flat_potential import NoCosts
from flowcore.costs.scale import OMEGA
from flowcore.model.cost_policy import CostPolicy, CostWeights
from flowcore.model.default_spread import NO_SPREAD
from flowcore.model.inter_pod_constraints import EACH_NODE
from flowcore.model.networks import (
    NODES,
    UNSCHEDULED,
    Aggregator,
    ArcCost,
    CostPart,
    LimitedArc,
    NetworkArc,
    NetworkRules,
    NetworkWay,
    PassedArc,
    Segment,
)
from flowcore.model.pod_index import ConstraintMatch
from flowcore.model.policies import Policy
from flowcore.model.selectors import Labels, LabelSelector, NodeSelectorTerm, Requirement
from flowcore.planning.drawn_networks.model_networks import with_networks_of_models
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.problem import Problem

#: A network with more ways than this is solved as a whole.
_MOST_WAYS = 256
#: A part of what nodes cost is seldom more than that of so many whole nodes.
_DEAREST_PART = 10 * OMEGA
_NO_WEIGHTS = CostWeights(*[0] * len(CostWeights.__struct_fields__))


class CompileNetworks(Pass):
    """Gives the policies that draw a network its rules, in place of what their pods cost otherwise."""

    def apply(self, problem: Problem) -> Problem:
        """The same pods under these policies."""
        problem.charge(())
        compiled = with_network_rules(problem.policies, problem.snapshot, problem.models)
        problem.charge([pod for pod in problem.snapshot.pending if pod.policy in compiled])
        return problem.with_policies(compiled, {NoCosts.name: NoCosts()}) if compiled else problem


def with_network_rules(
    policies: Mapping[str, Policy], snapshot: Snapshot, models: Mapping[str, CostModel]
) -> dict[str, Policy]:
    """The policies that draw a network, or whose model does, by name; with its rules if single pods can keep to it."""
    compiled: dict[str, Policy] = {}
    for name, policy in with_networks_of_models(policies, models, snapshot).items():
        rules = None if policy.network is None else rules_of(policy, snapshot)
        if rules is not None:
            compiled[name] = msgspec.structs.replace(policy, network_rules=rules, cost=_cost(policy))
        elif policy is not policies[name]:
            compiled[name] = policy
    return compiled


def ways_of(policy: Policy, snapshot: Snapshot) -> list[tuple[NetworkStart, list[NetworkWay]]]:
    """The ways of a policy's network by their starts; none where only the network as a whole says what pods may do."""
    try:
        return _Drawing(policy, snapshot).ways()
    except _IsJointError:
        return []


def rules_of(policy: Policy, snapshot: Snapshot) -> NetworkRules | None:
    """What a policy's network asks of single pods; None: only the network as a whole says it."""
    try:
        return _Drawing(policy, snapshot).rules()
    except _IsJointError:
        return None


class _IsJointError(Exception):
    """A network is solved as a whole."""


def _cost(policy: Policy) -> CostPolicy:
    """What a policy's pods cost beside their ways: nothing, or all that it says where the drawing says so."""
    if _has_model(policy):
        return policy.cost
    before = policy.cost
    return CostPolicy(NoCosts.name, _NO_WEIGHTS, before.preferences, before.utilisation, default_spread=NO_SPREAD)


def _has_model(policy: Policy) -> bool:
    return policy.network is not None and any(arc.cost.part is CostPart.MODEL for _, arc in _all_arcs(policy))


def _all_arcs(policy: Policy) -> Iterator[tuple[str, NetworkArc]]:
    """All arcs, with the names of the aggregators that they leave; "": pods."""
    spec = policy.network
    if spec is not None:
        yield from (("", each.arc) for each in spec.arcs)
        yield from ((each.name, arc) for each in spec.aggregators for arc in each.arcs)


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
class _Passed:
    """A way so far.

    Attributes:
        labels: of aggregators that it passes.
        limited: numbers of arcs with a limit, or with a price that rises.
        path: all arcs.
    """

    labels: tuple[str, ...] = ()
    cost: int = 0
    part: CostPart | None = None
    weight: int = 1
    limited: tuple[int, ...] = ()
    path: tuple[PassedArc, ...] = ()


class _Drawing:
    def __init__(self, policy: Policy, snapshot: Snapshot) -> None:
        assert policy.network is not None  # noqa: S101 - see rules_of
        self._policy, self._spec, self._snapshot = policy, policy.network, snapshot
        self._table: NodeTable = snapshot.table
        self._aggregators = {each.name: each for each in self._spec.aggregators}
        #: Limited arcs by the arc, with the key of their domains.
        self._limited: dict[tuple[str, int], int] = {}
        self._arcs: list[tuple[str, str, NetworkArc]] = []
        self._masks: dict[NodeSelectorTerm | None, Bools] = {}

    def rules(self) -> NetworkRules:
        """The network as rules.

        Raises:
            _IsJointError: it is none.
        """
        ways = self.ways()
        base = self._policy.selects.pods
        name = f"the network of policy {self._policy.name}"
        return NetworkRules(
            name,
            self._policy.selects.namespaces,
            tuple((start.selector, tuple(of_start)) for start, of_start in ways if not start.runs),
            tuple(self._limited_arc(number, ways, base, name) for number in range(len(self._arcs))),
            tuple(
                (each.tail.selector, each.arc.cost.segments[0].cost)
                for each in self._spec.arcs
                if each.arc.head == UNSCHEDULED and not each.tail.runs
            ),
            max((self._dearest(way) for _, of_start in ways for way in of_start), default=0),
        )

    def _dearest(self, way: NetworkWay) -> int:
        """What a pod that takes a way pays at most, or nearly so: parts of costs are as large as a few whole nodes."""
        rising = sum(self._arcs[number][2].cost.segments[-1].cost for number in way.arcs)
        return way.cost + rising + (0 if way.part is None else way.weight * _DEAREST_PART)

    def ways(self) -> list[tuple[NetworkStart, list[NetworkWay]]]:
        """The ways by their starts.

        Raises:
            _IsJointError: single pods cannot keep to the network.
        """
        if self._spec.refused:
            raise _IsJointError
        for _, arc in _all_arcs(self._policy):
            if arc.minimum or arc.whole_or_none or arc.factor != 1:
                raise _IsJointError
        starts = list(self._starts())
        ways, left = list[tuple[NetworkStart, list[NetworkWay]]](), _MOST_WAYS
        for start in starts:
            # One more than there may be: layers of aggregators have more ways than can be listed.
            of_start = list(islice(self._ways(start.arc, start.name, None, _Passed()), left + 1))
            left -= len(of_start)
            if left < 0:
                raise _IsJointError
            ways.append((start, of_start))
        self._check_models([way for _, of_start in ways for way in of_start])
        self._check_limits(ways)
        return ways

    def _starts(self) -> Iterator[NetworkStart]:
        for number, pod_arc in enumerate(self._spec.arcs):
            if pod_arc.arc.head != UNSCHEDULED:
                yield NetworkStart(pod_arc.tail.selector, pod_arc.arc, f"arcs[{number}]", pod_arc.tail.runs)
        for aggregator in self._spec.aggregators:
            if aggregator.over.pods is not None:
                yield NetworkStart(aggregator.over.pods, NetworkArc(aggregator.name), "")

    def _ways(self, arc: NetworkArc, name: str, tail: Aggregator | None, passed: _Passed) -> Iterator[NetworkWay]:
        """The ways that begin with an arc.

        Args:
            tail: that it leaves; None: pods.
        """
        head = self._aggregators.get(arc.head)
        after_label = tail is not None and bool(tail.over.node_label)
        if arc.head == UNSCHEDULED or (after_label and arc.head != NODES and not (head and head.over.node_label)):
            raise _IsJointError
        passed = self._pass(arc, name, passed, EACH_NODE if head is None else head.over.node_label or _label(tail))
        here = PassedArc(name, "" if tail is None else tail.name, _label(tail), arc, _label(head))
        passed = replace(passed, path=(*passed.path, here))
        if head is None:
            yield self._way(arc, tail, passed)
            return
        if head.over.node_label:
            self._check_nested(passed.labels, head.over.node_label)
            passed = replace(passed, labels=(*passed.labels, head.over.node_label))
        for number, onward in enumerate(head.arcs):
            yield from self._ways(onward, f"{head.name}.arcs[{number}]", head, passed)

    def _pass(self, arc: NetworkArc, name: str, passed: _Passed, key: str) -> _Passed:
        """A way that goes on by an arc, whose units are counted in domains of a key."""
        cost: ArcCost = arc.cost
        is_rising = len(cost.segments) > 1
        limited = passed.limited
        if arc.maximum is not None or is_rising:
            place = name, id(arc)
            if place not in self._limited:
                self._limited[place] = len(self._arcs)
                self._arcs.append((name, key, arc))
            elif self._arcs[self._limited[place]][1] != key:
                raise _IsJointError
            limited = (*limited, self._limited[place])
        constant = 0 if is_rising else cost.segments[0].cost
        return replace(
            passed,
            cost=passed.cost + constant,
            part=cost.part,
            weight=cost.weight * self._scale(cost.part),
            limited=limited,
        )

    def _scale(self, part: CostPart | None) -> int:
        """How much a part counts by the policy's weights."""
        weights = self._policy.cost.weights
        if part is CostPart.TAINTS:
            return weights.taint_preference
        return weights.node_preference if part is CostPart.PREFERENCES else 1

    def _check_nested(self, labels: Sequence[str], key: str) -> None:
        """Each value of a label is inside one value of each label around it, so that a node says the whole way.

        Raises:
            _IsJointError: it is not.
        """
        inner = self._table.column(key).codes
        for around in labels:
            outer = self._table.column(around).codes[inner >= 0]
            pairs = np.unique(np.stack([inner[inner >= 0], outer]), axis=1)
            if (outer < 0).any() or pairs.shape[1] > len(np.unique(pairs[0])):
                raise _IsJointError

    def _way(self, arc: NetworkArc, tail: Aggregator | None, passed: _Passed) -> NetworkWay:
        """The way that ends with an arc to nodes."""
        expressions = tuple(Requirement(key, "Exists", ()) for key in dict.fromkeys(passed.labels))
        fields: tuple[Requirement, ...] = ()
        if arc.head != NODES:
            fields = (Requirement("metadata.name", "In", (arc.head,)),)
        elif tail is not None and tail.over.nodes is not None:
            expressions = (*expressions, *tail.over.nodes.requirements)
        term = NodeSelectorTerm(expressions, fields) if expressions or fields else None
        way = NetworkWay(term, passed.cost, passed.part, passed.weight, frozenset(passed.limited), passed.path)
        if self._mask(term).any():
            return way
        return msgspec.structs.replace(way, ends_nowhere=why_nowhere(arc.head, tail, self._table))

    def _mask(self, term: NodeSelectorTerm | None) -> Bools:
        """bool[N]: nodes of a way."""
        if term not in self._masks:
            everywhere = np.ones(len(self._table.nodes), dtype=np.bool_)
            self._masks[term] = everywhere if term is None else term_matches(term, self._table)
        return self._masks[term]

    def _check_models(self, ways: Sequence[NetworkWay]) -> None:
        """What the cost model says is paid on all ways, or on none.

        Raises:
            _IsJointError: it is not.
        """
        if _has_model(self._policy) and any(way.part is not CostPart.MODEL or way.weight != 1 for way in ways):
            raise _IsJointError

    def _check_limits(self, ways: Sequence[tuple[NetworkStart, list[NetworkWay]]]) -> None:
        """Ways of a pod to one node pass the same limits: else it depends on other pods which one it takes.

        Raises:
            _IsJointError: they do not.
        """
        for number, (start, of_start) in enumerate(ways):
            if _differ(of_start, of_start, self._mask):
                raise _IsJointError
            for second, of_second in ways[:number]:
                if _exclude(start.selector, second.selector) or not _differ(of_start, of_second, self._mask):
                    continue
                if self._selects_any(_and(start.selector, second.selector)):
                    raise _IsJointError

    def _selects_any(self, selector: LabelSelector) -> bool:
        """Whether a selector selects any pod of the policy that waits, or any that has a node."""
        if any(map(selector.matches, self._labels)):
            return True
        return bool(self._snapshot.pod_index.matching_pods(ConstraintMatch((selector,), None)))

    @cached_property
    def _labels(self) -> frozenset[Labels]:
        """Of the policy's pods that wait."""
        pending, name = self._snapshot.pending, self._policy.name
        return frozenset(pod.signature.labels for pod in pending if pod.policy == name)

    def _limited_arc(
        self,
        number: int,
        ways: Sequence[tuple[NetworkStart, list[NetworkWay]]],
        base: LabelSelector | None,
        network: str,
    ) -> LimitedArc:
        name, key, arc = self._arcs[number]
        passing = [(start, way) for start, of_start in ways for way in of_start if number in way.arcs]
        if self._policy.selects.namespaces is not None and any(start.runs for start, _ in passing):
            raise _IsJointError
        terms = list(dict.fromkeys(way.nodes for _, way in passing))
        selectors = dict.fromkeys(
            start.selector if start.runs or base is None else _and(base, start.selector) for start, _ in passing
        )
        segments: tuple[Segment, ...] = arc.cost.segments
        return LimitedArc(
            f"{name} to {arc.head} of {network}",
            key,
            () if None in terms else tuple(term for term in terms if term is not None),
            tuple(selectors),
            arc.maximum,
            segments,
        )


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


def _differ(
    ways: Sequence[NetworkWay], others: Sequence[NetworkWay], mask: Callable[[NodeSelectorTerm | None], Bools]
) -> bool:
    """Whether two ways lead to one node and pass different limits."""
    return any(
        way.arcs != second.arcs and bool((mask(way.nodes) & mask(second.nodes)).any())
        for way in ways
        for second in others
    )


def _exclude(first: LabelSelector, second: LabelSelector) -> bool:
    """Whether one label of a pod would have two values if both selected it."""
    wanted = {each.key: each.values for each in first.requirements if each.operator == "In"}
    return any(
        each.operator == "In" and each.key in wanted and set(wanted[each.key]).isdisjoint(each.values)
        for each in second.requirements
    )


def _and(first: LabelSelector, second: LabelSelector) -> LabelSelector:
    """Selects what both select."""
    return LabelSelector((*first.requirements, *second.requirements))
