"""How long the cluster has no leader: two `thalweg run --replicated`, and one of them ends.

    python bench/takeover.py
    python bench/takeover.py --nodes 5000 --running 20000 --times 3
    python bench/takeover.py --nodes 20 --times 1 --faults SIGTERM                # does it work?

Pods arrive steadily meanwhile. Both replicas know the pod that they run in, as in a cluster, by POD_NAMESPACE and
POD_NAME. The leader reaches the API server by way of a proxy that can be cut.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import aiohttp
import click
import msgspec
from harness import options, plane
from harness.conditions import conditions
from harness.pod_watch import PodWatch, Sighting
from harness.schedulers import THALWEG, free_address
from harness.tables import console, print_conditions
from rich.table import Table
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import node, pod
from thalweg_controlplane.processes import Child, until_ready

KILL, TERM, STOP, CUT = FAULTS = ("SIGKILL", "SIGTERM", "SIGSTOP", "partition")
_LEASE = "kube-system/thalweg"
_LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/thalweg"
_READY_SECONDS = 300.0
_ARRIVAL_SECONDS = 0.05
_EXPLAINED = {
    "lease": "s from the fault to the next leader's acquisition of the lease: median and longest",
    "binding": "s from the fault to the first binding after that: median and longest",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of fault; seconds."""

    fault: str
    times: int
    lease: float
    longest_lease: float
    binding: float
    longest_binding: float


class Proxy:
    """Carries bytes to the API server until it is cut: then nothing passes and nothing is closed."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.open = asyncio.Event()
        self.open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        with suppress(OSError):
            back, there = await asyncio.open_connection("127.0.0.1", self._to)
            await asyncio.gather(self._carry(reader, there), self._carry(back, writer), return_exceptions=True)

    async def _carry(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while part := await source.read(2**16):
            await self.open.wait()
            to.write(part)
            await to.drain()
        to.close()


class Replica:
    """One `thalweg run --replicated`, behind its proxy."""

    def __init__(self, number: int, kubeconfig: Path, proxy: Proxy, folder: Path) -> None:
        self.proxy, self._address = proxy, free_address()
        command = ["env", "POD_NAMESPACE=default", f"POD_NAME=replica-{number}", sys.executable, "-m", "thalweg", "run"]
        command += ["--kubeconfig", str(kubeconfig), "--replicated", "--lease", _LEASE, "--listen", self._address]
        self.child = Child(f"{THALWEG}-{number}", command, folder / f"replica-{number}.log")

    async def answers(self, path: str) -> bool:
        """Whether a page says 200."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://{self._address}{path}") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError):
            return False

    async def warm(self) -> None:
        """Starts it, unless it runs, and returns once it leads or stands by with a warm snapshot."""
        self.child.start()
        await until_ready(self.child, lambda: self.answers("/readyz?exclude=lease"), _READY_SECONDS)

    async def suffer(self, fault: str) -> None:
        """The fault."""
        pid = self.child.pid
        assert pid is not None
        if fault == CUT:
            self.proxy.open.clear()
        else:
            os.kill(pid, signal.Signals[fault])

    async def end(self) -> None:
        """Ends what is left of it."""
        self.child.kill()
        self.proxy.open.set()


@asynccontextmanager
async def replica(number: int, control: ControlPlane, api: Api) -> AsyncIterator[Replica]:
    """A replica that is warm."""
    port = int(api.url.rpartition(":")[2])
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    kubeconfig = control.workdir / f"replica-{number}-kubeconfig"
    proxied = str(server.sockets[0].getsockname()[1])
    kubeconfig.write_text(control.kubeconfig.read_text().replace(f":{port}", f":{proxied}"))
    found = Replica(number, kubeconfig, proxy, control.workdir)
    try:
        await found.warm()
        yield found
    finally:
        await found.end()
        server.close()


async def take_over(control: ControlPlane, api: Api, replicas: list[Replica], fault: str, round_: int) -> list[float]:
    """Seconds from the fault to the acquisition of the lease, and to the first binding after it."""
    for each in replicas:
        await each.warm()
    leader = await _leader(replicas)
    async with PodWatch(control.kubeconfig, "default", await plane.version(api)) as watch:
        arriving = asyncio.create_task(_arrive(api, f"{fault.lower()}-{round_}"))
        await _until(lambda: watch.bound >= 20)
        acquired = await _acquired(api)
        began, wall = time.monotonic(), time.time()
        await leader.suffer(fault)
        while (now := await _acquired(api)) <= acquired:  # noqa: ASYNC110 - the API server is asked
            await asyncio.sleep(0.01)
        bound = watch.bound
        await _until(lambda: watch.bound >= bound + 20)
        arriving.cancel()
        await asyncio.gather(arriving, return_exceptions=True)
        seen = (await watch.seen()).pods
    await leader.end()
    lease = now - wall
    return [lease, _first_binding(seen, began + lease) - began]


async def _leader(replicas: list[Replica]) -> Replica:
    async with asyncio.timeout(_READY_SECONDS):
        while True:
            for each in replicas:
                if await each.answers("/readyz"):
                    return each
            await asyncio.sleep(0.05)


def _first_binding(seen: dict[str, Sighting], after: float) -> float:
    return min(each.bound for each in seen.values() if each.bound is not None and each.bound >= after)


async def _arrive(api: Api, name: str) -> None:
    number = 0
    while True:
        await api.create(pod(f"{name}-{number}", "1m", "1Mi", scheduler=THALWEG))
        number += 1
        await asyncio.sleep(_ARRIVAL_SECONDS)


async def _acquired(api: Api) -> float:
    """When the lease was acquired last, seconds since the epoch."""
    return datetime.fromisoformat((await api.get(_LEASE_PATH))["spec"]["acquireTime"]).timestamp()


async def _until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(_READY_SECONDS):
        while not condition():  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.01)


async def measure(nodes: int, running: int, faults: list[str], times: int) -> list[Row]:
    """A row for each fault."""
    rows = []
    async with plane.bare(plane.binaries(), THALWEG) as (control, api):
        await plane.create(api, (node(f"node-{number:05}", cpu="64", memory="512Gi") for number in range(nodes)))
        where = (pod(f"running-{at:06}", "100m", node=f"node-{at % nodes:05}") for at in range(running))
        await plane.create(api, where)
        await plane.create(api, (pod(f"replica-{number}", "1m", scheduler="nobody") for number in range(2)))
        async with replica(0, control, api) as first, replica(1, control, api) as second:
            for fault in faults:
                plane.say(f"{fault}, {times} times")
                found = [await take_over(control, api, [first, second], fault, number) for number in range(times)]
                leases, bindings = zip(*found, strict=True)
                rows.append(
                    Row(
                        fault, times, statistics.median(leases), max(leases), statistics.median(bindings), max(bindings)
                    )
                )
    return rows


@click.command()
@click.option("--nodes", default=1000, show_default=True, type=click.IntRange(1))
@click.option("--running", default=0, show_default=True, type=click.IntRange(0), help="Pods that run already.")
@click.option("--faults", default=",".join(FAULTS), show_default=True, callback=options.words(FAULTS))
@click.option("--times", default=5, show_default=True, type=click.IntRange(1), help="How often each fault.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(nodes: int, running: int, faults: list[str], times: int, output: str) -> None:
    """Measures how long a take-over takes."""
    told = conditions()
    rows = asyncio.run(measure(nodes, running, faults, times))
    if output == "json":
        sys.stdout.buffer.write(
            msgspec.json.encode({"conditions": told, "rows": [asdict(row) for row in rows]}) + b"\n"
        )
        return
    table = Table(title=f"Take-over, {nodes} nodes, {running} running pods")
    for name in ("fault", "times", "lease", "binding"):
        table.add_column(name, justify="left" if name == "fault" else "right")
    for row in rows:
        lease, binding = f"{row.lease:.2f} {row.longest_lease:.2f}", f"{row.binding:.2f} {row.longest_binding:.2f}"
        table.add_row(row.fault, str(row.times), lease, binding)
    console.print(table)
    for name, text in _EXPLAINED.items():
        console.print(f"{name}: {text}")
    print_conditions(told)


if __name__ == "__main__":
    main()
