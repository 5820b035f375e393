"""What a round costs for the pods of each namespace, in seconds of the worker's CPU time.

CPU time, since a machine that is busy with other things must not count against anybody's pods.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from flowcore.cluster.arrays.snapshot import PendingPod


class NamespaceMeter:
    """A ``Charge`` of one round (flowcore/planning/problem/demands/charging.py).

    Work between two calls was for the pods of the second.

    Equal pods of several namespaces are one group: they share what it costs by their number.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        """Begins to measure. ``clock``: seconds."""
        self._clock, self._last = clock, clock()
        self._seconds: dict[str, float] = {}
        self._of_all = 0.0
        #: Parts of namespaces in pods that were charged, by identity. The pods are kept, so that it stays theirs.
        self._parts: dict[int, tuple[Sequence[PendingPod], Mapping[str, float]]] = {}

    def __call__(self, pods: Sequence[PendingPod]) -> None:
        """Charges the pods for the seconds since the last call."""
        now = self._clock()
        passed, self._last = now - self._last, now
        if pods:
            self._add(pods, passed)
        else:
            self._of_all += passed

    def improved(self, budget: float) -> None:
        """Leaves out the seconds since the last call: they improved a plan, which takes this budget whatever waits.

        They are spent in any round where a pod has no node, and fewer pods would not save them.
        """
        now = self._clock()
        passed, self._last = now - self._last, now
        self._of_all += max(0.0, passed - budget)

    def seconds(self, groups: Sequence[Sequence[PendingPod]]) -> dict[str, float]:
        """Seconds up to now by namespace; what was for all pods is shared by the number of groups.

        Args:
            groups: the pods of the round, as they were planned together.
        """
        self(())
        shared, self._of_all = self._of_all, 0.0
        for pods in groups:
            self._add(pods, shared / len(groups))
        return dict(self._seconds)

    def _add(self, pods: Sequence[PendingPod], seconds: float) -> None:
        for namespace, share in self._parts_of(pods).items():
            self._seconds[namespace] = self._seconds.get(namespace, 0.0) + seconds * share

    def _parts_of(self, pods: Sequence[PendingPod]) -> Mapping[str, float]:
        known = self._parts.get(id(pods))
        if known is None:
            counts = Counter(pod.key.partition("/")[0] for pod in pods)
            known = self._parts[id(pods)] = pods, {name: count / len(pods) for name, count in counts.items()}
        return known[1]
