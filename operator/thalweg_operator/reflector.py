"""List and watch one kind of object into a sink, correctly across everything that goes wrong.

kopf's own handlers cost forty times as much per event and report no deletions for what vanished while a watch was
gone; so pods, nodes and namespaces come this way, and kopf serves our own custom resources.
Another kind joins with a line in ``program.py``: a path, a decoder and a sink.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from thalweg_operator.connection import Connection
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_log = structlog.get_logger()
_PAGE = 500
#: The API server sends a bookmark about once a minute; twice that without a byte is a dead connection.
_SILENCE = 150.0
#: Events between two turns of the event loop.
_BURST = 100


class Sink(Protocol[T_contra]):
    """Where a reflector puts what it sees."""

    def key(self, value: T_contra) -> str:
        """What tells the object from the others of its kind."""

    def upsert(self, value: T_contra) -> None:
        """Takes a new or changed object."""

    def delete(self, key: str) -> None:
        """An object is gone."""

    def keys(self) -> list[str]:
        """All objects it holds."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Version


class _Problem(msgspec.Struct):
    code: int | None = None
    message: str | None = None


class _Expired(Exception):
    """The version to go on from is no longer known."""


class Reflector(Generic[T]):
    """Keeps a sink equal to the API server's objects under one path.

    Attributes:
        synced: set once the first complete list is in the sink.
    """

    def __init__(
        self,
        kind: str,
        path: str,
        connection: Connection,
        decode: Callable[[bytes], T],
        sink: Sink[T],
        metrics: Metrics,
    ) -> None:
        self._kind, self._path, self._connection = kind, path, connection
        self._decode, self._sink, self._metrics = decode, sink, metrics
        self._pages = msgspec.json.Decoder(_Page)
        self._events = msgspec.json.Decoder(_Event)
        self._versions = msgspec.json.Decoder(_Versioned)
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Lists and watches until cancelled; every failure is waited out."""
        version, failures = "", 0
        while True:
            try:
                if not version:
                    version = await self._list()
                    self.synced.set()
                version = await self._watch(version)
                failures = 0
            except _Expired:
                version = ""
                self._metrics.relists.labels(self._kind).inc()
            except Refused as error:
                version = "" if error.status == 410 else version
                failures += 1
                _log.warning("watch refused", kind=self._kind, status=error.status, reason=error.reason)
            except ConnectionLost as error:
                failures += 1
                _log.warning("connection lost", kind=self._kind, problem=str(error))
            if failures:
                # Jitter, so that a restarted API server is not met by every watch at once.
                await asyncio.sleep(min(10.0, 0.1 * 2 ** min(failures, 7)) * random.uniform(0.5, 1.0))  # noqa: S311

    async def _list(self) -> str:
        """Takes over a complete list; returns its version. What the list no longer has is deleted."""
        seen: set[str] = set()
        params = {"limit": str(_PAGE)}
        while True:
            page = self._pages.decode(await self._connection.request("GET", self._path, params=params))
            for index, item in enumerate(page.items or ()):
                value = self._read(bytes(item))
                if value is not None:
                    self._sink.upsert(value)
                    seen.add(self._sink.key(value))
                if index % _BURST == _BURST - 1:
                    await asyncio.sleep(0)
            if not page.metadata.continue_:
                break
            params["continue"] = page.metadata.continue_
        for key in self._sink.keys():  # noqa: SIM118 - a sink is not a mapping
            if key not in seen:
                self._sink.delete(key)
        return page.metadata.resource_version

    async def _watch(self, version: str) -> str:
        """Applies events until the server ends the watch; returns the last version seen."""
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            # Ends differ, so that watches do not all come back together.
            "timeoutSeconds": str(random.randint(280, 420)),  # noqa: S311
        }
        rest, count = b"", 0
        try:
            async with self._connection.stream(self._path, params, _SILENCE) as content:
                async for chunk in content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        version = self._apply(line, version)
                        count += 1
                        if count % _BURST == 0:
                            await asyncio.sleep(0)
        except ConnectionLost:
            if count == 0:
                raise
            # Events were flowing: go on from the last of them at once.
            _log.info("watch ended", kind=self._kind, events=count)
        return version

    def _apply(self, line: bytes, version: str) -> str:
        if not line:
            return version
        event = self._events.decode(line)
        raw = bytes(event.object)
        if event.type == "ERROR":
            problem = msgspec.json.decode(raw, type=_Problem)
            if problem.code == 410:
                raise _Expired
            raise Refused(problem.code or 500, problem.message or "the watch reported an error")
        if event.type != "BOOKMARK":
            value = self._read(raw)
            if value is not None and event.type == "DELETED":
                self._sink.delete(self._sink.key(value))
            elif value is not None:
                self._sink.upsert(value)
        self._metrics.events.labels(self._kind).inc()
        return self._versions.decode(raw).metadata.resource_version

    def _read(self, raw: bytes) -> T | None:
        try:
            return self._decode(raw)
        except msgspec.ValidationError as error:
            # Not a shape that a real API server stores. Say so and go on: one object must not stop the others.
            self._metrics.unreadable.labels(self._kind).inc()
            _log.error(
                "unreadable object", kind=self._kind, problem=str(error), object=raw[:200].decode(errors="replace")
            )
            return None
