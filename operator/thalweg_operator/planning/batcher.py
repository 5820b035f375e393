"""Starts a round when changes pause, or when the first change has waited for the maximum window.

The design follows karpenter's batcher: an idle window and a maximum window, by the event loop's clock.
"""

from __future__ import annotations

import asyncio

#: Upper limit, in seconds, of the part of the pause that follows the length of the last round.
_MAX_REST_SECONDS = 0.1


class Batcher:
    """Gathers changes into rounds.

    On a large cluster a round for three pods costs as much as a round for three hundred. So changes must pause for as
    long as the last round took. In a steady stream of changes planning then takes half of the time.
    """

    def __init__(self, idle_window: float, max_window: float) -> None:
        self._idle_window, self._max_window, self._last_round_seconds = idle_window, max_window, 0.0
        self._changed = asyncio.Event()

    def round_took(self, seconds: float) -> None:
        """Records the length of the last round."""
        self._last_round_seconds = min(seconds, _MAX_REST_SECONDS)

    def trigger(self) -> None:
        """Requests a round: something relevant changed."""
        self._changed.set()

    async def wait(self, resync: float) -> None:
        """Returns when a round is due, after ``resync`` seconds without a change at the latest."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(resync):
                await self._changed.wait()
        except TimeoutError:
            return
        deadline = loop.time() + self._max_window
        while True:
            self._changed.clear()
            pause = min(max(self._idle_window, self._last_round_seconds), deadline - loop.time())
            if pause <= 0:
                return
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                return
