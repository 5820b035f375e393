"""The queues once a plan is carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.costs.shares.additions import added_by
from flowcore.model.queues import QueueState, QueueUsage
from flowcore.model.resources import PODS, Amounts
from flowcore.model.running_pods import RunningPod


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
    leaving = {name: usage.leaving for name, usage in state.usage.items()}
    usage = {
        name: QueueUsage(tuple(sorted(total.items())), leaving.get(name, ())) for name, total in sorted(sums.items())
    }
    return replace(state, usage=usage)
