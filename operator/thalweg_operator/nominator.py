"""Writes to pods that kube-scheduler binds: nominations, their clearing, our gate's opening, a wake.

Each write says the whole of what it wants, so one whose answer was lost is simply sent again. A write that is not
wanted any more by the time its turn comes is not sent. One that is refused for good and needed all the same is sent
again with growing pauses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import structlog

from flowcore.model.pods import Pod
from flowcore.model.policies import PLANNED, WOKEN
from thalweg_operator.backoff import Backoff
from thalweg_operator.connection import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Connection, pod_path
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.gates import opening
from thalweg_operator.metrics import Metrics
from thalweg_operator.write_queue import Again, Done, Outcome, WriteQueue, again

_log = structlog.get_logger()
_BACKOFF = Backoff(first=0.1, longest=5.0)
#: Something refuses the pod's changes, a webhook or missing rights: rarely more than an administrator ends that.
_REFUSED = Backoff(first=1.0, longest=300.0)
#: Kinds that nobody else makes up for: without them a pod stays behind its gate, or holds room for nothing.
_NEEDED = frozenset({"open", "clear"})
#: The pod is gone, or another one has its name.
_GONE = frozenset({404, 409})


@dataclass(frozen=True, slots=True)
class Write:
    """One write to one pod.

    Attributes:
        kind: as metrics call it: nominate, clear, open or wake.
        node: to nominate.
        wanted: asked before each try.
        done: called once it is over: "" when it was carried out, the API server's reason when it never will be, None
            when it is not wanted any more.
        refused: called with the API server's reason each time that it refuses a write that will be tried again.
    """

    kind: Literal["nominate", "clear", "open", "wake"]
    pod: Pod
    node: str = ""
    wanted: Callable[[], bool] = lambda: True
    done: Callable[[str | None], None] = lambda _problem: None
    refused: Callable[[str], None] = lambda _reason: None


class Nominator:
    """Carries out writes, many at once, those to pods of a namespace in the order they come."""

    def __init__(
        self,
        connection: Connection,
        metrics: Metrics,
        concurrency: int,
        *,
        backoff: Backoff = _BACKOFF,
        refused: Backoff = _REFUSED,
    ) -> None:
        """With so many writes in flight at once.

        Args:
            backoff: pauses between tries of one write.
            refused: the same where the API server refuses it, for writes that are needed all the same.
        """
        self._connection, self._metrics, self._refused = connection, metrics, refused
        self._queue = WriteQueue("pods", concurrency, self._try, metrics, backoff)

    def put(self, write: Write) -> None:
        """Puts a write in line."""
        self._queue.put(write, write.pod.namespace)

    async def run(self) -> None:
        """Writes until cancelled."""
        await self._queue.run()

    async def drain(self) -> None:
        """Returns when everything in line was answered."""
        await self._queue.drain()

    async def _try(self, write: Write, tries: int) -> Outcome:
        try:
            return await self._carry_out(write, tries)
        except Exception as error:
            write.done(repr(error))
            raise

    async def _carry_out(self, write: Write, tries: int) -> Outcome:
        if not write.wanted():
            write.done(None)
            return Done.UNSENT
        path, content_type, body = _request(write)
        try:
            await self._connection.request("PATCH", path, body=body, content_type=content_type)
        except ConnectionLost as error:
            self._metrics.steering_writes.labels(write.kind, "lost").inc()
            _log.warning("write unanswered, asking again", kind=write.kind, pod=write.pod.key, problem=str(error))
            return again(error)
        except Refused as error:
            self._metrics.steering_writes.labels(write.kind, str(error.status)).inc()
            if error.passing:
                return again(error)
            if write.kind in _NEEDED and error.status not in _GONE:
                write.refused(error.reason or str(error.status))
                return Again("refused", self._refused.pause(tries + 1), failed=False)
            write.done(error.reason or str(error.status))
            return Done.ANSWERED
        self._metrics.steering_writes.labels(write.kind, "done").inc()
        write.done("")
        return Done.ANSWERED


def _request(write: Write) -> tuple[str, str, bytes]:
    """Path, content type and body. With the uid the server refuses another pod that took the name meanwhile."""
    pod = write.pod
    path = pod_path(pod.namespace, pod.name)
    metadata: dict[str, Any] = {"uid": pod.uid}
    content_type = MERGE_PATCH
    match write.kind:
        case "nominate" | "clear":
            # One write: a status update may change annotations too, and only labels, annotations and status.
            node = write.node or None
            body = {"metadata": {**metadata, "annotations": {PLANNED: node}}, "status": {"nominatedNodeName": node}}
            path += "/status"
        case "open":
            body = opening(pod.uid)
            content_type = STRATEGIC_MERGE_PATCH
        case "wake":
            # Any change of a pod that an extender rejected makes kube-scheduler try it again.
            body = {"metadata": {**metadata, "annotations": {WOKEN: datetime.now(UTC).isoformat()}}}
    return path, content_type, msgspec.json.encode(body)
