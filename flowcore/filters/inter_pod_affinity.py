"""InterPodAffinity, the part that running pods demand: their required anti-affinity keeps new pods away.

Source: kube-scheduler plugins/interpodaffinity/filtering.go (satisfyExistingPodsAntiAffinity). What a pending pod
itself demands of other pods is not decided here: such pods are blocked when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from flowcore.filters.rejection import Rejection
from flowcore.model.pods import AntiAffinityTerm
from flowcore.model.selectors import Labels
from flowcore.model.snapshot import NodeTable

NAME = "InterPodAffinity"
REASON = "node(s) didn't satisfy existing pods anti-affinity rules"

Domain = tuple[str, str]


def term_matches(term: AntiAffinityTerm, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
    """Whether the term of a running pod speaks of a pod with these labels in this namespace."""
    if term.selector is None:
        return False
    in_scope = namespace in term.namespaces or (
        term.namespace_selector is not None and term.namespace_selector.matches(namespace_labels)
    )
    return in_scope and term.selector.matches(labels)


def domains_to_avoid(
    terms: Iterable[tuple[AntiAffinityTerm, Mapping[str, str]]],
    namespace: str,
    labels: Labels,
    namespace_labels: Labels,
) -> tuple[Domain, ...]:
    """Topology domains that running pods keep a pod out of, sorted.

    Args:
        terms: each running pod's terms with the labels of the node it runs on.
    """
    found = set()
    for term, node_labels in terms:
        value = node_labels.get(term.topology_key)
        if value is not None and term_matches(term, namespace, labels, namespace_labels):
            found.add((term.topology_key, value))
    return tuple(sorted(found))


def rejections(avoid: tuple[Domain, ...], table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes in a domain to avoid."""
    if not avoid:
        return ()
    refused = np.zeros(len(table.nodes), dtype=np.bool_)
    for key, value in avoid:
        column = table.column(key)
        if value in column.values:
            refused |= column.codes == column.values.index(value)
    return (Rejection(REASON, refused),)
