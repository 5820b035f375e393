"""InterPodAffinity: required rules between pods, those of pods that run and those of the pod that waits.

Source: kube-scheduler plugins/interpodaffinity/filtering.go.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowcore.filters.rejection import Reads, Rejection
from flowcore.model.neighbours import Crowd, Kind, Neighbours, Together, own_term_matches
from flowcore.model.rules import AffinityTerm, Rules
from flowcore.model.snapshot import Bools, NodeTable

NAME = "InterPodAffinity"
REASON = "node(s) didn't satisfy existing pods anti-affinity rules"
REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
#: kube-scheduler goes on with the parser's words.
REASON_UNREADABLE = "parsing pod"


def reads(kind: Kind, neighbours: Neighbours) -> Reads | None:
    """The terms of running pods that speak of the kind, and the pods that bring them."""
    found = neighbours.repelled(kind)
    if not found:
        return None
    return Reads(
        of_class=frozenset(term for term, _ in found),
        crowds=tuple(crowd for _, crowd in found),
        labels=_topologies(term for term, _ in found),
    )


def own_reads(kind: Kind, neighbours: Neighbours) -> Reads | None:
    """The kind's own terms, and the pods that they speak of."""
    rules = kind.rules
    if rules is None or not (rules.affinity or rules.anti_affinity):
        return None
    crowds = [neighbours.crowd(Together((term,))) for term in rules.anti_affinity]
    first = False
    if rules.affinity:
        crowds.append(neighbours.crowd(Together(rules.affinity)))
        first = speaks_of_itself(kind, rules, neighbours)
    return Reads(
        of_class=(rules.affinity, rules.anti_affinity, first),
        crowds=tuple(crowds),
        labels=_topologies((*rules.affinity, *rules.anti_affinity)),
    )


def _topologies(terms: Iterable[AffinityTerm]) -> tuple[str, ...]:
    return tuple(sorted({term.topology_key for term in terms}))


def rejections(kind: Kind, neighbours: Neighbours, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes in a domain that a running pod keeps the kind out of."""
    found = neighbours.repelled(kind)
    if not found:
        return ()
    refused = np.zeros(len(table.nodes), dtype=np.bool_)
    for term, crowd in found:
        refused |= _domains_of(crowd, term.topology_key, table)
    return (Rejection(REASON, refused),)


def unreadable(rules: Rules, table: NodeTable) -> tuple[Rejection, ...]:
    """Every node, for a pod with a term that cannot be parsed."""
    if not rules.unreadable_affinity:
        return ()
    reason = f"{REASON_UNREADABLE}: a selector in {rules.unreadable_affinity} cannot be parsed"
    return (Rejection(reason, np.ones(len(table.nodes), dtype=np.bool_)),)


def own_rejections(kind: Kind, neighbours: Neighbours, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that the pod's own terms rule out; a node is given the first of the two reasons only."""
    rules = kind.rules
    if rules is None:
        return ()
    found = []
    decided = np.zeros(len(table.nodes), dtype=np.bool_)
    if rules.affinity:
        decided = ~_near(kind, rules, neighbours, table)
        found.append(Rejection(REASON_AFFINITY, decided))
    if rules.anti_affinity:
        met = np.zeros(len(table.nodes), dtype=np.bool_)
        for term in rules.anti_affinity:
            met |= _domains_of(neighbours.crowd(Together((term,))), term.topology_key, table)
        found.append(Rejection(REASON_ANTI_AFFINITY, met & ~decided))
    return tuple(found)


def speaks_of_itself(kind: Kind, rules: Rules, neighbours: Neighbours) -> bool:
    """Whether all affinity terms speak of the pod that has them: it may be the first of its group."""
    return all(own_term_matches(term, kind, neighbours.namespaces) for term in rules.affinity)


def _near(kind: Kind, rules: Rules, neighbours: Neighbours, table: NodeTable) -> Bools:
    """bool[N]: nodes that share every topology with a pod that all affinity terms speak of."""
    wanted = neighbours.crowd(Together(rules.affinity))
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
    return labelled if speaks_of_itself(kind, rules, neighbours) else np.zeros_like(labelled)


def _domains_of(crowd: Crowd, key: str, table: NodeTable) -> Bools:
    """bool[N]: nodes in a domain of the topology where any of these pods runs."""
    column = table.column(key)
    inhabited = np.zeros(len(column.values) + 1, dtype=np.bool_)  # the last entry is for nodes without the label
    inhabited[column.codes[crowd.on(table.index)[0]]] = True
    inhabited[-1] = False
    return inhabited[column.codes]
