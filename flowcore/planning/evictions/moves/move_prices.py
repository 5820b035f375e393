"""What a move costs: the work that is lost and the start of the replacement, each times what the pod holds.

A second counts as much as a second of waiting does where pods are priced by pod::

    price = (lost seconds + startup) * perWaitingSecond * size

``size`` is in tenths of a mean node and at least 1, as in costs/unscheduled.py. A pod that runs to an end loses the
time since its start or its last checkpoint, and so does another one that says when it saved its work; a replica of a
service loses none. A checkpoint is a tenant's word: no price is above what the clock says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs.unscheduled import work_price
from flowcore.model.policies import BUILT_IN, LostWork, Policy
from flowcore.model.running_pods import RunningPod
from flowcore.model.usage import MAX_FUTURE
from flowcore.planning.problem.demands.demands import node_totals

#: No move costs more: prices stay far from overflow, and no gain is as large.
_LIMIT = 10**13


def move_prices(
    pods: Sequence[RunningPod], usage: Int64s, policies: Mapping[str, Policy], snapshot: Snapshot
) -> Int64s:
    """int64[pods], none negative: what a move of each running pod costs; BUILT_IN governs what no other policy does.

    Args:
        usage: int64[pods, R], what each holds.
        policies: by name.
        snapshot: gives the mean node, and the time.
    """
    everything, offering = node_totals(snapshot)
    tenths = 10 * (usage * (offering / everything)).max(axis=1, initial=0.0)
    prices = np.zeros(len(pods))
    by_policy: dict[str, list[int]] = {}
    for row, pod in enumerate(pods):
        by_policy.setdefault(pod.policy, []).append(row)
    for name, rows in by_policy.items():
        policy = policies.get(name, BUILT_IN)
        sizes, kind = np.unique(tenths[rows], return_inverse=True)
        rates = np.array([work_price(policy.unscheduled, size) for size in sizes.tolist()])
        lost = np.zeros(len(rows))
        if policy.rescheduling.lost_work is LostWork.COUNT:
            lost[:] = [_lost_seconds(pods[row], snapshot.now) for row in rows]
        prices[rows] = (lost + policy.rescheduling.startup) * rates[kind]
    return np.minimum(prices, float(_LIMIT)).astype(np.int64)


def leaving_prices(
    pods: Sequence[RunningPod], usage: Int64s, policies: Mapping[str, Policy], snapshot: Snapshot
) -> Int64s:
    """``move_prices`` as a plan's cost has them: a pod that no policy governs costs nothing."""
    governed = np.array([pod.policy in policies for pod in pods], dtype=np.bool_)
    return np.where(governed, move_prices(pods, usage, policies, snapshot), 0)


def _lost_seconds(pod: RunningPod, now: float) -> float:
    return seconds_run(pod, now) if pod.finite or saved_at(pod, now) > 0 else 0.0


def seconds_run(pod: RunningPod, now: float) -> float:
    """Seconds since a pod's start or its last checkpoint; ``now``: since the epoch. One that has not started: 0."""
    return max(0.0, now - max(pod.started, saved_at(pod, now))) if pod.started > 0 else 0.0


def saved_at(pod: RunningPod, now: float) -> float:
    """When a pod last saved its work, as it says; 0: never, or in the future, but clocks differ a little."""
    return pod.checkpointed if pod.checkpointed <= now + MAX_FUTURE else 0.0
