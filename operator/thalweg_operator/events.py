"""Events about pods, as ``kubectl describe pod`` shows them.

Events are a help and no record: none may slow a binding down. Beyond a bound they are dropped, and counted. Warnings
are written at once, since those who send them limit their rate. Normal Events come in bursts, one for each binding:
they are written at a steady rate, and at a lower one while more come than that, because their requests and the
bindings share an API server.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import structlog

from flowcore.model.pods import Pod
from thalweg_operator.backoff import Backoff
from thalweg_operator.connection import Connection, api_path
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.fair_queue import FairQueue
from thalweg_operator.metrics import Metrics
from thalweg_operator.names import COMPONENT
from thalweg_operator.write_queue import Done, Outcome, WriteQueue, again

_log = structlog.get_logger()
#: The API server takes no longer message.
_LONGEST = 1024
#: Events in line: of all namespaces, and of one.
MOST, MOST_OF_ONE = 4000, 1000
#: Requests in flight at once.
_CONCURRENCY = 4
_BACKOFF = Backoff(first=1.0, longest=30.0)
#: An Event is tried so often.
_TRIES = 6
#: Seconds between two portions of normal Events, and their sizes: as a rule, and while more come than that.
_TICK, _PORTION, _SMALL_PORTION = 0.1, 10, 1


def timestamp(seconds: float | None = None) -> str:
    """A time, now unless another is given, as Kubernetes' objects write it."""
    when = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


class _Event(NamedTuple):
    pod: Pod
    reason: str
    message: str
    action: str
    warning: bool
    when: float


class EventWriter:
    """See the module."""

    def __init__(self, connection: Connection, metrics: Metrics, *, backoff: Backoff = _BACKOFF) -> None:
        """``backoff``: pauses between tries of one Event."""
        self._connection, self._metrics = connection, metrics
        self._queue = WriteQueue("events", _CONCURRENCY, self._try, metrics, backoff)
        #: Normal Events that wait for their portion; taken and given back at once, for its turns between namespaces.
        self._pending: FairQueue[_Event] = FairQueue(1)
        self._lengths: Counter[str] = Counter()
        self._came = 0

    def write(self, pod: Pod, reason: str, message: str, *, action: str, warning: bool = False) -> bool:
        """Puts an Event in line; whether there was room for it.

        Args:
            reason: one word in CamelCase: why.
            message: a sentence; its end is cut where it is too long for the API server.
            action: one word in CamelCase: what was done.
        """
        namespace = pod.namespace
        self._came += not warning
        if len(self._queue) + self._pending.length >= MOST or self._lengths[namespace] >= MOST_OF_ONE:
            self._metrics.events_written.labels(reason, "dropped").inc()
            return False
        self._lengths[namespace] += 1
        event = _Event(pod, reason, message[:_LONGEST], action, warning, time.time())
        if warning:
            self._queue.put(event, namespace)
        else:
            self._pending.put(event, namespace)
        return True

    async def run(self) -> None:
        """Writes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run())
            tasks.create_task(self._pace())

    async def _pace(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self.portion()

    def portion(self) -> None:
        """Puts the next normal Events in line: called at a steady rate."""
        size = _PORTION if self._came <= _PORTION else _SMALL_PORTION
        self._came = 0
        for _ in range(size):
            entry = self._pending.take(0.0)
            if entry is None:
                return
            self._pending.finish(entry, 0.0, succeeded=None)
            self._queue.put(entry.item, entry.item.pod.namespace)

    async def _try(self, event: _Event, tries: int) -> Outcome:
        outcome: Outcome = Done.UNSENT
        try:
            outcome = await self._send(event, tries)
        finally:
            if isinstance(outcome, Done):
                self._forget(event.pod.namespace)
        return outcome

    def _forget(self, namespace: str) -> None:
        self._lengths[namespace] -= 1
        if not self._lengths[namespace]:
            del self._lengths[namespace]

    async def _send(self, event: _Event, tries: int) -> Outcome:
        path = api_path("/api/v1/namespaces", event.pod.namespace, "events")
        try:
            await self._connection.request("POST", path, body=msgspec.json.encode(_manifest(event)))
        except (ConnectionLost, Refused) as error:
            outcome = again(error)
            if outcome.failed and tries + 1 < _TRIES:
                return outcome
            self._metrics.events_written.labels(event.reason, "failed").inc()
            _log.warning("event not written", pod=event.pod.key, problem=str(error))
            return Done.FAILED if outcome.failed else Done.ANSWERED
        self._metrics.events_written.labels(event.reason, "written").inc()
        return Done.ANSWERED


def _manifest(event: _Event) -> dict[str, object]:
    pod, when = event.pod, timestamp(event.when)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{pod.name}.", "namespace": pod.namespace},
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "action": event.action,
        "message": event.message,
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
        },
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }
