"""How much each waiting pod is wanted by the shares of its queue: the order of waiting pods of one priority."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs.shares.filling import EPSILON
from flowcore.costs.shares.shares import Shares

_NO_URGENCIES: Mapping[str, float] = {}


def urgencies(snapshot: Snapshot) -> Mapping[str, float]:
    """How urgent each waiting pod of a queue is, 0..1.25, by key; empty where there are no queues.

    A pod is as urgent as its queue is short of its share once the pod and those before it in the queue are placed. Let
    r be what the queue has then, in parts of its fair share: within the guarantee 1.25 - r/4, within the fair share
    1 - r/4, and beyond it 1/4r. So half of the scale lies between what is due to a queue and what is not.
    """
    if snapshot.queues is None or not snapshot.queues.queues:
        return _NO_URGENCIES
    shares, urgencies = Shares(snapshot), dict[str, float]()
    for name, pods in shares.pending.items():
        amounts, fair, guarantee = shares.used[name].copy(), shares.fair_share[name], shares.guarantee(name)
        listed = ~np.isnan(guarantee)
        for pod in pods:
            request = shares.added_by(pod)
            amounts += request
            asked = listed & (request > 0)
            used = shares.dominant(amounts) / fair if fair > 0.0 else np.inf
            if used > 1.0 + EPSILON:
                urgencies[pod.key] = 0.25 / used
            else:
                guaranteed = asked.any() and bool((amounts[asked] <= guarantee[asked]).all())
                urgencies[pod.key] = (1.25 if guaranteed else 1.0) - 0.25 * used
    return urgencies
