"""A rate limit: a token bucket."""

from __future__ import annotations

import asyncio


class RateLimiter:
    """Allows ``burst`` calls at once, and ``per_second`` calls per second in the long run."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second, self._burst = per_second, float(burst)
        self._tokens, self._updated_at = float(burst), 0.0

    async def wait(self) -> None:
        """Returns when the next call is allowed."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._tokens = min(self._burst, self._tokens + (now - self._updated_at) * self._per_second)
        self._updated_at = now
        self._tokens -= 1.0
        if self._tokens < 0.0:
            await asyncio.sleep(-self._tokens / self._per_second)
