"""A bound on how often something is done: a token bucket."""

from __future__ import annotations

import asyncio


class Pace:
    """Lets ``burst`` turns through at once, and ``per_second`` turns a second in the long run."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second, self._burst = per_second, float(burst)
        self._left, self._at = float(burst), 0.0

    async def turn(self) -> None:
        """Returns when the next turn is due."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        self._left -= 1.0
        if self._left < 0.0:
            await asyncio.sleep(-self._left / self._per_second)
