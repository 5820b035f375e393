"""Tells pods of ``delivery: Observe`` what would become of them, as an Event.

Another scheduler places them and owns their PodScheduled condition, so an Event is all that is written. There is one
for each plan that differs from the last one told, and no more than one a minute for each pod.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery
from thalweg_operator.events import EventWriter
from thalweg_operator.wire import RoundReply, RoundRequest

#: Seconds between two Events about one pod.
AGAIN = 60.0
#: Pods no longer planned that may be remembered.
_SPARE = 1000


@dataclass(frozen=True, slots=True)
class _Said:
    uid: str
    plan: str
    when: float


class Observed:
    """See the module."""

    def __init__(self, events: EventWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._events, self._clock = events, clock
        #: The last Event about each pod, by its key.
        self._said: dict[str, _Said] = {}

    def planned(self, request: RoundRequest, pods: Sequence[Pod], reply: RoundReply) -> None:
        """Tells the pods of a round, those of ``request.waiting``."""
        observes = [policy.delivery is Delivery.OBSERVE for policy in request.policies]
        if not any(observes):
            self._said.clear()
            return
        if len(self._said) > len(pods) + _SPARE:
            known = {pod.key for pod in pods}
            self._said = {key: said for key, said in self._said.items() if key in known}
        for at, node, *_ in reply.placements:
            if observes[request.waiting[at].policy]:
                self._say(pods[at], f"Thalweg would place this pod on {node}")
        for at, reason in reply.left:
            if observes[request.waiting[at].policy]:
                self._say(pods[at], f"Thalweg would leave this pod pending: {reply.reasons[reason]}")

    def _say(self, pod: Pod, plan: str) -> None:
        now, said = self._clock(), self._said.get(pod.key)
        if said is not None and said.uid == pod.uid and (said.plan == plan or now - said.when < AGAIN):
            return
        if self._events.write(pod, "Observed", plan, action="Planning"):
            self._said[pod.key] = _Said(pod.uid, plan, now)
