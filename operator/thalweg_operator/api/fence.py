"""The fence: this process may write to the API server only while it holds the lease.

The clock runs on while the machine is suspended or the process is stopped (CLOCK_BOOTTIME). So a process that wakes up
after its lease has ended finds the fence closed before it receives any answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from thalweg_operator.errors import LeaseLost


def boot_time() -> float:
    """Seconds since boot, including suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Fence:
    """Open from ``extend`` until its time ends or ``close`` is called."""

    def __init__(self, clock: Callable[[], float] = boot_time) -> None:
        self.clock = clock
        self._until = self._end = float("-inf")

    @property
    def open(self) -> bool:
        """Whether a write may start now."""
        return self.clock() < self._until

    def extend(self, until: float, end: float) -> None:
        """Allows writes.

        Args:
            until: writes may start before this time of the clock.
            end: writes must have ended by this time, because then another process may hold the lease.
        """
        self._until, self._end = until, end

    def close(self) -> None:
        """Forbids further writes."""
        self._until = float("-inf")

    def seconds(self) -> float:
        """Seconds that a write may take if it starts now.

        Raises:
            LeaseLost: no write may start now.
        """
        now = self.clock()
        if now >= self._until:
            raise LeaseLost("not sent: this process does not hold the lease")
        return self._end - now
