"""NodeAffinity: nodeSelector and required node affinity; preferred terms as a score.

Source: kube-scheduler plugins/nodeaffinity.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.node_matching import affinity_matches, term_matches
from flowcore.cluster.arrays.snapshot import Int64s, NodeTable
from flowcore.model.pods import PodClass
from flowcore.rules.filters.rejection import FilterInputs, Rejection

NAME = "NodeAffinity"
REASON = "node(s) didn't match Pod's node affinity/selector"


def reads(pod_class: PodClass) -> FilterInputs | None:
    """Selector and required affinity."""
    if not pod_class.node_selector and pod_class.required_affinity is None:
        return None
    return FilterInputs((pod_class.node_selector, pod_class.required_affinity))


def rejections(pod_class: PodClass, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that the selector or the required affinity leaves out."""
    if not pod_class.node_selector and pod_class.required_affinity is None:
        return ()
    return (Rejection(REASON, ~affinity_matches(pod_class, table)),)


def label_keys(pod_class: PodClass) -> set[str]:
    """Labels of nodes that selector and required affinity read."""
    keys = {key for key, _ in pod_class.node_selector}
    for term in pod_class.required_affinity or ():
        keys.update(requirement.key for requirement in term.expressions)
    return keys


def preference(pod_class: PodClass, table: NodeTable) -> Int64s:
    """int64[N]: sum of the weights of the preferred terms that each node matches.

    An empty term counts for nothing on every node, a term that cannot be parsed likewise.
    """
    score = np.zeros(len(table.nodes), dtype=np.int64)
    for preferred in pod_class.preferred_affinity:
        if preferred.weight != 0:
            score[term_matches(preferred.term, table)] += preferred.weight
    return score
