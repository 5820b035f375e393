"""PolicyConstraints: constraints between pods of the policy that governs a pod. Not a filter of kube-scheduler.

It runs after the filters of kube-scheduler: where both reject a node, their reason is given.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowcore.cluster.arrays.node_matching import any_matches
from flowcore.cluster.arrays.snapshot import Bools, NodeTable
from flowcore.model.inter_pod_constraints import EACH_NODE, HOSTNAME, InterPodConstraints, MaxPerDomain
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.rules.filters.rejection import FilterInputs, Rejection
from flowcore.rules.topology.domain_limits import Cap, counts_itself, limit_counter, limit_match

NAME = "PolicyConstraints"


def contradictory(constraints: InterPodConstraints, table: NodeTable) -> tuple[Rejection, ...]:
    """Every node, for a pod that its policy rules out everywhere."""
    if not constraints.contradiction:
        return ()
    reason = f"node(s) are ruled out by a contradiction: {constraints.contradiction}"
    return (Rejection(reason, np.ones(len(table.nodes), dtype=np.bool_)),)


def nodes_reads(signature: PodSignature) -> FilterInputs | None:
    """The nodes that constraints allow the pod."""
    allowed_nodes = () if signature.constraints is None else signature.constraints.allowed_nodes
    if not allowed_nodes:
        return None
    keys = {requirement.key for each in allowed_nodes for term in each.nodes for requirement in term.expressions}
    return FilterInputs(allowed_nodes, label_keys=tuple(sorted(keys)))


def nodes_rejections(signature: PodSignature, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that a constraint does not allow the pod."""
    rejected = []
    decided = np.zeros(len(table.nodes), dtype=np.bool_)
    for allowed in signature.constraints.allowed_nodes if signature.constraints is not None else ():
        others = ~any_matches(allowed.nodes, table) & ~decided
        rejected.append(Rejection(f"node(s) are not among those of {allowed.constraint}", others))
        decided |= others
    return tuple(rejected)


def reads(signature: PodSignature, pod_index: PodIndex) -> FilterInputs | None:
    """The limits, whether each counts the pod itself, and the pods that they count."""
    limits = () if signature.constraints is None else signature.constraints.limits
    if not limits:
        return None
    return FilterInputs(
        class_key=(limits, tuple(counts_itself(limit, signature, pod_index.namespaces) for limit in limits)),
        matching_pods=tuple(pod_index.matching_pods(limit_match(limit)) for limit in limits),
        label_keys=tuple(sorted({key for limit in limits for key in _label_keys(limit)})),
    )


def rejections(signature: PodSignature, pod_index: PodIndex, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes where the pod would be one too many for a limit; a node is given the reason of the first one."""
    rejected = []
    decided = np.zeros(len(table.nodes), dtype=np.bool_)
    for limit in signature.constraints.limits if signature.constraints is not None else ():
        key, counter = limit.topology_key, limit_counter(limit, pod_index, table)
        domains = counter.domains
        if key and not limit.nodes:
            unlabelled = ~domains.labelled & ~decided
            rejected.append(Rejection(f"node(s) have no label {key} ({limit.constraint})", unlabelled))
            decided |= unlabelled
        itself = int(counts_itself(limit, signature, pod_index.namespaces))
        cap = Cap(counter, limit.max_pods, itself, is_partial=bool(limit.nodes))
        full = ~cap.allowed_domains(counter.initial)[domains.codes] & ~decided
        rejected.append(Rejection(reason(limit), full))
        decided |= full
    return tuple(rejected)


def room_for_new_nodes(signature: PodSignature, pod_index: PodIndex, table: NodeTable) -> tuple[Bools, float]:
    """Where a node that comes would be of use, as far as the limits go: they hold for it too.

    A new node is in the domains of a node that is there, but for its hostname. Without nodes it is the first of any
    domain.

    Returns:
        bool[N]: nodes beside which a new one would be within every limit; and how many such pods at most the limits
        leave to the nodes that are there and to those that come.
    """
    constraints = signature.constraints or InterPodConstraints()
    beside, room = np.ones(len(table.nodes), dtype=np.bool_), float("inf")
    for nodes in constraints.allowed_nodes:
        beside &= any_matches(nodes.nodes, table)
    allowed_nodes = beside.copy()
    for limit in constraints.limits:
        if limit.topology_key in (HOSTNAME, EACH_NODE) or (limit.topology_key and not len(table.nodes)):
            continue
        counter = limit_counter(limit, pod_index, table)
        domains = counter.domains
        own = int(counts_itself(limit, signature, pod_index.namespaces))
        allowed = Cap(counter, limit.max_pods, own, is_partial=bool(limit.nodes)).allowed_domains(counter.initial)
        beside &= allowed[domains.codes]
        if own and not (allowed_nodes & ~domains.labelled).any():
            room = min(room, float((limit.max_pods - counter.initial[:-1])[allowed[:-1]].sum()))
    return beside, room


def _label_keys(limit: MaxPerDomain) -> Iterator[str]:
    if limit.topology_key not in ("", EACH_NODE):
        yield limit.topology_key
    yield from (requirement.key for term in limit.nodes for requirement in term.expressions)


def reason(limit: MaxPerDomain) -> str:
    """Why a limit rejects a node."""
    if limit.topology_key == EACH_NODE:
        return f"node(s) are full by {limit.constraint} (at most {limit.max_pods} per node)"
    if not limit.max_pods and not limit.nodes:
        return f"node(s) are closed by {limit.constraint} (no other group in the same {limit.topology_key})"
    where = f"per {limit.topology_key}" if limit.topology_key else "in the cluster"
    return f"node(s) are full by {limit.constraint} (at most {limit.max_pods} {where})"
