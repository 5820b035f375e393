"""Preferred pod affinity and anti-affinity as a score: what running pods and a waiting pod prefer of each other.

Source: kube-scheduler plugins/interpodaffinity/scoring.go, with the default hardPodAffinityWeight of 1.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, NodeTable
from flowcore.model.inter_pod_constraints import WeightedTerm
from flowcore.model.matching_pods import MatchingPods
from flowcore.model.pod_index import AffinityMatch, PodIndex, PodSignature
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domains import Domains


def affinity_weights(signature: PodSignature, pod_index: PodIndex, table: NodeTable) -> Int64s | None:
    """int64[N]: sum of the weights for each node, less those against it; None: there are none.

    A weight counts for each running pod in the node's domain of the term's topology:

    - that of each preferred term of the waiting pod which matches the running pod,
    - that of each preferred term of the running pod which matches the waiting pod; a required affinity term counts 1.
    """
    own = signature.constraints.preferred if signature.constraints is not None else ()
    terms = [(each, pod_index.matching_pods(AffinityMatch((each.term,)))) for each in own]
    terms += pod_index.preferred_terms_for(signature)
    if not any(matching_pods for _, matching_pods in terms):
        return None
    total = np.zeros(len(table.nodes), dtype=np.int64)
    for weighted_term, matching_pods in terms:
        total += _weights_by_node(weighted_term, matching_pods, table)
    return total


def _weights_by_node(weighted_term: WeightedTerm, matching_pods: MatchingPods, table: NodeTable) -> Int64s:
    domains = Domains.unordered(weighted_term.term.topology_key, table)
    return weighted_term.weight * DomainCounter.of(matching_pods, domains, None, table).initial_by_node
