"""The network of a policy as rules of its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import msgspec

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs.scale import OMEGA
from flowcore.model.networks import WAY, CostPart, LimitedArc, NetworkRules, NetworkUnit, NetworkWay
from flowcore.model.pod_index import ConstraintMatch
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.drawn_networks.ways.alternatives import Alternatives, HasChoice
from flowcore.planning.drawn_networks.ways.drawing import Drawing, NetworkRefused, NetworkStart, both, exclude
from flowcore.planning.drawn_networks.ways.pod_counts import least_pods
from flowcore.planning.drawn_networks.ways.way_classes import RunningWays, WayClasses

#: A part of what nodes cost is seldom more than that of so many whole nodes.
_DEAREST_PART = 10 * OMEGA
#: The ways of the pods that arcs begin at.
_Ways = list[tuple[NetworkStart, list[NetworkWay]]]


def rules_of(policy: Policy, snapshot: Snapshot) -> NetworkRules:
    """What a policy's network asks of its pods, on the nodes of a round."""
    try:
        return _Compiled(policy, snapshot).rules()
    except NetworkRefused as why:
        return NetworkRules(name_of(policy), refused=str(why))


def with_running(policy: Policy, snapshot: Snapshot) -> Policy:
    """A policy that has its rules, with the pods beside its arcs that run in a snapshot and have a choice of ways."""
    rules = policy.network_rules
    if rules is None or not rules.classes:
        return policy
    drawing = Drawing(policy, snapshot.table)
    passing: list[Counter[str]] = [Counter() for _ in rules.arcs]
    for node, numbers, count in RunningWays(drawing, _merged(drawing.ways())).taken(policy, snapshot):
        for number in numbers:
            passing[number][snapshot.table.nodes[node].name] += count
    arcs = (
        msgspec.structs.replace(arc, beside=tuple(sorted(beside.items())))
        for arc, beside in zip(rules.arcs, passing, strict=True)
    )
    return msgspec.structs.replace(policy, network_rules=msgspec.structs.replace(rules, arcs=tuple(arcs)))


def name_of(policy: Policy) -> str:
    """A network, for people."""
    return f"the network of policy {policy.name}"


class _Compiled:
    def __init__(self, policy: Policy, snapshot: Snapshot) -> None:
        self._policy, self._snapshot = policy, snapshot
        self._drawing = Drawing(policy, snapshot.table)
        self._ways = _merged(self._drawing.ways())
        self._classes = WayClasses(self._drawing, _all_of(self._ways))
        self._begun: frozenset[frozenset[int]] | None = None
        #: None: pods have a choice of ways.
        self._alternatives: Alternatives | None = Alternatives(self._drawing)

    def rules(self) -> NetworkRules:
        """The rules.

        Raises:
            NetworkRefused: no pods can keep to the network.
        """
        self._check_models(_all_of(self._ways))
        ways = self._without_alternatives()
        if ways is None:
            self._alternatives = None
            return self._with_classes()
        passing = [
            [start for start, of_start in ways if any(number in way.arcs for way in of_start)]
            for number in range(len(self._drawing.counted))
        ]
        base, namespaces = self._policy.selects.pods, self._policy.selects.namespaces
        selectors = [
            tuple(
                dict.fromkeys(
                    start.selector if start.runs or base is None else both(base, start.selector) for start in starts
                )
            )
            for starts in passing
        ]
        units = tuple(
            (start.selector, of_start[0].unit)
            for start, of_start in ways
            if of_start and of_start[0].unit.size > 1 and not start.runs
        )
        return self._rules(ways, selectors, namespaces, units)

    def _rules(
        self,
        ways: _Ways,
        selectors: Sequence[tuple[LabelSelector, ...]],
        namespaces: LabelSelector | None,
        units: tuple[tuple[LabelSelector, NetworkUnit], ...],
    ) -> NetworkRules:
        """The rules, with which pods pass each arc that counts its units."""
        alternatives = self._alternatives or Alternatives(self._drawing)
        arcs = list[LimitedArc]()
        for number, (counted, of_arc) in enumerate(zip(self._drawing.counted, selectors, strict=True)):
            terms = dict.fromkeys(way.nodes for way in _all_of(ways) if number in way.arcs)
            arcs.append(
                LimitedArc(
                    f"{counted.name} to {counted.arc.head} of {name_of(self._policy)}",
                    counted.key,
                    () if None in terms else tuple(term for term in terms if term is not None),
                    of_arc,
                    *alternatives.priced(number),
                    least_pods(counted.arc, counted.size),
                    counted.arc.whole_or_none,
                )
            )
        return NetworkRules(
            name_of(self._policy),
            namespaces,
            tuple((start.selector, tuple(of_start)) for start, of_start in ways if not start.runs),
            tuple(arcs),
            tuple(self._drawing.waiting),
            max((_dearest(way, arcs) for way in _all_of(ways)), default=0),
            units,
        )

    def _check_models(self, ways: Sequence[NetworkWay]) -> None:
        """What the cost model says is paid on all ways, or on none.

        Raises:
            NetworkRefused: it is not.
        """
        if self._drawing.has_model:
            for way in ways:
                if way.part is not CostPart.MODEL or way.weight != 1:
                    why = f"costs {CostPart.MODEL} once on some ways, and on this one it does not"
                    raise NetworkRefused(f"{way.path[-1].name} {why}: it must on all")

    def _without_alternatives(self) -> _Ways | None:
        """The ways, of which those of a pod to one node pass the same limits; None: a node does not say all."""
        assert self._alternatives is not None  # noqa: S101 - it is not known yet
        if self._policy.selects.namespaces is not None and any(start.runs for start, _ in self._ways):
            return None  # pods of other namespaces count on some arcs only
        try:
            ways = [(start, each if start.runs else self._alternatives.of(each)) for start, each in self._ways]
            self._alternatives.check([way for start, each in ways for way in each if not start.runs])
        except HasChoice:
            return None
        classes = WayClasses(self._drawing, _all_of(ways))
        has_choice = any(self._has_choice(ways, number, classes) for number in range(len(ways)))
        return None if has_choice else ways

    def _has_choice(self, ways: _Ways, number: int, classes: WayClasses) -> bool:
        """Whether a pod of a start that waits, or that has a node, has ways to a node that pass different limits."""
        start, of_start = ways[number]
        begun = self._begun_at(ways)
        for second, of_second in ways[: number + 1]:
            if exclude(start.selector, second.selector):
                continue
            if any(classes.differ(*pair) for pair in product(of_start, of_second)):
                selector = both(start.selector, second.selector)
                together = {id(start.selector), id(second.selector)}
                if any(together <= of_pod for of_pod in begun) or self._snapshot.pod_index.matching_pods(
                    ConstraintMatch((selector,), None)
                ):
                    return True
        return False

    def _begun_at(self, ways: _Ways) -> frozenset[frozenset[int]]:
        """The selectors of starts that match some waiting pod, by their identity, for each sort of labels."""
        if self._begun is None:
            self._begun = frozenset(
                frozenset(id(start.selector) for start, _ in ways if start.selector.matches(labels))
                for labels in self._waiting_labels()
            )
        return self._begun

    def _waiting_labels(self) -> Iterator[tuple[tuple[str, str], ...]]:
        """Labels of the policy's pods that wait, each once."""
        pending, name = self._snapshot.pending, self._policy.name
        return iter(dict.fromkeys(pod.signature.labels for pod in pending if pod.policy == name))

    # --- where pods have a choice ---

    def _with_classes(self) -> NetworkRules:
        classes, choices = dict[str, tuple[NetworkWay, ...]](), dict[frozenset[int], tuple[str, ...]]()
        own = [(start, of_start) for start, of_start in self._ways if not start.runs]
        for labels in self._waiting_labels():
            begun = frozenset(number for number, (start, _) in enumerate(own) if start.selector.matches(labels))
            if begun not in choices:
                of_pod = self._classes.of(way for number in sorted(begun) for way in own[number][1])
                values = tuple(f"{self._policy.name} {len(choices)} {number}" for number in range(len(of_pod)))
                choices[begun] = values
                classes |= {value: tuple(each) for value, each in zip(values, of_pod, strict=True)}
        passing: Mapping[int, dict[str, None]] = {number: {} for number in range(len(self._drawing.counted))}
        for value, of_class in classes.items():
            for way in of_class:
                for number in way.arcs:
                    passing[number][value] = None
        selectors = [(_of_classes(tuple(values)),) for values in passing.values()]
        units = tuple((_of_classes((value,)), each[0].unit) for value, each in classes.items() if each[0].unit.size > 1)
        return msgspec.structs.replace(
            self._rules(self._ways, selectors, None, units),
            has_choice=True,
            classes=tuple(classes.items()),
            choices=tuple(choices.items()),
        )


def _of_classes(values: tuple[str, ...]) -> LabelSelector:
    """Pods of these classes of ways."""
    return LabelSelector((Requirement(WAY, "In", values),))


def _all_of(ways: _Ways) -> list[NetworkWay]:
    return [way for _, of_start in ways for way in of_start]


def _merged(ways: _Ways) -> _Ways:
    """The ways with one start for all that begin at the same pods."""
    of_pods: dict[tuple[LabelSelector, bool], tuple[NetworkStart, list[NetworkWay]]] = {}
    for start, of_start in ways:
        of_pods.setdefault((start.selector, start.runs), (start, []))[1].extend(of_start)
    return list(of_pods.values())


def _dearest(way: NetworkWay, arcs: Sequence[LimitedArc]) -> int:
    """What a pod that takes a way pays at most, or nearly so: parts of costs are as large as a few whole nodes."""
    rising = (arcs[number].segments for number in way.arcs)
    part = 0 if way.part is None else way.weight * _DEAREST_PART
    return way.cost + part + sum(segments[-1].cost for segments in rising if len(segments) > 1)
