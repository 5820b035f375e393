"""Binds planned pods, many at once, and handles every answer.

A binding whose answer was lost, or was a server's error, may have happened. The room stays reserved and the same
binding is sent again until the API server says for certain: 201, or 409 because the first one got through. Only then is
the pod's room given back or confirmed, so nothing is bound twice and no room is counted free that is not. A binding
that was not carried out for certain (no lease, 429) is sent again only while the node is as planned and has the room.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from flowcore.model.pods import Pod
from thalweg_operator.backoff import Backoff
from thalweg_operator.connection import Connection, pod_path
from thalweg_operator.errors import ConnectionLost, LeaseLost, Refused
from thalweg_operator.json_reading import NotReadable, Reader
from thalweg_operator.metrics import Metrics
from thalweg_operator.state import ClusterState
from thalweg_operator.write_queue import Again, Done, Outcome, WriteQueue, again

_log = structlog.get_logger()
_BACKOFF = Backoff(first=0.1, longest=5.0)


class _Meta(msgspec.Struct):
    name: str
    namespace: str
    uid: str


class _Target(msgspec.Struct):
    kind: str
    name: str


class _Binding(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    metadata: _Meta
    target: _Target


class _BoundSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _BoundMeta(msgspec.Struct):
    uid: str = ""


class _BoundPod(msgspec.Struct):
    metadata: _BoundMeta
    spec: _BoundSpec


_bound_pods = Reader(_BoundPod)


@dataclass(slots=True)
class _Planned:
    """A binding in line.

    Attributes:
        generation: the state's, when it was put there.
        uncertain: whether a try may have been carried out.
    """

    pod: Pod
    node: str
    generation: int
    uncertain: bool = False


class Binder:
    """Takes reserved pods and binds those of a namespace in the order they come.

    Attributes:
        on_bound: called with each pod that was bound, and its node.
        on_refused: called with a pod that the API server will not bind, and why.
    """

    def __init__(
        self,
        connection: Connection,
        state: ClusterState,
        metrics: Metrics,
        concurrency: int,
        *,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        """With so many bindings in flight at once.

        Args:
            backoff: pauses between tries of one binding.
        """
        self._connection, self._state, self._metrics = connection, state, metrics
        self.on_refused: Callable[[Pod, str], None] = lambda _pod, _reason: None
        self.on_bound: Callable[[Pod, str], None] = lambda _pod, _node: None
        self._queue = WriteQueue("bindings", concurrency, self._try, metrics, backoff)
        self._encoder = msgspec.json.Encoder()
        self._succeeded = metrics.bindings.labels("bound")

    def bind(self, pod: Pod, node: str) -> None:
        """Puts a pod with a reservation in line."""
        self._queue.put(_Planned(pod, node, self._state.generation), pod.namespace)

    async def run(self) -> None:
        """Binds until cancelled."""
        await self._queue.run()

    async def drain(self) -> None:
        """Returns when everything in line was answered."""
        await self._queue.drain()

    async def bind_for(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Binds a pod where kube-scheduler has placed it, tried once: its own attempts come again.

        Only a pod that our watch shows by this name and UID, and only where kube-scheduler was let through with it.

        Returns:
            "" or what is wrong.
        """
        key = f"{namespace}/{name}"
        pod = self._state.waiting.get(key)
        if pod is None or pod.uid != uid:
            return f'no pending pod "{key}" with UID "{uid}" is known'
        if not self._state.beside.passes_to(key, node):
            return f'pod "{key}" was not let through to node "{node}"'
        path, body = self._binding(namespace, name, uid, node)
        try:
            await self._connection.request("POST", path, body=body)
        except (ConnectionLost, Refused) as error:
            return str(error)
        return ""

    def _binding(self, namespace: str, name: str, uid: str, node: str) -> tuple[str, bytes]:
        path = pod_path(namespace, name, "binding")
        # With the uid the server refuses to bind another pod that took the name meanwhile.
        return path, self._encoder.encode(_Binding("v1", "Binding", _Meta(name, namespace, uid), _Target("Node", node)))

    async def _try(self, planned: _Planned, tries: int) -> Outcome:
        try:
            return await self._bind(planned, tries)
        except Exception:
            # The pod must not be lost: its room is given back and the next round takes it up.
            self._state.release(planned.pod.key, planned.pod.uid)
            raise

    async def _bind(self, planned: _Planned, tries: int) -> Outcome:
        pod, node = planned.pod, planned.node
        # The API server does not check that the node exists; a pod bound to a node that is gone never runs.
        there = node in self._state.nodes
        if not planned.uncertain:
            # A pod may have stood in line, or rested, for long: what changed meanwhile was not planned with.
            if not there or self._state.node_changed_since(node, planned.generation):
                self._give_up(pod, node, "node changed" if there else "node gone", "")
                return Done.UNSENT
            if tries and pod.key in self._state.reservations and not self._state.holds(pod.key):
                self._give_up(pod, node, "room taken", "")
                return Done.UNSENT
        elif not there:
            # An earlier try may have got through. Until that is known nothing more is sent there.
            return await self._settle_conflict(pod, node, Refused(409, ""))
        path, body = self._binding(pod.namespace, pod.name, pod.uid, node)
        try:
            await self._connection.request("POST", path, body=body)
        except LeaseLost as error:
            self._metrics.bindings.labels("no lease").inc()
            return again(error)
        except ConnectionLost as error:
            planned.uncertain = True
            self._metrics.bindings.labels("lost").inc()
            _log.warning("binding unanswered, asking again", pod=pod.key, node=node, problem=str(error))
            return again(error)
        except Refused as error:
            if error.status == 409:
                return await self._settle_conflict(pod, node, error)
            if error.passing:
                planned.uncertain |= error.status != 429
                self._metrics.bindings.labels(str(error.status)).inc()
                return again(error)
            self._give_up(pod, node, str(error.status), error.reason if error.status != 404 else "")
            return Done.ANSWERED
        self._bound(pod, node)
        return Done.ANSWERED

    async def _settle_conflict(self, pod: Pod, node: str, error: Refused) -> Outcome:
        """Finds out what a 409 meant; where that cannot be known yet, the binding is to be sent again."""
        try:
            raw = await self._connection.request("GET", pod_path(pod.namespace, pod.name))
            found = _bound_pods.read(raw)
        except Refused as problem:
            if problem.status != 404:
                return again(problem)
            self._give_up(pod, node, "404", "")
            return Done.ANSWERED
        except ConnectionLost as problem:
            return again(problem)
        except NotReadable:
            return Again("error")
        if found.metadata.uid != pod.uid:
            self._give_up(pod, node, "replaced", "")
        elif found.spec.node_name == node:
            self._bound(pod, node)  # an earlier try got through
        elif found.spec.node_name:
            self._give_up(pod, node, "bound elsewhere", "")
        else:
            # Still unbound, so it is the pod itself that may not be bound (it is being deleted, or gated).
            self._give_up(pod, node, "409", error.reason)
        return Done.ANSWERED

    def _bound(self, pod: Pod, node: str) -> None:
        # The reservation stays until the watch shows the binding: the state then moves the room over.
        self._succeeded.inc()
        self.on_bound(pod, node)
        if pod.created:
            self._metrics.binding_seconds.observe(max(0.0, time.time() - pod.created))

    def _give_up(self, pod: Pod, node: str, answer: str, reason: str) -> None:
        self._metrics.bindings.labels(answer).inc()
        _log.info("not bound", pod=pod.key, node=node, answer=answer, reason=reason)
        if reason:
            self.on_refused(pod, f"the API server refused to bind it to {node}: {reason}")
        self._state.release(pod.key, pod.uid)
