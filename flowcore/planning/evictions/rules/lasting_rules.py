"""Rules that a policy has hold while pods run: topology spread, NoSchedule taints, the policy's own constraints.

Each is judged as its filter would judge the pod's node if the pod came there now. So a pod that has left for a node
which the filters accept keeps its rules there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from flowcore.cluster.arrays.node_matching import meets_all, tolerates
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable, Snapshot
from flowcore.model.constraint_limits import all_or_none, with_policy_constraints
from flowcore.model.inter_pod_constraints import AllowedNodes, InterPodConstraints, MaxPerDomain, SpreadConstraint
from flowcore.model.nodes import Taint
from flowcore.model.pod_index import PodIndex, PodMatch, PodSignature, SpreadMatch, StayingMatch
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
    """

    excess: Int64s
    reason: Callable[[int], str]
    best: Bools | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _RuledPods:
    """Pods to which the same rules say the same of every node.

    Attributes:
        signature: of one of them, with its policy's constraints.
        counted: the pods that its rules count.
    """

    rules: frozenset[LastingRule]
    pod_class: PodClass
    signature: PodSignature
    counted: tuple[PodMatch, ...]

    def verdicts(self, index: PodIndex, table: NodeTable) -> Iterator[NodeVerdict]:
        """What each of the rules says."""
        constraints = self.signature.constraints or InterPodConstraints()
        if LastingRule.TAINTS in self.rules and table.taint_sets:
            yield _of_taints(self.pod_class.tolerations, table)
        if LastingRule.TOPOLOGY_SPREAD in self.rules:
            yield from _of_spread(self.pod_class, self.signature, constraints, index, table)
        if LastingRule.CONSTRAINTS in self.rules:
            yield from _of_policy_constraints(constraints, index, table)


class LastingRules:
    """The running pods whose policies ask for such rules, P by number, and what the rules say of their nodes.

    Attributes:
        pods: all of them, whether a rule of theirs is broken or not.
        kinds: int64[P], the kind of each.
        alike: int64[P], equal for pods of one kind that ask for the same room.
        nodes: int64[P], position of the node of each.
        kind_count: how many kinds there are.
    """

    def __init__(self, snapshot: Snapshot, running: RunningPods, policies: Mapping[str, Policy]) -> None:
        self._snapshot, self._policies = snapshot, policies
        self._kinds: list[_RuledPods] = []
        self._kind_of_key: dict[object, int] = {}
        self._affected: dict[PodSignature, frozenset[int]] = {}
        known: dict[tuple[PodClass, PodSignature, str], int] = {}
        alike: dict[tuple[object, ...], int] = {}
        pods, kinds, codes = [], [], []
        asking = {name for name, policy in policies.items() if policy.lasting_rules}
        for pod in running.pods if asking else ():
            if pod.policy not in asking or pod.during_execution is DuringExecution.IGNORE:
                continue
            key = pod.pod_class, pod.signature, pod.policy
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

    @property
    def kind_count(self) -> int:
        """How many kinds of pods there are."""
        return len(self._kinds)

    @cached_property
    def old_enough(self) -> Bools:
        """bool[P]: pods that have run for ``spec.rescheduling.minAge`` of their policies."""
        now, policies = self._snapshot.now, self._policies
        return np.array(
            [pod.started > 0 and now - pod.started >= policies[pod.policy].rescheduling.min_age for pod in self.pods],
            dtype=np.bool_,
        )

    @cached_property
    def any_broken(self) -> bool:
        """Whether any pod that is old enough breaks a rule now."""
        return any(
            any((verdict.excess[self.nodes[(self.kinds == kind) & self.old_enough]] > 0).any() for verdict in verdicts)
            for kind, verdicts in enumerate(self.verdicts(kind, self._snapshot) for kind in range(self.kind_count))
        )

    def verdicts(self, kind: int, snapshot: Snapshot) -> tuple[NodeVerdict, ...]:
        """What the rules say of the nodes for pods of a kind in a snapshot of the same nodes."""
        return tuple(self._kinds[kind].verdicts(snapshot.pod_index, snapshot.table))

    def affected(self, signature: PodSignature) -> frozenset[int]:
        """Kinds to whose rules it matters where pods of a signature are."""
        known = self._affected.get(signature)
        if known is None:
            namespaces = self._snapshot.pod_index.namespaces
            known = self._affected[signature] = frozenset(
                number
                for number, kind in enumerate(self._kinds)
                if any(match.includes(signature, namespaces) for match in kind.counted)
            )
        return known

    def _kind(self, pod: RunningPod) -> int:
        """Number of the kind of a pod; -1: no rule says anything of it, or it is placed with others or not at all."""
        policy = self._policies[pod.policy]
        if all_or_none(pod.signature.labels, policy):
            return -1
        pod_class, signature = (
            pod.pod_class,
            with_policy_constraints(pod.signature, policy, self._snapshot.pod_index.services),
        )
        constraints, index = signature.constraints or InterPodConstraints(), self._snapshot.pod_index
        rules: list[LastingRule] = []
        key: list[object] = []
        counted: list[PodMatch] = []
        if LastingRule.TAINTS in policy.lasting_rules:
            rules.append(LastingRule.TAINTS)
            key.append((LastingRule.TAINTS, pod_class.tolerations))
        spread = pod_topology_spread.reads(pod_class, signature, index)
        if LastingRule.TOPOLOGY_SPREAD in policy.lasting_rules and spread is not None:
            rules.append(LastingRule.TOPOLOGY_SPREAD)
            key.append((LastingRule.TOPOLOGY_SPREAD, spread.class_key))
            counted += [SpreadMatch(signature.namespace, each.selector) for each in constraints.spread]
        limits = policy_constraints.reads(signature, index)
        if LastingRule.CONSTRAINTS in policy.lasting_rules and (limits is not None or constraints.allowed_nodes):
            rules.append(LastingRule.CONSTRAINTS)
            key.append((LastingRule.CONSTRAINTS, constraints.limits, constraints.allowed_nodes))
            counted += [StayingMatch(limit_match(limit)) for limit in constraints.limits]
        if not rules:
            return -1
        number = self._kind_of_key.setdefault(tuple(key), len(self._kinds))
        if number == len(self._kinds):
            self._kinds.append(_RuledPods(frozenset(rules), pod_class, signature, tuple(counted)))
        return number


def _of_taints(tolerations: tuple[Toleration, ...], table: NodeTable) -> NodeVerdict:
    """NoSchedule taints. What NoExecute taints do is the taint-eviction controller's."""
    untolerated = [
        next((taint.text for taint in taints if _keeps_away(taint) and not tolerates(tolerations, taint)), "")
        for taints in table.taint_sets
    ]
    excess = np.array([bool(text) for text in untolerated], dtype=np.int64)[table.taint_codes]
    return NodeVerdict(excess, partial(_taint_reason, table, untolerated))


def _keeps_away(taint: Taint) -> bool:
    return taint.effect == "NoSchedule" and not taint.key.startswith(_OF_KUBERNETES)


def _taint_reason(table: NodeTable, untolerated: Sequence[str], node: int) -> str:
    taint = untolerated[table.taint_codes[node]]
    return f"node {table.nodes[node].name} has the taint {taint}, which it does not tolerate"


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
        others = ~meets_all(allowed.nodes.requirements, table)
        yield NodeVerdict(others.astype(np.int64), partial(_not_allowed_reason, table, allowed))
    for limit in constraints.limits:
        if not limit.topology_key:
            continue
        domains = Domains.unordered(limit.topology_key, table)
        matching_pods = index.matching_pods(StayingMatch(limit_match(limit)))
        pods = DomainCounter.of(matching_pods, domains, None, table).initial_by_node
        # A limit counts the pod that has it, or only pods of other groups.
        excess = np.where(domains.labelled, np.maximum(pods - limit.max_pods, 0), 1)
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
