"""Binds planned pods, many at once, and handles every answer.

A binding whose answer was lost may have happened. The room stays reserved and the same binding is sent
again until the API server says for certain: 201, or 409 because the first one got through. Only then is the pod's
room given back or confirmed, so nothing is bound twice and no room is counted free that is not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec
import structlog

from flowcore.model.pods import Pod
from thalweg_operator.connection import Connection, pod_path
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.pauses import pause
from thalweg_operator.state import ClusterState

_log = structlog.get_logger()


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


class Binder:
    """Takes reserved pods and binds them in the order they come."""

    def __init__(
        self,
        connection: Connection,
        state: ClusterState,
        metrics: Metrics,
        concurrency: int,
        on_refused: Callable[[Pod, str], None],
    ) -> None:
        self._connection, self._state, self._metrics = connection, state, metrics
        self._concurrency, self._on_refused = concurrency, on_refused
        self._queue: asyncio.Queue[tuple[Pod, str, int]] = asyncio.Queue()
        self._encoder = msgspec.json.Encoder()
        self._succeeded = metrics.bindings.labels("bound")

    def bind(self, pod: Pod, node: str) -> None:
        """Puts a pod with a reservation in line."""
        self._queue.put_nowait((pod, node, self._state.generation))

    async def run(self) -> None:
        """Binds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._concurrency):
                tasks.create_task(self._work())

    async def drain(self) -> None:
        """Returns when everything in line was answered."""
        await self._queue.join()

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

    async def _work(self) -> None:
        while True:
            pod, node, generation = await self._queue.get()
            try:
                await self._bind(pod, node, generation)
            except Exception:  # noqa: BLE001
                # Whatever it was, the pod must not be lost: its room is given back and the next round takes it up.
                _log.exception("binding failed unexpectedly", pod=pod.key, node=node)
                self._state.release(pod.key, pod.uid)
            finally:
                self._queue.task_done()

    async def _bind(self, pod: Pod, node: str, generation: int) -> None:
        path, body = self._binding(pod.namespace, pod.name, pod.uid, node)
        # A pod may have stood in line for seconds: what changed meanwhile was not planned with.
        if node in self._state.nodes and self._state.node_changed_since(node, generation):
            self._give_up(pod, node, "node changed", "")
            return
        tries = 0
        while True:
            # The API server does not check that the node exists; a pod bound to a node that is gone never runs.
            if node not in self._state.nodes:
                if tries == 0:
                    self._give_up(pod, node, "node gone", "")
                    return
                # An earlier try may have got through. Until that is known nothing more is sent there.
                if await self._settle_conflict(pod, node, Refused(409, "")):
                    return
                await pause(tries)
                continue
            tries += 1
            try:
                await self._connection.request("POST", path, body=body)
            except ConnectionLost as error:
                self._metrics.bindings.labels("lost").inc()
                _log.warning("binding unanswered, asking again", pod=pod.key, node=node, problem=str(error))
                await pause(tries)
                continue
            except Refused as error:
                if error.status == 409 and await self._settle_conflict(pod, node, error):
                    return
                if error.passing:
                    self._metrics.bindings.labels(str(error.status)).inc()
                    await pause(tries, error.retry_after)
                    continue
                if error.status == 409:
                    await pause(tries)
                    continue
                self._give_up(pod, node, str(error.status), error.reason if error.status != 404 else "")
                return
            self._bound(pod)
            return

    async def _settle_conflict(self, pod: Pod, node: str, error: Refused) -> bool:
        """Finds out what a 409 meant; False when the binding should be sent again."""
        try:
            raw = await self._connection.request("GET", pod_path(pod.namespace, pod.name))
        except Refused as problem:
            if problem.status == 404:
                self._give_up(pod, node, "404", "")
                return True
            return False
        except ConnectionLost:
            return False
        try:
            found = msgspec.json.decode(raw, type=_BoundPod)
        except msgspec.DecodeError:
            return False
        if found.metadata.uid != pod.uid:
            self._give_up(pod, node, "replaced", "")
        elif found.spec.node_name == node:
            self._bound(pod)  # an earlier try got through
        elif found.spec.node_name:
            self._give_up(pod, node, "bound elsewhere", "")
        else:
            # Still unbound, so it is the pod itself that may not be bound (it is being deleted, or gated).
            self._give_up(pod, node, "409", error.reason)
        return True

    def _bound(self, pod: Pod) -> None:
        # The reservation stays until the watch shows the binding: the state then moves the room over.
        self._succeeded.inc()
        if pod.created:
            self._metrics.binding_seconds.observe(max(0.0, time.time() - pod.created))

    def _give_up(self, pod: Pod, node: str, answer: str, reason: str) -> None:
        self._metrics.bindings.labels(answer).inc()
        _log.info("not bound", pod=pod.key, node=node, answer=answer, reason=reason)
        if reason:
            self._on_refused(pod, f"the API server refused to bind it to {node}: {reason}")
        self._state.release(pod.key, pod.uid)
