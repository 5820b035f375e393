"""What the placement of a waiting pod adds to what its queue holds."""

from __future__ import annotations

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.resources import PODS, Amounts


def added_by(pod: PendingPod) -> Amounts:
    """What a pod adds to the usage of its queue; the resource ``pods`` counts it.

    Room that is held for the pod counts for the queue already. A pod that takes the place of another pod of its queue
    adds what it asks for beyond that one.
    """
    victim, asked = pod.victim, (*pod.pod_class.requests, (PODS, 1))
    if victim is None:
        return asked
    if victim.has_left:
        return ()
    if not victim.queue or victim.queue != pod.queue:
        return asked
    freed = dict((*victim.usage, (PODS, 1)))
    return tuple((name, amount - freed.get(name, 0)) for name, amount in asked if amount > freed.get(name, 0))
