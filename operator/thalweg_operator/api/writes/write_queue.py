"""The queue behind all writes to the API server: it sends many at once and retries failures.

A failed item rests on a timer and holds no slot meanwhile. ``FairQueue`` keeps one namespace from blocking the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

import structlog

from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.writes.fair_queue import Entry, FairQueue, slots_for
from thalweg_operator.errors import ConnectionLost, LeaseLost, Refused
from thalweg_operator.metrics import Metrics

_T = TypeVar("_T")
_log = structlog.get_logger()
#: Seconds after which a write without an answer is not carried out any more: our time-out, and the API server's (60 s).
CARRIED_OUT_WITHIN = 90.0


class Finished(Enum):
    """Outcome of the last attempt at an item."""

    #: The API server gave a final answer, possibly a refusal.
    ANSWERED = "answered"
    #: The API server failed, and the item is dropped.
    FAILED = "failed"
    #: No request was sent.
    UNSENT = "unsent"


#: Whether the API server answered; None: no request was sent.
_SUCCEEDED = {Finished.ANSWERED: True, Finished.FAILED: False, Finished.UNSENT: None}


@dataclass(frozen=True, slots=True)
class Retry:
    """Outcome of an attempt that is retried after a pause.

    Attributes:
        cause: label of the metric: lost, busy (429), error (5xx), conflict or refused.
        min_delay: shortest pause in seconds.
        counts_as_failure: whether the attempt counts as a failure of the namespace (``FairQueue``).
        uncertain: whether the attempt may have been carried out, or may still be.
    """

    cause: str
    min_delay: float = 0.0
    counts_as_failure: bool = True
    uncertain: bool = False


Outcome: TypeAlias = Finished | Retry


def retry_after_error(error: ConnectionLost | Refused) -> Retry:
    """The retry after an error."""
    if isinstance(error, ConnectionLost):
        return Retry("lost", uncertain=not isinstance(error, LeaseLost))
    if error.transient:
        busy = error.status == 429
        return Retry("busy" if busy else "error", error.retry_after, uncertain=not (busy or error.starting))
    return Retry("conflict" if error.status == 409 else "refused", error.retry_after, counts_as_failure=False)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class WriteQueue(Generic[_T]):
    """A queue for one kind of write."""

    def __init__(
        self,
        name: str,
        concurrency: int,
        send: Callable[[_T, int], Awaitable[Outcome]],
        metrics: Metrics,
        backoff: Backoff,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """An empty queue.

        Args:
            name: label of the queue in metrics.
            concurrency: requests in flight for one namespace; the limit for all namespaces is a third higher.
            send: makes one attempt and returns its outcome; called with the item and the number of earlier attempts.
            backoff: pauses between the attempts at one item.
            clock: seconds of a monotonic clock; None: the event loop's clock.
        """
        self._name, self._send, self._backoff, self._clock = name, send, backoff, clock or _loop_time
        self._slots = slots_for(concurrency)
        self._queue: FairQueue[_T] = FairQueue(self._slots)
        self._idle: deque[asyncio.Future[None]] = deque()
        self._timer: tuple[float, asyncio.TimerHandle] | None = None
        self._drained: list[asyncio.Future[None]] = []
        #: Items of which an attempt may still be carried out, and until when. A final answer to another attempt ends
        #: that earlier. A 429 does not: it does not tell what became of the attempt before.
        self._uncertain: dict[Entry[_T], float] = {}
        self._retries = {
            cause: metrics.write_retries.labels(name, cause)
            for cause in ("lost", "busy", "error", "conflict", "refused")
        }
        metrics.writes_queued.labels(name, "resting").set_function(lambda: self._queue.resting)
        metrics.writes_queued.labels(name, "in flight").set_function(lambda: self._queue.in_flight)
        metrics.writes_queued.labels(name, "due").set_function(
            lambda: self._queue.length - self._queue.resting - self._queue.in_flight
        )

    def __len__(self) -> int:
        """Number of items: due, in flight and resting."""
        return self._queue.length

    @property
    def unanswered(self) -> bool:
        """Whether a request was sent that may still be carried out."""
        now = self._clock()
        self._uncertain = {entry: until for entry, until in self._uncertain.items() if until > now}
        return bool(self._queue.in_flight or self._uncertain)

    def put(self, item: _T, namespace: str) -> None:
        """Adds an item."""
        self._queue.put(item, namespace)
        self._wake_worker()

    async def run(self) -> None:
        """Sends until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._slots):
                    tasks.create_task(self._work())
        finally:
            if self._timer is not None:
                self._timer[1].cancel()
                self._timer = None

    async def drain(self, *, resting: bool = True) -> None:
        """Returns when the queue is empty.

        Args:
            resting: whether to wait for all items that rest between two attempts, not only for the uncertain ones.
        """
        while self.unanswered or self._queue.length - (0 if resting else self._queue.resting):
            waiter = asyncio.get_running_loop().create_future()
            self._drained.append(waiter)
            forgotten = min(self._uncertain.values()) - self._clock() if self._uncertain else None
            with suppress(TimeoutError):
                async with asyncio.timeout(forgotten):
                    await waiter

    async def _work(self) -> None:
        while True:
            entry = self._queue.take(self._clock())
            if entry is None:
                await self._wait_for_work()
                continue
            if self._idle:
                self._set_timer()
                if self._queue.ready:
                    self._wake_worker()
            try:
                outcome: Outcome = await self._send(entry.item, entry.tries - 1)
            except Exception:  # noqa: BLE001 - one bad item must not stop the others
                _log.exception("write failed unexpectedly", queue=self._name, namespace=entry.queue.namespace)
                outcome = Finished.UNSENT
            self._settle(entry, outcome)

    def _settle(self, entry: Entry[_T], outcome: Outcome) -> None:
        now = self._clock()
        if isinstance(outcome, Retry):
            self._retries[outcome.cause].inc()
            if outcome.uncertain:
                self._uncertain[entry] = now + CARRIED_OUT_WITHIN
            rest = self._backoff.pause(entry.tries, outcome.min_delay)
            self._queue.retry(entry, now, rest, succeeded=not outcome.counts_as_failure)
        else:
            self._uncertain.pop(entry, None)
            self._queue.finish(entry, now, succeeded=_SUCCEEDED[outcome])
        if self._drained:
            for waiter in self._drained:
                if not waiter.done():
                    waiter.set_result(None)
            self._drained.clear()

    async def _wait_for_work(self) -> None:
        """Waits until an item may be due."""
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        self._set_timer()
        await waiter

    def _set_timer(self) -> None:
        """Sets the timer that wakes an idle worker when the next item is due."""
        due = self._queue.next_timer
        if due is None or (self._timer is not None and self._timer[0] <= due):
            return
        if self._timer is not None:
            self._timer[1].cancel()
        loop = asyncio.get_running_loop()
        self._timer = (due, loop.call_later(max(0.0, due - self._clock()), self._on_timer))

    def _on_timer(self) -> None:
        self._timer = None
        self._wake_worker()

    def _wake_worker(self) -> None:
        """Wakes one idle worker. That worker wakes the next one if more items are due."""
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
