"""How many Events one object may get: some at once, then one every few minutes.

Source: the spam filter of client-go (tools/record/events_cache.go, EventSourceObjectSpamFilter), with its numbers.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

#: Events about one object at once, and seconds until it may get one more.
BURST, REFILL_SECONDS = 25, 300.0
#: Objects that are remembered.
MAX_OBJECTS = 4096


class EventLimits:
    """A token bucket for each object. The objects that got no Event for the longest time are forgotten first."""

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
