"""`thalweg run` beside a cluster too large to run here, served by a simulated API server in a process of its own.

    python bench/scale.py --nodes 50000 --running 500000
    python bench/scale.py --nodes 500 --running 5000 --pods 100          # does it work?

A restart first: pods wait when `thalweg run` begins, and the time runs from the start of its process to the first
binding. Then more pods come at once, several times. The objects are as large as real ones (`harness/large_cluster.py`),
and the lists are paged. The server and the operator share the machine: beside the time there is the CPU time of each.
With --prepared the server makes all pages before the restart (3 GB of memory for 500,000 pods).
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec
from harness.conditions import conditions
from harness.errors import BenchError, run
from harness.schedulers import Thalweg, free_address
from harness.tables import console, print_conditions
from harness.usage import resident_mib, used
from rich.table import Table
from thalweg_controlplane.processes import Child, until_ready

_PATIENCE = 1800.0
#: Seconds to make all pages of lists.
_PREPARES = 300.0
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Row:
    """What happened from one moment to another.

    Attributes:
        what: the restart, or which set of pods.
        seconds: from the beginning to the last binding of these pods (the restart: to the first).
        round: seconds of the worker for the rounds of that time; a reset for the restart.
        operator_cpu, worker_cpu, server_cpu: CPU seconds of that time.
        operator_mib, worker_mib: resident at its end.
        peak_mib: of both, each at its highest until then.
    """

    what: str
    seconds: float
    round: float
    operator_cpu: float
    worker_cpu: float
    server_cpu: float
    operator_mib: float
    worker_mib: float
    peak_mib: float


class _Simulation:
    """The simulated API server."""

    def __init__(self, nodes: int, running: int, folder: Path, *, prepared: bool) -> None:
        host, _, port = free_address().rpartition(":")
        self.url = f"http://{host}:{port}"
        python = ["env", f"PYTHONPATH={Path(__file__).parent}", sys.executable]  # whatever folder this was started in
        command = [*python, "-m", "harness.simulated_api", "--nodes", str(nodes), "--running", str(running)]
        command += ["--port", port, "--prepared" if prepared else "--no-prepared"]
        self._child = Child("simulated API server", command, folder / "server.log")
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: simulated\n"
            f"clusters: [{{name: simulated, cluster: {{server: '{self.url}'}}}}]\n"
            "contexts: [{name: simulated, context: {cluster: simulated, user: nobody}}]\n"
            "users: [{name: nobody, user: {}}]\n"
        )

    async def start(self) -> None:
        self._child.start()
        await until_ready(self._child, self._ready, _PREPARES)

    async def _ready(self) -> bool:
        try:
            await self.report()
        except aiohttp.ClientError:
            return False
        return True

    async def report(self) -> dict[str, Any]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/simulation") as answer:
            return dict(await answer.json())

    async def create(self, count: int, prefix: str, classes: int) -> None:
        wanted = {"count": count, "prefix": prefix, "scheduler": Thalweg.pods_name, "classes": classes}
        async with aiohttp.ClientSession() as session:
            await session.post(f"{self.url}/simulation/pods", json=wanted)

    async def stop(self) -> None:
        await self._child.stop()


class _Plane:
    """What `Thalweg` reads of a control plane."""

    def __init__(self, kubeconfig: Path, workdir: Path) -> None:
        self.kubeconfig, self.workdir = kubeconfig, workdir


class _Meter:
    """Rows: differences from one call to the next."""

    def __init__(self, simulation: _Simulation, thalweg: Thalweg) -> None:
        self._simulation, self._thalweg = simulation, thalweg
        self._before = (0.0, 0.0, 0.0, 0.0)

    async def row(self, what: str, seconds: float) -> Row:
        operator, *workers = self._thalweg.pids()
        samples = await self._thalweg.metrics()
        server = (await self._simulation.report())["cpu_seconds"]
        mine, theirs = used([operator]), used(workers)
        now = (samples.get("thalweg_round_seconds_sum", 0.0), mine.cpu_seconds, theirs.cpu_seconds, server)
        spent = [after - before for after, before in zip(now, self._before, strict=True)]
        self._before = now
        peak = mine.peak_mib + theirs.peak_mib
        return Row(what, seconds, *spent, resident_mib([operator]), resident_mib(workers), peak)


async def measure(nodes: int, running: int, pods: int, classes: int, times: int, *, prepared: bool) -> list[Row]:
    """The rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulation = _Simulation(nodes, running, folder, prepared=prepared)
        thalweg = Thalweg(_Plane(simulation.kubeconfig, folder), options=[])  # type: ignore[arg-type]
        await simulation.start()
        try:
            await simulation.create(pods, "first", classes)
            began = time.time()
            await thalweg.start(_PATIENCE)
            in_sync = time.time() - began
            meter = _Meter(simulation, thalweg)
            rows = [await meter.row("restart, to in sync", in_sync)]
            await _until_bound(simulation, thalweg, 1)
            rows.append(await meter.row("restart, to the first binding", time.time() - began))
            await _until_bound(simulation, thalweg, pods)
            rows.append(await meter.row(f"restart, to {pods} bindings", time.time() - began))
            for turn in range(times):
                await asyncio.sleep(2.0)
                await meter.row("", 0.0)
                await simulation.create(pods, f"set-{turn}", classes)
                await _until_bound(simulation, thalweg, pods)
                seconds = (await simulation.report())["seconds"]
                rows.append(await meter.row(f"{pods} pods, set {turn + 1}", seconds))
        finally:
            await thalweg.stop()
            await simulation.stop()
    return rows


async def _until_bound(simulation: _Simulation, thalweg: Thalweg, pods: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while (await simulation.report())["bound"] < pods:
        thalweg.check()
        if time.monotonic() > deadline:
            raise BenchError(
                f"not all of {pods} pods were bound within {_PATIENCE:.0f} s:\n{thalweg.log.read_text()[-4000:]}"
            )
        await asyncio.sleep(0.05)


@click.command()
@click.option("--nodes", default=50_000, show_default=True, type=click.IntRange(min=1))
@click.option("--running", default=500_000, show_default=True, type=click.IntRange(min=0))
@click.option("--pods", default=1_000, show_default=True, type=click.IntRange(min=1), help="Pods that come at once.")
@click.option("--classes", default=20, show_default=True, type=click.IntRange(min=1), help="Sizes of these pods.")
@click.option("--times", default=3, show_default=True, type=click.IntRange(min=1), help="How often they come.")
@click.option("--prepared/--no-prepared", default=False, show_default=True, help="Pages of lists are made before.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(nodes: int, running: int, pods: int, classes: int, times: int, output: str, *, prepared: bool) -> None:
    """Measures a restart and warm rounds beside a simulated cluster."""
    told = conditions()
    rows = asyncio.run(measure(nodes, running, pods, classes, times, prepared=prepared))
    if output == "json":
        sys.stdout.buffer.write(
            msgspec.json.encode(
                {
                    "conditions": told,
                    "nodes": nodes,
                    "running": running,
                    "pods": pods,
                    "rows": [asdict(row) for row in rows],
                }
            )
            + b"\n"
        )
        return
    table = Table(title=f"{nodes:,} nodes, {running:,} running pods, {pods:,} pods at once of {classes} sizes")
    table.add_column("")
    for name in ("s", "worker's rounds s", "operator CPU s", "worker CPU s", "server CPU s"):
        table.add_column(name, justify="right")
    for name in ("operator MiB", "worker MiB", "highest MiB"):
        table.add_column(name, justify="right")
    for row in rows:
        what, *seconds = list(asdict(row).values())[:6]
        memory = list(asdict(row).values())[6:]
        table.add_row(what, *(f"{each:.2f}" for each in seconds), *(f"{each:.0f}" for each in memory))
    console.print(table)
    print_conditions(told)


if __name__ == "__main__":
    run(main)
