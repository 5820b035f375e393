"""Tells waiting pods why: a PodScheduled=False condition (cluster autoscalers read it) and an Event.

A pod that kube-scheduler holds has its condition from there already, and every change of the pod would make
kube-scheduler try it again: it gets the Event alone. One behind our gate keeps the condition's reason, SchedulingGated.

Written only when the reason changes, and no more than so many a second: ten thousand waiting pods whose message counts
nodes would otherwise flood the API server with every node that comes or goes. Pods never told before go first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from flowcore.model.pods import Pod
from thalweg_operator.backoff import Backoff
from thalweg_operator.connection import STRATEGIC_MERGE_PATCH, Connection
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.events import timestamp, warn
from thalweg_operator.json_reading import NotReadable, Reader
from thalweg_operator.metrics import Metrics
from thalweg_operator.state import ClusterState

_log = structlog.get_logger()
#: A pod left by one round is often placed by the next: wait this long before telling it.
_GRACE = 0.5
#: A reason that keeps changing is rewritten this often at most.
_AGAIN = 10.0
#: Between writes while the API server takes none.
_BACKOFF = Backoff(first=0.5, longest=10.0)


#: Strategic merge: what a pod with a node has in place of the condition that this module writes.
_SCHEDULED: dict[str, str | None] = {"type": "PodScheduled", "status": "True", "reason": None, "message": None}


class _BoundSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _Bound(msgspec.Struct):
    spec: _BoundSpec


_bound = Reader(_Bound)


@dataclass(frozen=True, slots=True)
class _Wanted:
    uid: str
    reason: str
    due: float
    steered: bool


@dataclass(frozen=True, slots=True)
class _Written:
    uid: str
    reason: str
    when: float


class WaitingPods:
    """Reasons to write, the latest per pod."""

    def __init__(
        self,
        connection: Connection,
        state: ClusterState,
        metrics: Metrics,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection, self._state, self._metrics = connection, state, metrics
        self._pause, self._clock = 1.0 / per_second, clock
        self._failures = 0
        self._wanted: dict[str, _Wanted] = {}
        self._written: dict[str, _Written] = {}

    def tell(self, pod: Pod, reason: str, *, steered: bool = False) -> None:
        """The pod is to learn this reason, unless it is placed or gone by then.

        Args:
            steered: kube-scheduler is to bind it.
        """
        wanted = self._wanted.get(pod.key)
        written = self._written.get(pod.key)
        if written is not None and written.uid != pod.uid:
            written = None
        if wanted is not None and wanted.uid == pod.uid:
            self._wanted[pod.key] = _Wanted(pod.uid, reason, wanted.due, steered)
        elif reason not in (pod.told, written.reason if written is not None and steered else ""):
            due = self._clock() + _GRACE
            if written is not None:
                due = max(due, written.when + _AGAIN)
            self._wanted[pod.key] = _Wanted(pod.uid, reason, due, steered)

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            due = self._due()
            # Also where none of them waits any more: the loop must turn.
            await asyncio.sleep(0 if due else 0.1)
            # Not all of a long list: pods that start to wait meanwhile go first.
            for key in due[: max(1, int(1 / self._pause))]:
                wanted = self._wanted.pop(key)
                pod = self._state.waiting.get(key)
                if pod is None or pod.uid != wanted.uid or pod.told == wanted.reason:
                    continue
                if key in self._state.reservations and not self._state.awaits(key):
                    continue
                await self._write(pod, wanted.reason, steered=wanted.steered)
                await asyncio.sleep(_BACKOFF.pause(self._failures) if self._failures else self._pause)

    def _due(self) -> list[str]:
        now = self._clock()
        if len(self._written) > 2 * len(self._state.waiting) + 1000:
            self._written = {key: at for key, at in self._written.items() if key in self._state.waiting}
        if len(self._wanted) > 2 * len(self._state.waiting) + 1000:
            self._wanted = {key: wanted for key, wanted in self._wanted.items() if key in self._state.waiting}
        due = [(key in self._written, each.due, key) for key, each in self._wanted.items() if each.due <= now]
        return [key for _, _, key in sorted(due)]

    async def _write(self, pod: Pod, reason: str, *, steered: bool) -> None:
        self._written[pod.key] = _Written(pod.uid, reason, self._clock())
        now = timestamp()
        condition: dict[str, str | None] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated" if pod.gated else "Unschedulable",
            "message": reason,
        }
        if not pod.told:
            condition["lastTransitionTime"] = now
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        pods = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        try:
            if pod.gated or not steered:
                answer = await self._patch(pods, patch)
                if _bound.read(answer).spec.node_name:
                    # It was bound while this was on its way: what the binding wrote there must not stay overwritten.
                    condition = _SCHEDULED | {"lastTransitionTime": now}
                    await self._patch(pods, {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})
                    return
            await warn(self._connection, pod, "FailedScheduling", reason)
        except Refused as error:
            if error.status not in (404, 409):
                _log.warning("reason not written", pod=pod.key, status=error.status, problem=error.reason)
            if error.status == 429 or error.status >= 500:
                self._again(pod, reason, steered=steered)
        except (ConnectionLost, NotReadable) as error:
            _log.warning("reason not written", pod=pod.key, problem=str(error))
            self._again(pod, reason, steered=steered)
        else:
            self._failures = 0
            self._metrics.told.inc()

    async def _patch(self, path: str, patch: object) -> bytes:
        body = msgspec.json.encode(patch)
        return await self._connection.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH)

    def _again(self, pod: Pod, reason: str, *, steered: bool) -> None:
        self._failures += 1
        # While nothing changes no round would find the reason again for long.
        self._wanted.setdefault(pod.key, _Wanted(pod.uid, reason, self._clock() + _AGAIN, steered))
