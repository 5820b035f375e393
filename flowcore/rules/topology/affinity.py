"""Required pod affinity and anti-affinity: a domain must have pods that a term matches, or none of them.

Source: kube-scheduler plugins/interpodaffinity/filtering.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.pod_index import PodSignature, own_term_matches
from flowcore.model.selectors import Labels
from flowcore.rules.topology.domain_limits import UNLIMITED


def affinity_matches_itself(
    signature: PodSignature, constraints: InterPodConstraints, namespaces: Mapping[str, Labels]
) -> bool:
    """Whether all affinity terms match the pod that has them: it may be the first of its group."""
    return all(own_term_matches(term, signature, namespaces) for term in constraints.affinity)


def min_pods(*, met: bool, self_affinity: bool) -> int:
    """How many matching pods a domain must have for a pod with affinity.

    Args:
        met: whether any pod matches, wherever it runs.
        self_affinity: whether the terms match the pod itself. While no pod matches, such a pod may go to any domain.
    """
    if met:
        return 1
    return 0 if self_affinity else UNLIMITED
