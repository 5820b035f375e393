"""Writes to pods that kube-scheduler binds: nominations, their clearing, our gate's opening, a wake.

Each write says the whole of what it wants, so one whose answer was lost is simply sent again. A write that is not
wanted any more by the time its turn comes is not sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from flowcore.model.pods import Pod
from flowcore.model.policies import GATE, PLANNED, WOKEN
from thalweg_operator.connection import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Connection
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.pauses import pause

_log = structlog.get_logger()
#: Seconds after which a write that waits looks again whether it must.
_PATIENCE = 0.05


@dataclass(frozen=True, slots=True)
class Write:
    """One write to one pod.

    Attributes:
        kind: as metrics call it: nominate, clear, open or wake.
        node: to nominate.
        wanted: asked before each try.
        done: called once it is over: "" when it was carried out, the API server's reason when it never will be, None
            when it is not wanted any more.
        begun: called before the first try.
    """

    kind: str
    pod: Pod
    node: str = ""
    wanted: Callable[[], bool] = lambda: True
    done: Callable[[str | None], None] = lambda _problem: None
    begun: Callable[[], None] = lambda: None


class Nominator:
    """Carries out writes, many at once.

    Urgent ones go in the order they come. The others go few at a time and the newest first: kube-scheduler takes the
    oldest pods first, and what it comes upon before its turn need not be written any more.

    Attributes:
        patient: asked before each write that is not urgent: whether it had better wait.
    """

    def __init__(self, connection: Connection, metrics: Metrics, concurrency: int) -> None:
        self.patient: Callable[[], bool] = lambda: False
        self._connection, self._metrics = connection, metrics
        self._lines: list[tuple[asyncio.Queue[Write], int]] = [
            (asyncio.Queue(), concurrency),
            (asyncio.LifoQueue(), max(1, concurrency // 4)),
        ]

    def put(self, write: Write, *, urgent: bool = True) -> None:
        """Puts a write in line."""
        self._lines[0 if urgent else 1][0].put_nowait(write)

    async def run(self) -> None:
        """Writes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for line, workers in self._lines:
                for _ in range(workers):
                    tasks.create_task(self._work(line))

    async def drain(self) -> None:
        """Returns when all that is urgent was answered; a pod that merely stands in line is planned again."""
        await self._lines[0][0].join()

    async def _work(self, line: asyncio.Queue[Write]) -> None:
        while True:
            write = await line.get()
            while line is self._lines[1][0] and write.wanted() and self.patient():  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(_PATIENCE)
            try:
                await self._carry_out(write)
            except Exception as error:  # noqa: BLE001 - whatever it was, the others must be written
                _log.exception("write failed unexpectedly", kind=write.kind, pod=write.pod.key)
                write.done(repr(error))
            finally:
                line.task_done()

    async def _carry_out(self, write: Write) -> None:
        path, content_type, body = _request(write)
        tries = 0
        while write.wanted():
            if not tries:
                write.begun()
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
            # By name: gates of others stay as they are.
            body = {"metadata": metadata, "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}}
            content_type = STRATEGIC_MERGE_PATCH
        case "wake":
            # Any change of a pod that an extender rejected makes kube-scheduler try it again.
            body = {"metadata": {**metadata, "annotations": {WOKEN: datetime.now(UTC).isoformat()}}}
        case _:
            raise ValueError(write.kind)
    return path, content_type, msgspec.json.encode(body)
