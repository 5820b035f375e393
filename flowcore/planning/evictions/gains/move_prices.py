"""What a move costs: the work that is lost and the start of the replacement, each times what the pod holds.

A second counts as much as a second of waiting does where pods are priced by pod::

    price = (seconds since its start or its last checkpoint + startup) * perWaitingSecond * size

``size`` is in tenths of a mean node and at least 1, as in costs/unscheduled.py. A checkpoint is a tenant's word: it
lowers the price of its own pod, and never raises it above what the clock says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs.model import Float64s
from flowcore.costs.unscheduled import work_price
from flowcore.model.policies import BUILT_IN, LostWork, Policy
from flowcore.model.running_pods import RunningPod
from flowcore.model.usage import MAX_FUTURE
from flowcore.planning.problem.demands.demands import node_totals
from flowcore.planning.problem.placements.residents import Residents

#: No move costs more: prices stay far from overflow, and no gain is as large.
_LIMIT = 10**13


def prices_of_leaving(
    residents: Residents, numbers: Int64s, policies: Mapping[str, Policy], snapshot: Snapshot
) -> Int64s:
    """int64[len(numbers)]: what it costs that residents leave, by number. What no policy governs has the built-in one.

    Args:
        snapshot: gives the mean node, and the time.
    """
    everything, offering = node_totals(snapshot)
    tenths = 10 * (residents.usage[numbers] * (offering / everything)).max(axis=1)
    pods = [residents.pods[number] for number in numbers.tolist()]
    governing = {pod.policy: policies.get(pod.policy, BUILT_IN) for pod in pods}
    return move_prices(pods, tenths, governing, snapshot.now)


def move_prices(pods: Sequence[RunningPod], tenths: Float64s, policies: Mapping[str, Policy], now: float) -> Int64s:
    """int64[pods], none negative: what a move of each running pod costs.

    Args:
        tenths: float64[pods], tenths of a mean node that each holds.
        policies: by name; that of each pod must be there.
        now: seconds since the epoch.
    """
    policy_of = [policies[pod.policy] for pod in pods]
    started = np.array([pod.started for pod in pods])
    saved = np.array([pod.checkpointed for pod in pods])
    counts = np.array([policy.rescheduling.lost_work is LostWork.COUNT for policy in policy_of], dtype=np.bool_)
    startup = np.array([float(policy.rescheduling.startup) for policy in policy_of])
    rates = np.array([
        work_price(policy.unscheduled, size) for policy, size in zip(policy_of, tenths.tolist(), strict=True)
    ])  # fmt: skip
    # A pod that its kubelet has not started has done nothing. A future checkpoint is none, but clocks differ a little.
    since = np.where(saved <= now + MAX_FUTURE, np.maximum(started, saved), started)
    lost = np.where(counts & (started > 0), np.maximum(now - since, 0.0), 0.0)
    prices: Int64s = np.minimum((lost + startup) * rates, float(_LIMIT)).astype(np.int64)
    return prices
