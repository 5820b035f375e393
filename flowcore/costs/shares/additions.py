"""What placements add to what queues hold: one pod, and a whole plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.queues import QueueState, QueueUsage
from flowcore.model.resources import PODS, Amounts
from flowcore.model.running_pods import RunningPod


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


def with_plan(state: QueueState, placed: Iterable[PendingPod], evicted: Iterable[RunningPod]) -> QueueState:
    """What the pods of queues hold with these pods placed and those gone."""
    sums = {name: Counter(dict(usage.used)) for name, usage in state.usage.items()}

    def count(queue: str, amounts: Amounts, sign: int) -> None:
        if queue:
            total = sums.setdefault(queue, Counter())
            for resource, amount in amounts:
                total[resource] += sign * amount

    for pod in placed:
        count(pod.queue, added_by(pod), 1)
    for victim in evicted:
        count(victim.queue, (*victim.usage, (PODS, 1)), -1)
    usage = {
        name: msgspec.structs.replace(state.usage.get(name, QueueUsage()), used=tuple(sorted(total.items())))
        for name, total in sorted(sums.items())
    }
    return replace(state, usage=usage)
