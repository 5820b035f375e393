"""Which nodes of a table a pod class selects and tolerates.

Source: component-helpers scheduling/corev1/nodeaffinity, api/core/v1 toleration.go (Gt and Lt are behind a gate that is
off in 1.36: such a toleration matches nothing). Each requirement is decided once per distinct value of its label, each
set of taints once, then spread over the nodes by code.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, NodeTable
from flowcore.model.nodes import Taint
from flowcore.model.pods import PodClass, Toleration
from flowcore.model.selectors import NodeSelectorTerm, Requirement


def affinity_matches(pod_class: PodClass, table: NodeTable) -> Bools:
    """bool[N]: nodes that the class's nodeSelector and required node affinity select."""
    matching = np.ones(len(table.nodes), dtype=np.bool_)
    for key, value in pod_class.node_selector:
        matching &= _meets(Requirement(key, "In", (value,)), table)
    if pod_class.required_affinity is not None:
        matching &= any_matches(pod_class.required_affinity, table)
    return matching


def term_matches(term: NodeSelectorTerm, table: NodeTable) -> Bools:
    """bool[N]: nodes that a term selects; an empty term selects none."""
    if term.selects_nothing:
        return np.zeros(len(table.nodes), dtype=np.bool_)
    matching = meets_all(term.expressions, table)
    for requirement in term.fields:
        matching &= _field_meets(requirement, table)
    return matching


def any_matches(terms: Iterable[NodeSelectorTerm], table: NodeTable) -> Bools:
    """bool[N]: nodes that any of these terms selects."""
    matching = np.zeros(len(table.nodes), dtype=np.bool_)
    for term in terms:
        matching |= term_matches(term, table)
    return matching


def meets_all(requirements: Iterable[Requirement], table: NodeTable) -> Bools:
    """bool[N]: nodes whose labels meet all of these."""
    matching = np.ones(len(table.nodes), dtype=np.bool_)
    for requirement in requirements:
        matching &= _meets(requirement, table)
    return matching


def _meets(requirement: Requirement, table: NodeTable) -> Bools:
    column = table.column(requirement.key)
    if requirement.operator in ("Exists", "DoesNotExist"):
        has_label: Bools = column.codes >= 0
        return has_label if requirement.operator == "Exists" else ~has_label
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
        row = table.index.get(value)
        if row is not None:
            equal[row] = True
    else:
        equal = np.full(len(table.nodes), value == "", dtype=np.bool_)
    return equal if requirement.operator == "In" else ~equal


def tolerated(pod_class: PodClass, table: NodeTable) -> Bools:
    """bool[N]: nodes without a NoSchedule or NoExecute taint that the class does not tolerate."""
    if not table.taint_sets:
        return np.ones(len(table.nodes), dtype=np.bool_)
    fine = [all(not t.keeps_out or tolerates(pod_class.tolerations, t) for t in taints) for taints in table.taint_sets]
    return np.array(fine, dtype=np.bool_)[table.taint_codes]


def seconds_before_eviction(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> int | None:
    """How long a pod stays on a node with these taints; None: for ever.

    The first toleration that covers a NoExecute taint counts; the shortest time of all taints ends it. Source:
    kube-controller-manager pkg/controller/tainteviction (processPodOnNode, getMinTolerationTime) and
    GetMatchingTolerations.
    """
    seconds: int | None = None
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        used = next((each for each in tolerations if tolerates((each,), taint)), None)
        if used is None:
            return 0
        if used.seconds is not None:
            seconds = max(0, used.seconds if seconds is None else min(seconds, used.seconds))
    return seconds


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """Whether any toleration covers the taint."""
    for toleration in tolerations:
        if toleration.effect and toleration.effect != taint.effect:
            continue
        if toleration.key and toleration.key != taint.key:
            continue
        if toleration.operator == "Exists":
            return True
        if toleration.operator in ("", "Equal") and toleration.value == taint.value:
            return True
    return False
