"""Pods that take the place of running ones: the old one is evicted, and leaves only when the new one can start.

What is under way is in the state: the new pod has a reservation that awaits the old one. Here the old one is evicted,
and what is not wanted any more is given up; also where the node, or what runs there, is no longer what the new pod was
planned with: the old one stays, and the next round judges again. Once the old one has left, its room is kept and the
new pod comes into a round again, which judges it by every filter as things are then; only then is it bound, or
nominated. Nothing of this is written down: after a restart the old one is there, and all begins anew, or is being
deleted, and is waited for, or is gone, and the new one is placed like any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery
from flowcore.model.replacing import forbidden, named_by
from thalweg_operator.evictions import Evictor
from thalweg_operator.policies import PolicyStore
from thalweg_operator.state import By, ClusterState, Reservation

#: Seconds that the API server may refuse an eviction before the new pod's room is given back for a while.
PATIENCE = 60.0
#: Seconds after which an eviction that came to nothing is asked for again.
_AGAIN = 5.0
_TICK = 0.1
_DELIVERIES = {By.BINDER: Delivery.BINDER, By.STEERING: Delivery.EXTENDER}


class Tell(Protocol):
    """Tells a pod why it waits."""

    def __call__(self, pod: Pod, reason: str, *, steered: bool = False) -> None:
        """See WaitingPods."""


@dataclass(slots=True)
class _UnderWay:
    """A pod that waits for another to leave; ``problem``: why the API server does not let that one go."""

    uid: str
    old: Pod
    since: float
    asked: float
    problem: str = ""


class Replacing:
    """See the module."""

    def __init__(
        self,
        state: ClusterState,
        policies: PolicyStore,
        evictor: Evictor,
        tell: Tell,
        refused: Callable[[Pod, str, bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``refused`` is told of pods that are to rest before they are planned again: pod, why, and whether steered."""
        self._state, self._policies, self._evictor = state, policies, evictor
        self._tell, self._refused, self._clock = tell, refused, clock
        self._under_way: dict[str, _UnderWay] = {}

    async def run(self) -> None:
        """Looks after what is under way until cancelled."""
        while True:
            self.look_after()
            await asyncio.sleep(_TICK)

    def look_after(self) -> None:
        """Begins what is new, gives up what is not wanted or takes too long."""
        state = self._state
        for key in {*state.successors.values(), *state.kept}:
            reservation = state.reservations[key]
            if not self._wanted(reservation):
                state.release(key, reservation.pod.uid)
            elif reservation.awaits is not None:
                self._wait(reservation, reservation.awaits)
        waiting = set(state.successors.values())
        self._under_way = {key: each for key, each in self._under_way.items() if key in waiting}

    def _wait(self, reservation: Reservation, old: Pod) -> None:
        """For the old one to leave."""
        pod, now = reservation.pod, self._clock()
        known = self._under_way.get(pod.key)
        if known is None or (known.uid, known.old.uid) != (pod.uid, old.uid):
            known = self._under_way[pod.key] = _UnderWay(pod.uid, old, now, asked=now - _AGAIN)
            self._tell(pod, _waits(reservation, old), steered=_steered(reservation))
        if self._state.pods[old.key].deleting:
            return  # it will go, however long it takes
        if now - known.since > PATIENCE:
            why = known.problem or "the API server does not answer"
            self._state.release(pod.key, pod.uid)
            self._refused(pod, f"{_waits(reservation, old)}, but {_not_now(why)}", _steered(reservation))
        elif now - known.asked >= _AGAIN and not self._evictor.evicting(old.uid):
            known.asked = now
            self._evict(reservation, old)

    def _evict(self, reservation: Reservation, old: Pod) -> None:
        pod = reservation.pod

        def wanted() -> bool:
            # It may have been planned there once more, while this rested.
            now = self._state.reservations.get(pod.key)
            if now is None or now.awaits is None or (now.pod.uid, now.awaits.uid) != (pod.uid, old.uid):
                return False
            return self._wanted(now)

        def refused(why: str) -> None:
            now = self._under_way.get(pod.key)
            if now is not None and now.old.uid == old.uid and wanted():
                now.problem = why
                text = f"{_waits(reservation, old)}, but {_not_now(why)}"
                self._tell(pod, text, steered=_steered(reservation))

        self._evictor.evict(old, f"{pod.key} takes its place.", wanted, refused)

    def _wanted(self, reservation: Reservation) -> bool:
        """Whether the pod is still to have that place, and by the same way."""
        pod = self._state.waiting.get(reservation.pod.key)
        if pod is None or pod.uid != reservation.pod.uid or pod.blocked:
            return False
        old = reservation.awaits
        if old is not None and named_by(pod) != old.key:
            return False
        policy = self._policies.of(pod, self._state.namespaces)
        if policy is None or policy.delivery is not _DELIVERIES.get(reservation.by):
            return False
        if old is None or self._state.pods[old.key].deleting:
            return True  # one that leaves anyhow is waited for: what then becomes of its place a round says
        now = self._state.pods[old.key]
        if forbidden(pod, now, policy, self._policies.of(now, self._state.namespaces)):
            return False
        return self._startable(pod, reservation)

    def _startable(self, pod: Pod, reservation: Reservation) -> bool:
        """Whether the plan that it takes the old one's place still holds, as far as can be seen without a round."""
        planned, state = reservation.pod, self._state
        return (
            not pod.unjudged
            and (pod.pod_class, pod.kind) == (planned.pod_class, planned.kind)
            and not state.node_changed_since(reservation.node, reservation.generation)
            and state.holds(pod.key)
        )


def _waits(reservation: Reservation, old: Pod) -> str:
    return f"it is to take the place of {old.key} and waits for that one to leave node {reservation.node}"


def _not_now(why: str) -> str:
    return f"that one cannot be evicted now: {why}"


def _steered(reservation: Reservation) -> bool:
    return reservation.by is By.STEERING
