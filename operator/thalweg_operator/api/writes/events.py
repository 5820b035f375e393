"""Events about pods and policies, as ``kubectl describe`` shows them.

Events are best effort and must not slow bindings down. They are dropped and counted when the queue is full, and when
one object got too many (``EventLimits``). Warnings are written at once, because their senders limit their rate. Normal
Events come in bursts, one per binding. They are written at a steady rate, and at a lower rate while more arrive,
because bindings use the same API server.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import structlog

from flowcore.model.pods import Pod
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import ApiClient, api_path
from thalweg_operator.api.writes.fair_queue import FairQueue
from thalweg_operator.api.writes.write_queue import Finished, Outcome, WriteQueue, retry_after_error
from thalweg_operator.constants import COMPONENT
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics

_log = structlog.get_logger()
#: Longest message that the API server accepts.
_LONGEST = 1024
#: Events in the queue: of all namespaces, and of one namespace.
MAX_PENDING, MAX_PENDING_PER_NAMESPACE = 4000, 1000
#: Requests in flight at once.
_CONCURRENCY = 4
_BACKOFF = Backoff(first=1.0, longest=30.0)
#: Attempts per Event.
_MAX_ATTEMPTS = 6
#: Seconds between two batches of normal Events, and Events per batch: usually, and while more arrive than that.
_BATCH_INTERVAL, _BATCH, _SMALL_BATCH = 0.1, 10, 1


def timestamp(seconds: float | None = None) -> str:
    """A time (default: now) in the format of Kubernetes objects.

    Args:
        seconds: since the epoch.
    """
    when = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


#: Events about one object at once, and seconds until it may get one more.
BURST, REFILL_SECONDS = 25, 300.0
#: Objects that are remembered.
MAX_OBJECTS = 4096


class EventLimits:
    """How many Events one object may get: some at once, then one every few minutes.

    A token bucket for each object. The objects that got no Event for the longest time are forgotten first.
    Source: the spam filter of client-go (tools/record/events_cache.go, EventSourceObjectSpamFilter), with its numbers.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds of a monotonic clock."""
        self._clock = clock
        #: Tokens by UID, and when they were counted.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, uid: str) -> bool:
        """Whether the object may get an Event now. If so, it is counted."""
        now = self._clock()
        tokens, counted = self._buckets.get(uid, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - counted) / REFILL_SECONDS)
        allowed = tokens >= 1.0
        self._buckets[uid] = (tokens - allowed, now)
        self._buckets.move_to_end(uid)
        if len(self._buckets) > MAX_OBJECTS:
            self._buckets.popitem(last=False)
        return allowed


class Subject(NamedTuple):
    """The object that an Event is about; ``namespace`` is "" for an object without one."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def events_namespace(self) -> str:
        """Namespace of its Events; that of objects without a namespace is "default", as in client-go."""
        return self.namespace or "default"


class _Event(NamedTuple):
    subject: Subject
    reason: str
    message: str
    action: str
    warning: bool
    when: float


class EventWriter:
    """Writes Events within the limits of the module."""

    def __init__(self, api_client: ApiClient, metrics: Metrics, *, backoff: Backoff = _BACKOFF) -> None:
        """``backoff``: pauses between the attempts at one Event."""
        self._api_client, self._metrics = api_client, metrics
        self._queue = WriteQueue("events", _CONCURRENCY, self._try, metrics, backoff)
        #: Normal Events that wait for their batch. Items are finished as soon as they are taken: the queue only serves
        #: to alternate between namespaces.
        self._pending: FairQueue[_Event] = FairQueue(1)
        self._queue_lengths: Counter[str] = Counter()
        self._limits = EventLimits()
        self._arrived = 0

    def write(self, pod: Pod, reason: str, message: str, *, action: str, warning: bool = False) -> bool:
        """Enqueues an Event about a pod: see ``write_about``."""
        subject = Subject("v1", "Pod", pod.namespace, pod.name, pod.uid)
        return self.write_about(subject, reason, message, action=action, warning=warning)

    def write_about(self, subject: Subject, reason: str, message: str, *, action: str, warning: bool = False) -> bool:
        """Enqueues an Event; returns False if it was dropped.

        Args:
            reason: one word in CamelCase that says why.
            message: a sentence; cut to the length that the API server accepts.
            action: one word in CamelCase that says what was done.
        """
        namespace = subject.events_namespace
        self._arrived += not warning
        if (
            len(self._queue) + self._pending.length >= MAX_PENDING
            or self._queue_lengths[namespace] >= MAX_PENDING_PER_NAMESPACE
        ):
            self._metrics.events_written.labels(reason, "dropped").inc()
            return False
        if not self._limits.allows(subject.uid):
            self._metrics.events_written.labels(reason, "limited").inc()
            return False
        self._queue_lengths[namespace] += 1
        event = _Event(subject, reason, message[:_LONGEST], action, warning, time.time())
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
            await asyncio.sleep(_BATCH_INTERVAL)
            self.send_batch()

    def send_batch(self) -> None:
        """Enqueues the next batch of normal Events; called at a steady rate."""
        size = _BATCH if self._arrived <= _BATCH else _SMALL_BATCH
        self._arrived = 0
        for _ in range(size):
            entry = self._pending.take(0.0)
            if entry is None:
                return
            self._pending.finish(entry, 0.0, succeeded=None)
            self._queue.put(entry.item, entry.item.subject.events_namespace)

    async def _try(self, event: _Event, tries: int) -> Outcome:
        outcome: Outcome = Finished.UNSENT
        try:
            outcome = await self._send(event, tries)
        finally:
            if isinstance(outcome, Finished):
                self._forget(event.subject.events_namespace)
        return outcome

    def _forget(self, namespace: str) -> None:
        self._queue_lengths[namespace] -= 1
        if not self._queue_lengths[namespace]:
            del self._queue_lengths[namespace]

    async def _send(self, event: _Event, tries: int) -> Outcome:
        path = api_path("/api/v1/namespaces", event.subject.events_namespace, "events")
        try:
            await self._api_client.request("POST", path, body=msgspec.json.encode(_manifest(event)))
        except (ConnectionLost, Refused) as error:
            outcome = retry_after_error(error)
            if outcome.counts_as_failure and tries + 1 < _MAX_ATTEMPTS:
                return outcome
            self._metrics.events_written.labels(event.reason, "failed").inc()
            _log.warning("event not written", object=str(event.subject), problem=str(error))
            return Finished.FAILED if outcome.counts_as_failure else Finished.ANSWERED
        self._metrics.events_written.labels(event.reason, "written").inc()
        return Finished.ANSWERED


def _manifest(event: _Event) -> dict[str, object]:
    subject, when = event.subject, timestamp(event.when)
    namespace = {"namespace": subject.namespace} if subject.namespace else {}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{subject.name}.", "namespace": subject.events_namespace},
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "action": event.action,
        "message": event.message,
        "involvedObject": {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "name": subject.name,
            "uid": subject.uid,
            **namespace,
        },
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }
