"""A network for pods: an address and a network namespace each, and the cluster IPs of Services.

All pods are on a bridge of this machine. The bridge also has every cluster IP. What connects to one is relayed to an
endpoint of the Service, as kube-proxy would forward it. The Service `kubernetes` leads to the API server on loopback.
One machine has one such network at a time.
"""

import asyncio
import contextlib
import fcntl
import random
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from support.image import run
from thalweg_controlplane import Api, ApiError, ControlPlane

BRIDGE: Final = "thalweg0"
_PREFIX: Final = "10.88.0."
HOST: Final = f"{_PREFIX}1"
_LOCK: Final = Path("/run/lock/thalweg-pod-network.lock")
_EVERY: Final = 0.2


class PodNetwork:
    """See the module; ``pod_network`` makes it.

    Attributes:
        hosts: a hosts file with the names of all Services.
    """

    def __init__(self, plane: ControlPlane, api: Api, hosts: Path) -> None:
        self._api, self.hosts = api, hosts
        self._api_server = (urlsplit(plane.url).hostname or "", urlsplit(plane.url).port or 0)
        self._free = [f"{_PREFIX}{number}" for number in range(250, 1, -1)]
        self._relays: dict[tuple[str, int], asyncio.Server] = {}
        self._ends: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self._connections: set[asyncio.Task[None]] = set()

    def add_pod(self) -> tuple[str, str]:
        """Makes a network namespace; its name and its address."""
        address = self._free.pop()
        name = f"thalweg-{address.rpartition('.')[2]}"
        outside = f"thw{address.rpartition('.')[2]}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", outside, "master", BRIDGE, "up")
        inside = ("ip", "-n", name)
        run(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "route", "add", "default", "via", HOST)
        return name, address

    def remove_pod(self, name: str, address: str) -> None:
        """Removes what ``add_pod`` made."""
        run("ip", "netns", "del", name)
        self._free.insert(0, address)  # the last one to be used again

    async def keep(self) -> None:
        """Follows Services and their endpoints until it is cancelled."""
        try:
            while True:
                with contextlib.suppress(ApiError):
                    await self._follow()
                await asyncio.sleep(_EVERY)
        finally:
            for server in self._relays.values():
                server.close()
            for task in self._connections:
                task.cancel()

    async def _follow(self) -> None:
        services = await self._api.list("/api/v1/services")
        slices = await self._api.list("/apis/discovery.k8s.io/v1/endpointslices")
        ends: dict[tuple[str, int], list[tuple[str, int]]] = {}
        lines = ["127.0.0.1 localhost"]
        for service in services:
            name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
            address = service["spec"].get("clusterIP", "None")
            if address == "None":
                continue
            names = [f"{name}.{namespace}{end}" for end in ("", ".svc", ".svc.cluster.local")]
            lines.append(" ".join([address, *names]))
            for port in service["spec"]["ports"]:
                ends[address, port["port"]] = self._endpoints(service, port, slices)
        self._ends = ends
        text = "\n".join(lines) + "\n"
        if not self.hosts.exists() or self.hosts.read_text() != text:
            self.hosts.write_text(text)  # in place: containers have it mounted
        for address, number in ends.keys() - self._relays.keys():
            run("ip", "addr", "replace", f"{address}/32", "dev", BRIDGE)
            self._relays[address, number] = await asyncio.start_server(
                lambda reader, writer, key=(address, number): self._relay(key, reader, writer), address, number
            )

    def _endpoints(self, service: Any, port: Any, slices: list[Any]) -> list[tuple[str, int]]:
        metadata = service["metadata"]
        if (metadata["namespace"], metadata["name"]) == ("default", "kubernetes"):
            return [self._api_server]
        found = []
        for each in slices:
            labels = each["metadata"].get("labels", {})
            if each["metadata"]["namespace"] != metadata["namespace"]:
                continue
            if labels.get("kubernetes.io/service-name") != metadata["name"]:
                continue
            numbers = [one["port"] for one in each.get("ports") or () if one.get("name", "") == port.get("name", "")]
            for end in each.get("endpoints") or ():
                if end.get("conditions", {}).get("ready") is not False:
                    found += [(address, number) for address in end["addresses"] for number in numbers]
        return found

    async def _relay(self, key: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            ends = self._ends.get(key)
            if not ends:
                return
            far_reader, far_writer = await asyncio.open_connection(*random.choice(ends))
            try:
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            finally:
                far_writer.close()
        except OSError:
            pass  # the caller sees that its connection ends
        finally:
            writer.close()
            self._connections.discard(task)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


@asynccontextmanager
async def pod_network(plane: ControlPlane, api: Api, folder: Path) -> AsyncIterator[PodNetwork]:
    """The network of a control plane's pods, until the block is left. It waits for other networks to end."""
    lock = await asyncio.to_thread(_take_lock)
    with lock, _bridge():
        network = PodNetwork(plane, api, folder / "hosts")
        task = asyncio.create_task(network.keep())
        try:
            yield network
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _take_lock() -> Any:
    _LOCK.parent.mkdir(parents=True, exist_ok=True)
    lock = _LOCK.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


@contextmanager
def _bridge() -> Iterator[None]:
    _remove()  # of a run that was killed
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    try:
        run("ip", "addr", "add", f"{HOST}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        yield
    finally:
        _remove()


def _remove() -> None:
    for line in run("ip", "netns", "list").splitlines():
        if line.startswith("thalweg-"):
            run("ip", "netns", "del", line.split()[0])
    subprocess.run(("ip", "link", "del", BRIDGE), capture_output=True, check=False)
