"""NodeName: a pod that names its node goes there or nowhere.

Source: kube-scheduler plugins/nodename.
"""

from __future__ import annotations

import numpy as np

from flowcore.filters.rejection import Reads, Rejection
from flowcore.model.pods import PodClass
from flowcore.model.snapshot import NodeTable

NAME = "NodeName"
REASON = "node(s) didn't match the requested node name"


def reads(pod_class: PodClass) -> Reads | None:
    """The node's name."""
    return Reads(pod_class.node_name) if pod_class.node_name else None


def rejections(pod_class: PodClass, table: NodeTable) -> tuple[Rejection, ...]:
    """Every node but the one that the pod names."""
    if not pod_class.node_name:
        return ()
    others = np.ones(len(table.nodes), dtype=np.bool_)
    named = table.index.get(pod_class.node_name)
    if named is not None:
        others[named] = False
    return (Rejection(REASON, others),)
