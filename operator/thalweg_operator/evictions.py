"""Evicts running pods through the Eviction API, which keeps to PodDisruptionBudgets.

A budget that allows no eviction just now is not an error: the same eviction is asked for again, with pauses, for as
long as it is wanted. An eviction whose answer was lost is asked for again too: with the uid, no other pod can be meant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from flowcore.model.pods import Pod
from thalweg_operator.backoff import Backoff
from thalweg_operator.connection import Connection, pod_path
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.events import EventWriter
from thalweg_operator.json_reading import NotReadable, Reader
from thalweg_operator.metrics import Metrics
from thalweg_operator.write_queue import Again, Done, Outcome, WriteQueue, again

_log = structlog.get_logger()
#: Pauses before an eviction that a budget does not allow is asked for again.
_BACKOFF = Backoff(first=1.0, longest=30.0)
#: How many are asked for at a time in one namespace.
_CONCURRENCY = 8


class _FoundMeta(msgspec.Struct):
    uid: str = ""


class _Found(msgspec.Struct):
    metadata: _FoundMeta


_found = Reader(_Found)


@dataclass(frozen=True, slots=True)
class _Eviction:
    pod: Pod
    why: str
    wanted: Callable[[], bool]
    refused: Callable[[str], None]


class Evictor:
    """See the module."""

    def __init__(
        self, connection: Connection, metrics: Metrics, events: EventWriter, *, backoff: Backoff = _BACKOFF
    ) -> None:
        self._connection, self._metrics, self._events = connection, metrics, events
        self._queue = WriteQueue("evictions", _CONCURRENCY, self._try, metrics, backoff)
        #: Uids of pods in line, resting ones too.
        self._known: set[str] = set()

    def evict(
        self,
        pod: Pod,
        why: str,
        wanted: Callable[[], bool] = lambda: True,
        refused: Callable[[str], None] = lambda _reason: None,
    ) -> bool:
        """Puts a pod in line, unless it is there already; whether it did.

        Args:
            why: a sentence, for the Event on the pod.
            wanted: asked before each try; where it is false the pod stays.
            refused: called with the API server's reason each time that it says no.
        """
        if pod.uid in self._known:
            return False
        self._known.add(pod.uid)
        self._queue.put(_Eviction(pod, why, wanted, refused), pod.namespace)
        return True

    def evicting(self, uid: str) -> bool:
        """Whether a pod is in line."""
        return uid in self._known

    async def run(self) -> None:
        """Evicts until cancelled."""
        await self._queue.run()

    async def drain(self) -> None:
        """Returns when everything in line was answered; what a budget holds up is not waited for."""
        await self._queue.drain(resting=False)

    async def _try(self, each: _Eviction, tries: int) -> Outcome:
        outcome: Outcome = Done.UNSENT
        try:
            if each.wanted():
                outcome = await self._evict(each, tries)
        finally:
            if isinstance(outcome, Done):
                self._known.discard(each.pod.uid)
        return outcome

    async def _evict(self, each: _Eviction, tries: int) -> Outcome:
        pod = each.pod
        path = pod_path(pod.namespace, pod.name)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            await self._connection.request("POST", f"{path}/eviction", body=msgspec.json.encode(body))
        except ConnectionLost as error:
            self._metrics.evictions.labels("lost").inc()
            _log.warning("eviction unanswered, asking again", pod=pod.key, problem=str(error))
            return again(error)
        except Refused as error:
            self._metrics.evictions.labels(str(error.status)).inc()
            if error.status == 404 or (error.status == 409 and await self._replaced(path, pod.uid)):
                return Done.ANSWERED  # it is gone, which is what was wanted
            each.refused(error.reason or str(error.status))
            if error.status == 409 or error.passing:
                if tries == 0:
                    _log.info("eviction put off", pod=pod.key, reason=error.reason)
                    self._tell(each, f"{each.why} It cannot be evicted now: {error.reason}")
                # With 429 a budget protects the pod: that says nothing about the others of its namespace.
                return Again("busy", error.retry_after, failed=False) if error.status == 429 else again(error)
            _log.error("eviction refused", pod=pod.key, status=error.status, reason=error.reason)
            self._tell(each, f"{each.why} It was not evicted: {error.reason}")
            return Done.ANSWERED
        self._metrics.evictions.labels("evicted").inc()
        _log.info("evicted", pod=pod.key, why=each.why)
        self._tell(each, each.why)
        return Done.ANSWERED

    async def _replaced(self, path: str, uid: str) -> bool:
        """Whether the pod is gone, or another one has its name."""
        try:
            raw = await self._connection.request("GET", path)
            return _found.read(raw).metadata.uid != uid
        except Refused as error:
            return error.status == 404
        except (ConnectionLost, NotReadable):
            return False

    def _tell(self, each: _Eviction, message: str) -> None:
        self._events.write(each.pod, "Evicting", message, action="Evicting", warning=True)
