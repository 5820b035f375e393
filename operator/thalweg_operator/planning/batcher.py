"""Says when the next round starts.

A pod that begins to wait gets a round at once. The batch forms while a round runs, and in the rest after it. The rest
grows with the pods of the round: single pods hardly wait, and a burst is planned in a few large rounds.

Where kube-scheduler waits for a round, it waits for no such rest but a single pod's: it schedules nothing meanwhile.

Room that comes free and that a waiting pod fits starts a round soon: what else comes free within a moment is planned
with it. Then rounds rest as long as they take, or until the maximum window ends where the last one placed no pod.

Other changes can wait: their round starts when changes pause, or after a maximum window. That follows karpenter's
batcher.
"""

from __future__ import annotations

import asyncio

#: Seconds of rest after a round for each of its pods. With a steady stream of r pods per second the rounds take
#: 1 - r * REST_PER_POD of the time at most; a faster stream makes the rests grow up to the maximum window.
REST_PER_POD = 0.005
#: Seconds in which room that comes free is gathered.
GATHER_ROOM = 0.01
#: Upper limit, in seconds, of the part of the pause that follows the length of the last round.
_LONGEST_PAUSE = 0.1


class Batcher:
    """Gathers changes into rounds. Times are seconds of the event loop's clock.

    On a large cluster a round for three pods costs as much as a round for three hundred. So changes that no pod waits
    for must pause for as long as the last round took.
    """

    def __init__(self, idle_window: float, max_window: float) -> None:
        """A batcher.

        Args:
            idle_window: seconds without a change after which a round starts, whatever changed.
            max_window: longest time in seconds from the first change to the start of a round.
        """
        self._idle_window, self._max_window = idle_window, max_window
        self._round_seconds, self._rest_ends = 0.0, float("-inf")
        #: End of the rest where kube-scheduler waits.
        self._short_rest_ends = float("-inf")
        #: End of the rest where room came free.
        self._room_rest_ends = float("-inf")
        self._changed, self._at_once, self._asked = asyncio.Event(), False, False
        #: When room came free that a waiting pod fits; None: none did.
        self._room_since: float | None = None

    @property
    def fits_known(self) -> bool:
        """Whether room came free since the last round that a waiting pod fits."""
        return self._room_since is not None

    def round_ended(self, seconds: float, pods: int, placed: int) -> None:
        """A round ended just now.

        Args:
            seconds: how long it took.
            pods: how many it planned.
            placed: how many of them got a node.
        """
        self._round_seconds = min(seconds, _LONGEST_PAUSE)
        now = asyncio.get_running_loop().time()
        self._rest_ends = now + min(pods * REST_PER_POD, self._max_window)
        self._short_rest_ends = min(self._rest_ends, now + REST_PER_POD)
        in_vain = pods > 0 and placed == 0
        pause = self._max_window if in_vain else max(seconds, placed * REST_PER_POD)
        self._room_rest_ends = now + min(pause, self._max_window)

    def trigger(self, *, at_once: bool = False, asked: bool = False, room: bool = False) -> None:
        """Requests a round: something relevant changed.

        Args:
            at_once: whether the round is not to wait for a pause of the changes.
            asked: whether kube-scheduler waits for the round.
            room: whether room came free that a waiting pod fits.
        """
        if room and self._room_since is None:
            self._room_since = asyncio.get_running_loop().time()
        self._at_once |= at_once
        self._asked |= asked
        self._changed.set()

    async def wait(self, resync: float) -> None:
        """Returns when a round is due, after ``resync`` seconds without a change at the latest."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(resync):
                await self._changed.wait()
        except TimeoutError:
            return
        latest = loop.time() + self._max_window
        while True:
            self._changed.clear()
            now = loop.time()
            due = min(latest, now + max(self._idle_window, self._round_seconds))
            if self._asked:
                due = min(due, self._short_rest_ends)
            elif self._at_once:
                due = min(due, self._rest_ends)
            if self._room_since is not None:
                due = min(due, max(self._room_rest_ends, self._room_since + GATHER_ROOM))
            if due <= now:
                break
            try:
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
            except TimeoutError:
                break
        self._at_once = self._asked = False
        self._room_since = None
