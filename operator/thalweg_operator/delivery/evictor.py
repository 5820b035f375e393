"""Evicts running pods through the Eviction API, which keeps to PodDisruptionBudgets.

A pod that leaves for a pod that names it, or with its gang, is asked for again while a budget allows no eviction, with
pauses, for as long as that is wanted. Where pods leave by a plan, a refusal is an answer: the plan is made anew. An
eviction whose answer was lost is asked for again: with the uid, no other pod can be meant.

The Eviction API writes a condition DisruptionTarget of its own into the pod, over any other. So ours, which says who
comes in its place, is written after the eviction, while the pod terminates. The podFailurePolicy of a Job needs no more
than the condition of the API: it reads type and status, and both are there before the pod is deleted.
"""

from __future__ import annotations

from typing import Any

import msgspec
import structlog

from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import STRATEGIC_MERGE_PATCH, ApiClient, pod_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.api.writes.events import EventWriter, timestamp
from thalweg_operator.api.writes.queued_writer import QueuedWriter
from thalweg_operator.api.writes.write_queue import Finished, Outcome, Retry, WriteQueue, retry_after_error
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import Departure, Evict
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
#: They leave for a place that is named, or with their gang: no other pod would do.
_PERSISTENT = frozenset({Departure.REPLACEMENT, Departure.PARTIAL_GANG})
#: kube-scheduler's own reason (core/v1 PodReasonPreemptionByScheduler): it evicts no other pod for that one meanwhile.
_PREEMPTED = "PreemptionByScheduler"


class Evictor(QueuedWriter[Evict]):
    """Sends evictions and their dry runs, with retries."""

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
        super().__init__(WriteQueue("evictions", _CONCURRENCY, self._try, metrics, backoff))

    def put(self, write: Evict) -> None:
        """Puts an eviction in line."""
        self._queue.put(write, write.pod.namespace)

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
        """One try: what becomes of it in the queue, what is to be answered (None: nothing now), and its reason."""
        pod = write.pod
        path = pod_path(pod.namespace, pod.name)
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if write.dry_run:
            options["dryRun"] = ["All"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        try:
            await self._api_client.request("POST", f"{path}/eviction", body=msgspec.json.encode(body))
        except ConnectionLost as error:
            self._count(write, "lost")
            _log.warning("eviction unanswered, asking again", pod=pod.key, problem=str(error))
            return retry_after_error(error), None, ""
        except Refused as error:
            self._count(write, str(error.status))
            if error.status == 404 or (error.status == 409 and await self._is_gone(path, pod.uid)):
                return Finished.ANSWERED, Answer.DONE, ""  # it is gone, which is what was wanted
            return self._refused(write, tries, error)
        self._count(write, "allowed" if write.dry_run else "evicted")
        if not write.dry_run:
            self._shell.answered(write, Answer.DONE)  # at once: others may leave after it
            preemptors = {"preemptors": write.preemptors} if write.preemptors else {}
            _log.info("evicted", pod=pod.key, kind=write.departure.value, why=write.message, **preemptors)
            if self._shell.shows(pod):
                await self._write_condition(write, path)
            self._write_event(write, write.message)
            return Finished.ANSWERED, None, ""
        return Finished.ANSWERED, Answer.DONE, ""

    def _refused(self, write: Evict, tries: int, error: Refused) -> tuple[Outcome, Answer | None, str]:
        pod, reason = write.pod, error.reason or str(error.status)
        persistent = write.departure in _PERSISTENT
        if (error.status == 409 or error.transient) and not (_is_of_pod(error) and not persistent):
            if not persistent:
                return retry_after_error(error), None, ""
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
        if persistent:
            _log.error("eviction refused", pod=pod.key, status=error.status, reason=error.reason)
            self._write_event(write, f"{write.message} It was not evicted: {error.reason}")
        else:
            fields = {"kind": write.departure.value, "dry_run": write.dry_run, "reason": error.reason}
            _log.info("eviction refused", pod=pod.key, **fields)
        return Finished.ANSWERED, Answer.REFUSED, reason

    def _count(self, write: Evict, answer: str) -> None:
        counter = self._metrics.eviction_dry_runs if write.dry_run else self._metrics.evictions
        counter.labels(write.departure.value, answer).inc()

    async def _write_condition(self, write: Evict, path: str) -> None:
        """Says on the pod who comes in its place. A pod that is gone by then, or a lost write, does without."""
        reason = _PREEMPTED if write.departure is Departure.PREEMPTION else f"{write.departure.value}ByThalweg"
        condition: dict[str, str | int] = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": write.condition or write.message,
            "lastTransitionTime": timestamp(),
        }
        if write.pod.generation:
            condition["observedGeneration"] = write.pod.generation
        body = msgspec.json.encode({"metadata": {"uid": write.pod.uid}, "status": {"conditions": [condition]}})
        try:
            await self._api_client.request("PATCH", f"{path}/status", body=body, content_type=STRATEGIC_MERGE_PATCH)
        except (Refused, ConnectionLost) as error:
            if not isinstance(error, Refused) or error.status not in (404, 409):
                _log.warning("condition DisruptionTarget not written", pod=write.pod.key, problem=str(error))

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
        if write.departure is Departure.PREEMPTION:
            self._events.write(write.pod, "Preempted", message, action="Preempting")
        else:
            self._events.write(write.pod, "Evicting", message, action="Evicting", warning=True)


def _is_of_pod(error: Refused) -> bool:
    """Whether a transient error is about this pod: a budget that allows nothing, or several budgets (500).

    Source: registry/core/pod/storage/eviction.go.
    """
    return error.status == 500 or (error.status == 429 and "disruption" in error.reason)
