"""What leaving a pod pending costs, by its policy, priority and waiting time.

Without this arc an oversubscribed network is infeasible; with a constant cost nobody would age
(design: predecessors, hole 13).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flowcore.classes.groups import Group
from flowcore.model.policies import Policy
from flowcore.model.snapshot import Int64s

#: Keeps sums of prices over 100,000 pods within int64.
_LIMIT = 10**13


def unscheduled_prices(
    groups: tuple[Group, ...], policies: Mapping[str, Policy], now: float, floor: int
) -> tuple[Int64s, ...]:
    """Price of leaving each pod pending, int64[pods] a group, falling: the longest waiting first.

    Args:
        now: seconds since the epoch.
        floor: dearest way to place any pod of the round. All prices are lifted together until the lowest is above
            it: a pod that has room is never left out for being cheap to leave, and the order of pods stays.
    """
    prices = []
    for found in groups:
        price = policies[found.policy].unscheduled
        waiting = np.array([max(0.0, now - pod.created) if pod.created else 0.0 for pod in found.pods])
        aged = np.minimum(waiting, 10**8) * price.per_waiting_second
        fixed = price.base + price.per_priority * found.pod_class.priority
        prices.append(np.clip(aged + fixed, -_LIMIT, _LIMIT).astype(np.int64))
    lowest = min((int(p.min()) for p in prices if len(p)), default=0)
    lift = max(0, floor + 1 - lowest)
    return tuple(np.sort(p + lift)[::-1] for p in prices)
