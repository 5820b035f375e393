"""Writes to pods that kube-scheduler binds: nominations, their clearing, our gate's opening, a wake.

Each write says the whole of what it wants, so one whose answer was lost is simply sent again. A write that is not
wanted any more by the time its turn comes is not sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import structlog

from flowcore.model.pods import Pod
from flowcore.model.policies import PLANNED, WOKEN
from thalweg_operator.connection import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Connection
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.gates import opening
from thalweg_operator.metrics import Metrics
from thalweg_operator.pauses import pause

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Write:
    """One write to one pod.

    Attributes:
        kind: as metrics call it: nominate, clear, open or wake.
        node: to nominate.
        wanted: asked before each try.
        done: called once it is over: "" when it was carried out, the API server's reason when it never will be, None
            when it is not wanted any more.
    """

    kind: Literal["nominate", "clear", "open", "wake"]
    pod: Pod
    node: str = ""
    wanted: Callable[[], bool] = lambda: True
    done: Callable[[str | None], None] = lambda _problem: None


class Nominator:
    """Carries out writes, many at once, in the order they come."""

    def __init__(self, connection: Connection, metrics: Metrics, concurrency: int) -> None:
        self._connection, self._metrics, self._concurrency = connection, metrics, concurrency
        self._queue: asyncio.Queue[Write] = asyncio.Queue()

    def put(self, write: Write) -> None:
        """Puts a write in line."""
        self._queue.put_nowait(write)

    async def run(self) -> None:
        """Writes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._concurrency):
                tasks.create_task(self._work())

    async def drain(self) -> None:
        """Returns when everything in line was answered."""
        await self._queue.join()

    async def _work(self) -> None:
        while True:
            write = await self._queue.get()
            try:
                await self._carry_out(write)
            except Exception as error:  # noqa: BLE001 - whatever it was, the others must be written
                _log.exception("write failed unexpectedly", kind=write.kind, pod=write.pod.key)
                write.done(repr(error))
            finally:
                self._queue.task_done()

    async def _carry_out(self, write: Write) -> None:
        path, content_type, body = _request(write)
        tries = 0
        while write.wanted():
            tries += 1
            try:
                await self._connection.request("PATCH", path, body=body, content_type=content_type)
            except ConnectionLost as error:
                self._metrics.steering_writes.labels(write.kind, "lost").inc()
                _log.warning("write unanswered, asking again", kind=write.kind, pod=write.pod.key, problem=str(error))
                await pause(tries)
                continue
            except Refused as error:
                self._metrics.steering_writes.labels(write.kind, str(error.status)).inc()
                if error.passing:
                    await pause(tries, error.retry_after)
                    continue
                write.done(error.reason or str(error.status))
                return
            self._metrics.steering_writes.labels(write.kind, "done").inc()
            write.done("")
            return
        write.done(None)


def _request(write: Write) -> tuple[str, str, bytes]:
    """Path, content type and body. With the uid the server refuses another pod that took the name meanwhile."""
    pod = write.pod
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
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
