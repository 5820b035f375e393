"""Sends writes to the API server, many at once, and tries again what failed: the one queue behind all our writes.

A worker never sleeps while it holds a slot. What is to be tried again rests on a timer, and ``FairQueue`` keeps one
namespace from holding up the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

import structlog

from thalweg_operator.backoff import Backoff
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.fair_queue import Entry, FairQueue, slots_for
from thalweg_operator.metrics import Metrics

_T = TypeVar("_T")
_log = structlog.get_logger()


class Done(Enum):
    """How an attempt ended that is not to be repeated."""

    #: The API server gave an answer that settles it, be it a refusal.
    ANSWERED = "answered"
    #: The API server failed once more, and the item is given up.
    FAILED = "failed"
    #: Nothing was sent.
    UNSENT = "unsent"


#: Whether the API server did its part.
_SUCCEEDED = {Done.ANSWERED: True, Done.FAILED: False, Done.UNSENT: None}


@dataclass(frozen=True, slots=True)
class Again:
    """The attempt is to be repeated after a pause.

    Attributes:
        cause: why, for the metric: lost, busy (429), error (5xx), conflict or refused.
        at_least: seconds of pause.
        failed: whether the API server failed, so that it may fail for the whole namespace.
    """

    cause: str
    at_least: float = 0.0
    failed: bool = True


Outcome: TypeAlias = Done | Again


def again(error: ConnectionLost | Refused) -> Again:
    """After an error that passes."""
    if isinstance(error, ConnectionLost):
        return Again("lost")
    if error.passing:
        return Again("busy" if error.status == 429 else "error", error.retry_after)
    return Again("conflict" if error.status == 409 else "refused", error.retry_after, failed=False)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class WriteQueue(Generic[_T]):
    """See the module."""

    def __init__(
        self,
        name: str,
        concurrency: int,
        attempt: Callable[[_T, int], Awaitable[Outcome]],
        metrics: Metrics,
        backoff: Backoff,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """For one kind of write.

        Args:
            name: as metrics call it.
            concurrency: requests in flight at once for one namespace; for all of them there may be a third more.
            attempt: sends an item once, and says how that ended. It is told how often this was tried before.
            backoff: pauses between tries of one item.
            clock: seconds that never go back; None: those of the event loop.
        """
        self._name, self._attempt, self._backoff, self._clock = name, attempt, backoff, clock or _loop_time
        self._slots = slots_for(concurrency)
        self._queue: FairQueue[_T] = FairQueue(self._slots)
        self._idle: deque[asyncio.Future[None]] = deque()
        self._timer: tuple[float, asyncio.TimerHandle] | None = None
        self._drained: list[asyncio.Future[None]] = []
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
        """All items: those due, in flight and resting."""
        return self._queue.length

    def put(self, item: _T, namespace: str) -> None:
        """Puts an item in line."""
        self._queue.put(item, namespace)
        self._wake()

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
        """Returns when nothing is in line any more; without ``resting``, items between two tries do not count."""
        while self._queue.length - (0 if resting else self._queue.resting):
            waiter = asyncio.get_running_loop().create_future()
            self._drained.append(waiter)
            await waiter

    async def _work(self) -> None:
        while True:
            entry = self._queue.take(self._clock())
            if entry is None:
                await self._rest()
                continue
            if self._idle:
                self._arm()
                if self._queue.ready:
                    self._wake()
            try:
                outcome: Outcome = await self._attempt(entry.item, entry.tries - 1)
            except Exception:  # noqa: BLE001 - whatever it was, the others must be sent
                _log.exception("write failed unexpectedly", queue=self._name, namespace=entry.lane.namespace)
                outcome = Done.UNSENT
            self._settle(entry, outcome)

    def _settle(self, entry: Entry[_T], outcome: Outcome) -> None:
        now = self._clock()
        if isinstance(outcome, Again):
            self._retries[outcome.cause].inc()
            rest = self._backoff.pause(entry.tries, outcome.at_least)
            self._queue.retry(entry, now, rest, succeeded=not outcome.failed)
        else:
            self._queue.finish(entry, now, succeeded=_SUCCEEDED[outcome])
        if self._drained:
            for waiter in self._drained:
                if not waiter.done():
                    waiter.set_result(None)
            self._drained.clear()

    async def _rest(self) -> None:
        """Until something may be due."""
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        self._arm()
        await waiter

    def _arm(self) -> None:
        """Sets the timer that wakes an idle worker for what is due next."""
        due = self._queue.next_timer
        if due is None or (self._timer is not None and self._timer[0] <= due):
            return
        if self._timer is not None:
            self._timer[1].cancel()
        loop = asyncio.get_running_loop()
        self._timer = (due, loop.call_later(max(0.0, due - self._clock()), self._ring))

    def _ring(self) -> None:
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        """Wakes one idle worker. It wakes the next one where more is due."""
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
