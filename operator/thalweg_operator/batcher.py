"""When a round starts: once changes pause, or the first of them has waited long enough.

Shape: karpenter's batcher, with an idle and a maximum window and an injected clock (the event loop's).
"""

from __future__ import annotations

import asyncio

#: Seconds of rest after a round at most, however long it took.
_LONGEST_REST = 0.1


class Batcher:
    """Gathers changes into rounds.

    On a large cluster a round for three pods costs as much as one for three hundred. So changes must pause for as long
    as the last round took: while many come one after the other, planning leaves half of the time to others.
    """

    def __init__(self, idle: float, most: float) -> None:
        self._idle, self._most, self._rest = idle, most, 0.0
        self._changed = asyncio.Event()

    def took(self, seconds: float) -> None:
        """The last round took so long."""
        self._rest = min(seconds, _LONGEST_REST)

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
            pause = min(max(self._idle, self._rest), deadline - loop.time())
            if pause <= 0:
                return
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                return
