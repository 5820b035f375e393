"""The node that others nominated a waiting pod for (status.nominatedNodeName): a wish, which a round follows if it can.

Autoscalers and queues write it for pods whose node is on its way; kube-scheduler tries that node first, and then all
others (schedule_one.go, evaluateNominatedNode). So each other node costs the pod most of what its author may make one
cost. kube-scheduler also keeps the room from pods of the same or a lower priority
(RunFilterPluginsWithNominatedPods): here such a pod comes before these (problem/levels.py).

A wish that no plan can meet as the round begins counts for nothing: its pod is like all others of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, NodeTable, Snapshot
from flowcore.model.pods import PodClass
from flowcore.model.resources import PODS


def without_idle_wishes(classes: Mapping[PodClass, PodClass], snapshot: Snapshot) -> Mapping[PodClass, PodClass]:
    """Replacements of classes, also without wishes for nodes that do not exist or have no room.

    Args:
        classes: what is replaced already.
    """
    asking = {pod.pod_class for pod in snapshot.pending if pod.pod_class.wish}
    if not asking:
        return classes
    replaced, pods = dict(classes), snapshot.resources.index(PODS)
    for pod_class in asking:
        row = snapshot.table.index.get(pod_class.wish)
        if row is not None:
            requests, free = snapshot.vector(pod_class.requests), snapshot.free[row]
            if free[pods] > 0 and not (requests > np.maximum(free, 0)).any():
                continue
        replaced[pod_class] = msgspec.structs.replace(replaced.get(pod_class, pod_class), wish="")
    return replaced


def wish_nodes(pod_class: PodClass, table: NodeTable) -> Bools:
    """bool[N]: the node that a class wishes for, if there is one."""
    nodes = np.zeros(len(table.nodes), dtype=np.bool_)
    if pod_class.wish in table.index:
        nodes[table.index[pod_class.wish]] = True
    return nodes
