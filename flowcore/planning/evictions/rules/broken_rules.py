"""Running pods whose node no longer meets a rule that they require, where their policy does not ignore that.

Kubernetes reads nodeSelector, required node affinity and required pod affinity and anti-affinity only when it places a
pod. Its design has "requiredDuringSchedulingRequiredDuringExecution" for rules that hold afterwards too, and no code.
NoExecute taints are the taint-eviction controller's to carry out: here they only say who will be evicted, so that room
for its replacement can be found before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.node_matching import affinity_matches, seconds_before_eviction
from flowcore.cluster.arrays.snapshot import Bools, NodeTable, Snapshot
from flowcore.model.matching_pods import MatchingPods
from flowcore.model.pod_index import AffinityMatch, PodIndex, PodMatch, PodSignature, StayingMatch
from flowcore.model.policies import DuringExecution
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.rules.filters import inter_pod_affinity, node_affinity, taint_toleration
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domains import Domains


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A running pod that breaks a rule of its own; ``pod.during_execution`` says what becomes of it.

    Attributes:
        filter: the filter that would reject its node.
        reason: a sentence for people.
        evicted_in: seconds until the taint-eviction controller evicts it, counted from when that saw the taint. Nobody
            else may evict it, only room for its replacement is reserved. None: nobody evicts it but the plan.
    """

    pod: RunningPod
    filter: str
    reason: str
    evicted_in: int | None = None


def broken_rules(snapshot: Snapshot, running: RunningPods) -> tuple[BrokenRule, ...]:
    """The pods that break a rule, each once, in the order in which they should leave.

    Lower priorities leave first, then pods that started later. A pod whose rules hold once those before it have left is
    not among them: of two pods that exclude each other only one leaves.
    """
    ignored = DuringExecution.IGNORE  # looked up once: there may be very many pods
    watched = [pod for pod in running.pods if pod.during_execution is not ignored]
    if not watched:
        return ()
    watched = sorted(
        (pod for pod in watched if pod.node in snapshot.table.index),
        key=lambda pod: (pod.priority, -pod.started, pod.key),
    )
    broken_by_pod = {broken.pod.key: broken for broken in _of_nodes(watched, snapshot.table)}
    leaving = [broken.pod for broken in broken_by_pod.values()]
    others = [pod for pod in watched if pod.key not in broken_by_pod]
    broken_by_pod |= {broken.pod.key: broken for broken in _between_pods(others, leaving, snapshot)}
    return tuple(broken_by_pod[pod.key] for pod in watched if pod.key in broken_by_pod)


def _of_nodes(pods: Iterable[RunningPod], table: NodeTable) -> Iterator[BrokenRule]:
    """Rules that read labels and taints of the node."""
    selected: dict[object, Bools] = {}
    seconds: dict[object, int | None] = {}
    for pod in pods:
        pod_class, node = pod.pod_class, table.index[pod.node]
        rules = (pod_class.node_selector, pod_class.required_affinity)
        if rules not in selected:
            selected[rules] = affinity_matches(pod_class, table)
        if not selected[rules][node]:
            yield BrokenRule(pod, node_affinity.NAME, f"node {pod.node} does not match its node affinity or selector")
            continue
        taints = table.nodes[node].taints
        if pod.during_execution is not DuringExecution.REPLACE or not taints:
            continue
        if (pod_class.tolerations, taints) not in seconds:
            seconds[pod_class.tolerations, taints] = seconds_before_eviction(pod_class.tolerations, taints)
        left = seconds[pod_class.tolerations, taints]
        # At once: its replacement waits already before a round could plan it.
        if left:
            reason = f"node {pod.node} has a taint that evicts it after {left} s"
            yield BrokenRule(pod, taint_toleration.NAME, reason, left)


def _between_pods(
    pods: Iterable[RunningPod], leaving: Iterable[RunningPod], snapshot: Snapshot
) -> Iterator[BrokenRule]:
    """Required pod affinity and anti-affinity."""
    table, now = snapshot.table, snapshot.pod_index
    later = now.with_changes((), ((pod.node, pod.signature) for pod in leaving))
    broken_now: dict[PodSignature, tuple[Bools, Bools]] = {}
    for pod in pods:
        constraints = pod.signature.constraints
        if constraints is None or not (constraints.affinity or constraints.anti_affinity):
            continue
        if pod.signature not in broken_now:
            broken_now[pod.signature] = _rejected_nodes(pod.signature, now, table)
        node = table.index[pod.node]
        if not any(broken[node] for broken in broken_now[pod.signature]):
            continue
        # Its rules may hold once those before it have left.
        lonely, crowded = _rejected_nodes(pod.signature, later, table)
        if lonely[node]:
            reason = f"node {pod.node} is not near a pod that its required pod affinity names"
        elif crowded[node]:
            reason = f"node {pod.node} is near a pod that its required pod anti-affinity excludes"
        else:
            continue
        later.change(pod.signature, pod.node, -1)
        yield BrokenRule(pod, inter_pod_affinity.NAME, reason)


def _rejected_nodes(signature: PodSignature, index: PodIndex, table: NodeTable) -> tuple[Bools, Bools]:
    """bool[N] each: nodes on which a running pod of this kind breaks its affinity, and its anti-affinity.

    The pod itself is one of those counted.
    """
    lonely, crowded = (np.zeros(len(table.nodes), dtype=np.bool_) for _ in range(2))
    constraints = signature.constraints
    if constraints is None:
        return lonely, crowded
    if constraints.affinity:
        match = AffinityMatch(constraints.affinity)
        own = match.includes(signature, index.namespaces)
        keys = dict.fromkeys(term.topology_key for term in constraints.affinity)
        counters = [_counter(match, key, index, table) for key in keys]
        # A pod that its own terms match may be the first of its kind.
        alone = np.full(len(table.nodes), own)
        for counter in counters:
            itself = own & counter.domains.labelled
            lonely |= ~counter.domains.labelled | (counter.initial_by_node - itself <= 0)
            alone &= counter.domains.labelled & (counter.initial.sum() - itself <= 0)
        lonely &= ~alone
    for term in constraints.anti_affinity:
        # A pod that is being deleted makes way: no other pod must.
        match_staying = StayingMatch(AffinityMatch((term,)))
        own = match_staying.includes(signature, index.namespaces)
        counter = _counter(match_staying, term.topology_key, index, table)
        crowded |= counter.domains.labelled & (counter.initial_by_node - own > 0)
    return lonely, crowded


def _counter(match: PodMatch, topology_key: str, index: PodIndex, table: NodeTable) -> DomainCounter:
    pods: MatchingPods = index.matching_pods(match)
    return DomainCounter.of(pods, Domains.unordered(topology_key, table), None, table)
