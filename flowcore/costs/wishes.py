"""The node that others nominated a waiting pod for (status.nominatedNodeName): a wish, which a round follows if it can.

Autoscalers and queues write it for pods whose node is on its way; kube-scheduler tries that node first, and then all
others (schedule_one.go, evaluateNominatedNode). So each other node costs the pod most of what its author may make one
cost. kube-scheduler also keeps the room from pods of the same or a lower priority
(RunFilterPluginsWithNominatedPods): here such a pod comes before these (problem/levels.py).

A wish that no plan can meet as the round begins counts for nothing: its pod is like all others of its kind. So do
those for a node beyond what it has room for: nobody comes before others everywhere by a nomination for a full node.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable, Snapshot
from flowcore.model.pods import PodClass
from flowcore.model.resources import PODS


def idle_wishes(snapshot: Snapshot) -> frozenset[str]:
    """Keys of pods that wish for a node that does not exist or has no room for them.

    Nodes have their room once: pods of the highest priority count first, and of these the one that waited longest.
    """
    asking = [pod for pod in snapshot.pending if pod.pod_class.wish]
    idle, left, pods = set[str](), dict[str, Int64s](), snapshot.resources.index(PODS)
    for pod in sorted(asking, key=lambda each: (-each.pod_class.priority, each.waiting_since, each.key)):
        node = pod.pod_class.wish
        row = snapshot.table.index.get(node)
        if row is None:
            idle.add(pod.key)
            continue
        room = left.get(node)
        if room is None:
            room = np.maximum(snapshot.free[row], 0)
        requests = snapshot.vector(pod.pod_class.requests)
        if room[pods] > 0 and not (requests > room).any():
            left[node] = room - requests
            left[node][pods] = room[pods] - 1
        else:
            idle.add(pod.key)
    return frozenset(idle)


def wish_nodes(pod_class: PodClass, table: NodeTable) -> Bools:
    """bool[N]: the node that a class wishes for, if there is one."""
    nodes = np.zeros(len(table.nodes), dtype=np.bool_)
    if pod_class.wish in table.index:
        nodes[table.index[pod_class.wish]] = True
    return nodes
