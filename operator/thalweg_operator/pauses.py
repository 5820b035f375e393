"""How long to wait before something is tried again."""

from __future__ import annotations

import asyncio
import random


async def pause(tries: int, at_least: float = 0.0) -> None:
    """Sleeps longer after each try, up to five seconds; never two of many at the same time."""
    await asyncio.sleep(max(at_least, min(5.0, 0.05 * 2 ** min(tries, 8)) * random.uniform(0.5, 1.0)))  # noqa: S311
