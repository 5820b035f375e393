"""What writers have in common whose writes stand in line: they run, they end, and what they sent may be unanswered."""

from __future__ import annotations

from typing import Generic, TypeVar

from thalweg_operator.api.writes.write_queue import WriteQueue

_T = TypeVar("_T")


class QueuedWriter(Generic[_T]):
    """A writer; ``put`` and one try of a write are its own."""

    def __init__(self, queue: WriteQueue[_T]) -> None:
        self._queue = queue

    async def run(self) -> None:
        """Writes until cancelled."""
        await self._queue.run()

    async def drain(self) -> None:
        """Returns when all that is due was sent and answered; what rests before another try is not waited for."""
        await self._queue.drain(resting=False)

    @property
    def unanswered(self) -> bool:
        """Whether a write was sent that may still be carried out."""
        return self._queue.unanswered
