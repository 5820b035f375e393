"""List and watch one kind of object into a sink, correctly across everything that goes wrong.

kopf's own handlers cost forty times as much per event and report no deletions for what vanished while a watch was
gone; so all kinds of Kubernetes' own come this way, and kopf serves our own custom resources.
Another kind joins with a line in ``program.py``: a path, a decoder and a sink.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from thalweg_operator.backoff import Backoff
from thalweg_operator.bad_input import BadInput
from thalweg_operator.connection import Connection
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.json_reading import NotReadable, Reader, without_depth
from thalweg_operator.metrics import Metrics
from thalweg_operator.outages import Outages
from thalweg_operator.pace import Pace

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_log = structlog.get_logger()
_PAGE = 500
#: Seconds of silence after which a watch is begun again. Bookmarks come about once a minute; where no object of the
#: kind ever changed the API server sends none, and a new watch is what shows that it still answers.
_SILENCE = 75.0
#: A watch that ended sooner and brought nothing is a failure.
_SHORT = 1.0
#: How often a kind is asked for that the cluster does not serve: an upgrade may bring it.
_ABSENT = 60.0
#: Bytes of one event; etcd stores objects of at most 1.5 MiB.
_LONGEST = 2**24
#: Requests a second that one kind costs in the long run, and at once, whatever the answers are.
_PER_SECOND, _AT_ONCE = 1.5, 3
#: Refusals in a row after which the version that a watch goes on from is doubted, unless they say busy or forbidden.
_DOUBTFUL, _BUSY = 4, (401, 403, 429, 502, 503)
_BACKOFF = Backoff(first=0.2, longest=10.0)
#: How often a further page of a list is asked for before the list is given up.
_PAGE_TRIES = 8
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

    def named(self, namespace: str, name: str) -> str:
        """The key of the object of this name."""

    def unreadable(self, key: str) -> None:
        """There is a version of the object that cannot be read. What it held before may be wrong now."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str | None = None
    resource_version: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta


class _Problem(msgspec.Struct):
    code: int | None = None
    message: str | None = None


_pages, _events, _objects, _problems = Reader(_Page), Reader(_Event), Reader(_Object), Reader(_Problem)


class _Expired(Exception):
    """The version to go on from is no longer known."""


class _Garbled(Exception):
    """An answer that is no list or no event; whatever it stood for, only a list tells."""


class _TooShort(Exception):
    """A watch that ended at once and brought nothing."""


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
        bad_input: BadInput,
        outages: Outages,
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
        self._bad_input, self._outages = bad_input, outages
        self._pace = Pace(_PER_SECOND, _AT_ONCE)
        self._version = ""
        self._absent = False
        self._seen = metrics.events.labels(kind)
        self._failures = 0
        self._heard: float | None = None
        self._watching_since: float | None = None
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Lists and watches until cancelled; every failure is waited out."""
        while True:
            at_least = 0.0
            try:
                if not self._version:
                    if self.synced.is_set() and not self._absent:
                        self._metrics.relists.labels(self._kind).inc()
                    self._version = await self._list()
                    self._absent = False
                    self.synced.set()
                await self._watch()
                continue
            except _Expired:
                self._version = ""
            except _TooShort:
                self._outages.failed(self._kind, "short watch", "the watch ended at once and brought nothing")
            except _Garbled as error:
                self._version = ""
                self._outages.failed(self._kind, "not understood", str(error))
            except Refused as error:
                absent = error.status == 404 and self._may_be_absent
                if absent and not self._version:
                    await self._look_elsewhere()
                    self._failures = 0
                    continue
                if absent or error.status == 410:
                    self._version, self._at = "", 0
                elif self._failures >= _DOUBTFUL and error.status not in _BUSY:
                    self._version = ""  # such as one from before the data of the API server was restored
                at_least = error.retry_after
                # A 403 ends when somebody gives the rights.
                self._outages.failed(self._kind, str(error.status), error.reason, passing=error.status == 429)
            except ConnectionLost:
                pass  # the connection logs it, once for all kinds
            # Jitter, so that a restarted API server is not met by every watch at once.
            self._failures += 1
            await asyncio.sleep(_BACKOFF.pause(self._failures, at_least))

    @property
    def heard(self) -> float | None:
        """The event loop's time when the API server last showed that the sink is up to date; None before.

        It does so by a list, an event, a bookmark, and a watch that it accepts and does not end at once.
        """
        return max(self._heard or 0.0, self._watching_since or 0.0) if self._lived() else self._heard

    def _lived(self) -> bool:
        """Whether there is a watch that did not end at once."""
        return self._watching_since is not None and asyncio.get_running_loop().time() - self._watching_since >= _SHORT

    def age(self) -> float:
        """Seconds since ``heard``; infinite before."""
        return float("inf") if self.heard is None else asyncio.get_running_loop().time() - self.heard

    def _well(self) -> None:
        self._heard = asyncio.get_running_loop().time()

    def _healthy(self) -> None:
        """The watch lives: what failed before is over."""
        self._failures = 0
        self._outages.over(self._kind)

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
        self._well()
        await asyncio.sleep(_ABSENT * random.uniform(0.5, 1.0))  # noqa: S311

    async def _list(self) -> str:
        """Takes over a complete list; returns its version. What the list no longer has is deleted."""
        seen: set[str] = set()
        params = {"limit": str(_PAGE)}
        await self._pace.turn()
        while True:
            page = _read(_pages, await self._page(params), "list")
            version, token = page.metadata.resource_version, page.metadata.continue_
            if page.items is None or not version:
                raise _Garbled("list: no items or no resourceVersion")
            before = len(seen)
            for index, item in enumerate(page.items):
                seen.add(self._take(bytes(item)))
                if index % _BURST == _BURST - 1:
                    await asyncio.sleep(0)
            if not token:
                break
            if len(seen) == before:
                raise _Garbled("list: a page that is not the last one brought no new object")
            if len(page.items) < _PAGE:  # full pages cost no turn: a large cluster must be read soon
                await self._pace.turn()
            params["continue"] = token
        for key in self._sink.keys():  # noqa: SIM118 - a sink is not a mapping
            if key not in seen:
                self._sink.delete(key)
        self._well()
        return version

    async def _page(self, params: Mapping[str, str]) -> bytes:
        """One page. A further one is asked for again: to begin anew would cost a busy API server all of them."""
        tries, at_least = 0, 0.0
        while True:
            try:
                return await self._connection.request("GET", self._path, params=params)
            except (Refused, ConnectionLost) as error:
                tries += 1
                if isinstance(error, Refused):
                    if not error.passing:
                        raise
                    at_least = error.retry_after
                if "continue" not in params or tries >= _PAGE_TRIES:
                    raise
            await asyncio.sleep(_BACKOFF.pause(tries, at_least))
            await self._pace.turn()

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
        await self._pace.turn()
        rest, count, accepted = b"", 0, False
        try:
            async with self._connection.stream(self._path, params, _SILENCE) as content:
                accepted = True
                self._watching_since = asyncio.get_running_loop().time()
                async for chunk in content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > _LONGEST:
                        raise _Garbled("event: a line without an end")
                    for line in lines:
                        self._apply(line)
                        count += 1
                        if count % _BURST == 0:
                            await asyncio.sleep(0)
                    if lines:
                        self._well()
                        self._healthy()
        except ConnectionLost:
            if not accepted:
                raise
            # Whatever came before the end was applied: go on from there.
        finally:
            lived = self._lived()
            self._heard, self._watching_since = self.heard, None
        if count == 0 and not lived:
            raise _TooShort
        self._healthy()

    def _apply(self, line: bytes) -> None:
        if not line:
            return
        event = _read(_events, line, "event")
        raw = bytes(event.object)
        if event.type == "ERROR":
            problem = _read(_problems, raw, "error event")
            if problem.code == 410:
                raise _Expired
            status = problem.code if problem.code is not None and 400 <= problem.code < 600 else 500
            raise Refused(status, problem.message or "the watch reported an error")
        version = _read(_objects, raw, "event").metadata.resource_version
        # Without a version there is nothing to go on from: an object that says none is no event of an API server.
        if not version:
            raise _Garbled(f"event without a version: {line[:200]!r}")
        if event.type == "DELETED":
            self._sink.delete(self._named(raw))
        elif event.type != "BOOKMARK":
            self._take(raw)
        self._seen.inc()
        self._version = version

    def _take(self, raw: bytes) -> str:
        """Puts an object into the sink; its key."""
        try:
            try:
                value = self._decode(raw)
            except RecursionError:
                value = self._decode(without_depth(raw))
        except Exception as error:  # noqa: BLE001 - whatever it is, one object must not stop the others
            key = self._named(raw)
            self._metrics.unreadable.labels(self._kind).inc()
            self._bad_input.refuse(self._kind, "object", key, f"it cannot be read: {error}")
            self._sink.unreadable(key)
            return key
        if value is None:
            key = self._named(raw)
            self._sink.delete(key)
            return key
        key = self._sink.key(value)
        if not key or key[-1] == "/":
            raise _nameless(raw)
        self._sink.upsert(value)
        return key

    def _named(self, raw: bytes) -> str:
        meta = _read(_objects, raw, "object").metadata
        if not meta.name:
            raise _nameless(raw)
        return self._sink.named(meta.namespace or "", meta.name)


def _nameless(raw: bytes) -> _Garbled:
    """Nobody can tell what the object stands for, so nothing of the answer can be relied on."""
    return _Garbled(f"object without a name: {raw[:200]!r}")


def _read(reader: Reader[T], raw: bytes, what: str) -> T:
    try:
        return reader.read(raw)
    except NotReadable as error:
        raise _Garbled(f"{what}: {error}: {raw[:200]!r}") from error
