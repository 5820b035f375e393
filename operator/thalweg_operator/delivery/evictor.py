"""Evicts running pods through the Eviction API, which keeps to PodDisruptionBudgets.

A budget that allows no eviction just now is not an error: the same eviction is asked for again, with pauses, for as
long as it is wanted. An eviction whose answer was lost is asked for again too: with the uid, no other pod can be meant.
"""

from __future__ import annotations

import msgspec
import structlog

from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import ApiClient, pod_path
from thalweg_operator.api.events import EventWriter
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.api.write_queue import Finished, Outcome, Retry, WriteQueue, retry_after_error
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import Evict
from thalweg_operator.reservations.events import Answer
from thalweg_operator.shell import Shell

_log = structlog.get_logger()
#: Pauses before an eviction that a budget does not allow is asked for again.
_BACKOFF = Backoff(first=1.0, longest=30.0)
#: How many are asked for at a time in one namespace.
_CONCURRENCY = 8


class _FoundMeta(msgspec.Struct):
    uid: str = ""


class _Found(msgspec.Struct):
    metadata: _FoundMeta


_found = JsonReader(_Found)


class Evictor:
    """See the module."""

    def __init__(
        self,
        api_client: ApiClient,
        shell: Shell,
        metrics: Metrics,
        events: EventWriter,
        *,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self._api_client, self._shell, self._metrics, self._events = api_client, shell, metrics, events
        self._queue = WriteQueue("evictions", _CONCURRENCY, self._try, metrics, backoff)

    def put(self, write: Evict) -> None:
        """Puts an eviction in line."""
        self._queue.put(write, write.pod.namespace)

    async def run(self) -> None:
        """Evicts until cancelled."""
        await self._queue.run()

    async def drain(self) -> None:
        """Returns when everything in line was answered; what a budget holds up is not waited for."""
        await self._queue.drain(resting=False)

    @property
    def unanswered(self) -> bool:
        """Whether an eviction was sent that may still be carried out."""
        return self._queue.unanswered

    async def _try(self, write: Evict, tries: int) -> Outcome:
        if not self._shell.is_wanted(write):
            self._shell.answered(write, Answer.UNWANTED)
            return Finished.UNSENT
        try:
            outcome, answer, reason = await self._evict(write, tries)
        except Exception:
            self._shell.answered(write, Answer.UNWANTED)
            raise
        if answer is not None:
            self._shell.answered(write, answer, reason)
        return outcome

    async def _evict(self, write: Evict, tries: int) -> tuple[Outcome, Answer | None, str]:
        """One try: what becomes of it in the queue, the answer for the ledger (None: none yet), and its reason."""
        pod = write.pod
        path = pod_path(pod.namespace, pod.name)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            await self._api_client.request("POST", f"{path}/eviction", body=msgspec.json.encode(body))
        except ConnectionLost as error:
            self._metrics.evictions.labels("lost").inc()
            _log.warning("eviction unanswered, asking again", pod=pod.key, problem=str(error))
            return retry_after_error(error), None, ""
        except Refused as error:
            self._metrics.evictions.labels(str(error.status)).inc()
            if error.status == 404 or (error.status == 409 and await self._is_gone(path, pod.uid)):
                return Finished.ANSWERED, Answer.DONE, ""  # it is gone, which is what was wanted
            reason = error.reason or str(error.status)
            if error.status == 409 or error.transient:
                if tries == 0:
                    _log.info("eviction put off", pod=pod.key, reason=error.reason)
                    self._write_event(write, f"{write.message} It cannot be evicted now: {error.reason}")
                # With 429 a budget protects the pod: that says nothing about the others of its namespace.
                outcome = (
                    Retry("busy", error.retry_after, counts_as_failure=False)
                    if error.status == 429
                    else retry_after_error(error)
                )
                return outcome, Answer.RETRYING, reason
            _log.error("eviction refused", pod=pod.key, status=error.status, reason=error.reason)
            self._write_event(write, f"{write.message} It was not evicted: {error.reason}")
            return Finished.ANSWERED, Answer.REFUSED, reason
        self._metrics.evictions.labels("evicted").inc()
        _log.info("evicted", pod=pod.key, why=write.message)
        self._write_event(write, write.message)
        return Finished.ANSWERED, Answer.DONE, ""

    async def _is_gone(self, path: str, uid: str) -> bool:
        """Whether the pod is gone, or another one has its name."""
        try:
            raw = await self._api_client.request("GET", path)
            return _found.read(raw).metadata.uid != uid
        except Refused as error:
            return error.status == 404
        except (ConnectionLost, UnreadableJson):
            return False

    def _write_event(self, write: Evict, message: str) -> None:
        self._events.write(write.pod, "Evicting", message, action="Evicting", warning=True)
