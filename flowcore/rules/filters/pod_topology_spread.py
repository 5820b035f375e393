"""PodTopologySpread: DoNotSchedule constraints.

Source: kube-scheduler plugins/podtopologyspread/filtering.go. The arithmetic is in ``topology.spread``.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.pod_index import PodIndex, PodSignature, SpreadMatch
from flowcore.model.pods import PodClass
from flowcore.rules.filters import node_affinity
from flowcore.rules.filters.rejection import FilterInputs, Rejection
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domains import Domains
from flowcore.rules.topology.spread import CountedNodes, Spread, selects_itself

NAME = "PodTopologySpread"
REASON = "node(s) didn't match pod topology spread constraints"
REASON_NO_LABEL = f"{REASON} (missing required label)"
#: The parser's words follow in kube-scheduler's message.
REASON_UNREADABLE = "obtaining pod's hard topology spread constraints"


def unreadable(constraints: InterPodConstraints, table: NodeTable) -> tuple[Rejection, ...]:
    """Every node, for a pod with a constraint that cannot be parsed."""
    if not constraints.unreadable_spread:
        return ()
    reason = f"{REASON_UNREADABLE}: {constraints.unreadable_spread}.labelSelector cannot be parsed"
    return (Rejection(reason, np.ones(len(table.nodes), dtype=np.bool_)),)


def reads(pod_class: PodClass, signature: PodSignature, pod_index: PodIndex) -> FilterInputs | None:
    """The constraints, the pods that they count, and what decides which nodes they count."""
    spread = () if signature.constraints is None else signature.constraints.spread
    if not spread:
        return None
    honors_affinity = any(constraint.honors_affinity for constraint in spread)
    honors_taints = any(constraint.honors_taints for constraint in spread)
    keys = {constraint.topology_key for constraint in spread}
    if honors_affinity:
        keys |= node_affinity.label_keys(pod_class)
    return FilterInputs(
        class_key=(
            spread,
            signature.namespace,
            tuple(selects_itself(constraint, signature) for constraint in spread),
            (pod_class.node_selector, pod_class.required_affinity) if honors_affinity else None,
            pod_class.tolerations if honors_taints else None,
        ),
        matching_pods=tuple(
            pod_index.matching_pods(SpreadMatch(signature.namespace, constraint.selector)) for constraint in spread
        ),
        label_keys=tuple(sorted(keys)),
        reads_taints=honors_taints,
    )


def rejections(
    pod_class: PodClass, signature: PodSignature, pod_index: PodIndex, table: NodeTable
) -> tuple[Rejection, ...]:
    """Nodes where a constraint would be broken; a node is given the reason of the first one only."""
    constraints = () if signature.constraints is None else signature.constraints.spread
    if not constraints:
        return ()
    counted_nodes = CountedNodes(constraints, pod_class, table)
    unlabelled = np.zeros(len(table.nodes), dtype=np.bool_)
    skewed = np.zeros_like(unlabelled)
    for constraint in constraints:
        domains = Domains.unordered(constraint.topology_key, table)
        matching_pods = pod_index.matching_pods(SpreadMatch(signature.namespace, constraint.selector))
        counter = DomainCounter.of(matching_pods, domains, counted_nodes(constraint), table)
        spread = Spread.of(constraint, signature, counter)
        allowed = spread.allowed_domains(counter.initial, spread.global_minimum(counter.initial))
        undecided = ~(unlabelled | skewed)
        unlabelled |= undecided & ~domains.labelled
        skewed |= undecided & domains.labelled & ~allowed[domains.codes]
    return (Rejection(REASON_NO_LABEL, unlabelled), Rejection(REASON, skewed))
