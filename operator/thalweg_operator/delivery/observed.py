"""Tells pods of ``delivery: Observe`` what would become of them, as an Event.

Another scheduler places them and owns their PodScheduled condition, so an Event is all that is written. There is one
for each plan that differs from the last one told, and no more than one a minute for each pod.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flowcore.model.pods import Pod
from thalweg_operator.api.writes.events import EventWriter
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest

#: Seconds between two Events about one pod.
EVENT_INTERVAL = 60.0
#: Pods no longer planned that may be remembered.
_MAX_STALE = 1000


@dataclass(frozen=True, slots=True)
class _WrittenEvent:
    uid: str
    plan: str
    when: float


class ObserveEvents:
    """Writes an Event to a pod when its plan differs from the last Event."""

    def __init__(self, events: EventWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._events, self._clock = events, clock
        #: The last Event about each pod, by its key.
        self._written: dict[str, _WrittenEvent] = {}

    def round_planned(self, request: RoundRequest, pods: Sequence[Pod], reply: RoundReply) -> None:
        """Tells the pods of a round, those of ``request.waiting``."""
        observes = [not policy.delivery.acts for policy in request.policies]
        if not any(observes):
            self._written.clear()
            return
        if len(self._written) > len(pods) + _MAX_STALE:
            known = {pod.key for pod in pods}
            self._written = {key: said for key, said in self._written.items() if key in known}
        for position, node in ((placement.pod, placement.node) for placement in reply.placements):
            if observes[request.pending[position].policy]:
                self._write(pods[position], f"Thalweg would place this pod on {node}")
        for position, reason in reply.unplaced:
            if observes[request.pending[position].policy]:
                self._write(pods[position], f"Thalweg would leave this pod pending: {reply.reasons[reason]}")

    def _write(self, pod: Pod, plan: str) -> None:
        now, said = self._clock(), self._written.get(pod.key)
        if said is not None and said.uid == pod.uid and (said.plan == plan or now - said.when < EVENT_INTERVAL):
            return
        if self._events.write(pod, "Observed", plan, action="Planning"):
            self._written[pod.key] = _WrittenEvent(pod.uid, plan, now)
