"""NodeAffinity: nodeSelector and required node affinity; preferred terms as a score.

Source: kube-scheduler plugins/nodeaffinity and component-helpers scheduling/corev1/nodeaffinity. Each requirement is
decided once per distinct value of its label, then spread over the nodes by code.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowcore.filters.rejection import Reads, Rejection
from flowcore.model.pods import PodClass
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.model.snapshot import Bools, Int64s, NodeTable

NAME = "NodeAffinity"
REASON = "node(s) didn't match Pod's node affinity/selector"


def reads(pod_class: PodClass) -> Reads | None:
    """Selector and required affinity."""
    if not pod_class.node_selector and pod_class.required_affinity is None:
        return None
    return Reads((pod_class.node_selector, pod_class.required_affinity))


def rejections(pod_class: PodClass, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that the selector or the required affinity leaves out."""
    if not pod_class.node_selector and pod_class.required_affinity is None:
        return ()
    matching = np.ones(len(table.nodes), dtype=np.bool_)
    for key, value in pod_class.node_selector:
        matching &= _meets(Requirement(key, "In", (value,)), table)
    if pod_class.required_affinity is not None:
        any_term = np.zeros(len(table.nodes), dtype=np.bool_)
        for term in pod_class.required_affinity:
            any_term |= _matches(term, table)
        matching &= any_term
    return (Rejection(REASON, ~matching),)


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
            score[_matches(preferred.term, table)] += preferred.weight
    return score


def _matches(term: NodeSelectorTerm, table: NodeTable) -> Bools:
    if term.selects_nothing:
        return np.zeros(len(table.nodes), dtype=np.bool_)
    matching = meets_all(term.expressions, table)
    for requirement in term.fields:
        matching &= _field_meets(requirement, table)
    return matching


def meets_all(requirements: Iterable[Requirement], table: NodeTable) -> Bools:
    """bool[N]: nodes whose labels meet all of these."""
    matching = np.ones(len(table.nodes), dtype=np.bool_)
    for requirement in requirements:
        matching &= _meets(requirement, table)
    return matching


def _meets(requirement: Requirement, table: NodeTable) -> Bools:
    column = table.column(requirement.key)
    # Code -1, no such label, is the last entry. Pods may list many values, and hostnames are as many as nodes.
    if requirement.operator in ("In", "NotIn"):
        listed, wanted = set(requirement.values), requirement.operator == "In"
        accepted = [(value in listed) == wanted for value in column.values]
        accepted.append(not wanted)
    else:
        accepted = [requirement.accepts(value) for value in (*column.values, None)]
    return np.array(accepted, dtype=np.bool_)[column.codes]


def _field_meets(requirement: Requirement, table: NodeTable) -> Bools:
    """Only metadata.name exists; any other field reads as "" (apimachinery fields.Set)."""
    value = requirement.values[0]
    if requirement.key == "metadata.name":
        equal = np.zeros(len(table.nodes), dtype=np.bool_)
        at = table.index.get(value)
        if at is not None:
            equal[at] = True
    else:
        equal = np.full(len(table.nodes), value == "", dtype=np.bool_)
    return equal if requirement.operator == "In" else ~equal
