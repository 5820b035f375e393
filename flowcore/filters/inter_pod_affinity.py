"""InterPodAffinity: required rules between pods, those of pods that run and those of the pod that waits.

Source: kube-scheduler plugins/interpodaffinity/filtering.go. Rounds know the first half only (``avoid``): a waiting pod
with rules of its own is blocked when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from flowcore.filters.rejection import Rejection
from flowcore.model.neighbours import Kin, Neighbours
from flowcore.model.rules import AffinityTerm, Rules
from flowcore.model.selectors import Labels
from flowcore.model.snapshot import Bools, Int64s, NodeTable

NAME = "InterPodAffinity"
REASON = "node(s) didn't satisfy existing pods anti-affinity rules"
REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
#: kube-scheduler goes on with the parser's words.
REASON_UNREADABLE = "parsing pod"

Domain = tuple[str, str]


def term_matches(term: AffinityTerm, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
    """Whether the term of a running pod speaks of a pod with these labels in this namespace."""
    if term.selector is None:
        return False
    in_scope = namespace in term.namespaces or (
        term.namespace_selector is not None and term.namespace_selector.matches(namespace_labels)
    )
    return in_scope and term.selector.matches(labels)


def own_term_matches(term: AffinityTerm, kin: Kin, namespaces: Mapping[str, Labels]) -> bool:
    """Whether the term of a waiting pod speaks of these running pods.

    kube-scheduler looks for the namespaces that the selector selects, and then asks the selector once more about a
    namespace without labels (mergeAffinityTermNamespacesIfNotEmpty changes a copy): what accepts that accepts all.
    """
    return term_matches(term, kin.namespace, kin.labels, namespaces.get(kin.namespace, ())) or term_matches(
        term, kin.namespace, kin.labels, ()
    )


def domains_to_avoid(
    terms: Iterable[tuple[AffinityTerm, Mapping[str, str]]],
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


def unreadable(rules: Rules, table: NodeTable) -> tuple[Rejection, ...]:
    """Every node, for a pod with a term that cannot be parsed."""
    if not rules.unreadable_affinity:
        return ()
    reason = f"{REASON_UNREADABLE}: a selector in {rules.unreadable_affinity} cannot be parsed"
    return (Rejection(reason, np.ones(len(table.nodes), dtype=np.bool_)),)


def own_rejections(rules: Rules, neighbours: Neighbours, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that the pod's own terms rule out; a node is given the first of the two reasons only."""
    found = []
    decided = np.zeros(len(table.nodes), dtype=np.bool_)
    if rules.affinity:
        decided = ~_near(rules, neighbours, table)
        found.append(Rejection(REASON_AFFINITY, decided))
    if rules.anti_affinity:
        met = np.zeros(len(table.nodes), dtype=np.bool_)
        for term in rules.anti_affinity:
            met |= _domains_of(_spoken_of((term,), neighbours), term.topology_key, table)
        found.append(Rejection(REASON_ANTI_AFFINITY, met & ~decided))
    return tuple(found)


def _spoken_of(terms: tuple[AffinityTerm, ...], neighbours: Neighbours) -> list[Kin]:
    """Running pods that all of these terms, at least one, speak of."""
    return [
        kin
        for kin in neighbours.selected(terms[0].selector)
        if all(own_term_matches(term, kin, neighbours.namespaces) for term in terms)
    ]


def _near(rules: Rules, neighbours: Neighbours, table: NodeTable) -> Bools:
    """bool[N]: nodes that share every topology with a pod that all affinity terms speak of."""
    wanted = _spoken_of(rules.affinity, neighbours)
    near = np.ones(len(table.nodes), dtype=np.bool_)
    labelled = np.ones(len(table.nodes), dtype=np.bool_)
    anywhere = False
    for term in rules.affinity:
        with_pods = _domains_of(wanted, term.topology_key, table)
        anywhere = anywhere or bool(with_pods.any())
        near &= with_pods
        labelled &= table.column(term.topology_key).codes >= 0
    if anywhere:
        return near
    # The first pod of a group that wants to be together: its terms speak of itself and of nobody else.
    alone = all(
        term_matches(term, rules.namespace, rules.labels, neighbours.namespaces.get(rules.namespace, ()))
        or term_matches(term, rules.namespace, rules.labels, ())
        for term in rules.affinity
    )
    return labelled if alone else np.zeros_like(labelled)


def _domains_of(kins: list[Kin], key: str, table: NodeTable) -> Bools:
    """bool[N]: nodes in a domain of the topology where any of these pods runs."""
    column = table.column(key)
    counts: Int64s = np.zeros(len(column.values) + 1, dtype=np.int64)  # the last entry is for nodes without the label
    for kin in kins:
        counts[column.codes[kin.nodes]] += 1
    counts[-1] = 0
    return (counts > 0)[column.codes]
