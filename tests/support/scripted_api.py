"""An API server without sockets for one kind of object: well, or with whatever answers a test makes up."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from thalweg_operator.api.outages import Outages
from thalweg_operator.errors import ConnectionLost, Refused

#: Bytes, or an error to raise, or None for the true answer.
Answer = bytes | Exception | None


class ScriptedApi:
    """Stands in for a Connection.

    Attributes:
        objects: the truth, by name.
        listing, watching: called for each request, with its number.
        seconds: how long a watch with made up bytes stays open after them.
        asked: when each request came.
    """

    def __init__(self) -> None:
        self.outages = Outages()
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 1
        self.listing: Callable[[int], Answer] = lambda _number: None
        self.watching: Callable[[int], Answer] = lambda _number: None
        self.seconds = 0.0
        self.asked: list[float] = []
        self._oldest = 0
        self._history: list[tuple[int, bytes]] = []
        self._changed = asyncio.Event()

    def put(self, name: str, value: int) -> None:
        """Creates or changes an object."""
        self.version += 1
        self.objects[name] = thing(name, value, self.version)
        self._send_line(event("MODIFIED", self.objects[name]))

    def remove(self, name: str) -> None:
        """Deletes an object."""
        self.version += 1
        gone = self.objects.pop(name)
        self._send_line(event("DELETED", thing(name, gone["value"], self.version)))

    def restore(self) -> None:
        """Goes on as after etcd was restored: every version that was given out before has expired."""
        self._history.clear()
        self.version += 1000
        self._oldest = self.version
        self._changed.set()

    def page(self) -> bytes:
        """A true list."""
        items = list(self.objects.values())
        return json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": items}).encode()

    def busiest(self, seconds: float = 10.0) -> int:
        """Most requests in any window of so many seconds."""
        return max((sum(at <= other < at + seconds for other in self.asked) for at in self.asked), default=0)

    async def request(self, method: str, path: str, **_options: Any) -> bytes:
        """See Connection."""
        answer = self.listing(self._record_request())
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return self.page() if answer is None else answer

    @asynccontextmanager
    async def stream(self, path: str, params: dict[str, str], silence: float) -> AsyncIterator["_Content"]:
        """See Connection."""
        answer = self.watching(self._record_request())
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        yield _Content(self._live(params, silence) if answer is None else self._made_up(answer))

    async def _made_up(self, answer: bytes) -> AsyncIterator[bytes]:
        if answer:
            yield answer
        await asyncio.sleep(self.seconds)

    async def _live(self, params: dict[str, str], silence: float) -> AsyncIterator[bytes]:
        version = params["resourceVersion"]
        if not version.isdecimal() or len(version) > 9:
            raise Refused(400, "invalid resource version")
        since, sent = int(version), 0
        if since > self.version:
            raise Refused(504, "Too large resource version")
        end = asyncio.get_running_loop().time() + int(params["timeoutSeconds"])
        while asyncio.get_running_loop().time() < end:
            if since < self._oldest:
                yield event("ERROR", {"code": 410, "message": "too old resource version"})
                return
            new = [line for version, line in self._history if version > since][sent:]
            sent += len(new)
            if new:
                yield b"".join(new)
            self._changed.clear()
            try:
                async with asyncio.timeout(silence):
                    await self._changed.wait()
            except TimeoutError:
                raise ConnectionLost("nothing came") from None

    def _record_request(self) -> int:
        self.asked.append(asyncio.get_running_loop().time())
        return len(self.asked)

    def _send_line(self, line: bytes) -> None:
        self._history.append((self.version, line))
        self._changed.set()


class _Content:
    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    def iter_any(self) -> AsyncIterator[bytes]:
        return self._chunks


def thing(name: str, value: Any, version: int) -> dict[str, Any]:
    """An object."""
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "value": value}


def event(kind: str, of: Any) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": kind, "object": of}).encode() + b"\n"
