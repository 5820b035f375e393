"""List and watch one kind of object into a sink, correctly across everything that goes wrong.

kopf's own handlers cost forty times as much per event and report no deletions for what vanished while a watch was
gone; so all kinds of Kubernetes' own come this way, and kopf serves our own custom resources.
Another kind joins with a line in ``program.py``: a path, a decoder and a sink.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
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
#: How often a kind is asked for that the cluster does not serve: an upgrade may bring it.
_ABSENT = 60.0
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


class _Garbled(Exception):
    """What came is no list or no event; whatever it stood for, only a list tells."""


class Reflector(Generic[T]):
    """Keeps a sink equal to the API server's objects under one path.

    Attributes:
        synced: set once the first complete list is in the sink, or the cluster is known not to serve the kind.
    """

    def __init__(
        self,
        kind: str,
        path: str,
        connection: Connection,
        decode: Callable[[bytes], T | None],
        sink: Sink[T],
        metrics: Metrics,
        *,
        may_be_absent: bool = False,
        older: Sequence[str] = (),
    ) -> None:
        """Of the objects under ``path``.

        Args:
            decode: None for an object that nobody reads.
            may_be_absent: a cluster that does not serve the path has no such objects; else that is a failure.
            older: paths of other versions of the same objects, of which ``decode`` reads all. The first that the
                cluster serves is followed until it is not served any more.
        """
        self._may_be_absent = may_be_absent
        self._kind, self._connection = kind, connection
        self._paths, self._at = (path, *older), 0
        self._decode, self._sink, self._metrics = decode, sink, metrics
        self._pages = msgspec.json.Decoder(_Page)
        self._events = msgspec.json.Decoder(_Event)
        self._versions = msgspec.json.Decoder(_Versioned)
        self._version = ""
        self._absent = False
        self._seen = metrics.events.labels(kind)
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Lists and watches until cancelled; every failure is waited out."""
        failures = 0
        while True:
            try:
                if not self._version:
                    if self.synced.is_set() and not self._absent:
                        self._metrics.relists.labels(self._kind).inc()
                    self._version = await self._list()
                    self._absent = False
                    self.synced.set()
                await self._watch()
                failures = 0
            except _Expired:
                self._version = ""
            except _Garbled as error:
                self._version = ""
                failures += 1
                _log.error("not understood, listing again", kind=self._kind, problem=str(error))
            except Refused as error:
                absent = error.status == 404 and self._may_be_absent
                if absent and not self._version:
                    await self._look_elsewhere()
                    failures = 0
                    continue
                if absent or error.status == 410:
                    self._version, self._at = "", 0
                failures += 1
                # Nothing but other rights helps against a 403.
                log = _log.error if error.status == 403 else _log.warning
                log("watch refused", kind=self._kind, status=error.status, reason=error.reason)
            except ConnectionLost as error:
                failures += 1
                _log.warning("connection lost", kind=self._kind, problem=str(error))
            if failures:
                # Jitter, so that a restarted API server is not met by every watch at once.
                await asyncio.sleep(min(10.0, 0.1 * 2 ** min(failures, 7)) * random.uniform(0.5, 1.0))  # noqa: S311

    @property
    def _path(self) -> str:
        return self._paths[self._at]

    async def _look_elsewhere(self) -> None:
        """The version is not served: the next one may be. Where none is, the kind may come later."""
        if self._at + 1 < len(self._paths):
            self._at += 1
            return
        self._at = 0
        if not self._absent:
            _log.info("not served by this cluster", kind=self._kind)
        self._absent = True
        for key in self._sink.keys():  # noqa: SIM118 - a sink is not a mapping
            self._sink.delete(key)
        self.synced.set()
        await asyncio.sleep(_ABSENT * random.uniform(0.5, 1.0))  # noqa: S311

    async def _list(self) -> str:
        """Takes over a complete list; returns its version. What the list no longer has is deleted."""
        seen: set[str] = set()
        params = {"limit": str(_PAGE)}
        while True:
            raw = await self._connection.request("GET", self._path, params=params)
            try:
                page = self._pages.decode(raw)
            except msgspec.DecodeError as error:
                raise _Garbled(f"list: {error}: {raw[:200]!r}") from error
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

    async def _watch(self) -> None:
        """Applies events until the server ends the watch.

        The version moves on with every event, so that none is applied twice however the watch ends: an old state
        played again would free room that is taken.
        """
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            # Ends differ, so that watches do not all come back together.
            "timeoutSeconds": str(random.randint(280, 420)),  # noqa: S311
        }
        rest, count = b"", 0
        try:
            async with self._connection.stream(self._path, params, _SILENCE) as content:
                async for chunk in content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._apply(line)
                        count += 1
                        if count % _BURST == 0:
                            await asyncio.sleep(0)
        except ConnectionLost:
            if count == 0:
                raise
            # Events were flowing: go on from the last of them at once.
            _log.info("watch ended", kind=self._kind, events=count)

    def _apply(self, line: bytes) -> None:
        if not line:
            return
        try:
            event = self._events.decode(line)
            version = "" if event.type == "ERROR" else self._versions.decode(event.object).metadata.resource_version
        except msgspec.DecodeError as error:
            raise _Garbled(f"event: {error}: {line[:200]!r}") from error
        raw = bytes(event.object)
        if event.type == "ERROR":
            try:
                problem = msgspec.json.decode(raw, type=_Problem)
            except msgspec.DecodeError as error:
                raise _Garbled(f"error event: {error}: {line[:200]!r}") from error
            if problem.code == 410:
                raise _Expired
            raise Refused(problem.code or 500, problem.message or "the watch reported an error")
        if event.type != "BOOKMARK":
            value = self._read(raw)
            if value is not None and event.type == "DELETED":
                self._sink.delete(self._sink.key(value))
            elif value is not None:
                self._sink.upsert(value)
        self._seen.inc()
        # Without a version there is nothing to go on from: an object that says none is no event of an API server.
        if not version:
            raise _Garbled(f"event without a version: {line[:200]!r}")
        self._version = version

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
