"""Binds pods as fast as the API server takes it, each to the next node: the most that one client in Python reaches.

It holds the watches that Thalweg holds, reads four fields of each pod, and plans nothing.

`python raw_client.py KUBECONFIG HOST:PORT`: it listens there once its watches are open, and says nothing.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from itertools import cycle
from pathlib import Path

import msgspec
from thalweg_operator.api.client import ApiClient, connect, pod_path
from thalweg_operator.errors import Refused
from thalweg_operator.settings import Settings

from flowcore.api.kinds import DEVICE_CLASS, DISRUPTION_BUDGET, NAMESPACE, NODE, POD, STORAGE

#: `spec.schedulerName` of the pods that it binds.
SCHEDULER_NAME = "raw"
_CONCURRENCY = Settings().bind_concurrency
_SILENCE = 600.0


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""
    node_name: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[_Object]


class _Event(msgspec.Struct):
    object: _Object


class RawClient:
    """Binds each pending pod of its name once."""

    def __init__(self, api_client: ApiClient) -> None:
        self._api_client = api_client
        self._pending: asyncio.Queue[_Meta] = asyncio.Queue()

    async def run(self, address: str) -> None:
        """Binds until cancelled."""
        nodes = await self._list(NODE.paths[0])
        names = cycle([each.metadata.name for each in nodes.items])
        host, _, port = address.rpartition(":")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(NODE.paths[0], nodes.metadata.resource_version))
            for kind in (NAMESPACE, DEVICE_CLASS, DISRUPTION_BUDGET, *STORAGE):
                found = await self._list(kind.paths[0])
                tasks.create_task(self._watch(kind.paths[0], found.metadata.resource_version))
            pods = await self._list(POD.paths[0])
            await asyncio.start_server(lambda _, writer: writer.close(), host, int(port))
            for pod in pods.items:
                self._take(pod)
            tasks.create_task(self._watch(POD.paths[0], pods.metadata.resource_version))
            for _ in range(_CONCURRENCY):
                tasks.create_task(self._bind(names))

    async def _list(self, path: str) -> _List:
        return msgspec.json.decode(await self._api_client.request("GET", path), type=_List)

    async def _watch(self, path: str, version: str) -> None:
        decode, watches_pods = msgspec.json.Decoder(_Event).decode, path == POD.paths[0]
        while True:
            parameters = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "7200"}
            rest = b""
            async with self._api_client.stream(path, parameters, _SILENCE) as content:
                async for chunk in content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        version = (event := decode(line)).object.metadata.resource_version
                        if watches_pods:
                            self._take(event.object)

    def _take(self, pod: _Object) -> None:
        if pod.spec.scheduler_name == SCHEDULER_NAME and not pod.spec.node_name:
            self._pending.put_nowait(pod.metadata)

    async def _bind(self, nodes: cycle[str]) -> None:
        while True:
            pod = await self._pending.get()
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
                "target": {"kind": "Node", "name": next(nodes)},
            }
            path = pod_path(pod.namespace, pod.name, "binding")
            try:
                await self._api_client.request("POST", path, body=msgspec.json.encode(body))
            except Refused as error:
                if error.status not in (404, 409):  # deleted, or bound already
                    raise


async def _run(kubeconfig: Path, address: str) -> None:
    async with connect(kubeconfig, 2 * _CONCURRENCY) as api_client:
        running = asyncio.create_task(RawClient(api_client).run(address))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        try:
            await running
        except asyncio.CancelledError:
            return


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), sys.argv[2]))
