"""Binds planned pods, many at once, and handles every answer.

A binding whose answer was lost, or was a server's error, may have happened. The room stays reserved and the same
binding is sent again until the API server says for certain: 201, or 409 because the first one got through. Only then is
the pod's room given back or confirmed, so nothing is bound twice and no room is counted free that is not. A binding
that was not carried out for certain (no lease, 401, 403, 429) is sent again only while the node is as planned and has
the room, and the gang can come.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import structlog

from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import ApiClient, pod_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.api.writes.events import EventWriter
from thalweg_operator.api.writes.queued_writer import QueuedWriter
from thalweg_operator.api.writes.write_queue import (
    Finished,
    Outcome,
    Retry,
    WriteQueue,
    retry_after_error,
)
from thalweg_operator.errors import ConnectionLost, LeaseLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.reports.progress import ProgressLog
from thalweg_operator.reservations.effects import Bind
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.step.write_checks import OPERATOR_ENDS
from thalweg_operator.shell import Shell

_log = structlog.get_logger()
_BACKOFF = Backoff(first=0.1, longest=5.0)
#: Seconds that ``until_sent`` waits at most: a connection may have to be opened first, or the API server is away.
_SENT_WITHIN = 0.01


class _BoundSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _BoundMeta(msgspec.Struct):
    uid: str = ""


class _BoundPod(msgspec.Struct):
    metadata: _BoundMeta
    spec: _BoundSpec


_bound_pods = JsonReader(_BoundPod)


@dataclass(slots=True)
class _QueuedBinding:
    """A binding in line; ``uncertain``: whether a try may have been carried out."""

    write: Bind
    uncertain: bool = False


class Binder(QueuedWriter[_QueuedBinding]):
    """Binds the pods of a namespace in the order they come."""

    def __init__(
        self,
        api_client: ApiClient,
        shell: Shell,
        metrics: Metrics,
        events: EventWriter,
        progress: ProgressLog,
        concurrency: int,
        *,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        """Keeps at most ``concurrency`` bindings in flight.

        Args:
            backoff: pauses between tries of one binding.
        """
        self._api_client, self._shell, self._metrics = api_client, shell, metrics
        self._events, self._progress = events, progress
        super().__init__(WriteQueue("bindings", concurrency, self._try, metrics, backoff))
        self._succeeded = metrics.bindings.labels("bound")
        self._ends = False
        #: Whether since the last ``put`` a binding was sent, or a try ended.
        self._sent = asyncio.Event()
        self._sent.set()

    def put(self, write: Bind) -> None:
        """Puts a binding in line."""
        self._sent.clear()
        self._queue.put(_QueuedBinding(write), write.pod.namespace)

    async def until_sent(self) -> None:
        """Returns when a binding has left since the last ``put``, or after a moment: what is no haste may begin."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SENT_WITHIN):
                await self._sent.wait()

    def end(self) -> None:
        """From now on only bindings are sent that complete a gang (``write_checks.bind_problem``)."""
        self._ends = True

    async def drain(self) -> None:
        """Returns when all that is due was sent, and the API server said for certain what it has done."""
        await super().drain()
        while self.unanswered:  # noqa: ASYNC110 - the watch shows it, or its time passes
            await asyncio.sleep(0.01)

    async def _try(self, planned: _QueuedBinding, tries: int) -> Outcome:
        try:
            outcome = await self._bind(planned, tries)
        except Exception:
            # The pod must not be lost: its room is given back and the next round takes it up.
            self._shell.answered(planned.write, Answer.REFUSED)
            raise
        finally:
            self._sent.set()
        if isinstance(outcome, Retry) and not planned.uncertain:
            self._shell.answered(planned.write, Answer.RETRYING)
        return outcome

    async def _bind(self, planned: _QueuedBinding, tries: int) -> Outcome:
        write = planned.write
        pod, node = write.pod, write.node
        if not planned.uncertain:
            problem = self._shell.bind_problem(write, retry=tries > 0, ends=self._ends)
            if problem:
                self._give_up(write, problem, "", Answer.UNWANTED)
                return Finished.UNSENT
        elif node not in self._shell.cluster.nodes:
            # The API server does not check that the node exists; a pod bound to a node that is gone never runs. An
            # earlier try may have got through. Until that is known nothing more is sent there.
            return await self._resolve_conflict(write, Refused(409, ""))
        path = pod_path(pod.namespace, pod.name, "binding")
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            # With the uid the server refuses to bind another pod that took the name meanwhile.
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"kind": "Node", "name": node},
        }
        self._shell.answered(write, Answer.UNCERTAIN)
        try:
            await self._api_client.request("POST", path, body=msgspec.json.encode(body), on_sent=self._sent.set)
        except LeaseLost as error:
            self._metrics.bindings.labels("no lease").inc()
            return retry_after_error(error)
        except ConnectionLost as error:
            planned.uncertain = True
            self._metrics.bindings.labels("lost").inc()
            _log.warning("binding unanswered, asking again", pod=pod.key, node=node, problem=str(error))
            return retry_after_error(error)
        except Refused as error:
            if error.status == 409:
                return await self._resolve_conflict(write, error)
            if error.transient:
                outcome = retry_after_error(error)
                planned.uncertain |= outcome.uncertain
                self._metrics.bindings.labels(str(error.status)).inc()
                return outcome
            self._give_up(write, str(error.status), error.reason if error.status != 404 else "")
            return Finished.ANSWERED
        self._bound(write)
        return Finished.ANSWERED

    async def _resolve_conflict(self, write: Bind, error: Refused) -> Outcome:
        """Finds out what a 409 meant; where that cannot be known yet, the binding is to be sent again."""
        pod, node = write.pod, write.node
        try:
            raw = await self._api_client.request("GET", pod_path(pod.namespace, pod.name))
            actual = _bound_pods.read(raw)
        except Refused as problem:
            if problem.status != 404:
                return retry_after_error(problem)
            self._give_up(write, "404", "")
            return Finished.ANSWERED
        except ConnectionLost as problem:
            return retry_after_error(problem)
        except UnreadableJson:
            return Retry("error")
        if actual.metadata.uid != pod.uid:
            self._give_up(write, "replaced", "")
        elif actual.spec.node_name == node:
            self._bound(write)  # an earlier try got through
        elif actual.spec.node_name:
            self._give_up(write, "bound elsewhere", "")
        else:
            # Still unbound, so it is the pod itself that may not be bound (it is being deleted, or gated).
            self._give_up(write, "409", error.reason)
        return Finished.ANSWERED

    def _bound(self, write: Bind) -> None:
        pod, node = write.pod, write.node
        self._succeeded.inc()
        self._progress.bound(pod, node)
        # In kube-scheduler's words.
        self._events.write(pod, "Scheduled", f"Successfully assigned {pod.key} to {node}", action="Binding")
        self._shell.answered(write, Answer.DONE)
        if pod.created:
            self._metrics.binding_seconds.observe(max(0.0, time.time() - pod.created))

    def _give_up(self, write: Bind, what: str, reason: str, answer: Answer = Answer.REFUSED) -> None:
        """Ends a binding that did not happen.

        Args:
            what: for the metric.
            reason: why the API server will not bind the pod, if it says so.
            answer: for the ledger.
        """
        pod = write.pod
        self._metrics.bindings.labels(what).inc()
        if what != OPERATOR_ENDS:  # thousands at once
            _log.info("not bound", pod=pod.key, node=write.node, answer=what, reason=reason)
        if reason:
            self._progress.refused(pod, reason)
        self._shell.answered(write, answer, reason)
