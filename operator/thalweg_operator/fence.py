"""Whether this process may write to the API server: it holds the lease, and time enough is left.

The clock counts while the machine is suspended or the process is stopped (CLOCK_BOOTTIME): a process that wakes up
after its lease ended must find the fence closed before it hears from anybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from thalweg_operator.errors import LeaseLost


def boot_time() -> float:
    """Seconds since the machine was started, time in suspension included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Fence:
    """Closed until ``extend`` is called, and again when its time is over."""

    def __init__(self, clock: Callable[[], float] = boot_time) -> None:
        self.clock = clock
        self._until = self._end = float("-inf")

    @property
    def open(self) -> bool:
        """Whether a write may be sent now."""
        return self.clock() < self._until

    def extend(self, until: float, end: float) -> None:
        """Allows writes.

        Args:
            until: time of the clock before which a write may begin.
            end: time by which every write must be over, since another process may hold the lease then.
        """
        self._until, self._end = until, end

    def close(self) -> None:
        """Allows no further write."""
        self._until = float("-inf")

    def seconds(self) -> float:
        """How long a write that begins now may take.

        Raises:
            LeaseLost: it may not begin.
        """
        now = self.clock()
        if now >= self._until:
            raise LeaseLost("not sent: this process does not hold the lease")
        return self._end - now
