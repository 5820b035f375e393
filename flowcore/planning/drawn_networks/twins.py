"""Pods that have several ways to a node which pass different limits: in the plan a pod for each class of their ways.

Of the twins of some pods that are alike as many are placed as there are pods. What the others cost that wait is no cost
of the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from flowcore.cluster.arrays.node_matching import term_matches
from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.model.amount_text import as_sentence
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import InterPodConstraints, MaxPerDomain
from flowcore.model.networks import TWINS, WAY, NetworkRules, NetworkWay
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement, value_of
from flowcore.planning.problem.bounds.bound_notes import BoundNote
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import NOTHING_DECIDED, Candidate, Decided
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Placement, RoundResult, Unplaced
from flowcore.rules.reasons.codes import NETWORK_REFUSED

#: Pods that are alike but for what waiting costs them have twins of their own for up to so many prices.
_MOST_PRICES = 4
#: A policy has no more twins than this beside its pods.
MOST_TWINS = 20_000
#: What keeps twins out that are placed no more often than there are pods.
_TWINS_FULL = "the number of its pods"


@dataclass(frozen=True, eq=False)
class _Twinned:
    """Pods that have the same twins.

    Attributes:
        pods: in the order in which they are placed, each with what leaving it costs.
        values: their classes of ways.
    """

    pods: Sequence[tuple[PendingPod, int]]
    values: tuple[str, ...]

    @property
    def keys(self) -> list[str]:
        """Of the twins, those of the cheapest ways first."""
        return [_numbered(pod.key, place) for place in range(len(self.values)) for pod, _ in self.pods]

    def keys_of(self, pod: PendingPod) -> list[str]:
        """Of a pod's twins."""
        return [_numbered(pod.key, place) for place in range(len(self.values))]


class FormTwins(Pass):
    """Takes pods apart into their twins, and puts what was planned for these together again."""

    def __init__(self) -> None:
        self._decided = NOTHING_DECIDED
        self._twinned: list[_Twinned] = []
        #: The pods that have twins, by the twin's key, and which of ``_twinned`` they are.
        self._of: dict[str, tuple[PendingPod, int]] = {}
        #: The names of gangs and of what is placed with them, by those of their copies.
        self._groups: dict[str, str] = {}
        #: What the pods asked for before, where some may have twins.
        self.before: Problem | None = None

    @property
    def surplus(self) -> int:
        """What twins cost that wait beside those of which a plan leaves the most."""
        return sum((len(each.values) - 1) * sum(price for _, price in each.pods) for each in self._twinned)

    def apply(self, problem: Problem) -> Problem:
        """The problem with twins."""
        rules = {name: each.network_rules for name, each in problem.policies.items() if each.network_rules is not None}
        having_choice = {name: each for name, each in rules.items() if each.classes}
        snapshot = problem.snapshot
        if not having_choice:
            return problem
        self.before = problem
        of_key, gangs = dict[str, Sequence[PendingPod]](), dict(snapshot.gangs)
        values_of, prices = dict[str, tuple[str, ...]](), dict[str, int]()
        for demand in problem.demands:
            if demand.policy.name in having_choice:
                for pod, price in zip(demand.group.pods, demand.prices.tolist(), strict=True):
                    classes = having_choice[demand.policy.name].classes_of(pod.signature.labels)
                    values_of[pod.key], prices[pod.key] = classes, price
        refused = dict(_torn(snapshot.pending, gangs, values_of)) | dict(_too_many(snapshot.pending, values_of))
        for demand in problem.demands:
            if demand.policy.name not in having_choice:
                continue
            for alike in _alike(demand.group.pods, prices, values_of, refused):
                number = len(self._twinned)
                self._twinned.append(alike)
                twins = _twins(alike, number, problem.policies[demand.policy.name], snapshot)
                for (pod, _), of_pod in zip(alike.pods, twins, strict=True):
                    of_key[pod.key] = of_pod
                    self._of |= {twin.key: (pod, number) for twin in of_pod}
                    for gang in [gangs[name] for name in pod.gangs if name in gangs]:
                        for copied in (_copied(gang, place) for place in range(len(of_pod))):
                            gangs[copied.name] = copied
                            self._groups |= {copied.name: gang.name, copied.atomic_group: gang.atomic_group}
        self._decided = Decided(
            unplaced=tuple(
                Unplaced(pod, refused[pod.key], prices[pod.key], NETWORK_REFUSED, more_nodes_help=False)
                for pod in snapshot.pending
                if pod.key in refused
            )
        )
        pending = tuple(
            twin for pod in snapshot.pending if pod.key not in refused for twin in of_key.get(pod.key, (pod,))
        )
        held = {key: snapshot.held_back[pod.key] for key, (pod, _) in self._of.items() if pod.key in snapshot.held_back}
        held_back = {**snapshot.held_back, **held}
        return problem.with_snapshot(replace(snapshot, pending=pending, gangs=gangs, held_back=held_back))

    def invert(self, candidate: Candidate) -> Candidate:
        """The candidate with the pods that are refused, and what they cost."""
        return candidate.with_decided(self._decided)

    def pod(self, pod: PendingPod) -> PendingPod:
        """The pod that another one is a twin of, or that has no class of ways."""
        if pod.key in self._of:
            return self._of[pod.key][0]
        if not value_of(pod.signature.labels, WAY):
            return pod
        labels = tuple(each for each in pod.signature.labels if each[0] != WAY)
        return msgspec.structs.replace(pod, signature=msgspec.structs.replace(pod.signature, labels=labels))

    def together(self, result: RoundResult) -> RoundResult:
        """The result for the pods in place of their twins."""
        if self.before is None:
            return result
        chosen = self._chosen([each.pod for each in result.placements])
        placements = tuple(
            each
            if pod is each.pod
            else replace(
                each, pod=pod, way=self._way(each), atomic_group=self._groups.get(each.atomic_group, each.atomic_group)
            )
            for each, pod in zip(result.placements, chosen, strict=True)
        )
        keys = {each.pod.key: pod.key for each, pod in zip(result.placements, chosen, strict=True)}
        placed = {pod.key for pod in chosen}
        unplaced = [each for each in result.unplaced if each.pod.key not in self._of]
        waiting = {each.pod.key: each for each in result.unplaced}
        for alike in self._twinned:
            left = [pod for pod in alike.pods if pod[0].key not in placed]
            if left:
                reason = _reason([waiting[key] for key in alike.keys if key in waiting])
                unplaced += [replace(reason, pod=pod, price=price) for pod, price in left]
        cost = result.cost - sum(each.price for each in result.unplaced) + sum(each.price for each in unplaced)
        floor = result.lower_bound if BoundNote.GAINS in result.bound_notes else 0
        bound = max(result.lower_bound - self.surplus, min(0, floor))
        evictions, proposals = (
            tuple(replace(each, for_pods=tuple(keys.get(key, key) for key in each.for_pods)) for each in some)
            for some in (result.evictions, result.proposals)
        )
        twins = [each for each in result.placements if self.pod(each.pod) is not each.pod]
        gone = [(each.node, each.pod.signature) for each in twins]
        changes = [(each.node, self.pod(each.pod).signature) for each in twins]
        return replace(
            result,
            placements=placements,
            unplaced=tuple(unplaced),
            cost=cost,
            lower_bound=min(cost, bound),
            bound_notes=() if bound >= cost else result.bound_notes,
            evictions=evictions,
            proposals=proposals,
            after=replace(result.after, pod_index=result.after.pod_index.with_changes(changes, gone)),
        )

    def _way(self, placement: Placement) -> tuple[str, ...]:
        """The arcs that a twin passes."""
        assert self.before is not None  # noqa: S101 - see above
        rules, table = self.before.policies[placement.pod.policy].network_rules, self.before.snapshot.table
        assert rules is not None  # noqa: S101 - it has a class
        ways = _leading(rules.ways_of(placement.pod.signature.labels), table, table.index[placement.node])
        return tuple(arc.name for arc in min(ways, key=lambda way: way.cost).path)

    def _chosen(self, placed: Sequence[PendingPod]) -> list[PendingPod]:
        """For each of some twins that are placed a pod: of pods that are alike the dearest, each once."""
        of_alike: dict[int, list[PendingPod]] = {}
        for pod in placed:
            if pod.key in self._of:
                own, number = self._of[pod.key]
                of_alike.setdefault(number, []).append(own)
        turns = {number: iter(_each_once(pods, self._twinned[number])) for number, pods in of_alike.items()}
        return [next(turns[self._of[pod.key][1]]) if pod.key in self._of else self.pod(pod) for pod in placed]


def _reason(left: Sequence[Unplaced]) -> Unplaced:
    """Why pods wait: what their cheapest twin says that says something else than that others are placed."""
    return next((each for each in left if _TWINS_FULL not in each.reason), left[0])


def with_class(pod: PendingPod, rules: NetworkRules, node: str, snapshot: Snapshot) -> PendingPod:
    """A pod that is to take a place on a node: of the first class of ways that leads there."""
    values, row = rules.classes_of(pod.signature.labels), snapshot.table.index.get(node, -1)
    ways = dict(rules.classes)
    leading = (value for value in values if row >= 0 and any(_leading(ways[value], snapshot.table, row)))
    value = next(leading, next(iter(values), ""))
    return pod if not value else msgspec.structs.replace(pod, signature=_labelled(pod.signature, (WAY, value)))


def _leading(ways: Iterable[NetworkWay], table: NodeTable, row: int) -> Iterator[NetworkWay]:
    """Ways that lead to a node."""
    return (way for way in ways if way.nodes is None or term_matches(way.nodes, table)[row])


def _labelled(signature: PodSignature, *labels: tuple[str, str]) -> PodSignature:
    return msgspec.structs.replace(signature, labels=tuple(sorted((*signature.labels, *labels))))


def _alike(
    pods: Sequence[PendingPod], prices: Mapping[str, int], values: Mapping[str, tuple[str, ...]], left: Container[str]
) -> Iterator[_Twinned]:
    """Pods of a demand that have the same classes of ways, gangs, and price of waiting.

    Args:
        left: keys of pods that wait.
    """
    kinds: dict[tuple[tuple[str, ...], object], list[tuple[PendingPod, int]]] = {}
    apart = len({prices[pod.key] for pod in pods}) <= _MOST_PRICES
    for pod in pods:
        if values[pod.key] and pod.key not in left:
            price = prices[pod.key]
            kind = values[pod.key], (pod.gangs, pod.pod_class, price if apart else 0)
            kinds.setdefault(kind, []).append((pod, price))
    for (of_kind, _), some in kinds.items():
        yield _Twinned(sorted(some, key=lambda each: -each[1]), of_kind)


def _twins(alike: _Twinned, number: int, policy: Policy, snapshot: Snapshot) -> Iterator[list[PendingPod]]:
    """For each of some pods its twins."""
    signatures: dict[tuple[PodSignature, str], PodSignature] = {}
    has_several = len(alike.values) > 1
    name = f"{policy.name} {number}"
    assert policy.network_rules is not None  # noqa: S101 - its pods have classes
    limit = MaxPerDomain(
        f"{_TWINS_FULL} in {policy.network_rules.name}",
        "",
        (LabelSelector((Requirement(TWINS, "In", (name,)),)),),
        None,
        len(alike.pods),
    )
    for pod, _ in alike.pods:
        twins = list[PendingPod]()
        for place, value in enumerate(alike.values):
            signature = signatures.get((pod.signature, value))
            if signature is None:
                labels = [(WAY, value), *([(TWINS, name)] if has_several else [])]
                signature = with_policy_constraints(
                    _labelled(pod.signature, *labels), policy, snapshot.pod_index.services
                )
                if has_several:
                    rules = signature.constraints or InterPodConstraints()
                    rules = msgspec.structs.replace(rules, limits=(*rules.limits, limit))
                    signature = msgspec.structs.replace(signature, constraints=rules)
                signatures[pod.signature, value] = signature
            key = alike.keys_of(pod)[place]
            gangs = tuple(_numbered(gang, place) for gang in pod.gangs)
            twins.append(msgspec.structs.replace(pod, key=key, signature=signature, gangs=gangs))
        yield twins


def _numbered(name: str, place: int) -> str:
    """The name of a twin, or of a gang of twins."""
    return f"{name} (way {place + 1})" if place and name else name


def _copied(gang: Gang, place: int) -> Gang:
    """The gang of the twins of a gang's pods."""
    return msgspec.structs.replace(
        gang,
        name=_numbered(gang.name, place),
        atomic_group=_numbered(gang.atomic_group, place),
        slice_of=_numbered(gang.slice_of, place),
        foreign_pods=tuple(_numbered(key, place) for key in gang.foreign_pods),
    )


def _torn(
    pods: Iterable[PendingPod], gangs: Mapping[str, Gang], values: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    """Pods of gangs whose pods might go different ways, by key, and why they wait, a sentence."""
    members: dict[str, list[PendingPod]] = {}
    for pod in pods:
        for name in pod.gangs:
            members.setdefault(name, []).append(pod)
    for name, of_gang in members.items():
        numbers = {(len(values.get(pod.key, ("",))), pod.policy) for pod in of_gang}
        gang = gangs.get(name)
        if max(number for number, _ in numbers) <= 1 or gang is None:
            continue
        why = ""
        if len(numbers) > 1:
            why = "some of its pods have a choice between ways of a network, and others have not the same"
        elif gang.needs_domain and 2 * gang.min_placed <= len(of_gang):
            why = "its pods have a choice between ways of a network, and it needs less than half of them"
        if why:
            yield from ((pod.key, as_sentence(f"{name}: {why}")) for pod in of_gang if pod.key in values)


def _too_many(pods: Iterable[PendingPod], values: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Pods of policies with more twins than a round has time for, by key, and why they wait, a sentence."""
    with_choice = [pod for pod in pods if len(values.get(pod.key, ())) > 1]
    twins = Counter[str]()
    for pod in with_choice:
        twins[pod.policy] += len(values[pod.key]) - 1
    for pod in with_choice:
        if twins[pod.policy] > MOST_TWINS:
            why = f"count for {twins[pod.policy]:,} more pods of a plan, and a round has time for {MOST_TWINS:,}"
            yield pod.key, f"The network of policy {pod.policy} is refused: pods that have a choice of ways {why}."


def _each_once(pods: Sequence[PendingPod], alike: _Twinned) -> list[PendingPod]:
    """The pods, others of those that are alike in place of those that come again; where all are alike the dearest."""
    if not pods[0].gangs:
        return [pod for pod, _ in alike.pods[: len(pods)]]
    counts = Counter(pod.key for pod in pods)
    spare, taken, each_once = iter([pod for pod, _ in alike.pods if pod.key not in counts]), set[str](), []
    for pod in pods:
        each_once.append(next(spare) if pod.key in taken else pod)
        taken.add(pod.key)
    return each_once
