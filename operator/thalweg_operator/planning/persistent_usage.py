"""Usage that does not come free. It is computed only while a gang has waited long enough for a backfill reservation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flowcore.cluster.cluster import Cluster
from flowcore.model.constraint_limits import all_or_none_constraints
from flowcore.model.persistent_usage import PersistentUsage, PersistentUsageSums
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from thalweg_operator.yielding import yielding

#: Seconds that a result stays valid: the computation visits all pods of the cluster.
_MAX_AGE_SECONDS = 30.0


class PersistentUsageTracker:
    """Computes the persistent usage for the worker when it is needed and outdated."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster, self._clock = cluster, clock
        self._min_priority: int | None = None
        self._computed_at = 0.0

    async def update(
        self, pods: Iterable[tuple[Pod, Policy]], now: float, *, fresh: bool
    ) -> tuple[PersistentUsage, ...] | None:
        """Persistent usage to send to the worker; None: the worker has the newest, or no pod needs it.

        Args:
            pods: pods that the round plans.
            now: seconds since the epoch.
            fresh: whether the worker was restarted and has no state.
        """
        if fresh:
            self._min_priority = None
        min_priority = min((pod.pod_class.priority for pod, policy in pods if _overdue(pod, policy, now)), default=None)
        if min_priority is None:
            return None
        if (
            self._min_priority is not None
            and self._min_priority <= min_priority
            and self._clock() - self._computed_at < _MAX_AGE_SECONDS
        ):
            return None
        self._min_priority, self._computed_at = min_priority, self._clock()
        sums = PersistentUsageSums(min_priority)
        async for pod in yielding(list(self._cluster.pods.values())):
            if pod.node_name:
                sums.add(pod, self._cluster.policies.of(pod, self._cluster.namespaces))
        return sums.totals()


def _overdue(pod: Pod, policy: Policy, now: float) -> bool:
    """Whether the pod may belong to a gang that has waited long enough for a backfill reservation."""
    after = policy.gangs.hold_room_after
    if pod.gang is None and not policy.constraints:
        return False
    return 0 < after < now - pod.created and (
        pod.gang is not None or any(True for _ in all_or_none_constraints(policy))
    )
