"""Arcs of networks that must have units and cannot: their policies' pods wait, and arcs that take none or enough close.

What no room can meet is told before a round is solved. What its plan does not meet after all is told at its end, and
the round is solved again without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.model.amount_text import counted
from flowcore.model.constraint_limits import minimum_of
from flowcore.model.inter_pod_constraints import EACH_NODE, MinPerDomain
from flowcore.model.policies import Policy
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.planning.problem.contradictions import Contradiction
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import NOTHING_DECIDED, Candidate, Decided
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Placement, Unplaced
from flowcore.rules.reasons.codes import NETWORK_REFUSED
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import domains_of_limit, limit_match
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

    def beside(self, problem: Problem, commits: Sequence[Commit]) -> Unmet | None:
        """The same and what this plan does not meet; None: it meets all."""
        lacking = problem.objective.lacking(commits)
        if not lacking:
            return None
        refused, closed = dict(self.refused), {name: dict(of_arcs) for name, of_arcs in self.closed.items()}
        for minimum, counts, lacks in lacking:
            name = next(each.policy.name for each in problem.demands if minimum in each.constraints.rising)
            if minimum.rule.or_none and self.turns < _MOST_TURNS:
                arcs, domains = closed.setdefault(name, {}), np.nonzero(lacks)[0].tolist()
                terms = (term for domain in domains for term in _nodes_of(problem, minimum, domain))
                arcs[minimum.rule.arc] = (*arcs.get(minimum.rule.arc, ()), *terms)
            else:
                domain = int(np.argmax(lacks > 0))
                refused[name] = _sentence(problem, name, minimum.rule, minimum.counter, domain, int(counts[domain]))
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
                slack += 0 if name in hopeless else int(demand.prices.sum())
                text = f"{refused[name][:1].upper()}{refused[name][1:]}."
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
    asking = {
        name
        for name, policy in policies.items()
        if policy.network_rules is not None and any(arc.minimum for arc in policy.network_rules.arcs)
    }
    if not asking:
        return placements
    return tuple(
        replace(each, atomic_group=f"network of policy {each.pod.policy}")
        if each.pod.policy in asking and not each.atomic_group
        else each
        for each in placements
    )


def _hopeless(problem: Problem) -> Iterator[tuple[str, str]]:
    """Policies, and why no plan gives their network what it must have, whoever else is placed."""
    waiting = {pod.policy for pod in problem.snapshot.pending}
    for name in sorted(waiting):
        rules = problem.policies[name].network_rules
        asking = () if rules is None else tuple(filter(None, (minimum_of(arc, rules) for arc in rules.arcs)))
        must = [each for each in asking if not each.or_none]
        own = [demand for demand in problem.demands if demand.policy.name == name] if must else []
        for rule in must:
            counter, able = _counter(problem, rule, own)
            least = Minimum.at_least(counter, rule)
            lacking = least.lacking(counter.initial)
            room = sum((_most_inside(each, counter) for each in able), np.zeros_like(lacking))
            wait = sum(each.count for each in able)
            if (lacking > room).any():
                domain = int(np.argmax(lacking > room))
                most = int(counter.initial[domain] + room[domain])
                yield name, _sentence(problem, name, rule, counter, domain, most)
                break
            if int(lacking.sum()) > wait:
                needs = f"needs {counted(int(lacking.sum()), 'more pod')} for all that it leads to"
                yield name, f"{_refused(name, rule)} {needs}, and {wait:,} may take it"
                break


def _counter(problem: Problem, rule: MinPerDomain, demands: Sequence[Demand]) -> tuple[DomainCounter, list[Demand]]:
    """What counts the pods of a rule, and the demands whose pods it counts."""
    able, counter = list[Demand](), None
    for demand in demands:
        for price in demand.constraints.rising:
            if isinstance(price, Minimum) and price.rule == rule:
                able, counter = [*able, demand], price.counter
    if counter is None:
        snapshot = problem.snapshot
        pods, domains = snapshot.pod_index.matching_pods(limit_match(rule)), domains_of_limit(rule, snapshot.table)
        counter = DomainCounter.of(pods, domains, None, snapshot.table)
    return counter, able


def _most_inside(demand: Demand, counter: DomainCounter) -> Int64s:
    """int64[D]: how many pods of a demand the domains have room for."""
    return np.minimum(counter.domains.totals(demand.counts)[:-1], demand.count)


def _sentence(
    problem: Problem, policy: str, rule: MinPerDomain, counter: DomainCounter, domain: int, count: int
) -> str:
    """Why a network is refused, without a full stop."""
    where = "" if not rule.topology_key else f" for {' '.join(_label_and_value(problem, rule, counter, domain))}"
    return f"{_refused(policy, rule)} needs at least {counted(rule.min_pods, 'pod')}{where}, and gets {count}"


def _refused(policy: str, rule: MinPerDomain) -> str:
    """A network that is refused, and the arc for which it is."""
    named = f"the network of policy {policy}"
    return f"{named} is refused: {rule.arc.removesuffix(f' of {named}')}"


def _label_and_value(problem: Problem, rule: MinPerDomain, counter: DomainCounter, domain: int) -> tuple[str, str]:
    """The label and the value that a domain is for."""
    node = problem.snapshot.table.nodes[int(np.argmax(counter.domains.codes == domain))]
    key = rule.topology_key
    return ("node", node.name) if key == EACH_NODE else (key, dict(node.labels)[key])


def _nodes_of(problem: Problem, minimum: Minimum, domain: int) -> list[NodeSelectorTerm]:
    """The nodes of a domain, in which an arc is closed."""
    rule = minimum.rule
    if not rule.topology_key:
        return list(rule.nodes or (_EVERY_NODE,))
    label, value = _label_and_value(problem, rule, minimum.counter, domain)
    if rule.topology_key == EACH_NODE:
        return [NodeSelectorTerm((), (Requirement("metadata.name", "In", (value,)),))]
    inside = Requirement(label, "In", (value,))
    return [NodeSelectorTerm((*term.expressions, inside), term.fields) for term in rule.nodes or (NodeSelectorTerm(),)]
