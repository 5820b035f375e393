"""Evicts running pods through the Eviction API, which keeps to PodDisruptionBudgets.

A budget that allows no eviction just now is not an error: the same eviction is asked for again, with pauses, for as
long as it is wanted. An eviction whose answer was lost is asked for again too: with the uid, no other pod can be meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from flowcore.model.pods import Pod
from thalweg_operator.connection import Connection
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.events import warn
from thalweg_operator.json_reading import NotReadable, Reader
from thalweg_operator.metrics import Metrics

_log = structlog.get_logger()
#: Seconds before an eviction that a budget does not allow is asked for again; twice as many each time, up to the last.
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
#: How many are asked for at a time.
_WORKERS = 4


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
    tries: int = 0


class Evictor:
    """See the module."""

    def __init__(self, connection: Connection, metrics: Metrics) -> None:
        self._connection, self._metrics = connection, metrics
        self._queue: asyncio.Queue[_Eviction] = asyncio.Queue()
        #: Uids of pods in line, resting ones too.
        self._known: set[str] = set()
        self._resting: set[asyncio.TimerHandle] = set()

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
        self._queue.put_nowait(_Eviction(pod, why, wanted, refused))
        return True

    def evicting(self, uid: str) -> bool:
        """Whether a pod is in line."""
        return uid in self._known

    async def run(self) -> None:
        """Evicts until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(_WORKERS):
                    tasks.create_task(self._work())
        finally:
            for timer in self._resting:
                timer.cancel()

    async def drain(self) -> None:
        """Returns when everything in line was answered; what a budget holds up is not waited for."""
        await self._queue.join()

    async def _work(self) -> None:
        while True:
            each = await self._queue.get()
            rest: float | None = None
            try:
                if each.wanted():
                    rest = await self._evict(each)
            except Exception:  # noqa: BLE001 - whatever it was, the others must be evicted
                _log.exception("eviction failed unexpectedly", pod=each.pod.key)
            finally:
                if rest is None:
                    self._known.discard(each.pod.uid)
                else:
                    self._rest(each, rest)
                self._queue.task_done()

    def _rest(self, each: _Eviction, seconds: float) -> None:
        again = _Eviction(each.pod, each.why, each.wanted, each.refused, each.tries + 1)

        def back() -> None:
            self._resting.discard(timer)
            self._queue.put_nowait(again)

        timer = asyncio.get_running_loop().call_later(seconds, back)
        self._resting.add(timer)

    async def _evict(self, each: _Eviction) -> float | None:
        """Seconds after which to ask again; None: it is done with."""
        pod = each.pod
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        pause = min(_LONGEST_PAUSE, _PAUSE * 2.0 ** min(each.tries, 16))
        try:
            await self._connection.request("POST", f"{path}/eviction", body=msgspec.json.encode(body))
        except ConnectionLost as error:
            self._metrics.evictions.labels("lost").inc()
            _log.warning("eviction unanswered, asking again", pod=pod.key, problem=str(error))
            return pause
        except Refused as error:
            self._metrics.evictions.labels(str(error.status)).inc()
            if error.status == 404 or (error.status == 409 and await self._replaced(path, pod.uid)):
                return None  # it is gone, which is what was wanted
            each.refused(error.reason or str(error.status))
            if error.status == 409 or error.passing:
                if each.tries == 0:
                    _log.info("eviction put off", pod=pod.key, reason=error.reason)
                    await self._tell(each, f"{each.why} It cannot be evicted now: {error.reason}")
                return max(pause, min(error.retry_after, _LONGEST_PAUSE))
            _log.error("eviction refused", pod=pod.key, status=error.status, reason=error.reason)
            await self._tell(each, f"{each.why} It was not evicted: {error.reason}")
            return None
        self._metrics.evictions.labels("evicted").inc()
        _log.info("evicted", pod=pod.key, why=each.why)
        await self._tell(each, each.why)
        return None

    async def _replaced(self, path: str, uid: str) -> bool:
        """Whether the pod is gone, or another one has its name."""
        try:
            raw = await self._connection.request("GET", path)
            return _found.read(raw).metadata.uid != uid
        except Refused as error:
            return error.status == 404
        except (ConnectionLost, NotReadable):
            return False

    async def _tell(self, each: _Eviction, message: str) -> None:
        try:
            await warn(self._connection, each.pod, "Evicting", message)
        except (Refused, ConnectionLost) as error:
            _log.warning("event not written", pod=each.pod.key, problem=str(error))
