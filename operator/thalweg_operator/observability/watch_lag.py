"""How long the watch of pods lags: from the API server's answer to a binding until the watch shows the pod bound.

Both times are read here, from one monotonic clock: the clocks of other machines do not matter.
"""

from __future__ import annotations

from collections.abc import Callable

from flowcore.cluster.cluster import Cluster
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import Bind
from thalweg_operator.reservations.events import Answer, Event, PodPut, PodRemoved, WriteAnswered


class WatchLag:
    """Observes the events of the shell, each before its step."""

    def __init__(self, cluster: Cluster, metrics: Metrics, clock: Callable[[], float]) -> None:
        """``clock``: seconds of a monotonic clock."""
        self._cluster, self._histogram, self._clock = cluster, metrics.watch_lag, clock
        #: When the binding of a pod was answered that the watch has not shown bound yet, by UID.
        self._answered: dict[str, float] = {}

    def observe(self, event: Event) -> None:
        """An event is about to be applied."""
        if isinstance(event, PodPut):
            if self._answered and event.pod.node_name:
                self._shown(event.pod.uid)
        elif isinstance(event, PodRemoved):
            pod = self._cluster.pods.get(event.key)
            if pod is not None:
                self._answered.pop(pod.uid, None)
        elif isinstance(event, WriteAnswered) and isinstance(event.write, Bind) and event.answer is Answer.DONE:
            pod = self._cluster.pods.get(event.write.pod.key)
            if pod is not None and pod.uid == event.write.pod.uid:
                self._answered[pod.uid] = self._clock()
                if pod.node_name:  # the watch was faster than the answer
                    self._shown(pod.uid)

    def _shown(self, uid: str) -> None:
        answered = self._answered.pop(uid, None)
        if answered is not None:
            self._histogram.observe(self._clock() - answered)
