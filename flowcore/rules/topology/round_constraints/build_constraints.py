"""The rules between pods of a round, as counters: each distinct question is one counter, made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flowcore.cluster.arrays.node_matching import any_matches
from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.model.inter_pod_constraints import (
    EACH_NODE,
    HOSTNAME,
    AffinityTerm,
    CountPrice,
    InterPodConstraints,
    KindPenalty,
    MinPerDomain,
    SpreadConstraint,
    WeightedTerm,
)
from flowcore.model.pod_index import (
    AffinityMatch,
    ConstraintMatch,
    PodMatch,
    PodSignature,
    SpreadMatch,
)
from flowcore.model.pods import PodClass
from flowcore.model.selector_index import ScopedIndex
from flowcore.model.selectors import Labels, NodeSelectorTerm
from flowcore.model.workload_kinds import penalty_match
from flowcore.rules.topology.affinity import affinity_matches_itself
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import Cap, Counting, counts_itself, limit_counter, limit_match
from flowcore.rules.topology.domains import Domains
from flowcore.rules.topology.round_constraints.constraints import UNCONSTRAINED, SoftConstraints, TopologyConstraints
from flowcore.rules.topology.round_constraints.rising_price import Minimum, RisingPrice
from flowcore.rules.topology.spread import CountedNodes, Spread, inclusion_inputs, needed_labels


def topology_constraints_of(
    groups: Sequence[tuple[PodClass, PodSignature]],
    snapshot: Snapshot,
    worked_for: Callable[[int], None] = lambda _at: None,
) -> tuple[TopologyConstraints, ...]:
    """The rules between pods as they concern each group of waiting pods.

    Anti-affinity of running pods is not among them: it does not change within a round.

    Args:
        groups: class and signature of each; all waiting pods of the round belong to one of them.
        worked_for: is called after some work for a group, with its number.
    """
    if all(signature.constraints is None for _, signature in groups):
        return (UNCONSTRAINED,) * len(groups)
    counters = _CounterRegistry(groups, snapshot, worked_for)
    constraints = []
    for index in range(len(groups)):
        constraints.append(counters.constraints_of(index))
        worked_for(index)
    incremented = {counter for each in constraints for counter in each.increments}
    return tuple(each.without_unused_soft_constraints(incremented) for each in constraints)


@dataclass(slots=True)
class _OwnRules:
    """The counters that a group's own rules read."""

    anti_affinity: list[DomainCounter] = field(default_factory=list)
    affinity: list[DomainCounter] = field(default_factory=list)
    spreads: list[Spread] = field(default_factory=list)
    affinity_weights: list[tuple[DomainCounter, int]] = field(default_factory=list)
    spread_counters: list[DomainCounter] = field(default_factory=list)
    caps: list[Cap] = field(default_factory=list)
    suffered: list[tuple[DomainCounter, int]] = field(default_factory=list)
    rising: list[RisingPrice] = field(default_factory=list)


class _CounterRegistry:
    """All counters of a round, each made once."""

    def __init__(
        self,
        groups: Sequence[tuple[PodClass, PodSignature]],
        snapshot: Snapshot,
        worked_for: Callable[[int], None],
    ) -> None:
        self._groups, self._table, self._pod_index = groups, snapshot.table, snapshot.pod_index
        self._whole = Domains.whole(snapshot.table)
        self._domains: dict[str, Domains] = {EACH_NODE: Domains.single_nodes(snapshot.table)}
        self._partial_domains: dict[tuple[str, tuple[NodeSelectorTerm, ...]], Domains] = {}
        self._rising: dict[CountPrice | MinPerDomain, RisingPrice] = {}
        self._counters_by_match: dict[PodMatch, dict[tuple[object, ...], DomainCounter]] = {}
        self._match_index: ScopedIndex[PodMatch] = ScopedIndex()
        #: Pods of the round that have an anti-affinity term.
        self._anti_affinity_counters: dict[AffinityTerm, DomainCounter] = {}
        self._anti_affinity_index: ScopedIndex[AffinityTerm] = ScopedIndex()
        #: The same for preferred terms, of affinity and of anti-affinity.
        self._preferred_counters: dict[WeightedTerm, DomainCounter] = {}
        self._preferred_index: ScopedIndex[WeightedTerm] = ScopedIndex()
        #: Pods of the round that suffer from a kind of pods.
        self._suffering_counters: dict[tuple[ConstraintMatch, int], DomainCounter] = {}
        self._own = list[_OwnRules]()
        for index, (pod_class, signature) in enumerate(groups):
            rules = signature.constraints
            self._own.append(_OwnRules() if rules is None else self._own_rules(pod_class, signature, rules))
            worked_for(index)
        for pod_match in self._counters_by_match:
            self._match_index.add(pod_match)
        self._blocking = {id(cap.counter) for own in self._own for cap in own.caps if cap.blocks}
        self._incoming_anti_affinity = [self._find_incoming_anti_affinity(signature) for _, signature in groups]
        self._incoming_preferred = [self._find_incoming_preferred(signature) for _, signature in groups]
        self._incoming_penalties = [self._find_incoming_penalties(signature) for _, signature in groups]
        #: Counters of terms that match any group of the round.
        self._read = {id(counter) for counters in self._incoming_anti_affinity for counter in counters}
        weighted = (*self._incoming_preferred, *self._incoming_penalties)
        self._read |= {id(counter) for weights in weighted for counter, _ in weights}

    def constraints_of(self, index: int) -> TopologyConstraints:
        """The rules between pods as they concern one group."""
        signature, own = self._groups[index][1], self._own[index]
        rules = signature.constraints or InterPodConstraints()
        increments = [
            counter
            for pod_match in self._match_index.find(*self._asked(signature))
            if pod_match.includes(signature, self._pod_index.namespaces)
            for counter in self._counters_by_match[pod_match].values()
        ]
        brought = [self._anti_affinity_counters[term] for term in dict.fromkeys(rules.anti_affinity)]
        brought += [self._preferred_counters[weighted_term] for weighted_term in dict.fromkeys(rules.preferred)]
        suffering = [_suffering(penalty) for penalty in rules.penalties if penalty.suffered]
        brought += [self._suffering_counters[each] for each in suffering]
        increments += [counter for counter in brought if id(counter) in self._read]
        affinity_weights = (*own.affinity_weights, *self._incoming_preferred[index])
        soft = SoftConstraints(
            affinity_weights,
            tuple(own.spread_counters),
            tuple(own.suffered),
            tuple(self._incoming_penalties[index]),
            tuple(own.rising),
        )
        constraints = TopologyConstraints(
            increments=tuple(increments),
            anti_affinity=(*own.anti_affinity, *self._incoming_anti_affinity[index]),
            affinity=tuple(own.affinity),
            self_affinity=bool(own.affinity) and affinity_matches_itself(signature, rules, self._pod_index.namespaces),
            spreads=tuple(own.spreads),
            caps=tuple(own.caps),
            blocks=tuple(counter for counter in increments if id(counter) in self._blocking),
            soft_constraints=soft if soft.reads else None,
        )
        return constraints if constraints.increments or constraints.sequential else UNCONSTRAINED

    def _asked(self, signature: PodSignature) -> tuple[str, Labels, Labels]:
        """What an index of the round finds items by."""
        return signature.namespace, self._pod_index.namespaces.get(signature.namespace, ()), signature.labels

    def _find_incoming_anti_affinity(self, signature: PodSignature) -> list[DomainCounter]:
        """Counters of pods of the round whose anti-affinity matches the signature."""
        return [self._anti_affinity_counters[term] for term in self._anti_affinity_index.find(*self._asked(signature))]

    def _find_incoming_preferred(self, signature: PodSignature) -> list[tuple[DomainCounter, int]]:
        """Counters of pods of the round that prefer the signature near or far, with the weight."""
        return [
            (self._preferred_counters[weighted_term], weighted_term.weight)
            for weighted_term in self._preferred_index.find(*self._asked(signature))
        ]

    def _find_incoming_penalties(self, signature: PodSignature) -> list[tuple[DomainCounter, int]]:
        """Counters of pods of the round that suffer from the signature, with the cost of each."""
        return [
            (counter, cost)
            for (kind, cost), counter in self._suffering_counters.items()
            if kind.includes(signature, self._pod_index.namespaces)
        ]

    def _own_rules(self, pod_class: PodClass, signature: PodSignature, rules: InterPodConstraints) -> _OwnRules:
        own = _OwnRules()
        for term in dict.fromkeys(rules.anti_affinity):
            own.anti_affinity.append(self._counter(AffinityMatch((term,)), term.topology_key))
            if term not in self._anti_affinity_counters:
                self._anti_affinity_counters[term] = self._round_counter(term)
                self._anti_affinity_index.add(term)
        for key in dict.fromkeys(term.topology_key for term in rules.affinity):
            own.affinity.append(self._counter(AffinityMatch(rules.affinity), key))
        counted_nodes = CountedNodes(rules.spread, pod_class, self._table)
        for constraint in rules.spread:
            counter = self._spread_counter(pod_class, signature, constraint, rules.spread, counted_nodes)
            own.spreads.append(Spread.of(constraint, signature, counter))
        for weighted_term in rules.preferred:
            term = weighted_term.term
            own.affinity_weights.append(
                (self._counter(AffinityMatch((term,)), term.topology_key), weighted_term.weight)
            )
            if weighted_term not in self._preferred_counters:
                self._preferred_counters[weighted_term] = self._round_counter(term)
                self._preferred_index.add(weighted_term)
        counted_nodes = CountedNodes(rules.soft_spread, pod_class, self._table)
        for constraint in rules.soft_spread:
            if constraint.topology_key == HOSTNAME:
                counter = self._counter(SpreadMatch(signature.namespace, constraint.selector), HOSTNAME)
            else:
                counter = self._spread_counter(pod_class, signature, constraint, rules.soft_spread, counted_nodes)
            own.spread_counters.append(counter)
        for limit in rules.limits:
            itself = counts_itself(limit, signature, self._pod_index.namespaces)
            own.caps.append(Cap(self._limit_counter(limit), limit.max_pods, int(itself), is_partial=bool(limit.nodes)))
        for price in rules.count_prices:
            if price not in self._rising:
                self._rising[price] = RisingPrice.of(self._limit_counter(price), price.segments)
            own.rising.append(self._rising[price])
        for minimum in rules.minimums:
            if minimum not in self._rising:
                self._rising[minimum] = Minimum.at_least(self._limit_counter(minimum), minimum)
            own.rising.append(self._rising[minimum])
        for penalty in rules.penalties:
            suffering = kind, cost = _suffering(penalty)
            if cost:
                own.suffered.append((self._counter(kind, EACH_NODE), cost))
                if suffering not in self._suffering_counters:
                    self._suffering_counters[suffering] = DomainCounter.of(
                        None, self._domains_of(EACH_NODE), None, self._table
                    )
        return own

    def _spread_counter(
        self,
        pod_class: PodClass,
        signature: PodSignature,
        constraint: SpreadConstraint,
        constraints: Sequence[SpreadConstraint],
        counted_nodes: CountedNodes,
    ) -> DomainCounter:
        """The counter of one of the constraints: it may be that of other groups for which the same nodes count."""
        keys = needed_labels(constraints)
        return self._counter(
            SpreadMatch(signature.namespace, constraint.selector),
            constraint.topology_key,
            (keys, *inclusion_inputs(constraint, pod_class)),
            counted_nodes(constraint),
        )

    def _limit_counter(self, limit: Counting) -> DomainCounter:
        """The counter of a rule that counts pods: on some nodes, or on all."""
        if not limit.nodes and not limit.beside:
            return self._counter(limit_match(limit), limit.topology_key)
        place = limit.topology_key, limit.nodes
        if place not in self._partial_domains:
            domains = self._domains_of(limit.topology_key) if limit.topology_key else self._whole
            inside = domains.within(any_matches(limit.nodes, self._table)) if limit.nodes else domains
            self._partial_domains[place] = inside
        known, counted = self._counters_by_match.setdefault(limit_match(limit), {}), (*place, limit.beside)
        if counted not in known:
            known[counted] = limit_counter(limit, self._pod_index, self._table, self._partial_domains[place])
        return known[counted]

    def _counter(
        self, pod_match: PodMatch, key: str, inputs: tuple[object, ...] = (), counted_nodes: Bools | None = None
    ) -> DomainCounter:
        """The counter of such pods.

        Args:
            inputs: what decides ``counted_nodes``.
        """
        known = self._counters_by_match.setdefault(pod_match, {})
        counter = known.get((key, *inputs))
        if counter is None:
            domains = self._whole if isinstance(pod_match, ConstraintMatch) and not key else self._domains_of(key)
            counter = known[key, *inputs] = DomainCounter.of(
                self._pod_index.matching_pods(pod_match), domains, counted_nodes, self._table
            )
        return counter

    def _round_counter(self, term: AffinityTerm) -> DomainCounter:
        """A counter of pods of the round that have a term; running pods that have it are known to the filters."""
        return DomainCounter.of(None, self._domains_of(term.topology_key), None, self._table)

    def _domains_of(self, key: str) -> Domains:
        domains = self._domains.get(key)
        if domains is None:
            domains = self._domains[key] = Domains.of(key, self._table)
        return domains


def _suffering(penalty: KindPenalty) -> tuple[ConstraintMatch, int]:
    """The pods that a penalty is about, and what a pod that has it costs for each of them."""
    return penalty_match(penalty), penalty.suffered
