"""Pods that have several ways to a node which pass different limits: in the plan a pod for each class of their ways.

Of the twins of some pods that are alike as many are placed as there are pods. What the others cost that wait is no cost
of the plan. Pods that are placed together have no twins: their class is decided before (``decided_ways``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from flowcore.cluster.arrays.node_matching import term_matches
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.inter_pod_constraints import InterPodConstraints, MaxPerDomain
from flowcore.model.networks import TWINS
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.drawn_networks.decided_ways import DecidedWays, on_way
from flowcore.planning.drawn_networks.network_rules import with_running
from flowcore.planning.problem.bounds.bound_notes import BoundNote
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import NOTHING_DECIDED, Candidate, Decided
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Placement, RoundResult, Unplaced

#: Kinds of pods times classes of ways that a round has time for: each is as another kind of pods in the plan.
MOST_KINDS = 64
#: What keeps twins out that are placed no more often than there are pods.
_TWINS_FULL = "the number of its pods"
#: What twins are called while a plan is made: no name of a pod has blanks.
_KEY_OF_TWIN = re.compile(r"\S+ \(way \d+\)")


@dataclass(frozen=True, eq=False)
class _Twinned:
    """Pods of one demand that are equal in all that a plan reads of a pod, and that have the same twins.

    Attributes:
        pods: in the order in which they are placed, each with what leaving it costs.
        values: their classes of ways.
    """

    pods: Sequence[tuple[PendingPod, int]]
    values: tuple[str, ...]

    @property
    def policy(self) -> str:
        """The policy of the pods."""
        return self.pods[0][0].policy

    @property
    def keys(self) -> list[str]:
        """Of the twins, those of the cheapest ways first."""
        return [self.key(pod, place) for place in range(len(self.values)) for pod, _ in self.pods]

    def key(self, pod: PendingPod, place: int) -> str:
        """Of a pod's twin; that of the pod if it is the only one."""
        return f"{pod.key} (way {place + 1})" if len(self.values) > 1 else pod.key


class FormTwins(Pass):
    """Takes pods apart into their twins, and puts what was planned for these together again."""

    def __init__(self) -> None:
        self._decided = NOTHING_DECIDED
        #: What the pods cost at least whose ways were decided.
        self._least = 0
        self._twinned: list[_Twinned] = []
        #: The pods that have twins, by the twin's key, and which of ``_twinned`` they are.
        self._of: dict[str, tuple[PendingPod, int]] = {}
        #: What the pods asked for before, where some may have twins.
        self.before: Problem | None = None

    @property
    def surplus(self) -> int:
        """What twins cost that wait beside those of which a plan leaves the most."""
        return sum((len(each.values) - 1) * sum(price for _, price in each.pods) for each in self._twinned)

    def apply(self, problem: Problem) -> Problem:
        """The problem with twins."""
        policies = {
            name: with_running(policy, problem.snapshot)
            for name, policy in problem.policies.items()
            if policy.network_rules is not None and policy.network_rules.classes
        }
        if not policies:
            return problem
        self.before = problem = problem.with_policies(policies, {})
        problem.charge(())
        snapshot, decided = problem.snapshot, DecidedWays(problem, policies)
        self._twinned, beyond = _within(problem, policies, decided)
        if beyond:
            decided = DecidedWays(problem, policies, beyond)
            self._twinned, _ = _within(problem, policies, decided)
        self._least = decided.least
        if decided.slack:
            self._decided = Decided(slack=decided.slack, notes=(BoundNote.WAYS,))
        twins = dict[str, list[PendingPod]]()
        for number, twinned in enumerate(self._twinned):
            of_pods = _twins(twinned, number, policies[twinned.policy], snapshot)
            for (pod, _), of_pod in zip(twinned.pods, of_pods, strict=True):
                twins[pod.key] = of_pod
                self._of |= {twin.key: (pod, number) for twin in of_pod}
        pending = tuple(twin for pod in snapshot.pending for twin in twins.get(pod.key, (pod,)))
        problem.charge([pod for pod in snapshot.pending if pod.policy in policies])
        held = {key: snapshot.held_back[pod.key] for key, (pod, _) in self._of.items() if pod.key in snapshot.held_back}
        return problem.with_snapshot(replace(snapshot, pending=pending, held_back={**snapshot.held_back, **held}))

    @property
    def slack(self) -> int:
        """By how much a plan may cost more for ways that were decided before it."""
        return self._decided.slack

    def invert(self, candidate: Candidate) -> Candidate:
        """The candidate, which may cost more for ways that were decided before the plan."""
        return candidate.with_decided(self._decided)

    def pod(self, pod: PendingPod) -> PendingPod:
        """The pod that another one is a twin of; itself if it is none."""
        return self._of[pod.key][0] if pod.key in self._of else pod

    def together(self, result: RoundResult) -> RoundResult:
        """The result for the pods in place of their twins."""
        if self.before is None:
            return result
        chosen = self._chosen([each.pod for each in result.placements])
        price_of = {pod.key: price for each in self._twinned for pod, price in each.pods}
        placements = tuple(
            each
            if pod is each.pod
            else replace(each, pod=pod, way=self._way(each), unscheduled_price=price_of[pod.key])
            for each, pod in zip(result.placements, chosen, strict=True)
        )
        keys = {key: pod.key for key, (pod, _) in self._of.items()}
        keys |= {each.pod.key: pod.key for each, pod in zip(result.placements, chosen, strict=True)}
        placed, unplaced = (
            {pod.key for pod in chosen},
            [each for each in result.unplaced if each.pod.key not in self._of],
        )
        waiting = {each.pod.key: each for each in result.unplaced}
        for alike in self._twinned:
            left = [pod for pod in alike.pods if pod[0].key not in placed]
            if left:
                reason = _reason([waiting[key] for key in alike.keys if key in waiting])
                unplaced += [replace(reason, pod=pod, price=price) for pod, price in left]
        cost = result.cost - sum(each.price for each in result.unplaced) + sum(each.price for each in unplaced)
        floor = result.lower_bound if BoundNote.GAINS in result.bound_notes else 0
        bound = max(result.lower_bound - self.surplus, self._least + min(0, floor))

        def told(text: str) -> str:
            return _KEY_OF_TWIN.sub(lambda key: keys.get(key[0], key[0]), text)

        evictions, proposals = (
            tuple(
                replace(each, for_pods=tuple(keys.get(key, key) for key in each.for_pods), reason=told(each.reason))
                for each in some
            )
            for some in (result.evictions, result.proposals)
        )
        twins = [(each, pod) for each, pod in zip(result.placements, chosen, strict=True) if pod is not each.pod]
        gone, come = (
            [(each.node, pod.signature) for each, pod in some]
            for some in ([(each, each.pod) for each, _ in twins], twins)
        )
        return replace(
            result,
            placements=placements,
            unplaced=tuple(replace(each, reason=told(each.reason)) for each in unplaced),
            cost=cost,
            lower_bound=min(cost, bound),
            bound_notes=() if bound >= cost else result.bound_notes,
            evictions=evictions,
            proposals=proposals,
            after=replace(result.after, pod_index=result.after.pod_index.with_changes(come, gone)),
        )

    def _way(self, placement: Placement) -> tuple[str, ...]:
        """The arcs that a twin passes."""
        assert self.before is not None  # noqa: S101 - see above
        rules, table = self.before.policies[placement.pod.policy].network_rules, self.before.snapshot.table
        assert rules is not None  # noqa: S101 - it has a class
        node = table.index[placement.node]
        ways = rules.ways_of(placement.pod.signature.labels)
        leading = (way for way in ways if way.nodes is None or term_matches(way.nodes, table)[node])
        return tuple(arc.name for arc in min(leading, key=lambda way: way.cost).path)

    def _chosen(self, placed: Sequence[PendingPod]) -> list[PendingPod]:
        """For each pod that is placed the pod that it stands for: its own, or where that comes again one that is alike.

        Of those the dearest that has no node.
        """
        own = [self.pod(pod) for pod in placed]
        taken, chosen = {pod.key for pod in own}, list[PendingPod]()
        spare = {
            number: iter([pod for pod, _ in alike.pods if pod.key not in taken])
            for number, alike in enumerate(self._twinned)
        }
        known = set[str]()
        for pod, twin in zip(own, placed, strict=True):
            chosen.append(next(spare[self._of[twin.key][1]]) if pod.key in known else pod)
            known.add(pod.key)
        return chosen


def _reason(left: Sequence[Unplaced]) -> Unplaced:
    """Why pods wait: what their cheapest twin says that says something else than that others are placed."""
    return next((each for each in left if _TWINS_FULL not in each.reason), left[0])


def by_way(problem: Problem) -> dict[str, list[PendingPod]]:
    """Pods that are to take the places of others and have a choice, by key: each for every class of its ways.

    The limits of their ways do not count those others.
    """
    snapshot = problem.snapshot
    asking = [pod for pod in snapshot.pending if pod.victim is not None and not pod.victim.unschedulable_reason]
    rules = {pod.key: problem.policies[pod.policy].network_rules for pod in asking}
    classes = {
        pod.key: values
        for pod in asking
        if (own := rules[pod.key]) is not None and (values := own.classes_of(pod.signature.labels))
    }
    if not classes:
        return {}
    victims = {each.key or pod.key: each for pod in asking if (each := pod.victim) is not None}
    index = snapshot.pod_index.with_changes((), [(each.node, each.signature) for each in victims.values()])
    names = {pod.policy for pod in asking if pod.key in classes}
    policies = {name: with_running(problem.policies[name], replace(snapshot, pod_index=index)) for name in names}
    return {
        pod.key: [
            msgspec.structs.replace(pod, signature=on_way(pod.signature, value, policies[pod.policy], snapshot))
            for value in classes[pod.key]
        ]
        for pod in asking
        if pod.key in classes
    }


def _within(
    problem: Problem, policies: Mapping[str, Policy], decided: DecidedWays
) -> tuple[list[_Twinned], frozenset[str]]:
    """The pods that are alike, and policies whose twins a round has no time for: those with the most."""
    alike, beyond, left = list[_Twinned](), set[str](), MOST_KINDS
    exact = {name: _alike(problem.demands, policy, decided, by_price=True) for name, policy in policies.items()}
    for name in sorted(exact, key=lambda name: _kinds(exact[name])):
        of_policy = exact[name]
        if _kinds(of_policy) > left:
            of_policy = _alike(problem.demands, policies[name], decided, by_price=False)
        if _kinds(of_policy) > left:
            beyond.add(name)
            continue
        left -= _kinds(of_policy)
        alike += of_policy
    return alike, frozenset(beyond)


def _alike(demands: Sequence[Demand], policy: Policy, decided: DecidedWays, *, by_price: bool) -> list[_Twinned]:
    """Pods of a policy that are equal but for their age and labels that nobody reads.

    Args:
        by_price: those that cost the same as they wait; twins of others may go dearer ways than they should.
    """
    rules, alike = policy.network_rules, list[_Twinned]()
    assert rules is not None  # noqa: S101 - its pods have a choice
    for demand in demands:
        if demand.policy.name != policy.name:
            continue
        kinds: dict[tuple[tuple[str, ...], PendingPod, int], list[tuple[PendingPod, int]]] = {}
        for pod, price in zip(demand.group.pods, demand.prices.tolist(), strict=True):
            values = tuple(value for value in rules.classes_of(pod.signature.labels) if value not in decided.units)
            if pod.key in decided.chosen:
                values = (decided.chosen[pod.key],)
            if values:
                signature = PodSignature(pod.signature.namespace)
                like = msgspec.structs.replace(
                    pod, key="", uid="", created=0.0, plannable_since=0.0, signature=signature
                )
                kinds.setdefault((values, like, price if by_price else 0), []).append((pod, price))
        alike += (_Twinned(sorted(some, key=lambda each: -each[1]), values) for (values, *_), some in kinds.items())
    return alike


def _kinds(alike: Sequence[_Twinned]) -> int:
    """As how many kinds of pods some are in the plan, those that have no twins left out."""
    return sum(len(twinned.values) for twinned in alike if len(twinned.values) > 1)


def _twins(alike: _Twinned, number: int, policy: Policy, snapshot: Snapshot) -> Iterator[list[PendingPod]]:
    """For each of some pods its twins."""
    name = f"{policy.name} {number}" if len(alike.values) > 1 else ""
    is_one = (LabelSelector((Requirement(TWINS, "In", (name,)),)),)
    limit = MaxPerDomain(f"{_TWINS_FULL} in the network of policy {policy.name}", "", is_one, None, len(alike.pods))
    signatures: dict[tuple[PodSignature, str], PodSignature] = {}
    for pod, _ in alike.pods:
        twins = list[PendingPod]()
        for place, value in enumerate(alike.values):
            signature = signatures.get((pod.signature, value))
            if signature is None:
                signature = on_way(pod.signature, value, policy, snapshot, name)
                rules = signature.constraints or InterPodConstraints()
                if name:
                    rules = msgspec.structs.replace(rules, limits=(*rules.limits, limit))
                signatures[pod.signature, value] = signature = msgspec.structs.replace(signature, constraints=rules)
            twins.append(msgspec.structs.replace(pod, key=alike.key(pod, place), signature=signature))
        yield twins
