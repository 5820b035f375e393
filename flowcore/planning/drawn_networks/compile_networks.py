"""Networks that policies draw, compiled into rules of their pods where single pods can keep to them.

A way of a pod to a node passes the aggregators of that node's own values. What its arcs limit together, or price by how
many units they have, is a limit or a price in a domain, and counts pods that run. So these pods are planned with all
others, and running pods leave for them. A network with a gain, or in which ways that pass different limits lead to one
node, is solved as a whole (``joint``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from flowcore.model.inter_pod_constraints import EACH_NODE, HOSTNAME
from flowcore.model.networks import (
    NODES,
    UNSCHEDULED,
    Aggregator,
    CostPart,
    LimitedArc,
    NetworkArc,
    NetworkRules,
    NetworkWay,
    PassedArc,
)
from flowcore.model.pod_index import ConstraintMatch
from flowcore.model.policies import Policy
from flowcore.model.selectors import Labels, LabelSelector, NodeSelectorTerm, Requirement
from flowcore.planning.drawn_networks.alternatives import Alternatives, IsJointError
from flowcore.planning.drawn_networks.model_networks import with_networks_of_models
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.problem import Problem

#: A network with more ways than this is solved as a whole.
_MOST_WAYS = 256
#: Of more kinds of pods and nodes an integer program of a whole network is too large.
_FEW_PAIRS = 500
#: A part of what nodes cost is seldom more than that of so many whole nodes.
_DEAREST_PART = 10 * OMEGA
_NO_WEIGHTS = CostWeights(*[0] * len(CostWeights.__struct_fields__))


class CompileNetworks(Pass):
    """Gives the policies that draw a network its rules, in place of what their pods cost otherwise."""

    def __init__(self, closed: Mapping[str, Mapping[str, tuple[NodeSelectorTerm, ...]]] | None = None) -> None:
        """``closed``: by policy and arc, nodes in whose domains an arc takes no pod."""
        self._closed = closed or {}

    def apply(self, problem: Problem) -> Problem:
        """The same pods under these policies."""
        problem.charge(())
        compiled = with_network_rules(problem.policies, problem.snapshot, problem.models)
        for name, closed in self._closed.items():
            rules = compiled[name].network_rules
            assert rules is not None  # noqa: S101 - it was compiled before
            arcs = tuple(msgspec.structs.replace(arc, closed=closed.get(arc.name, ())) for arc in rules.arcs)
            rules = msgspec.structs.replace(rules, arcs=arcs)
            compiled[name] = msgspec.structs.replace(compiled[name], network_rules=rules)
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
    drawing = _Drawing(policy, snapshot)
    try:
        drawing.rules()
        return drawing.ways()
    except IsJointError:
        return []


def rules_of(policy: Policy, snapshot: Snapshot) -> NetworkRules | None:
    """What a policy's network asks of single pods; None: only the network as a whole says it."""
    try:
        return _Drawing(policy, snapshot).rules()
    except IsJointError:
        return None


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
        path: all arcs.
        keys: for each of them, in whose domains its units are counted.
    """

    labels: tuple[str, ...] = ()
    path: tuple[PassedArc, ...] = ()
    keys: tuple[str, ...] = ()


class _Drawing:
    def __init__(self, policy: Policy, snapshot: Snapshot) -> None:
        assert policy.network is not None  # noqa: S101 - see rules_of
        self._policy, self._spec, self._snapshot = policy, policy.network, snapshot
        self._table: NodeTable = snapshot.table
        self._aggregators = {each.name: each for each in self._spec.aggregators}
        #: Numbers of limited arcs, by the name; their keys, and how many pods a unit of them is.
        self._limited: dict[str, int] = {}
        self._arcs: list[tuple[str, str, NetworkArc, int]] = []
        self._masks: dict[NodeSelectorTerm | None, Bools] = {}

    def rules(self) -> NetworkRules:
        """The network as rules.

        Raises:
            IsJointError: it is none.
        """
        given, of_pods = self.ways(), dict[tuple[LabelSelector, bool], tuple[NetworkStart, list[NetworkWay]]]()
        for start, of_start in given:
            of_pods.setdefault((start.selector, start.runs), (start, []))[1].extend(of_start)
        alternatives = Alternatives([arc for _, _, arc, _ in self._arcs], self._mask)
        ways = [(start, each if start.runs else alternatives.of(each)) for start, each in of_pods.values()]
        alternatives.check([way for start, each in ways for way in each if not start.runs])
        self._check_starts(ways)
        self._check_minimums([way for _, of_start in ways for way in of_start])
        arcs = [self._limited_arc(number, ways, alternatives) for number in range(len(self._arcs))]
        name = f"the network of policy {self._policy.name}"
        return NetworkRules(
            name,
            self._policy.selects.namespaces,
            tuple((start.selector, tuple(of_start)) for start, of_start in ways if not start.runs),
            tuple(arcs),
            tuple(
                (each.tail.selector, each.arc.cost.segments[0].cost)
                for each in self._spec.arcs
                if each.arc.head == UNSCHEDULED and not each.tail.runs
            ),
            max((_dearest(way, arcs) for _, of_start in ways for way in of_start), default=0),
            tuple(
                (start.selector, *of_start[0].together)
                for start, of_start in ways
                if of_start and of_start[0].together[0] > 1
            ),
        )

    def ways(self) -> list[tuple[NetworkStart, list[NetworkWay]]]:
        """The ways by their starts.

        Raises:
            IsJointError: single pods cannot keep to the network.
        """
        if self._spec.refused:
            raise IsJointError
        for _, arc in _all_arcs(self._policy):
            if arc.head == UNSCHEDULED and not self._may_wait_by(arc):
                raise IsJointError
            if arc.factor != 1 and (self._charges_waiting or not self._is_large):
                raise IsJointError
        starts = list(self._starts())
        ways, left = list[tuple[NetworkStart, list[NetworkWay]]](), _MOST_WAYS
        for start in starts:
            # One more than there may be: layers of aggregators have more ways than can be listed.
            of_start = list(islice(self._ways(start.arc, start.name, None, _Passed()), left + 1))
            left -= len(of_start)
            if left < 0:
                raise IsJointError
            ways.append((start, of_start))
        self._check_models([way for _, of_start in ways for way in of_start])
        return ways

    def _may_wait_by(self, arc: NetworkArc) -> bool:
        """Whether an arc to UNSCHEDULED says what a pod pays that waits, and nothing else: others wait for nothing."""
        is_plain = not arc.minimum and arc.maximum is None and len(arc.cost.segments) == 1
        return is_plain and (not self._charges_waiting or any(own.arc is arc for own in self._spec.arcs))

    @property
    def _charges_waiting(self) -> bool:
        return any(own.arc.head == UNSCHEDULED and own.arc.cost.segments[0].cost for own in self._spec.arcs)

    @property
    def _is_large(self) -> bool:
        """Whether an integer program of the whole would be too large: pods that go together are gangs then."""
        return len(self._labels) * len(self._table.nodes) > _FEW_PAIRS

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
        if arc.head == UNSCHEDULED:
            if any(before.arc.minimum for before in passed.path):
                raise IsJointError  # units of pods that wait meet it too
            return
        if after_label and arc.head != NODES and not (head and head.over.node_label):
            raise IsJointError
        key = EACH_NODE if head is None else head.over.node_label or _label(tail)
        here = PassedArc(name, "" if tail is None else tail.name, _label(tail), arc, _label(head))
        passed = replace(passed, path=(*passed.path, here), keys=(*passed.keys, key))
        if head is None:
            yield self._way(arc, tail, passed)
            return
        if head.over.node_label:
            self._check_nested(passed.labels, head.over.node_label)
            passed = replace(passed, labels=(*passed.labels, head.over.node_label))
        for number, onward in enumerate(head.arcs):
            yield from self._ways(onward, f"{head.name}.arcs[{number}]", head, passed)

    def _limit(self, name: str, key: str, arc: NetworkArc, size: int) -> int:
        """The number of a limited arc, each unit of which is ``size`` pods, counted in domains of a key.

        Raises:
            IsJointError: that is not so on all ways.
        """
        number = self._limited.setdefault(name, len(self._arcs))
        if number == len(self._arcs):
            self._arcs.append((name, key, arc, size))
        elif self._arcs[number] != (name, key, arc, size):
            raise IsJointError
        return number

    def _scale(self, part: CostPart | None) -> int:
        """How much a part counts by the policy's weights."""
        weights = self._policy.cost.weights
        if part is CostPart.TAINTS:
            return weights.taint_preference
        return weights.node_preference if part is CostPart.PREFERENCES else 1

    def _check_nested(self, labels: Sequence[str], key: str) -> None:
        """Each value of a label is inside one value of each label around it, so that a node says the whole way.

        Raises:
            IsJointError: it is not.
        """
        inner = self._table.column(key).codes
        for around in labels:
            outer = self._table.column(around).codes[inner >= 0]
            pairs = np.unique(np.stack([inner[inner >= 0], outer]), axis=1)
            if (outer < 0).any() or pairs.shape[1] > len(np.unique(pairs[0])):
                raise IsJointError

    def _way(self, arc: NetworkArc, tail: Aggregator | None, passed: _Passed) -> NetworkWay:
        """The way that ends with an arc to nodes.

        Raises:
            IsJointError: gains make other numbers of a unit than whole pods, or one after the other.
        """
        cost, size, together, limited = 0, 1, (1, ""), list[int]()
        for here, key in zip(reversed(passed.path), reversed(passed.keys), strict=True):
            gain, segments = here.arc.factor, here.arc.cost.segments
            if gain != 1:
                if gain.denominator > 1 or size > 1:
                    raise IsJointError
                size, together = gain.numerator, (gain.numerator, self._gang_key(key))
            if any(segment.cost % size for segment in segments):
                raise IsJointError
            is_rising = len(segments) > 1
            if here.arc.maximum is not None or is_rising or here.arc.minimum:
                limited.append(self._limit(here.name, key, here.arc, size))
            cost += 0 if is_rising else segments[0].cost // size
        weight = arc.cost.weight * self._scale(arc.cost.part)
        last = arc.factor.numerator
        if arc.cost.part is not None and weight % last:
            raise IsJointError
        expressions = tuple(Requirement(key, "Exists", ()) for key in dict.fromkeys(passed.labels))
        fields: tuple[Requirement, ...] = ()
        if arc.head != NODES:
            fields = (Requirement("metadata.name", "In", (arc.head,)),)
        elif tail is not None and tail.over.nodes is not None:
            expressions = (*expressions, *tail.over.nodes.requirements)
        term = NodeSelectorTerm(expressions, fields) if expressions or fields else None
        way = NetworkWay(term, cost, arc.cost.part, weight // last, frozenset(limited), passed.path, together=together)
        if self._mask(term).any():
            return way
        return msgspec.structs.replace(way, ends_nowhere=why_nowhere(arc.head, tail, self._table))

    def _gang_key(self, key: str) -> str:
        """The label by whose values gangs choose a domain of a key.

        Raises:
            IsJointError: nodes are no domains of a label.
        """
        if key != EACH_NODE:
            return key
        codes = self._table.column(HOSTNAME).codes
        if (codes < 0).any() or len(np.unique(codes)) < len(codes):
            raise IsJointError
        return HOSTNAME

    def _mask(self, term: NodeSelectorTerm | None) -> Bools:
        """bool[N]: nodes of a way."""
        if term not in self._masks:
            everywhere = np.ones(len(self._table.nodes), dtype=np.bool_)
            self._masks[term] = everywhere if term is None else term_matches(term, self._table)
        return self._masks[term]

    def _check_models(self, ways: Sequence[NetworkWay]) -> None:
        """What the cost model says is paid on all ways, or on none.

        Raises:
            IsJointError: it is not.
        """
        if _has_model(self._policy) and any(way.part is not CostPart.MODEL or way.weight != 1 for way in ways):
            raise IsJointError

    def _check_starts(self, ways: Sequence[tuple[NetworkStart, list[NetworkWay]]]) -> None:
        """Ways of a pod to one node pass the same limits, and all of its ways ask for as many pods at once.

        Raises:
            IsJointError: they do not: it depends on other pods which one it takes.
        """
        for number, (start, of_start) in enumerate(ways):
            if self._differ(of_start, of_start):
                raise IsJointError
            for second, of_second in ways[:number]:
                if _exclude(start.selector, second.selector) or not self._differ(of_start, of_second):
                    continue
                if self._selects_any(_and(start.selector, second.selector)):
                    raise IsJointError

    def _check_minimums(self, ways: Sequence[NetworkWay]) -> None:
        """Wherever there is an arc that must have units, some way passes it.

        Raises:
            IsJointError: pods do not say that it lacks them.
        """
        asking = [arc for _, arc in _all_arcs(self._policy) if arc.minimum and not arc.whole_or_none]
        passed = [arc for _, _, arc, _ in self._arcs]
        if any(arc not in passed for arc in asking):
            raise IsJointError
        for number, (_, key, arc, _) in enumerate(self._arcs):
            if not arc.minimum or arc.whole_or_none:
                continue
            reached = np.zeros(len(self._table.nodes), dtype=np.bool_)
            for way in ways:
                if number in way.arcs:
                    reached |= self._mask(way.nodes)
            codes = self._table.column(key).codes if key not in ("", EACH_NODE) else np.zeros(len(reached), np.int64)
            if not reached.any() or not np.isin(codes[codes >= 0], codes[reached]).all():
                raise IsJointError

    def _selects_any(self, selector: LabelSelector) -> bool:
        """Whether a selector selects any pod of the policy that waits, or any that has a node."""
        if any(map(selector.matches, self._labels)):
            return True
        return self._run((selector,))

    def _run(self, selectors: Iterable[LabelSelector]) -> bool:
        """Whether pods that any of these selects have a node."""
        return bool(self._snapshot.pod_index.matching_pods(ConstraintMatch(tuple(selectors), None)))

    def _differ(self, ways: Sequence[NetworkWay], others: Sequence[NetworkWay]) -> bool:
        """Whether two ways lead to one node and pass different limits, or ask for other numbers of pods at once."""
        return any(
            way.together != second.together
            or (way.arcs != second.arcs and bool((self._mask(way.nodes) & self._mask(second.nodes)).any()))
            for way in ways
            for second in others
        )

    @cached_property
    def _labels(self) -> frozenset[Labels]:
        """Of the policy's pods that wait."""
        pending, name = self._snapshot.pending, self._policy.name
        return frozenset(pod.signature.labels for pod in pending if pod.policy == name)

    def _limited_arc(
        self, number: int, ways: Sequence[tuple[NetworkStart, list[NetworkWay]]], alternatives: Alternatives
    ) -> LimitedArc:
        name, key, arc, size = self._arcs[number]
        base, network = self._policy.selects.pods, f"the network of policy {self._policy.name}"
        passing = [(start, way) for start, of_start in ways for way in of_start if number in way.arcs]
        if self._policy.selects.namespaces is not None and any(start.runs for start, _ in passing):
            raise IsJointError
        terms = list(dict.fromkeys(way.nodes for _, way in passing))
        selectors = dict.fromkeys(
            start.selector if start.runs or base is None else _and(base, start.selector) for start, _ in passing
        )
        if size > 1 and self._run(selectors):
            raise IsJointError
        maximum, segments = alternatives.priced(number, size)
        return LimitedArc(
            f"{name} to {arc.head} of {network}",
            key,
            () if None in terms else tuple(term for term in terms if term is not None),
            tuple(selectors),
            maximum,
            segments,
            arc.minimum * size,
            arc.whole_or_none,
        )


def _dearest(way: NetworkWay, arcs: Sequence[LimitedArc]) -> int:
    """What a pod that takes a way pays at most, or nearly so: parts of costs are as large as a few whole nodes."""
    rising = (arcs[number].segments for number in way.arcs)
    part = 0 if way.part is None else way.weight * _DEAREST_PART
    return way.cost + part + sum(segments[-1].cost for segments in rising if len(segments) > 1)


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
