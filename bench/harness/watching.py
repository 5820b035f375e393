"""A client that lists and watches what Thalweg watches, reads nothing of it and decides nothing: what watches cost.

It runs in a process of its own, as Thalweg does.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp
from thalweg_controlplane import ControlPlane

from flowcore.api.kinds import KINDS
from harness import protobuf_events
from harness.errors import BenchError
from harness.pod_watch import login
from harness.schedulers import KUBE_SCHEDULER, Samples

WATCHED_JSON, WATCHED_PROTOBUF = "watched-json", "watched-protobuf"
_JSON = "application/json"
_SPAWN = multiprocessing.get_context("spawn")
_START_SECONDS = 60.0


class Watching:
    """The client, as what runs beside a scheduler.

    Args:
        name: which of the two: Kubernetes' own kinds are watched in JSON or in protobuf. Custom resources are JSON.
    """

    pods_name = KUBE_SCHEDULER

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.name, self.log = name, plane.workdir / f"{name}.log"
        self._near, far = _SPAWN.Pipe()
        accept = f"{protobuf_events.ACCEPT},{_JSON}" if name == WATCHED_PROTOBUF else _JSON
        self._process = _SPAWN.Process(target=_watch, args=(plane.kubeconfig, accept, far), daemon=True)

    async def start(self) -> None:
        self._process.start()
        if not await asyncio.to_thread(self._near.poll, _START_SECONDS):
            raise BenchError(f"{self.name}: the watches did not begin")

    async def warm(self) -> None:
        """Nothing: its watches are open."""

    def pids(self) -> list[int]:
        return [self._process.pid] if self._process.pid is not None else []

    async def metrics(self) -> Samples:
        return {}

    async def waiting(self) -> tuple[float, ...]:
        return ()

    def check(self) -> None:
        if not self._process.is_alive():
            raise BenchError(f"{self.name}: a watch ended (see above)")

    async def stop(self) -> None:
        if self._process.pid is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.join)


def _watch(kubeconfig: Path, accept: str, told: Connection) -> None:
    asyncio.run(_watch_all(kubeconfig, accept, told))


async def _watch_all(kubeconfig: Path, accept: str, told: Connection) -> None:
    server, headers, tls = login(kubeconfig)
    timeout, connector = aiohttp.ClientTimeout(total=None), aiohttp.TCPConnector(ssl=tls)
    async with (
        aiohttp.ClientSession(server, headers=headers, connector=connector, timeout=timeout) as http,
        asyncio.TaskGroup() as watches,
    ):
        for kind in KINDS:
            for path in kind.paths:
                async with http.get(path, params={"limit": "1"}) as answer:
                    if answer.status == 404:  # the cluster does not serve this version, or the kind
                        continue
                    answer.raise_for_status()
                    version = (await answer.json())["metadata"]["resourceVersion"]
                watches.create_task(_receive(http, path, version, accept))
                break
        told.send("watching")


async def _receive(http: aiohttp.ClientSession, path: str, version: str, accept: str) -> None:
    params = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": "7200"}
    async with http.get(path, params=params, headers={"Accept": accept}) as answer:
        answer.raise_for_status()
        async for _ in answer.content.iter_any():
            pass
    raise BenchError(f"the watch of {path} ended")
