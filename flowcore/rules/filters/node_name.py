"""NodeName: a pod that names its node goes there or nowhere.

Source: kube-scheduler plugins/nodename.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.model.pods import PodClass
from flowcore.rules.filters.rejection import FilterInputs, Rejection

NAME = "NodeName"
REASON = "node(s) didn't match the requested node name"


def reads(pod_class: PodClass) -> FilterInputs | None:
    """The node's name."""
    return FilterInputs(pod_class.node_name) if pod_class.node_name else None


def rejections(pod_class: PodClass, table: NodeTable) -> tuple[Rejection, ...]:
    """Every node but the one that the pod names."""
    if not pod_class.node_name:
        return ()
    others = np.ones(len(table.nodes), dtype=np.bool_)
    named = table.index.get(pod_class.node_name)
    if named is not None:
        others[named] = False
    return (Rejection(REASON, others),)
