"""Sees when each pod appears and when it gets its node: a watch of its own, in a process of its own.

The process that creates the load is busy; seen from there every time would be late by what its event loop is behind.
This one only reads five fields of each event and notes the clock (monotonic, which all processes of a machine share).
It asks for protobuf, as kube-scheduler does, so that the API server encodes no event for it alone.
A new API server cuts watches that do not keep up for a few events (`apiserver_terminated_watchers_total`): the watch is
then opened again at once from where it was.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
import yaml

from harness.errors import BenchError
from harness.protobuf_events import ACCEPT, frames, read_pod_event

_SPAWN = multiprocessing.get_context("spawn")
_START_SECONDS = 30.0


@dataclass(slots=True)
class Sighting:
    """One pod; seconds of the monotonic clock, None while it has no node.

    Attributes:
        nominated: when it got the node that it is, or was last, nominated for; None: it never was nominated.
        nominated_node: the node that it is nominated for.
    """

    added: float
    bound: float | None
    node: str
    nominated: float | None = None
    nominated_node: str = ""


class Seen(msgspec.Struct):
    """What the watch has seen.

    Attributes:
        pods: by name.
        reopened: how often the API server cut the watch.
        cpu_seconds: that seeing it all took.
    """

    pods: dict[str, Sighting]
    reopened: int = 0
    cpu_seconds: float = 0.0


class PodWatch:
    """`async with PodWatch(kubeconfig, namespace, version) as watch:` sees all pods that come after that version.

    The kubeconfig is one that the control plane wrote: one cluster, one user with a token.
    """

    def __init__(self, kubeconfig: Path, namespace: str, version: str) -> None:
        self._near, far = _SPAWN.Pipe()
        self._bound: Synchronized[int] = _SPAWN.Value("i", 0)
        self._last: Synchronized[float] = _SPAWN.Value("d", 0.0)
        self._process = _SPAWN.Process(
            target=_watch, args=(kubeconfig, namespace, version, far, self._bound, self._last), daemon=True
        )

    async def __aenter__(self) -> Self:
        self._process.start()
        if not await asyncio.to_thread(self._near.poll, _START_SECONDS):
            raise BenchError("the watch of the pods did not start")
        self._near.recv()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()

    @property
    def bound(self) -> int:
        """How many have a node."""
        if not self._process.is_alive():
            raise BenchError("the watch of the pods failed (see above)")
        return int(self._bound.value)

    @property
    def last(self) -> float:
        """When the last of them got it; 0.0 before the first."""
        return float(self._last.value)

    async def seen(self) -> Seen:
        """All of it. Ends the watch."""
        self._near.send("stop")
        seen: Seen = await asyncio.to_thread(self._near.recv)
        return seen


def _watch(
    kubeconfig: Path,
    namespace: str,
    version: str,
    pipe: Connection,
    bound: Synchronized[int],
    last: Synchronized[float],
) -> None:
    asyncio.run(_Watcher(kubeconfig, namespace, version, pipe, bound, last).run())


class _Watcher:
    """The process's own side."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        version: str,
        pipe: Connection,
        bound: Synchronized[int],
        last: Synchronized[float],
    ) -> None:
        server, self._headers, self._tls = login(kubeconfig)
        self._headers["Accept"] = ACCEPT
        self._url = f"{server}/api/v1/namespaces/{namespace}/pods"
        self._version, self._pipe, self._bound, self._last = version, pipe, bound, last
        self._seen = Seen({})

    async def run(self) -> None:
        told = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), told.set)
        following = asyncio.create_task(self._follow())
        stopping = asyncio.create_task(told.wait())
        await asyncio.wait([following, stopping], return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()  # it only ends by failing
        following.cancel()
        self._seen.cpu_seconds = time.process_time()
        self._pipe.send(self._seen)
        self._pipe.recv()  # "stop"
        with suppress(EOFError):
            self._pipe.recv()  # never comes: the other side ends this process when it leaves its block

    async def _follow(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(headers=self._headers, read_bufsize=2**22, timeout=timeout) as session:
            while True:
                params = {"watch": "1", "resourceVersion": self._version, "timeoutSeconds": "7200"}
                async with session.get(self._url, params=params, ssl=self._tls) as answer:
                    answer.raise_for_status()
                    if not self._seen.reopened:
                        self._pipe.send("watching")
                    await self._read_events(answer.content)
                self._seen.reopened += 1

    async def _read_events(self, content: aiohttp.StreamReader) -> None:
        rest = b""
        async for chunk in content.iter_any():
            now = time.monotonic()
            events, rest = frames(rest + chunk)
            for frame in events:
                self._take(frame, now)

    def _take(self, frame: bytes, now: float) -> None:
        event = read_pod_event(frame)
        if event.type == "ERROR":
            raise BenchError(f"the watch of the pods failed: {frame!r}")
        self._version = event.resource_version
        pod = self._seen.pods.get(event.name)
        if pod is None:
            pod = self._seen.pods[event.name] = Sighting(now, None, "")
        if event.nominated_node != pod.nominated_node:
            pod.nominated_node = event.nominated_node
            pod.nominated = now if event.nominated_node else pod.nominated
        if event.node_name and pod.bound is None:
            pod.bound, pod.node = now, event.node_name
            self._last.value = now
            self._bound.value += 1


def login(kubeconfig: Path) -> tuple[str, dict[str, str], ssl.SSLContext]:
    """The server's URL, the headers and the certificate of a kubeconfig that the control plane wrote."""
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    return cluster["server"], {"Authorization": f"Bearer {user['token']}"}, tls
