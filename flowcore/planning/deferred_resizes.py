"""Running pods whose node defers a resize in place: each waits once more, with its node as the only place.

What such a pod asks for counts on its node from the beginning, as kube-scheduler counts it, so the node has less than
nothing free. The resize waits until that is over. So it asks for one unit of each resource that its node lacks for it,
and the pod counts for one unit less: there is room for this unit once the node is not overcommitted any more, and until
then nobody else gets anything there. Where a pod gets room that others leave, and the resize does not, the node may be
overcommitted by that unit in a plan: a thousandth of a core, a byte. The ledger refuses such a placement.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.resources import PODS, Amounts
from flowcore.model.running_pods import RunningPod


def with_resizes(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which each deferred resize asks for what says that its node lacks nothing for it.

    A resize is left out if its node lacks nothing beside those of less important pods, which the kubelet grants later.
    """
    resizes = [pod for pod in snapshot.pending if (PODS, 0) in pod.pod_class.requests]
    if not resizes:
        return snapshot
    used, counted = snapshot.used.copy(), snapshot.non_zero_requested.copy()
    lacking = np.maximum(used - snapshot.allocatable, 0)
    pending, units = {pod.key: pod for pod in snapshot.pending}, dict[str, Amounts]()
    for pod in sorted(resizes, key=lambda pod: (pod.pod_class.priority, -pod.created)):
        row, grows = snapshot.table.index.get(pod.pod_class.node_name), snapshot.vector(pod.pod_class.requests)
        asked = np.minimum(np.minimum(grows, 0 if row is None else lacking[row]), 1)
        if row is None or not asked.any():
            del pending[pod.key]
            continue
        lacking[row] = np.maximum(lacking[row] - grows, 0)
        units[pod.key] = tuple(each for each in zip(snapshot.resources, asked.tolist(), strict=True) if each[1])
        pod_class = msgspec.structs.replace(pod.pod_class, requests=(*units[pod.key], (PODS, 0)))
        used[row] -= asked
        counted[row] -= pod_class.non_zero_requests
        pending[pod.key] = msgspec.structs.replace(pod, pod_class=pod_class)
    running = snapshot.running
    if running is not None:
        pods = tuple(_without(pod, units[pod.key]) if pod.key in units else pod for pod in running.pods)
        running = replace(running, pods=pods)
    return replace(snapshot, used=used, non_zero_requested=counted, pending=tuple(pending.values()), running=running)


def _without(pod: RunningPod, units: Amounts) -> RunningPod:
    """A running pod that counts for so much less, and that nobody moves: others may leave for its resize.

    Where it leaves itself, no node is reserved for its next pod: it counts for less here than that one asks for.
    """
    less = dict(units)
    usage = tuple((name, amount - less.get(name, 0)) for name, amount in pod.usage)
    reason = pod.immovable_reason or "its node defers a resize of it"
    return msgspec.structs.replace(pod, usage=usage, owner="", immovable_reason=reason)
