"""The order of writes: first in, first out within a namespace, round robin between namespaces. Pure: no clock.

Three rules keep one namespace from blocking the others:

- Namespaces with due items take turns.
- A namespace takes another slot only if in_flight < 3 * free, where free counts the slots that remain free then
  (dynamic queue thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). A single namespace
  gets three quarters of the slots, several get less each, and the last free slot goes to a namespace that holds none.
  So hanging requests never hold all slots.
- After failures of several items in a row, or one slow failure, a namespace gets one request at a time (a probe), with
  growing pauses, until a probe succeeds. All failing namespaces together get half of the slots. So hanging requests of
  many namespaces fill all slots once at most, not several times in a row.

An item rests between two attempts and holds no slot meanwhile. Each operation takes constant time, plus time
logarithmic in the number of resting items where a rest begins or ends.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from thalweg_operator.api.backoff import Backoff

_T = TypeVar("_T")
#: Failed items in a row after which their namespace gets one request at a time.
MAX_CONSECUTIVE_FAILURES = 4
#: Seconds from which on a failure is slow: it held a slot that others could have used.
SLOW_SECONDS = 1.0
#: Pauses of a failing namespace.
_PAUSES = Backoff(first=0.1, longest=5.0)
#: Most slots of a namespace, as a multiple of the free slots.
_SHARE = 3


def slots_for(concurrency: int) -> int:
    """Number of slots with which a single namespace may hold ``concurrency`` of them."""
    return concurrency + -(-concurrency // _SHARE)


@dataclass(slots=True, eq=False)
class Entry(Generic[_T]):
    """An item in the queue.

    Attributes:
        tries: number of times it was taken.
        started: time when it was taken last.
        failure_streak: number of the failure streak of its namespace in which it was counted.
        probe: whether it is in flight as the only request of a failing namespace.
    """

    item: _T
    queue: _NamespaceQueue[_T]
    tries: int = 0
    started: float = 0.0
    failure_streak: int = -1
    probe: bool = False


@dataclass(slots=True, eq=False)
class _NamespaceQueue(Generic[_T]):
    """The queue of one namespace.

    Attributes:
        fresh, retries: due items, never tried and tried before. They take turns.
        resting: number of items that rest until their next attempt.
        in_flight: number of items taken and not yet finished or returned for a retry.
        streak, failures: number of the current failure streak, and how many different items failed in it.
        failing: whether the namespace gets one request at a time.
        pauses, paused_until: number of pauses since the last success, and the end of the latest pause.
        listed: whether the queue is in the ring, in ``_waiting_probes`` or in ``_over_share``.
        paused: whether a timer will list the queue.
    """

    namespace: str
    fresh: deque[Entry[_T]] = field(default_factory=deque)
    retries: deque[Entry[_T]] = field(default_factory=deque)
    fresh_next: bool = True
    resting: int = 0
    in_flight: int = 0
    streak: int = 0
    failures: int = 0
    pauses: int = 0
    paused_until: float = 0.0
    failing: bool = False
    listed: bool = False
    paused: bool = False

    @property
    def due(self) -> bool:
        """Whether the queue itself allows an item to be taken."""
        return bool(self.fresh or self.retries) and not (self.failing and self.in_flight)

    def pop(self) -> Entry[_T]:
        """Removes and returns the next due item; there must be one."""
        from_fresh = bool(self.fresh) and (self.fresh_next or not self.retries)
        self.fresh_next = not from_fresh
        return (self.fresh if from_fresh else self.retries).popleft()


class FairQueue(Generic[_T]):
    """A queue with the rules of the module. Times are seconds of a monotonic clock.

    Attributes:
        in_flight: number of items taken and not yet finished or returned for a retry.
        resting: number of items that rest until their next attempt.
        length: number of all items.
    """

    def __init__(self, slots: int, pauses: Backoff = _PAUSES) -> None:
        """An empty queue.

        Args:
            slots: limit of items in flight.
            pauses: pauses of failing namespaces.
        """
        self._slots, self._pauses = slots, pauses
        self._max_probes = max(1, slots // 2)
        self._queues: dict[str, _NamespaceQueue[_T]] = {}
        #: Queues with due items, in the order of their turns.
        self._ring: deque[_NamespaceQueue[_T]] = deque()
        #: Failing queues that wait for a slot for a probe.
        self._waiting_probes: deque[_NamespaceQueue[_T]] = deque()
        #: Queues that hold their share. Each holds a slot, so there are at most as many as slots.
        self._over_share: list[_NamespaceQueue[_T]] = []
        #: Ends of the rests of items and of the pauses of queues.
        self._timers: list[tuple[float, int, Entry[_T] | _NamespaceQueue[_T]]] = []
        self._numbers = count()
        self._probes = 0
        self.in_flight = self.resting = self.length = 0

    @property
    def ready(self) -> bool:
        """Whether ``take`` may return an item before the next timer. It may still return None."""
        if self.in_flight >= self._slots:
            return False
        return bool(self._ring) or (bool(self._waiting_probes) and self._probes < self._max_probes)

    @property
    def next_timer(self) -> float | None:
        """Time when the next rest or pause ends; None: nothing rests."""
        return self._timers[0][0] if self._timers else None

    @property
    def namespaces(self) -> int:
        """Number of namespaces with items."""
        return len(self._queues)

    def put(self, item: _T, namespace: str) -> None:
        """Adds an item."""
        queue = self._queues.get(namespace)
        if queue is None:
            queue = self._queues[namespace] = _NamespaceQueue(namespace)
        queue.fresh.append(Entry(item, queue))
        self.length += 1
        self._enqueue(queue)

    def take(self, now: float) -> Entry[_T] | None:
        """The next item to send; None: no item may be sent now.

        The item holds a slot until ``finish`` or ``retry`` is called with it.
        """
        while self._timers and self._timers[0][0] <= now:
            self._on_timer(heapq.heappop(self._timers)[2])
        while self.in_flight < self._slots:
            if self._waiting_probes and self._probes < self._max_probes:
                queue = self._waiting_probes.popleft()
            elif self._ring:
                queue = self._ring.popleft()
            else:
                return None
            queue.listed = False
            if not queue.due:
                continue
            if queue.failing:
                if queue.paused_until > now:
                    queue.paused = True
                    self._add_timer(queue.paused_until, queue)
                    continue
                if self._probes >= self._max_probes:
                    self._waiting_probes.append(queue)
                    queue.listed = True
                    continue
            elif queue.in_flight and queue.in_flight >= _SHARE * (self._slots - self.in_flight - 1):
                self._over_share.append(queue)
                queue.listed = True
                continue
            return self._start(queue, now)
        return None

    def finish(self, entry: Entry[_T], now: float, *, succeeded: bool | None) -> None:
        """Removes an item in flight.

        Args:
            succeeded: whether the API server answered, a refusal included; None: no request was sent.
        """
        self.length -= 1
        self._release(entry, now, succeeded=succeeded)

    def retry(self, entry: Entry[_T], now: float, delay: float, *, succeeded: bool | None) -> None:
        """Returns an item in flight to the queue; it is due after ``delay`` seconds. ``succeeded`` as in ``finish``."""
        self.resting += 1
        entry.queue.resting += 1
        self._add_timer(now + delay, entry)
        self._release(entry, now, succeeded=succeeded)

    def _start(self, queue: _NamespaceQueue[_T], now: float) -> Entry[_T]:
        entry = queue.pop()
        entry.tries += 1
        entry.started = now
        if queue.failing:
            entry.probe = True
            self._probes += 1
        queue.in_flight += 1
        self.in_flight += 1
        self._enqueue(queue)
        return entry

    def _release(self, entry: Entry[_T], now: float, *, succeeded: bool | None) -> None:
        queue = entry.queue
        if entry.probe:
            entry.probe = False
            self._probes -= 1
        queue.in_flight -= 1
        self.in_flight -= 1
        if succeeded:
            if queue.failures:
                queue.streak += 1
                queue.failures = queue.pauses = 0
                queue.failing = queue.paused = False
        elif succeeded is False:
            if entry.failure_streak != queue.streak:
                # An item counts once per streak: repeated failures of one item say little about the others.
                entry.failure_streak = queue.streak
                queue.failures += 1
            queue.failing |= queue.failures >= MAX_CONSECUTIVE_FAILURES or now - entry.started >= SLOW_SECONDS
            if queue.failing:
                queue.pauses += 1
                queue.paused_until = now + self._pauses.pause(queue.pauses)
        if self._over_share:
            self._ring += self._over_share
            self._over_share.clear()
        self._enqueue(queue)
        if not (queue.in_flight or queue.resting or queue.fresh or queue.retries):
            del self._queues[queue.namespace]

    def _enqueue(self, queue: _NamespaceQueue[_T]) -> None:
        if not (queue.listed or queue.paused) and queue.due:
            queue.listed = True
            self._ring.append(queue)

    def _add_timer(self, due: float, target: Entry[_T] | _NamespaceQueue[_T]) -> None:
        heapq.heappush(self._timers, (due, next(self._numbers), target))

    def _on_timer(self, target: Entry[_T] | _NamespaceQueue[_T]) -> None:
        if isinstance(target, Entry):
            self.resting -= 1
            target.queue.resting -= 1
            target.queue.retries.append(target)
            self._enqueue(target.queue)
        else:
            target.paused = False
            self._enqueue(target)
