"""Arcs of networks that must have units and cannot: their policies' pods wait, and arcs that take none or enough close.

What no room can meet is told before a round is solved. What its plan does not meet after all is told at its end, and
the round is solved again without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.model.amount_text import as_sentence, counted
from flowcore.model.constraint_limits import minimum_of
from flowcore.model.inter_pod_constraints import EACH_NODE, MinPerDomain
from flowcore.model.pod_index import ConstraintMatch, PodSignature
from flowcore.model.policies import Policy
from flowcore.model.selectors import TOPOLOGY_SEPARATOR, LabelSelector, NodeSelectorTerm, Requirement, domain_value
from flowcore.planning.problem.contradictions import Contradiction
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import NOTHING_DECIDED, Candidate, Decided
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Placement, RoundResult, Unplaced
from flowcore.rules.reasons.codes import NETWORK_REFUSED
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import limit_counter, limit_match
from flowcore.rules.topology.round_constraints.rising_price import Minimum

#: Selects all nodes: an empty term selects none.
_EVERY_NODE = NodeSelectorTerm((), (Requirement("metadata.name", "NotIn", ("",)),))
#: How often a round is solved again at most with arcs closed, before their policy's pods wait.
_MOST_TURNS = 3


@dataclass(frozen=True)
class Unmet:
    """What plans of a round did not meet so far.

    Attributes:
        refused: why, by policy.
        closed: by policy and arc, nodes in whose domains an arc takes no pod.
        turns: plans.
    """

    refused: Mapping[str, str] = field(default_factory=dict)
    closed: Mapping[str, Mapping[str, tuple[NodeSelectorTerm, ...]]] = field(default_factory=dict)
    turns: int = 0

    def beside(self, snapshot: Snapshot, policies: Mapping[str, Policy], result: RoundResult) -> Unmet | None:
        """The same and what a plan does not meet, with the pods that it moves or evicts; None: it meets all.

        Args:
            policies: with their rules.
        """
        refused, closed = dict(self.refused), {name: dict(of_arcs) for name, of_arcs in self.closed.items()}
        told = {each.pod.key for each in result.unplaced if each.code == NETWORK_REFUSED}
        for name in sorted({pod.policy for pod in snapshot.pending if pod.key not in told}):
            for rule in _asked(policies[name]):
                counter = _counter_of(rule, snapshot)
                minimum, counts = Minimum.at_least(counter, rule), _counts(rule, counter, snapshot, result)
                counts -= _may_be_gone(rule, counter, snapshot, result, policies[name])
                lacks = minimum.lacking(counts)
                if not lacks.any():
                    continue
                if rule.or_none and self.turns < _MOST_TURNS:
                    arcs, domains = closed.setdefault(name, {}), np.nonzero(lacks)[0].tolist()
                    terms = (term for domain in domains for term in _nodes_of(snapshot, rule, counter, domain))
                    arcs[rule.arc] = (*arcs.get(rule.arc, ()), *terms)
                else:
                    domain = int(np.argmax(lacks > 0))
                    refused[name] = _sentence(snapshot, name, rule, counter, domain, int(counts[domain]))
        if refused == self.refused and closed == self.closed:
            return None
        return Unmet(refused, closed, self.turns + 1)


NOTHING_UNMET = Unmet()


class RefuseNetworks(Pass):
    """Takes the pods out of policies whose network cannot have what it must, or did not have it in an earlier plan."""

    def __init__(self, unmet: Unmet = NOTHING_UNMET) -> None:
        self._unmet, self._decided = unmet, NOTHING_DECIDED

    def apply(self, problem: Problem) -> Problem:
        """The problem with the other pods."""
        hopeless = dict(_hopeless(problem))
        refused = {**self._unmet.refused, **hopeless}
        if not refused:
            return problem
        snapshot = problem.snapshot
        left, slack = list[Unplaced](), 0
        for demand in problem.demands:
            name = demand.policy.name
            if name in refused:
                # What no plan was found for may have one.
                rules = demand.policy.network_rules
                is_proven = name in hopeless and not (rules is not None and rules.refused)
                slack += 0 if is_proven else int(demand.prices.sum())
                text = as_sentence(refused[name])
                left += [
                    Unplaced(pod, text, int(price), NETWORK_REFUSED, more_nodes_help=False)
                    for pod, price in zip(demand.group.pods, demand.prices, strict=True)
                ]
        self._decided = Decided(unplaced=tuple(left), slack=slack)
        told = (Contradiction(name, sentence, lambda _: True) for name, sentence in refused.items())
        others = tuple(pod for pod in snapshot.pending if pod.policy not in refused)
        return problem.with_snapshot(replace(snapshot, pending=others), (*problem.contradictions, *told))

    def invert(self, candidate: Candidate) -> Candidate:
        """The candidate with the pods that wait, and what they cost."""
        return candidate.with_decided(self._decided)


def placed_as_one(placements: tuple[Placement, ...], policies: Mapping[str, Policy]) -> tuple[Placement, ...]:
    """The placements, those of networks with minimums all or none of them: fewer may be no use."""
    asking = {name for name in {each.pod.policy for each in placements} if any(_asked(policies[name]))}
    return tuple(
        replace(each, atomic_group=f"network of policy {each.pod.policy}")
        if each.pod.policy in asking and not each.atomic_group
        else each
        for each in placements
    )


def _asked(policy: Policy) -> Iterator[MinPerDomain]:
    """What the arcs of a policy's network must have."""
    rules = policy.network_rules
    if rules is not None:
        yield from filter(None, (minimum_of(arc, rules) for arc in rules.arcs))


def _counts(rule: MinPerDomain, counter: DomainCounter, snapshot: Snapshot, result: RoundResult) -> Int64s:
    """int64[D + 1]: pods that a rule counts, with a plan."""
    match, namespaces, counts = limit_match(rule), snapshot.pod_index.namespaces, counter.initial.copy()
    changes = [(each.pod.signature, each.node, 1) for each in result.placements]
    for eviction in result.evictions:
        left = (eviction.pod.node, -1), *(((eviction.to, 1),) if eviction.to else ())
        changes += [(eviction.pod.signature, node, more) for node, more in left]
    for signature, name, more in changes:
        node = snapshot.table.index[name]
        if counter.counted_nodes[node] and match.includes(signature, namespaces):
            counts[counter.domains.codes[node]] += more
    return counts


def _may_be_gone(
    rule: MinPerDomain, counter: DomainCounter, snapshot: Snapshot, result: RoundResult, policy: Policy
) -> Int64s:
    """int64[D + 1]: of the pods that a rule has beside those that it matches, how many may be among those that leave.

    Which of them passes the arc is not known.
    """
    gone, beside = np.zeros_like(counter.initial), dict(rule.beside)
    for eviction in result.evictions if beside else ():
        name = eviction.pod.node
        if beside.get(name) and _may_pass(policy, eviction.pod.signature, snapshot):
            beside[name] -= 1
            gone[counter.domains.codes[snapshot.table.index[name]]] += 1
    return gone


def _may_pass(policy: Policy, signature: PodSignature, snapshot: Snapshot) -> bool:
    """Whether a running pod may count on arcs of a policy's network."""
    own = ConstraintMatch((policy.selects.pods or LabelSelector(),), policy.selects.namespaces)
    arcs = () if policy.network is None else policy.network.arcs
    return own.includes(signature, snapshot.pod_index.namespaces) or any(
        each.tail.runs and each.tail.selector.matches(signature.labels) for each in arcs
    )


def _hopeless(problem: Problem) -> Iterator[tuple[str, str]]:
    """Policies, and why no plan can keep to their network, or gives it what it must have, whoever else is placed."""
    snapshot = problem.snapshot
    for name in sorted({pod.policy for pod in snapshot.pending}):
        rules = problem.policies[name].network_rules
        if rules is not None and rules.refused:
            yield name, f"{rules.name} is refused: {rules.refused}"
            continue
        for rule in _asked(problem.policies[name]):
            if rule.or_none:
                continue
            counter = _counter_of(rule, snapshot)
            able = [each for each in problem.demands if each.policy.name == name and _passes(each, rule)]
            lacking = Minimum.at_least(counter, rule).lacking(counter.initial)
            wait = sum(each.count for each in able)
            if int(lacking.sum()) > wait:
                needs = f"needs {counted(int(lacking.sum()), 'more pod')} for all that it leads to"
                yield name, f"{_refused(name, rule)} {needs}, and {wait:,} may take it"
                break
            room = sum((_most_inside(each, counter) for each in able), np.zeros_like(lacking))
            if snapshot.running is None and (lacking > room).any():
                domain = int(np.argmax(lacking > room))
                most = int(counter.initial[domain] + room[domain])
                yield name, _sentence(snapshot, name, rule, counter, domain, most)
                break


def _passes(demand: Demand, rule: MinPerDomain) -> bool:
    constraints = demand.group.signature.constraints
    return constraints is not None and rule in constraints.minimums


def _counter_of(rule: MinPerDomain, snapshot: Snapshot) -> DomainCounter:
    return limit_counter(rule, snapshot.pod_index, snapshot.table)


def _most_inside(demand: Demand, counter: DomainCounter) -> Int64s:
    """int64[D]: how many pods of a demand the domains have room for."""
    return np.minimum(counter.domains.totals(demand.counts)[:-1], demand.count)


def _sentence(
    snapshot: Snapshot, policy: str, rule: MinPerDomain, counter: DomainCounter, domain: int, count: int
) -> str:
    """Why a network is refused, without a full stop."""
    where = "" if not rule.topology_key else f" for {' '.join(_label_and_value(snapshot, rule, counter, domain))}"
    return f"{_refused(policy, rule)} needs at least {counted(rule.min_pods, 'pod')}{where}, and gets {count}"


def _refused(policy: str, rule: MinPerDomain) -> str:
    """A network that is refused, and the arc for which it is."""
    named = f"the network of policy {policy}"
    return f"{named} is refused: {rule.arc.removesuffix(f' of {named}')}"


def _label_and_value(snapshot: Snapshot, rule: MinPerDomain, counter: DomainCounter, domain: int) -> tuple[str, str]:
    """The label and the value that a domain is for."""
    node = snapshot.table.nodes[int(np.argmax(counter.domains.codes == domain))]
    key = rule.topology_key
    return ("node", node.name) if key == EACH_NODE else (key, domain_value(node.labels, key) or "")


def _nodes_of(snapshot: Snapshot, rule: MinPerDomain, counter: DomainCounter, domain: int) -> list[NodeSelectorTerm]:
    """The nodes of a domain, in which an arc is closed."""
    if not rule.topology_key:
        return list(rule.nodes or (_EVERY_NODE,))
    label, value = _label_and_value(snapshot, rule, counter, domain)
    if rule.topology_key == EACH_NODE:
        return [NodeSelectorTerm((), (Requirement("metadata.name", "In", (value,)),))]
    pairs = zip(label.split(TOPOLOGY_SEPARATOR), value.split(TOPOLOGY_SEPARATOR), strict=True)
    inside = tuple(Requirement(key, "In", (wanted,)) for key, wanted in pairs)
    return [NodeSelectorTerm((*term.expressions, *inside), term.fields) for term in rule.nodes or (NodeSelectorTerm(),)]
