"""Whom a queue may evict to take back what it lent.

Pods of a higher priority are not evicted for a share: their replacements would preempt the new pods.

No pods are evicted in a circle. Let the part of a queue be what it has, divided by its fair share. A pod leaves only a
queue whose part is above 1, for a queue whose part is at most 1 with the new pod, and only if the first still has at
least as large a part as the second in the end. So of the two parts the smaller one rises: while nobody asks for more
or less, the parts of all queues in rising order become larger in the first place where they change, and such steps end.
And no pod leaves that has not run for the least time of its queue (docs/explanation/fair-shares.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from itertools import zip_longest

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, PendingPod, Snapshot
from flowcore.costs.shares.filling import EPSILON, Float64s
from flowcore.costs.shares.shares import Shares
from flowcore.model.queues import ReclaimMode
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import RunningPod

#: Sums of amounts are off by less than this part of them.
_FLOAT_ERROR = 1e-13
#: Pods from this priority on are never evicted for a share: system-node-critical and system-cluster-critical have it.
SYSTEM_PRIORITY = 2_000_000_000


class Reclaim:
    """The shares of a round while it decides who is evicted for whom.

    It starts from what pods hold that are not leaving. Placements of the round and decisions to reclaim change it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """A snapshot as the round began, with all waiting pods."""
        self._shares, self._now = Shares(snapshot), snapshot.now
        self._used = dict(self._shares.used)

    def fork(self) -> Reclaim:
        """The same shares, to try decisions that may be dropped."""
        forked = copy(self)
        forked._used = dict(self._used)  # noqa: SLF001 - of the same class
        return forked

    def place(self, pod: PendingPod) -> None:
        """A pod was placed where room was free."""
        self._change(pod.queue, self._shares.added_by(pod))

    def leave(self, pod: RunningPod) -> None:
        """A pod leaves, whatever for."""
        self._change(pod.queue, -self._shares.request(pod.usage))

    def request(self, usage: Amounts) -> Float64s:
        """float64[R]: what a running pod holds."""
        return self._shares.request(usage)

    def surplus(self, queue: str, comers: Iterable[PendingPod]) -> Float64s:
        """float64[R]: what a queue has beyond its fair share of each resource if all of these pods come, or less; or 0.

        A pod leaves a queue for a share only if the queue has more than its fair share of some resource then. So the
        pods that left it before hold less than this of that resource.
        """
        shares, name = self._shares, self._shares.path(queue)[-1]
        most = self._used[name].copy()
        for pod in comers:
            if pod.queue == queue:
                most += shares.added_by(pod)
        fair = shares.fair_share[name] * shares.capacity * (1.0 + EPSILON)
        surplus: Float64s = np.where(shares.capacity > 0, most - fair + _FLOAT_ERROR * (most + fair), 0.0)
        return np.maximum(surplus, 0.0)

    def may_reclaim(self, pod: PendingPod) -> bool:
        """Whether the pod's queue takes back what it lent, and has at most its fair share with the pod.

        Queues above it must too, but for what they take from each other: see ``allowed``.
        """
        queue = self._shares.tree.queues.get(pod.queue)
        if queue is None or queue.reclaim is ReclaimMode.NEVER:
            return False
        request, name = self._shares.request(pod.pod_class.requests), self._shares.path(pod.queue)[-1]
        return self._part(name, self._used[name] + request) <= 1.0 + EPSILON

    def is_reclaimable(self, pod: RunningPod) -> bool:
        """Whether a running pod may be evicted for a share at all: it has a queue, and has run for long enough."""
        queue = self._shares.tree.queues.get(pod.queue)
        old_enough = queue is not None and self._now - (pod.started or self._now) >= queue.min_runtime
        return old_enough and pod.priority < SYSTEM_PRIORITY

    def allowed(self, pod: PendingPod, victims: Sequence[RunningPod]) -> Bools:
        """bool[victims]: which of these pods may be evicted for the pod, all of them together.

        Those that come first are allowed first: the order is that in which they would leave. Each subset of those that
        are allowed may leave too. What else protects a pod, such as PodDisruptionBudgets, is not looked at.
        """
        allowed = np.zeros(len(victims), dtype=np.bool_)
        if not self.may_reclaim(pod):
            return allowed
        request = self._shares.request(pod.pod_class.requests)
        without: dict[str, Float64s] = {}
        for index, victim in enumerate(victims):
            allowed[index] = self._may_leave(pod, request, victim, without)
        return allowed

    def take(self, pod: PendingPod, victims: Sequence[RunningPod]) -> None:
        """The pod is placed, and these pods leave for it."""
        self.place(pod)
        for victim in victims:
            self.leave(victim)

    def _may_leave(self, pod: PendingPod, request: Float64s, victim: RunningPod, without: dict[str, Float64s]) -> bool:
        """Whether one more victim may leave; if so ``without`` has what its queues hold then."""
        shares = self._shares
        if victim.queue == pod.queue or victim.priority > pod.pod_class.priority or not self.is_reclaimable(victim):
            return False
        takes, gives = self._apart(pod.queue, victim.queue)
        used = max(self._part(name, self._used[name] + request) for name in takes)
        if used > 1.0 + EPSILON:
            return False
        before = {name: without.get(name, self._used[name]) for name in gives}
        usage = shares.request(victim.usage)
        after = {name: amounts - usage for name, amounts in before.items()}
        for name in gives:
            if self._part(name, before[name]) <= 1.0 + EPSILON or self._part(name, after[name]) < used - EPSILON:
                return False
        for name in shares.tree.path(victim.queue):
            guarantee = shares.guarantee(name)
            left = after.get(name, self._used[name])
            if ((left < guarantee) & (usage > 0)).any():
                return False
        without.update(after)
        return True

    def _part(self, name: str, amounts: Float64s) -> float:
        """What a queue has, in parts of its fair share, if it holds these amounts."""
        share, fair = self._shares.dominant(amounts), self._shares.fair_share[name]
        return share / fair if fair > 0.0 else np.inf if share > 0.0 else 0.0

    def _apart(self, queue: str, other_queue: str) -> tuple[list[str], list[str]]:
        """The queues from where two paths part down to each of two queues: their shares change."""
        paths = zip_longest(self._shares.path(queue), self._shares.path(other_queue))
        apart = [pair for pair in paths if pair[0] != pair[1]]
        return [first for first, _ in apart if first is not None], [second for _, second in apart if second is not None]

    def _change(self, name: str, by: Float64s) -> None:
        if name in self._shares.tree.queues:
            for above in self._shares.path(name):
                self._used[above] = self._used[above] + by
