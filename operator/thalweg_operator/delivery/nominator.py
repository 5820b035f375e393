"""Writes to pods that kube-scheduler binds: nominations, their clearing, our gate's opening, a wake.

Each write says the whole of what it wants, so one whose answer was lost is simply sent again. A write that is not
wanted any more by the time its turn comes is not sent. One that is refused for good and needed all the same is sent
again with growing pauses.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec
import structlog

from flowcore.model.policies import PLANNED, WOKEN
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiClient, pod_path
from thalweg_operator.api.writes.queued_writer import QueuedWriter
from thalweg_operator.api.writes.write_queue import Finished, Outcome, Retry, WriteQueue, retry_after_error
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.policies.gate_manifests import open_patch
from thalweg_operator.reservations.effects import ClearNomination, Nominate, OpenGate, WakePod
from thalweg_operator.reservations.events import Answer
from thalweg_operator.shell import Shell

PodWrite: TypeAlias = Nominate | ClearNomination | OpenGate | WakePod
_log = structlog.get_logger()
_BACKOFF = Backoff(first=0.1, longest=5.0)
#: Something refuses the pod's changes, a webhook or missing rights: rarely more than an administrator ends that.
_REFUSED = Backoff(first=1.0, longest=300.0)
#: Writes as metrics call them.
_KINDS: dict[type[PodWrite], str] = {
    Nominate: "nominate",
    ClearNomination: "clear",
    OpenGate: "open",
    WakePod: "wake",
}
#: Nothing else makes up for these writes: without them a pod stays behind its gate, or holds room for nothing.
_REQUIRED_KINDS = frozenset({"open", "clear"})
#: The pod is gone, or another one has its name.
_GONE_STATUSES = frozenset({404, 409})


class Nominator(QueuedWriter[PodWrite]):
    """Carries out writes, many at once, those to pods of a namespace in the order they come."""

    def __init__(
        self,
        api_client: ApiClient,
        shell: Shell,
        metrics: Metrics,
        concurrency: int,
        *,
        backoff: Backoff = _BACKOFF,
        refused: Backoff = _REFUSED,
    ) -> None:
        """Keeps at most ``concurrency`` writes in flight.

        Args:
            backoff: pauses between tries of one write.
            refused: the same where the API server refuses it, for writes that are needed all the same.
        """
        self._api_client, self._shell, self._metrics, self._refused_backoff = api_client, shell, metrics, refused
        super().__init__(WriteQueue("pods", concurrency, self._try, metrics, backoff))

    def put(self, write: PodWrite) -> None:
        """Puts a write in line."""
        self._queue.put(write, write.pod.namespace)

    async def _try(self, write: PodWrite, tries: int) -> Outcome:
        try:
            return await self._carry_out(write, tries)
        except Exception as error:
            self._shell.answered(write, Answer.REFUSED, repr(error))
            raise

    async def _carry_out(self, write: PodWrite, tries: int) -> Outcome:
        if not self._shell.is_wanted(write):
            self._shell.answered(write, Answer.UNWANTED)
            return Finished.UNSENT
        kind = write_kind(write)
        path, content_type, body = _request(write)
        try:
            await self._api_client.request("PATCH", path, body=body, content_type=content_type)
        except ConnectionLost as error:
            self._metrics.steering_writes.labels(kind, "lost").inc()
            _log.warning("write unanswered, asking again", kind=kind, pod=write.pod.key, problem=str(error))
            return retry_after_error(error)
        except Refused as error:
            self._metrics.steering_writes.labels(kind, str(error.status)).inc()
            if error.transient:
                return retry_after_error(error)
            if kind in _REQUIRED_KINDS and error.status not in _GONE_STATUSES:
                self._shell.answered(write, Answer.RETRYING, error.reason or str(error.status))
                return Retry("refused", self._refused_backoff.pause(tries + 1), counts_as_failure=False)
            self._shell.answered(write, Answer.REFUSED, error.reason or str(error.status))
            return Finished.ANSWERED
        self._metrics.steering_writes.labels(kind, "done").inc()
        self._shell.answered(write, Answer.DONE)
        return Finished.ANSWERED


def write_kind(write: PodWrite) -> str:
    """nominate, clear, open or wake: as metrics call a write."""
    return _KINDS[type(write)]


def _request(write: PodWrite) -> tuple[str, str, bytes]:
    """Path, content type and body. The UID makes the server refuse another pod that took the name meanwhile."""
    pod = write.pod
    path = pod_path(pod.namespace, pod.name)
    metadata: dict[str, Any] = {"uid": pod.uid}
    content_type = MERGE_PATCH
    match write:
        case Nominate() | ClearNomination():
            # One write: a status update may change annotations too, and only labels, annotations and status.
            node = write.node if isinstance(write, Nominate) else None
            body = {"metadata": {**metadata, "annotations": {PLANNED: node}}, "status": {"nominatedNodeName": node}}
            path += "/status"
        case OpenGate():
            body = open_patch(pod.uid)
            content_type = STRATEGIC_MERGE_PATCH
        case WakePod():
            # Any change of a pod that an extender rejected makes kube-scheduler try it again.
            body = {"metadata": {**metadata, "annotations": {WOKEN: datetime.now(UTC).isoformat()}}}
    return path, content_type, msgspec.json.encode(body)
