"""TaintEviction: nodes that a pod would have to leave as soon as it comes. Not a filter of kube-scheduler.

kube-scheduler's TaintToleration does not read tolerationSeconds: it accepts a node with a NoExecute taint that the pod
tolerates for no time. The taint-eviction controller evicts the pod there at once, and its next one would come again.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.node_matching import seconds_before_eviction
from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.model.pods import PodClass
from flowcore.rules.filters.rejection import FilterInputs, Rejection

NAME = "TaintEviction"
REASON = "node(s) had taint(s) that evict the pod at once (tolerationSeconds)"


def reads(pod_class: PodClass) -> FilterInputs | None:
    """The class's tolerations, if one of them is for no time."""
    at_once = any(each.seconds is not None and each.seconds <= 0 for each in pod_class.tolerations)
    return FilterInputs(pod_class.tolerations) if at_once else None


def rejections(pod_class: PodClass, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes with a NoExecute taint that the class tolerates for no time."""
    if not table.taint_sets:
        return ()
    evicted = [seconds_before_eviction(pod_class.tolerations, taints) == 0 for taints in table.taint_sets]
    return (Rejection(REASON, np.array(evicted, dtype=np.bool_)[table.taint_codes]),)
