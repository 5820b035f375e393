"""Which room does not come free: worked out only while a gang has waited so long that room may be kept for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from flowcore.model.constrained import gangs_of
from flowcore.model.lasting import Lasting, LastingSums
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from thalweg_operator.dispatch import in_bursts
from thalweg_operator.policies import PolicyStore
from thalweg_operator.state import ClusterState

#: Seconds that an answer serves: it looks at all pods of the cluster.
_LASTS = 30.0


class LastingRoom:
    """See the module."""

    def __init__(self, state: ClusterState, policies: PolicyStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._state, self._policies, self._clock = state, policies, clock
        self._above: int | None = None
        self._found = 0.0

    async def news(self, asked: Iterable[tuple[Pod, Policy]], now: float, *, fresh: bool) -> tuple[Lasting, ...] | None:
        """What the worker is to be told of the room that does not come free; None: nothing new, or nobody asks.

        Args:
            asked: the pods that a round is to place.
            now: seconds since the epoch.
            fresh: the worker knows nothing.
        """
        if fresh:
            self._above = None
        above = min((pod.pod_class.priority for pod, policy in asked if _overdue(pod, policy, now)), default=None)
        if above is None:
            return None
        if self._above is not None and self._above <= above and self._clock() - self._found < _LASTS:
            return None
        self._above, self._found = above, self._clock()
        sums = LastingSums(above)
        async for pod in in_bursts(list(self._state.pods.values())):
            if pod.node_name:
                sums.add(pod, self._policies.of(pod, self._state.namespaces))
        return sums.found()


def _overdue(pod: Pod, policy: Policy, now: float) -> bool:
    """Whether it may be of a gang that room is kept for."""
    after = policy.gangs.hold_room_after
    if pod.gang is None and not policy.constraints:
        return False
    return 0 < after < now - pod.created and (pod.gang is not None or any(True for _ in gangs_of(policy)))
