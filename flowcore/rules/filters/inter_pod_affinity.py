"""InterPodAffinity: required affinity and anti-affinity of the waiting pod, and anti-affinity of running pods.

Source: kube-scheduler plugins/interpodaffinity/filtering.go. The arithmetic is in ``topology.affinity``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, NodeTable
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm, InterPodConstraints
from flowcore.model.matching_pods import MatchingPods
from flowcore.model.pod_index import AffinityMatch, PodIndex, PodSignature
from flowcore.rules.filters.rejection import FilterInputs, Rejection
from flowcore.rules.topology.affinity import affinity_matches_itself, min_pods
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import within_limit
from flowcore.rules.topology.domains import Domains

NAME = "InterPodAffinity"
REASON = "node(s) didn't satisfy existing pods anti-affinity rules"
REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
#: The parser's words follow in kube-scheduler's message.
REASON_UNREADABLE = "parsing pod"


def reads(signature: PodSignature, pod_index: PodIndex) -> FilterInputs | None:
    """The anti-affinity terms of running pods that match the signature, and the pods that have them."""
    terms = pod_index.anti_affinity_terms_for(signature)
    if not terms:
        return None
    return FilterInputs(
        class_key=frozenset(term for term, _ in terms),
        matching_pods=tuple(matching_pods for _, matching_pods in terms),
        label_keys=_topologies(term for term, _ in terms),
    )


def own_reads(signature: PodSignature, pod_index: PodIndex) -> FilterInputs | None:
    """The pod's own terms, and the pods that they match."""
    constraints = signature.constraints
    if constraints is None or not (constraints.affinity or constraints.anti_affinity):
        return None
    matching_pods = [pod_index.matching_pods(AffinityMatch((term,))) for term in constraints.anti_affinity]
    self_affinity = False
    if constraints.affinity:
        matching_pods.append(pod_index.matching_pods(AffinityMatch(constraints.affinity)))
        self_affinity = affinity_matches_itself(signature, constraints, pod_index.namespaces)
    return FilterInputs(
        class_key=(constraints.affinity, constraints.anti_affinity, self_affinity),
        matching_pods=tuple(matching_pods),
        label_keys=_topologies((*constraints.affinity, *constraints.anti_affinity)),
    )


def _topologies(terms: Iterable[AffinityTerm]) -> tuple[str, ...]:
    return tuple(sorted({term.topology_key for term in terms}))


def rejections(signature: PodSignature, pod_index: PodIndex, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes in a domain that the anti-affinity of a running pod closes to the signature."""
    terms = pod_index.anti_affinity_terms_for(signature)
    return (Rejection(REASON, _any_near(terms, table)),) if terms else ()


def unreadable(constraints: InterPodConstraints, table: NodeTable) -> tuple[Rejection, ...]:
    """Every node, for a pod with a term that cannot be parsed."""
    if not constraints.unreadable_affinity:
        return ()
    reason = f"{REASON_UNREADABLE}: a selector in {constraints.unreadable_affinity} cannot be parsed"
    return (Rejection(reason, np.ones(len(table.nodes), dtype=np.bool_)),)


def own_rejections(signature: PodSignature, pod_index: PodIndex, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that the pod's own terms rule out; a node is given the first of the two reasons only."""
    constraints = signature.constraints
    if constraints is None:
        return ()
    rejected = []
    undecided = np.ones(len(table.nodes), dtype=np.bool_)
    if constraints.affinity:
        undecided = _meets_affinity(signature, constraints, pod_index, table)
        rejected.append(Rejection(REASON_AFFINITY, ~undecided))
    if constraints.anti_affinity:
        terms = [(term, pod_index.matching_pods(AffinityMatch((term,)))) for term in constraints.anti_affinity]
        rejected.append(Rejection(REASON_ANTI_AFFINITY, _any_near(terms, table) & undecided))
    return tuple(rejected)


def closed_to_new_nodes(signature: PodSignature, pod_index: PodIndex, table: NodeTable) -> Bools:
    """bool[N]: nodes beside which a new one is closed too: it is empty and shares all domains but the hostname."""
    closed = np.zeros(len(table.nodes), dtype=np.bool_)
    terms = [each for each in pod_index.anti_affinity_terms_for(signature) if each[0].topology_key != HOSTNAME]
    constraints = signature.constraints
    if constraints is not None:
        own = [term for term in constraints.anti_affinity if term.topology_key != HOSTNAME]
        terms += [(term, pod_index.matching_pods(AffinityMatch((term,)))) for term in own]
        if constraints.affinity:
            closed |= ~_meets_affinity(signature, constraints, pod_index, table)
            if any(term.topology_key == HOSTNAME for term in constraints.affinity):
                closed |= closed.any()  # what the pod wants to be with runs elsewhere
    return closed | _any_near(terms, table) if terms else closed


def _meets_affinity(
    signature: PodSignature, constraints: InterPodConstraints, pod_index: PodIndex, table: NodeTable
) -> Bools:
    """bool[N]: nodes that share every topology with a pod that all affinity terms match."""
    matching_pods = pod_index.matching_pods(AffinityMatch(constraints.affinity))
    keys = dict.fromkeys(term.topology_key for term in constraints.affinity)
    counters = [DomainCounter.of(matching_pods, Domains.unordered(key, table), None, table) for key in keys]
    needed = min_pods(
        met=any(counter.initial.any() for counter in counters),
        self_affinity=affinity_matches_itself(signature, constraints, pod_index.namespaces),
    )
    meets = np.ones(len(table.nodes), dtype=np.bool_)
    for counter in counters:
        meets &= counter.domains.labelled & (counter.initial_by_node >= needed)
    return meets


def _any_near(terms: Iterable[tuple[AffinityTerm, MatchingPods]], table: NodeTable) -> Bools:
    """bool[N]: nodes in a domain in which any of these pods runs, each in the topology of its term."""
    domains: dict[str, Domains] = {}
    closed = np.zeros(len(table.nodes), dtype=np.bool_)
    for term, matching_pods in terms:
        key = term.topology_key
        if key not in domains:
            domains[key] = Domains.unordered(key, table)
        counts = DomainCounter.of(matching_pods, domains[key], None, table).initial
        closed |= ~within_limit(counts, 0, 0)[domains[key].codes]
    return closed
