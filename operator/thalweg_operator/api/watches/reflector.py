"""Lists and watches one kind of object and keeps a sink equal to it, through all failures.

kopf's handlers cost forty times as much per event, and they do not report deletions that happened while a watch was
down. So Kubernetes' own kinds use reflectors, and kopf serves FlowSchedulingPolicy.
docs/how-to/change-the-code.md says what a new kind needs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from flowcore.api.nesting import without_depth
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.outages import Outages
from thalweg_operator.api.rate_limiter import RateLimiter
from thalweg_operator.api.watches.pages import pages
from thalweg_operator.api.watches.watch_messages import EVENTS, OBJECTS, PROBLEMS, Garbled, read
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.yielding import Burst

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_log = structlog.get_logger()
#: Seconds of silence after which a watch is restarted. Bookmarks come about once a minute. The API server sends none
#: for a kind without changes; then a new watch shows that the server still answers.
_SILENCE = 75.0
#: A watch that ends sooner and without an event is a failure.
_SHORT = 1.0
#: Seconds between two requests for a kind that the cluster does not serve; an upgrade may add the kind.
_ABSENT = 60.0
#: Longest event in bytes; etcd stores objects of at most 1.5 MiB.
_LONGEST = 2**24
#: Limit of requests for one kind: per second in the long run, and at once.
_PER_SECOND, _AT_ONCE = 1.5, 3
#: Refusals in a row after which the resourceVersion is dropped and the kind is listed again, unless the status is one
#: of _BUSY. After as many for a passing reason, one more counts as an answer.
_DOUBTFUL, _BUSY = 4, (401, 403, 429, 502, 503)
_BACKOFF = Backoff(first=0.2, longest=10.0)
#: Failures that count at most while the API server starts: then pauses are at most 1.6 s.
_STARTING_FAILURES = 3


class Sink(Protocol[T_contra]):
    """Receives the objects of one kind from a reflector."""

    def key(self, value: T_contra) -> str:
        """Key of the object, unique within its kind."""

    def upsert(self, value: T_contra) -> None:
        """Adds or replaces an object."""

    def delete(self, key: str) -> None:
        """Removes an object."""

    def keys(self) -> list[str]:
        """Keys of all objects in the sink."""

    def key_of(self, namespace: str, name: str) -> str:
        """Key of the object with this name."""

    def unreadable(self, key: str) -> None:
        """The newest version of the object cannot be decoded, so the version in the sink may be outdated."""


class _Expired(Exception):
    """The API server no longer has the resourceVersion (410)."""


class _ListAgain(Exception):
    """The kind is to be listed again, as ``relist`` asks."""


class _TooShort(Exception):
    """The watch ended at once and without an event."""


class Reflector(Generic[T]):
    """Keeps a sink equal to the API server's objects under one path.

    Attributes:
        synced: set once the first complete list is in the sink, or the cluster does not serve the kind.
        answered: set with it, or once the API server has refused the kind, for a passing reason several times.
        forbidden: whether the API server's last answer was that the account has no right to the kind.
        listed_at: the event loop's time at which the last complete list was begun; minus infinity before.
    """

    def __init__(
        self,
        kind: str,
        path: str,
        api_client: ApiClient,
        decode: Callable[[bytes | msgspec.Raw], T | None],
        sink: Sink[T],
        metrics: Metrics,
        bad_input: BadInput,
        outages: Outages,
        *,
        may_be_absent: bool = False,
        older: Sequence[str] = (),
    ) -> None:
        """A reflector of the objects under ``path``.

        Args:
            kind: name of the kind in metrics and log lines.
            decode: bytes to the object; None for an object that is not needed.
            may_be_absent: whether a cluster without this path simply has no such objects; otherwise it is a failure.
            older: paths of other API versions of the kind; ``decode`` reads all versions. The reflector uses the first
                path that the cluster serves, as long as it is served.
        """
        self._may_be_absent = may_be_absent
        self._kind, self._api_client = kind, api_client
        self._paths, self._path_index = (path, *older), 0
        self._decode, self._sink, self._metrics = decode, sink, metrics
        self._bad_input, self._outages = bad_input, outages
        self._rate_limiter = RateLimiter(_PER_SECOND, _AT_ONCE)
        self._version = ""
        self._absent = False
        self._seen = metrics.events.labels(kind)
        self._failures = 0
        #: Refusals for a passing reason.
        self._passing = 0
        self._last_confirmed: float | None = None
        self._watching_since: float | None = None
        self.synced, self.answered = asyncio.Event(), asyncio.Event()
        self.forbidden = False
        self.listed_at = float("-inf")
        #: Ends the watch, so that the kind is listed again.
        self._watch_end: asyncio.Timeout | None = None

    @property
    def absent(self) -> bool:
        """Whether the cluster does not serve the kind."""
        return self._absent

    @property
    def version(self) -> int:
        """ResourceVersion up to which the sink has every change; 0: unknown."""
        return int(self._version) if self._version.isdecimal() else 0

    def relist(self) -> None:
        """Ends the watch, if one is under way, and lists the kind again."""
        if self._watch_end is not None:
            self._watch_end.reschedule(asyncio.get_running_loop().time())
            self._watch_end = None

    async def run(self) -> None:
        """Lists and watches until cancelled; retries after every failure."""
        while True:
            at_least = 0.0
            try:
                if not self._version:
                    if self.synced.is_set() and not self._absent:
                        self._metrics.relists.labels(self._kind).inc()
                    began = asyncio.get_running_loop().time()
                    self._version = await self._list()
                    self.listed_at, self._absent, self.forbidden = began, False, False
                    self._set_synced()
                await self._watch()
                continue
            except _ListAgain:
                self._version = ""
                continue
            except _Expired:
                self._version = ""
            except _TooShort:
                self._outages.failed(self._kind, "short watch", "the watch ended at once and brought nothing")
            except Garbled as error:
                self._version = ""
                self._outages.failed(self._kind, "not understood", str(error))
            except Refused as error:
                absent = error.status == 404 and self._may_be_absent
                if absent and not self._version:
                    await self._try_next_path()
                    self._failures = 0
                    continue
                if absent or error.status == 410:
                    self._version, self._path_index = "", 0
                elif self._failures >= _DOUBTFUL and error.status not in _BUSY:
                    self._version = ""  # for example a version from before a restore of etcd
                at_least, self.forbidden = error.retry_after, error.status == 403 and not error.starting
                if error.starting:
                    self._failures = min(self._failures, _STARTING_FAILURES)
                else:  # a 403 lasts until the RBAC rules change; an overload does not
                    self._passing += error.transient
                    if not error.transient or self._passing > _DOUBTFUL:
                        self.answered.set()
                    self._outages.failed(self._kind, str(error.status), error.reason, transient=error.status == 429)
            except ConnectionLost:
                pass  # the client logs it, once for all kinds
            # The jitter spreads the watches of all kinds after a restart of the API server.
            self._failures += 1
            await asyncio.sleep(_BACKOFF.pause(self._failures, at_least))

    @property
    def last_confirmed(self) -> float | None:
        """Time (event loop) when the API server last confirmed that the sink is up to date; None: not yet.

        A list, an event, a bookmark, and an accepted watch that lasts are confirmations.
        """
        return (
            max(self._last_confirmed or 0.0, self._watching_since or 0.0)
            if self._watch_was_alive()
            else self._last_confirmed
        )

    def _watch_was_alive(self) -> bool:
        """Whether the present watch has lasted ``_SHORT`` seconds."""
        return self._watching_since is not None and asyncio.get_running_loop().time() - self._watching_since >= _SHORT

    def age(self) -> float:
        """Seconds since ``last_confirmed``; infinite before the first confirmation."""
        return float("inf") if self.last_confirmed is None else asyncio.get_running_loop().time() - self.last_confirmed

    def _mark_confirmed(self) -> None:
        self._last_confirmed = asyncio.get_running_loop().time()

    def _mark_healthy(self) -> None:
        """The watch works: earlier failures are over."""
        self._failures, self.forbidden = 0, False
        self._outages.recovered(self._kind)

    @property
    def path(self) -> str:
        """Where the kind is listed, of the API version that is read."""
        return self._paths[self._path_index]

    async def _try_next_path(self) -> None:
        """Turns to the next API version. If the cluster serves none, empties the sink and waits: it may come later."""
        if self._path_index + 1 < len(self._paths):
            self._path_index += 1
            return
        self._path_index = 0
        if not self._absent:
            _log.info("kind not served", kind=self._kind)
        self._absent = True
        for key in self._sink.keys():  # noqa: SIM118 - a sink is not a mapping
            self._sink.delete(key)
        self._set_synced()
        self._mark_confirmed()
        await asyncio.sleep(_ABSENT * random.uniform(0.5, 1.0))  # noqa: S311

    def _set_synced(self) -> None:
        self.synced.set()
        self.answered.set()

    async def _list(self) -> str:
        """Puts a complete list into the sink and deletes all other objects; returns the list's resourceVersion."""
        gone, version, burst = set(self._sink.keys()), "", Burst()
        async with aclosing(pages(self._api_client, self.path, self._rate_limiter)) as listed:
            async for page in listed:
                version = page.metadata.resource_version
                for item in page.items or ():
                    gone.discard(self._store(item))
                    await burst.part_done()
        for key in gone:
            self._sink.delete(key)
            await burst.part_done()
        self._mark_confirmed()
        return version

    async def _watch(self) -> None:
        """Applies events until the server ends the watch.

        The resourceVersion advances with each event, so no event is applied twice, however the watch ends. A replayed
        old state would free capacity that is in use.
        """
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            # Random, so that the watches of all kinds do not end at the same time.
            "timeoutSeconds": str(random.randint(280, 420)),  # noqa: S311
        }
        await self._rate_limiter.wait()
        rest, count, accepted, burst = b"", 0, False, Burst()
        try:
            async with (
                asyncio.timeout(None) as self._watch_end,
                self._api_client.stream(self.path, params, _SILENCE) as content,
            ):
                accepted = True
                self._watching_since = asyncio.get_running_loop().time()
                async for chunk in content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > _LONGEST:
                        raise Garbled("event: a line without an end")
                    for line in lines:
                        self._apply(line)
                        count += 1
                        await burst.part_done()
                    if lines:
                        self._mark_confirmed()
                        self._mark_healthy()
        except TimeoutError as error:
            raise _ListAgain from error
        except ConnectionLost:
            if not accepted:
                raise
            # All events before the loss were applied: the next watch continues after them.
        finally:
            self._watch_end = None
            lived = self._watch_was_alive()
            self._last_confirmed, self._watching_since = self.last_confirmed, None
        if count == 0 and not lived:
            raise _TooShort
        self._mark_healthy()

    def _apply(self, line: bytes) -> None:
        if not line:
            return
        event = read(EVENTS, line, "event")
        raw = event.object
        if event.type == "ERROR":
            problem = read(PROBLEMS, raw, "error event")
            if problem.code == 410:
                raise _Expired
            status = problem.code if problem.code is not None and 400 <= problem.code < 600 else 500
            raise Refused(status, problem.message or "the watch reported an error")
        version = read(OBJECTS, raw, "event").metadata.resource_version
        # A watch cannot continue without a resourceVersion, and API servers send one with each event.
        if not version:
            raise Garbled(f"event without a version: {line[:200]!r}")
        if event.type == "DELETED":
            self._sink.delete(self._key_by_name(raw))
        elif event.type != "BOOKMARK":
            self._store(raw)
        self._seen.inc()
        self._version = version

    def _store(self, raw: msgspec.Raw) -> str:
        """Puts an object into the sink; returns its key."""
        try:
            try:
                value = self._decode(raw)
            except RecursionError:
                value = self._decode(without_depth(bytes(raw)))
        except Exception as error:  # noqa: BLE001 - one bad object must not stop the others
            key = self._key_by_name(raw)
            self._metrics.unreadable.labels(self._kind).inc()
            self._bad_input.refuse(self._kind, "object", key, f"it cannot be read: {error}")
            self._sink.unreadable(key)
            return key
        if value is None:
            key = self._key_by_name(raw)
            self._sink.delete(key)
            return key
        key = self._sink.key(value)
        if not key or key[-1] == "/":
            raise _unidentifiable(raw)
        self._sink.upsert(value)
        return key

    def _key_by_name(self, raw: msgspec.Raw) -> str:
        meta = read(OBJECTS, raw, "object").metadata
        if not meta.name:
            raise _unidentifiable(raw)
        return self._sink.key_of(meta.namespace or "", meta.name)


def _unidentifiable(raw: msgspec.Raw) -> Garbled:
    """The object has no name, so the whole answer is unreliable."""
    return Garbled(f"object without a name: {bytes(raw)[:200]!r}")
