"""TaintToleration: NoSchedule and NoExecute taints keep away pods that do not tolerate them.

Source: kube-scheduler plugins/tainttoleration. PreferNoSchedule is a matter of cost, see ``untolerated_preferences``.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.node_matching import tolerated, tolerates
from flowcore.cluster.arrays.snapshot import Int64s, NodeTable
from flowcore.model.pods import PodClass
from flowcore.rules.filters.rejection import FilterInputs, Rejection

NAME = "TaintToleration"
REASON = "node(s) had untolerated taint(s)"


def reads(pod_class: PodClass) -> FilterInputs:
    """The class's tolerations."""
    return FilterInputs(pod_class.tolerations)


def rejections(pod_class: PodClass, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes with a hard taint that the class does not tolerate."""
    fits = tolerated(pod_class, table)
    return () if fits.all() else (Rejection(REASON, ~fits),)


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
