"""Usage that does not come free. It is computed only while a gang has waited long enough for a backfill reservation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flowcore.model.constraint_limits import all_or_none_constraints
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.planning.round_input import GovernedPod

#: Seconds that a result stays valid: the computation visits all pods of the cluster.
_MAX_AGE_SECONDS = 30.0


class PersistentUsageTracker:
    """Says when the worker needs the persistent usage anew."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._min_priority: int | None = None
        self._computed_at = 0.0

    def due(self, pods: Iterable[GovernedPod], now: float, *, fresh: bool) -> int | None:
        """Whether to compute it now: of pods above which priority; None: the worker has the newest, or no pod needs it.

        Args:
            pods: pods that the round plans.
            now: seconds since the epoch.
            fresh: whether the worker was restarted and has no state.
        """
        if fresh:
            self._min_priority = None
        overdue = (pod for pod, policy, _ in pods if _overdue(pod, policy, now))
        min_priority = min((pod.pod_class.priority for pod in overdue), default=None)
        if min_priority is None:
            return None
        if (
            self._min_priority is not None
            and self._min_priority <= min_priority
            and self._clock() - self._computed_at < _MAX_AGE_SECONDS
        ):
            return None
        self._min_priority, self._computed_at = min_priority, self._clock()
        return min_priority


def _overdue(pod: Pod, policy: Policy, now: float) -> bool:
    """Whether the pod may belong to a gang that has waited long enough for a backfill reservation."""
    after = policy.gangs.hold_room_after
    if pod.gang is None and not policy.constraints:
        return False
    return 0 < after < now - pod.created and (
        pod.gang is not None or any(True for _ in all_or_none_constraints(policy))
    )
