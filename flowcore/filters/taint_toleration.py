"""TaintToleration: NoSchedule and NoExecute taints keep away pods that do not tolerate them.

Source: kube-scheduler plugins/tainttoleration, api/core/v1 toleration.go (Gt and Lt are behind a gate that is
off in 1.36: such a toleration matches nothing). PreferNoSchedule is a matter of cost, see ``untolerated_preferences``.
"""

from __future__ import annotations

import numpy as np

from flowcore.filters.rejection import Reads, Rejection
from flowcore.model.nodes import Taint
from flowcore.model.pods import PodClass, Toleration
from flowcore.model.snapshot import Int64s, NodeTable

NAME = "TaintToleration"
REASON = "node(s) had untolerated taint(s)"


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


def reads(pod_class: PodClass) -> Reads:
    """The class's tolerations."""
    return Reads(pod_class.tolerations)


def rejections(pod_class: PodClass, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes with a hard taint that the class does not tolerate."""
    refused = [
        any(t.effect in ("NoSchedule", "NoExecute") and not tolerates(pod_class.tolerations, t) for t in taints)
        for taints in table.taint_sets
    ]
    if not any(refused):
        return ()
    return (Rejection(REASON, np.array(refused, dtype=np.bool_)[table.taint_codes]),)


def untolerated_preferences(pod_class: PodClass, table: NodeTable) -> Int64s:
    """int64[N]: how many PreferNoSchedule taints of each node the class does not tolerate."""
    # Only tolerations for that effect, or for every effect, speak to it (getAllTolerationPreferNoSchedule).
    speaking = tuple(t for t in pod_class.tolerations if t.effect in ("", "PreferNoSchedule"))
    counts = [
        sum(t.effect == "PreferNoSchedule" and not tolerates(speaking, t) for t in taints)
        for taints in table.taint_sets
    ]
    if not counts:
        return np.zeros(0, dtype=np.int64)
    return np.array(counts, dtype=np.int64)[table.taint_codes]
