"""When a round starts: once changes pause, or the first of them has waited long enough.

Shape: karpenter's batcher, with an idle and a maximum window and an injected clock (the event loop's).
"""

from __future__ import annotations

import asyncio


class Batcher:
    """Gathers changes into rounds."""

    def __init__(self, idle: float, most: float) -> None:
        self._idle, self._most = idle, most
        self._changed = asyncio.Event()

    def touch(self) -> None:
        """Something changed that a round should see."""
        self._changed.set()

    async def wait(self, resync: float) -> None:
        """Returns when a round is due: ``resync`` seconds without any change are a reason too."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(resync):
                await self._changed.wait()
        except TimeoutError:
            return
        deadline = loop.time() + self._most
        while True:
            self._changed.clear()
            pause = min(self._idle, deadline - loop.time())
            if pause <= 0:
                return
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                return
