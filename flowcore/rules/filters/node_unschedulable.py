"""NodeUnschedulable: cordoned nodes, unless the pod tolerates the taint that cordoning means.

Source: kube-scheduler plugins/nodeunschedulable.
"""

from __future__ import annotations

from flowcore.cluster.arrays.node_matching import tolerates
from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.model.nodes import Taint
from flowcore.model.pods import PodClass
from flowcore.rules.filters.rejection import FilterInputs, Rejection

NAME = "NodeUnschedulable"
REASON = "node(s) were unschedulable"
_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def reads(pod_class: PodClass) -> FilterInputs | None:
    """Whether the class tolerates a cordon."""
    return None if tolerates(pod_class.tolerations, _TAINT) else FilterInputs(())


def rejections(pod_class: PodClass, table: NodeTable) -> tuple[Rejection, ...]:
    """Rejections by cordon."""
    if not table.unschedulable.any() or tolerates(pod_class.tolerations, _TAINT):
        return ()
    return (Rejection(REASON, table.unschedulable),)
