"""What leaving a pod pending costs, by its policy, priority and waiting time.

Without this arc an oversubscribed network is infeasible; with a constant cost nobody would age
(design: predecessors, hole 13).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flowcore.classes.groups import Group
from flowcore.model.policies import Policy
from flowcore.model.snapshot import Int64s

#: Keeps sums of prices over 100,000 pods within int64.
_LIMIT = 10**13
#: No pod ages faster than one that takes a hundred mean nodes would.
_LARGEST = 1000.0


def unscheduled_prices(
    groups: tuple[Group, ...], sizes: Sequence[float], policies: Mapping[str, Policy], now: float, floor: int
) -> tuple[Int64s, ...]:
    """Price of leaving each pod pending, int64[pods] a group, falling: the longest waiting first.

    A large pod ages as fast as the small ones that would fill its place do together. Else a stream of small pods, each
    new and each cheap to leave, would always be dearer than the one large pod that waits.

    Args:
        sizes: of a pod of each group, in tenths of a mean node; below 1 counts as 1.
        now: seconds since the epoch.
        floor: dearest way to place any pod of the round. All prices are lifted together until the lowest is above
            it: a pod that has room is never left out for being cheap to leave, and the order of pods stays.
    """
    prices = []
    for found, size in zip(groups, sizes, strict=True):
        price = policies[found.policy].unscheduled
        waiting = np.array([max(0.0, now - pod.created) if pod.created else 0.0 for pod in found.pods])
        aged = np.minimum(waiting, 10**8) * price.per_waiting_second * max(1.0, min(size, _LARGEST))
        fixed = price.base + price.per_priority * found.pod_class.priority
        prices.append(np.clip(aged + fixed, -_LIMIT, _LIMIT).astype(np.int64))
    lowest = min((int(p.min()) for p in prices if len(p)), default=0)
    lift = max(0, floor + 1 - lowest)
    return tuple(np.sort(p + lift)[::-1] for p in prices)
