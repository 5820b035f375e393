"""Which write is sent next: first in, first out within a namespace, in turns between namespaces. Pure: no clock.

Three rules keep a namespace from holding up the others:

- Namespaces with something due take turns.
- A namespace takes a further slot only while it holds fewer than three times what would stay free (dynamic queue
  thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). One alone gets three quarters of the
  slots, several get less each, and the last free slot is for a namespace that holds none. So requests that hang do not
  hold all slots.
- Once requests for several items in a row failed, or one failed that took long, a namespace gets one request at a time,
  with growing pauses, until one succeeds. All such namespaces together get half of the slots. So many namespaces whose
  requests hang hold all slots once at most, and not several times in a row.

An item that is to be tried again rests meanwhile and holds no slot. Each operation takes constant time, and time
logarithmic in the number of resting items where an item begins or ends its rest.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from thalweg_operator.backoff import Backoff

_T = TypeVar("_T")
#: Items whose requests fail in a row before their namespace gets one request at a time.
IN_A_ROW = 4
#: Seconds after which a request that fails took long: it held a slot that others could have used.
LONG = 1.0
#: Pauses of such a namespace.
_PAUSES = Backoff(first=0.1, longest=5.0)
#: A namespace holds at most so many times the slots that stay free.
_SHARE = 3


def slots_for(concurrency: int) -> int:
    """The slots of which a namespace alone may hold so many."""
    return concurrency + -(-concurrency // _SHARE)


@dataclass(slots=True, eq=False)
class Entry(Generic[_T]):
    """An item in the queue.

    Attributes:
        tries: how often it was taken.
        began: when it was taken last.
        row: the row of failures of its namespace in which it is counted.
        probe: whether it is in flight as the one request of a namespace whose requests fail.
    """

    item: _T
    lane: _Lane[_T]
    tries: int = 0
    began: float = 0.0
    row: int = -1
    probe: bool = False


@dataclass(slots=True, eq=False)
class _Lane(Generic[_T]):
    """The queue of one namespace.

    Attributes:
        fresh, again: items that are due, never tried and tried before. They take turns.
        resting: number of items that wait for their next try.
        in_flight: number of items taken and not given back.
        row, failed: number of the current row of failures, and of different items in it.
        failing: whether it gets one request at a time.
        pauses, until: number of pauses since the last success, and the end of the last one.
        listed: whether it is in the ring, or in one of the lists beside it.
        paused: whether a timer will list it.
    """

    namespace: str
    fresh: deque[Entry[_T]] = field(default_factory=deque)
    again: deque[Entry[_T]] = field(default_factory=deque)
    fresh_next: bool = True
    resting: int = 0
    in_flight: int = 0
    row: int = 0
    failed: int = 0
    pauses: int = 0
    until: float = 0.0
    failing: bool = False
    listed: bool = False
    paused: bool = False

    @property
    def due(self) -> bool:
        """Whether the lane itself lets an item be taken."""
        return bool(self.fresh or self.again) and not (self.failing and self.in_flight)

    def pop(self) -> Entry[_T]:
        """The next item; there must be one that is due."""
        from_fresh = bool(self.fresh) and (self.fresh_next or not self.again)
        self.fresh_next = not from_fresh
        return (self.fresh if from_fresh else self.again).popleft()


class FairQueue(Generic[_T]):
    """See the module. Times are seconds of one clock that never goes back.

    Attributes:
        in_flight: number of items taken and not given back.
        resting: number of items that wait for their next try.
        length: number of all items.
    """

    def __init__(self, slots: int, pauses: Backoff = _PAUSES) -> None:
        """For so many items in flight at once.

        Args:
            pauses: of namespaces whose requests fail.
        """
        self._slots, self._pauses = slots, pauses
        self._most_probes = max(1, slots // 2)
        self._lanes: dict[str, _Lane[_T]] = {}
        #: Lanes with something due, in the order of their turns.
        self._ring: deque[_Lane[_T]] = deque()
        #: Lanes that fail and wait for one of the slots for such lanes.
        self._crowded: deque[_Lane[_T]] = deque()
        #: Lanes that hold their share. Each of them holds a slot at least, so there are never many.
        self._over: list[_Lane[_T]] = []
        #: Ends of rests of items and of pauses of lanes.
        self._timers: list[tuple[float, int, Entry[_T] | _Lane[_T]]] = []
        self._numbers = count()
        self._probes = 0
        self.in_flight = self.resting = self.length = 0

    @property
    def ready(self) -> bool:
        """Whether ``take`` is worth a call before the next timer; it may return None all the same."""
        if self.in_flight >= self._slots:
            return False
        return bool(self._ring) or (bool(self._crowded) and self._probes < self._most_probes)

    @property
    def next_timer(self) -> float | None:
        """When something becomes due though nothing is put or given back."""
        return self._timers[0][0] if self._timers else None

    @property
    def namespaces(self) -> int:
        """How many namespaces it knows: those with items."""
        return len(self._lanes)

    def put(self, item: _T, namespace: str) -> None:
        """Takes an item in."""
        lane = self._lanes.get(namespace)
        if lane is None:
            lane = self._lanes[namespace] = _Lane(namespace)
        lane.fresh.append(Entry(item, lane))
        self.length += 1
        self._list(lane)

    def take(self, now: float) -> Entry[_T] | None:
        """The next item to send, which holds a slot until it is given back; None: there is none now."""
        while self._timers and self._timers[0][0] <= now:
            self._wake(heapq.heappop(self._timers)[2])
        while self.in_flight < self._slots:
            if self._crowded and self._probes < self._most_probes:
                lane = self._crowded.popleft()
            elif self._ring:
                lane = self._ring.popleft()
            else:
                return None
            lane.listed = False
            if not lane.due:
                continue
            if lane.failing:
                if lane.until > now:
                    lane.paused = True
                    self._set(lane.until, lane)
                    continue
                if self._probes >= self._most_probes:
                    self._crowded.append(lane)
                    lane.listed = True
                    continue
            elif lane.in_flight and lane.in_flight >= _SHARE * (self._slots - self.in_flight - 1):
                self._over.append(lane)
                lane.listed = True
                continue
            return self._start(lane, now)
        return None

    def finish(self, entry: Entry[_T], now: float, *, succeeded: bool | None) -> None:
        """Gives an item back that is done with.

        Args:
            succeeded: whether the API server did its part, be it by a refusal; None: it was not asked.
        """
        self.length -= 1
        self._give_back(entry, now, succeeded=succeeded)

    def retry(self, entry: Entry[_T], now: float, rest: float, *, succeeded: bool | None) -> None:
        """Gives an item back that is due again after so many seconds; ``succeeded`` as in ``finish``."""
        self.resting += 1
        entry.lane.resting += 1
        self._set(now + rest, entry)
        self._give_back(entry, now, succeeded=succeeded)

    def _start(self, lane: _Lane[_T], now: float) -> Entry[_T]:
        entry = lane.pop()
        entry.tries += 1
        entry.began = now
        if lane.failing:
            entry.probe = True
            self._probes += 1
        lane.in_flight += 1
        self.in_flight += 1
        self._list(lane)
        return entry

    def _give_back(self, entry: Entry[_T], now: float, *, succeeded: bool | None) -> None:
        lane = entry.lane
        if entry.probe:
            entry.probe = False
            self._probes -= 1
        lane.in_flight -= 1
        self.in_flight -= 1
        if succeeded:
            if lane.failed:
                lane.row += 1
                lane.failed = lane.pauses = 0
                lane.failing = lane.paused = False
        elif succeeded is False:
            if entry.row != lane.row:
                # One item that fails again and again says little about the others.
                entry.row = lane.row
                lane.failed += 1
            lane.failing |= lane.failed >= IN_A_ROW or now - entry.began >= LONG
            if lane.failing:
                lane.pauses += 1
                lane.until = now + self._pauses.pause(lane.pauses)
        if self._over:
            self._ring += self._over
            self._over.clear()
        self._list(lane)
        if not (lane.in_flight or lane.resting or lane.fresh or lane.again):
            del self._lanes[lane.namespace]

    def _list(self, lane: _Lane[_T]) -> None:
        if not (lane.listed or lane.paused) and lane.due:
            lane.listed = True
            self._ring.append(lane)

    def _set(self, due: float, what: Entry[_T] | _Lane[_T]) -> None:
        heapq.heappush(self._timers, (due, next(self._numbers), what))

    def _wake(self, what: Entry[_T] | _Lane[_T]) -> None:
        if isinstance(what, Entry):
            self.resting -= 1
            what.lane.resting -= 1
            what.lane.again.append(what)
            self._list(what.lane)
        else:
            what.paused = False
            self._list(what)
