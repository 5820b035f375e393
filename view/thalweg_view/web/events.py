"""Streams of events: what changes while a page is open."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from flowcore.planning.plan_document import PlanDocument
from thalweg_view.callers.access import Caller
from thalweg_view.callers.places import Places
from thalweg_view.callers.view_limits import ViewLimits
from thalweg_view.errors import RequestRefused
from thalweg_view.rounds import RoundRow

#: Events that a stream may be behind; a slower caller misses the oldest.
_BEHIND: Final = 32


class EventStream:
    """The events of one caller that were not sent yet."""

    def __init__(self) -> None:
        self._events: deque[bytes] = deque(maxlen=_BEHIND)
        self._some, self._ended = asyncio.Event(), False

    def end(self) -> None:
        """Ends the stream."""
        self._ended = True
        self._some.set()

    def put(self, event: bytes) -> None:
        """Adds an event."""
        self._events.append(event)
        self._some.set()

    async def take(self, seconds: float) -> bytes:
        """The next events; a comment if none comes within ``seconds``; b"" at the end."""
        try:
            async with asyncio.timeout(seconds):
                await self._some.wait()
        except TimeoutError:
            return b": still here\n\n"
        if self._ended:
            return b""
        self._some.clear()
        events = b"".join(self._events)
        self._events.clear()
        return events


class Events:
    """All streams."""

    def __init__(self, limits: ViewLimits) -> None:
        self._places = Places(limits.streams, limits.streams_per_caller, "streams of events", retry_after=5)
        self._streams: dict[EventStream, None] = {}
        self._ended = False

    def __len__(self) -> int:
        return len(self._streams)

    def end(self) -> None:
        """Ends all streams; none begins any more."""
        self._ended = True
        for stream in self._streams:
            stream.end()

    def round_planned(self, plan: PlanDocument, generation: int) -> None:
        """Tells of a round."""
        if self._streams:
            row = msgspec.to_builtins(RoundRow.of(plan))
            self._put("round", row | {"generation": generation})

    def state_read(self, generation: int) -> None:
        """Tells of a new state."""
        self._put("state", {"generation": generation})

    def _put(self, event: str, value: object) -> None:
        # JSON has no line breaks: whatever is in the value, it is one line.
        data = b"event: " + event.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"
        for stream in self._streams:
            stream.put(data)

    @asynccontextmanager
    async def stream(self, caller: Caller, *, sees_all: bool) -> AsyncIterator[EventStream]:
        """A stream for as long as the block runs.

        Raises:
            RequestRefused: there are too many, or the view ends.
        """
        if self._ended:
            raise RequestRefused(503, "the view ends", retry_after=2)
        with self._places.place(caller, sees_all=sees_all):
            stream = EventStream()
            self._streams[stream] = None
            try:
                yield stream
            finally:
                del self._streams[stream]
