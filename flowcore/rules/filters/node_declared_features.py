"""NodeDeclaredFeatures: a node declares what the pod needs its kubelet to be able to do.

Source: kube-scheduler plugins/nodedeclaredfeatures (KEP-5328). Not before 1.36 (``kubernetes_version``).
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.model.pods import PodClass
from flowcore.rules.filters.rejection import FilterInputs, Rejection

NAME = "NodeDeclaredFeatures"
REASON = "node(s) didn't match Pod's required features"


def reads(pod_class: PodClass) -> FilterInputs | None:
    """What the class needs."""
    return FilterInputs(pod_class.features) if pod_class.features else None


def rejections(pod_class: PodClass, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that do not declare all that the pod needs."""
    if not pod_class.features:
        return ()
    needed = set(pod_class.features)
    return (Rejection(REASON, np.array([not needed.issubset(node.features) for node in table.nodes], dtype=np.bool_)),)
