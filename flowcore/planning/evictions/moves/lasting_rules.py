"""Rules that hold while pods run: what each says of the nodes, and which running pods break one.

Kubernetes reads nodeSelector, required node affinity and required pod affinity and anti-affinity only when it places a
pod. Its design has "requiredDuringSchedulingRequiredDuringExecution" for rules that hold afterwards too, and no code.
NoExecute taints are the taint-eviction controller's to carry out: here they only say who will be evicted, so that room
for its replacement can be found before. A policy may have more rules hold: topology spread, NoSchedule taints, its own
constraints.

Each is judged as its filter would judge the pod's node if the pod came there now. So a pod that has left for a node
which the filters accept keeps its rules there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import msgspec
import numpy as np

from flowcore.cluster.arrays.node_matching import (
    affinity_matches,
    any_matches,
    seconds_before_eviction,
    tolerates,
)
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable, Snapshot
from flowcore.model.constraint_limits import all_or_none, with_policy_constraints
from flowcore.model.inter_pod_constraints import AllowedNodes, InterPodConstraints, MaxPerDomain, SpreadConstraint
from flowcore.model.nodes import Taint
from flowcore.model.pod_index import AffinityMatch, PodIndex, PodMatch, PodSignature, SpreadMatch, StayingMatch
from flowcore.model.pods import PodClass, Toleration
from flowcore.model.policies import DuringExecution, LastingRule, Policy
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.rules.filters import pod_topology_spread, policy_constraints
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import limit_match
from flowcore.rules.topology.domains import Domains
from flowcore.rules.topology.spread import CountedNodes, Spread

#: Keys of taints that Kubernetes itself sets, for a cordon and for a node's conditions. They are not about single
#: pods, and they come and go.
_OF_KUBERNETES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")


@dataclass(frozen=True, slots=True, eq=False)
class NodeVerdict:
    """What one rule says of the nodes where pods of one kind run.

    Attributes:
        excess: int64[N], above zero: the rule is broken there, by so many pods where it counts pods.
        reason: a sentence for people, by the position of a node on which the rule is broken.
        best: bool[N], nodes to which a pod goes rather than to others; None: all are alike.
        required: of the pod's author; else its policy has it hold.
        by_controller: the taint-eviction controller evicts the pod. Nobody else may.
    """

    excess: Int64s
    reason: Callable[[int], str]
    best: Bools | None = None
    required: bool = False
    by_controller: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Rule:
    """What is asked of the nodes of some pods.

    Attributes:
        key: equal for pods of which it says the same of every node.
        judge: gives verdicts.
        counted: the pods that it counts.
    """

    key: object
    judge: Callable[[PodIndex, NodeTable], Iterator[NodeVerdict]]
    counted: tuple[PodMatch, ...] = ()


#: By kind of pods.
Verdicts = Mapping[int, Sequence[NodeVerdict]]


class LastingRules:
    """The running pods for which such rules hold, P by number, and what the rules say of their nodes.

    Attributes:
        pods: all of them, whether a rule of theirs is broken or not.
        kinds: int64[P], the kind of each: the same rules say the same of every node.
        alike: int64[P], equal for pods of one kind that ask for the same room.
        nodes: int64[P], position of the node of each.
    """

    def __init__(self, snapshot: Snapshot, running: RunningPods, policies: Mapping[str, Policy]) -> None:
        self._snapshot, self._policies = snapshot, policies
        self._kinds: list[tuple[_Rule, ...]] = []
        self._kind_of_key: dict[object, int] = {}
        self._affected: dict[PodSignature, frozenset[int]] = {}
        known: dict[object, int] = {}
        alike: dict[tuple[object, ...], int] = {}
        pods, kinds, codes = [], [], []
        ignored = DuringExecution.IGNORE  # looked up once: there may be very many pods
        for pod in [pod for pod in running.pods if pod.during_execution is not ignored]:
            key = pod.pod_class, pod.signature, pod.policy, pod.during_execution
            if key not in known:
                known[key] = self._kind(pod)
            if known[key] >= 0 and pod.node in snapshot.table.index:
                pods.append(pod)
                kinds.append(known[key])
                codes.append(alike.setdefault((known[key], pod.pod_class, pod.usage), len(alike)))
        self.pods: tuple[RunningPod, ...] = tuple(pods)
        self.kinds = np.array(kinds, dtype=np.int64)
        self.alike = np.array(codes, dtype=np.int64)
        self.nodes = np.array([snapshot.table.index[pod.node] for pod in pods], dtype=np.int64)

    @cached_property
    def old_enough(self) -> Bools:
        """bool[P]: pods that have run for ``spec.rescheduling.minAge`` of their policies, or have none."""
        now, policies = self._snapshot.now, self._policies
        least = {name: policy.rescheduling.min_age for name, policy in policies.items()}
        ages = [pod.started > 0 and now - pod.started >= least.get(pod.policy, 0) for pod in self.pods]
        return np.array(ages, dtype=np.bool_)

    @cached_property
    def broken(self) -> Bools:
        """bool[P]: pods that break a rule now and may leave for it."""
        return self.weigh(self.excess(self.all_verdicts(self._snapshot), self.nodes)) > 0

    @property
    def may_break(self) -> Bools:
        """bool[P]: these, and all that may break one as others leave and come."""
        counting = np.array([any(rule.counted for rule in kind) for kind in self._kinds], dtype=np.bool_)
        may_break: Bools = self.broken | counting[self.kinds]
        return may_break

    @cached_property
    def _members(self) -> list[Int64s]:
        """Numbers of the pods of each kind."""
        bounds = np.cumsum(np.bincount(self.kinds, minlength=len(self._kinds)))[:-1]
        return np.split(np.argsort(self.kinds, kind="stable"), bounds)

    def excess(self, verdicts: Verdicts, nodes: Int64s) -> Int64s:
        """int64[2, P]: by how much pods break a rule that their policy has hold, and one of their author.

        Args:
            verdicts: of some kinds; pods of others break none.
            nodes: int64[P], where each is; -1: it has left.
        """
        excess = np.zeros((2, len(self.pods)), dtype=np.int64)
        for kind, members in ((kind, self._members[kind]) for kind in verdicts):
            for verdict in verdicts[kind]:
                row = excess[int(verdict.required)]
                row[members] = np.maximum(row[members], verdict.excess[nodes[members]])
        excess[:, nodes < 0] = 0
        return excess

    def weigh(self, excess: Int64s) -> Int64s:
        """int64[P]: the most for which a pod may leave; those of a policy's rules if it is old enough."""
        most: Int64s = np.maximum(excess[0] * self.old_enough, excess[1])
        return most

    def all_verdicts(self, snapshot: Snapshot) -> Verdicts:
        """The verdicts of all kinds."""
        return {kind: self.verdicts(kind, snapshot) for kind in range(len(self._kinds))}

    def verdicts(self, kind: int, snapshot: Snapshot) -> tuple[NodeVerdict, ...]:
        """What the rules say of the nodes for pods of a kind in a snapshot of the same nodes."""
        index, table = snapshot.pod_index, snapshot.table
        return tuple(verdict for rule in self._kinds[kind] for verdict in rule.judge(index, table))

    def affected(self, signature: PodSignature) -> frozenset[int]:
        """Kinds to whose rules it matters where pods of a signature are."""
        known = self._affected.get(signature)
        if known is None:
            namespaces = self._snapshot.pod_index.namespaces
            known = self._affected[signature] = frozenset(
                number
                for number, kind in enumerate(self._kinds)
                if any(match.includes(signature, namespaces) for rule in kind for match in rule.counted)
            )
        return known

    def _kind(self, pod: RunningPod) -> int:
        """Number of the kind of a pod; -1: no rule says anything of it."""
        rules = (*_required(pod, self._snapshot), *self._of_policy(pod))
        if not rules:
            return -1
        number = self._kind_of_key.setdefault(tuple(rule.key for rule in rules), len(self._kinds))
        if number == len(self._kinds):
            self._kinds.append(rules)
        return number

    def _of_policy(self, pod: RunningPod) -> Iterator[_Rule]:
        """Rules that the pod's policy has hold; none of a pod that is placed with others or not at all."""
        policy, index = self._policies.get(pod.policy), self._snapshot.pod_index
        if policy is None or not policy.lasting_rules or all_or_none(pod.signature.labels, policy):
            return
        policy = msgspec.structs.replace(policy, network_rules=None)  # which say where pods go, not where they stay
        pod_class, signature = pod.pod_class, with_policy_constraints(pod.signature, policy, index.services)
        constraints = signature.constraints or InterPodConstraints()
        if LastingRule.TAINTS in policy.lasting_rules and self._snapshot.table.taint_sets:
            key: tuple[object, ...] = LastingRule.TAINTS, pod_class.tolerations
            yield _Rule(key, partial(_of_taints, pod_class.tolerations))
        spread = pod_topology_spread.reads(pod_class, signature, index)
        if LastingRule.TOPOLOGY_SPREAD in policy.lasting_rules and spread is not None:
            key = LastingRule.TOPOLOGY_SPREAD, spread.class_key
            counted = tuple(SpreadMatch(signature.namespace, each.selector) for each in constraints.spread)
            yield _Rule(key, partial(_of_spread, pod_class, signature, constraints), counted)
        limits = policy_constraints.reads(signature, index)
        if LastingRule.CONSTRAINTS in policy.lasting_rules and (limits is not None or constraints.allowed_nodes):
            key = LastingRule.CONSTRAINTS, constraints.limits, constraints.allowed_nodes
            staying = tuple(StayingMatch(limit_match(limit)) for limit in constraints.limits)
            yield _Rule(key, partial(_of_policy_constraints, constraints), staying)


def _required(pod: RunningPod, snapshot: Snapshot) -> Iterator[_Rule]:
    """Rules of the pod's author."""
    pod_class, signature, table = pod.pod_class, pod.signature, snapshot.table
    constraints, namespaces = signature.constraints or InterPodConstraints(), snapshot.pod_index.namespaces
    if pod_class.node_selector or pod_class.required_affinity is not None:
        yield _Rule((pod_class.node_selector, pod_class.required_affinity), partial(_of_node_labels, pod_class))
    # At once, after 0 s: its replacement waits already before a round could plan it.
    seconds = [seconds_before_eviction(pod_class.tolerations, taints) or 0 for taints in table.taint_sets]
    if pod.during_execution is DuringExecution.REPLACE and any(seconds):
        yield _Rule(pod_class.tolerations, partial(_of_evicting_taints, seconds))
    if constraints.affinity:
        near = AffinityMatch(constraints.affinity)
        own = near.includes(signature, namespaces)
        yield _Rule((near, own), partial(_of_affinity, near, own), (near,))
    for term in constraints.anti_affinity:
        # A pod that is being deleted makes way: no other pod must.
        apart = StayingMatch(AffinityMatch((term,)))
        own = apart.includes(signature, namespaces)
        yield _Rule((apart, own), partial(_of_anti_affinity, apart, own, term.topology_key), (apart,))


def _of_node_labels(pod_class: PodClass, _index: PodIndex, table: NodeTable) -> Iterator[NodeVerdict]:
    """Node selector and required node affinity."""
    reason = partial(_reason, table, "node {} does not match its node affinity or selector")
    yield NodeVerdict((~affinity_matches(pod_class, table)).astype(np.int64), reason, required=True)


def _of_evicting_taints(seconds: Sequence[int], _index: PodIndex, table: NodeTable) -> Iterator[NodeVerdict]:
    """NoExecute taints that let a pod stay for so many seconds, by the set of taints."""
    left = np.array(seconds, dtype=np.int64)[table.taint_codes]

    def reason(node: int) -> str:
        return f"node {table.nodes[node].name} has a taint that evicts it after {left[node]} s"

    yield NodeVerdict(left, reason, required=True, by_controller=True)


def _of_affinity(
    near: AffinityMatch,
    own: bool,  # noqa: FBT001
    index: PodIndex,
    table: NodeTable,
) -> Iterator[NodeVerdict]:
    """Required pod affinity; ``own``: it includes the pod itself, which may then be the first of its kind."""
    lonely, alone = np.zeros(len(table.nodes), dtype=np.bool_), np.full(len(table.nodes), own)
    for key in dict.fromkeys(term.topology_key for term in near.terms):
        counter = _counter(near, key, index, table)
        itself = own & counter.domains.labelled
        lonely |= ~counter.domains.labelled | (counter.initial_by_node - itself <= 0)
        alone &= counter.domains.labelled & (counter.initial.sum() - itself <= 0)
    reason = partial(_reason, table, "node {} is not near a pod that its required pod affinity names")
    yield NodeVerdict((lonely & ~alone).astype(np.int64), reason, required=True)


def _of_anti_affinity(
    apart: StayingMatch,
    own: bool,  # noqa: FBT001
    topology_key: str,
    index: PodIndex,
    table: NodeTable,
) -> Iterator[NodeVerdict]:
    """Required pod anti-affinity; ``own``: it includes the pod itself."""
    counter = _counter(apart, topology_key, index, table)
    excess = np.where(counter.domains.labelled, np.maximum(counter.initial_by_node - own, 0), 0)
    reason = partial(_reason, table, "node {} is near a pod that its required pod anti-affinity excludes")
    yield NodeVerdict(excess, reason, required=True)


def _counter(match: PodMatch, topology_key: str, index: PodIndex, table: NodeTable) -> DomainCounter:
    return DomainCounter.of(index.matching_pods(match), Domains.unordered(topology_key, table), None, table)


def _reason(table: NodeTable, text: str, node: int) -> str:
    return text.format(table.nodes[node].name)


def _of_taints(tolerations: tuple[Toleration, ...], _index: PodIndex, table: NodeTable) -> Iterator[NodeVerdict]:
    """NoSchedule taints. What NoExecute taints do is the taint-eviction controller's."""
    untolerated = [
        next((taint.text for taint in taints if _keeps_away(taint) and not tolerates(tolerations, taint)), "")
        for taints in table.taint_sets
    ]
    excess = np.array([bool(text) for text in untolerated], dtype=np.int64)[table.taint_codes]

    def reason(node: int) -> str:
        taint = untolerated[table.taint_codes[node]]
        return f"node {table.nodes[node].name} has the taint {taint}, which it does not tolerate"

    yield NodeVerdict(excess, reason)


def _keeps_away(taint: Taint) -> bool:
    return taint.effect == "NoSchedule" and not taint.key.startswith(_OF_KUBERNETES)


def _of_spread(
    pod_class: PodClass, signature: PodSignature, constraints: InterPodConstraints, index: PodIndex, table: NodeTable
) -> Iterator[NodeVerdict]:
    """Topology spread constraints with DoNotSchedule."""
    counted_nodes = CountedNodes(constraints.spread, pod_class, table)
    for constraint in constraints.spread:
        domains = Domains.unordered(constraint.topology_key, table)
        match = SpreadMatch(signature.namespace, constraint.selector)
        counter = DomainCounter.of(index.matching_pods(match), domains, counted_nodes(constraint), table)
        spread = Spread.of(constraint, signature, counter)
        minimum = spread.global_minimum(counter.initial)
        pods = counter.initial_by_node
        # Without the pod itself, whose domain may then be the emptiest.
        itself = counter.counted_nodes & match.includes(signature, index.namespaces)
        lowest = np.where(itself, np.minimum(pods - itself, minimum), minimum)
        excess = np.maximum(spread.self_match - spread.remaining(pods - itself, lowest), 0)
        eligible = counter.initial[spread.eligible_domains]
        emptiest = int(eligible.min()) if len(eligible) else 0
        yield NodeVerdict(
            np.where(domains.labelled, excess, 1),
            partial(_spread_reason, table, constraint, pods, emptiest),
            domains.labelled & (pods == emptiest),
        )


def _spread_reason(table: NodeTable, constraint: SpreadConstraint, pods: Int64s, emptiest: int, node: int) -> str:
    key = constraint.topology_key
    label = _label(key, node, table)
    if label is None:
        return f"node {table.nodes[node].name} has no label {key}, which its topology spread constraint names"
    return (
        f"{label} has {pods[node]} pods that its topology spread constraint counts, and the emptiest domain has "
        f"{emptiest}; maxSkew is {constraint.max_skew}"
    )


def _of_policy_constraints(
    constraints: InterPodConstraints, index: PodIndex, table: NodeTable
) -> Iterator[NodeVerdict]:
    """Constraints of the policy. A limit for the whole cluster is passed over: no other node would mend it."""
    for allowed in constraints.allowed_nodes:
        others = ~any_matches(allowed.nodes, table)
        yield NodeVerdict(others.astype(np.int64), partial(_not_allowed_reason, table, allowed))
    for limit in constraints.limits:
        if not limit.topology_key:
            continue
        counter = _counter(StayingMatch(limit_match(limit)), limit.topology_key, index, table)
        pods = counter.initial_by_node
        # A limit counts the pod that has it, or only pods of other groups.
        excess = np.where(counter.domains.labelled, np.maximum(pods - limit.max_pods, 0), 1)
        yield NodeVerdict(excess, partial(_limit_reason, table, limit, pods))


def _not_allowed_reason(table: NodeTable, allowed: AllowedNodes, node: int) -> str:
    return f"node {table.nodes[node].name} is not among those of {allowed.constraint}"


def _limit_reason(table: NodeTable, limit: MaxPerDomain, pods: Int64s, node: int) -> str:
    label = _label(limit.topology_key, node, table)
    if label is None:
        return f"node {table.nodes[node].name} has no label {limit.topology_key} ({limit.constraint})"
    if not limit.max_pods:
        return f"{label} has pods of another group of {limit.constraint}"
    return f"{label} has {pods[node]} pods of {limit.constraint}, which allows {limit.max_pods}"


def _label(key: str, node: int, table: NodeTable) -> str | None:
    """A node's label as people write it; None: it has none."""
    column = table.column(key)
    code = int(column.codes[node])
    return None if code < 0 else f"{key}={column.values[code]}"
