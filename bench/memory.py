"""Memory of two replicas beside a large cluster at rest: the leader and the standby, each with its worker.

    python bench/memory.py --nodes 5000 --running 50000
    python bench/memory.py --nodes 500 --running 2000          # does it work?

The running pods have their nodes from their creation on. Both replicas are measured once they are in sync, and again
after the leader has placed more pods.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict, dataclass

import click
import msgspec
from harness import loads, plane, workload
from harness.conditions import conditions
from harness.errors import run
from harness.pod_watch import PodWatch
from harness.schedulers import THALWEG, Thalweg
from harness.tables import console, print_conditions
from harness.usage import resident_mib
from rich.table import Table

_PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class Row:
    """Resident MiB at one moment."""

    when: str
    replica: str
    operator: float
    worker: float


def _resident(when: str, replicas: dict[str, Thalweg]) -> list[Row]:
    rows = []
    for name, thalweg in replicas.items():
        operator, *workers = thalweg.pids()
        rows.append(Row(when, name, resident_mib([operator]), resident_mib(workers)))
    return rows


async def measure(nodes: int, running: int, pods: int) -> list[Row]:
    """The rows."""
    async with plane.bare(plane.binaries(), THALWEG) as (control_plane, api):
        plane.say(f"{nodes} nodes, {running} running pods")
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": workload.RUNNING}})
        await plane.create(api, workload.make_nodes(nodes))
        await plane.create(api, workload.make_running(running, nodes))
        leader = Thalweg(control_plane, options=["--replicated"])
        standby = Thalweg(control_plane, options=["--replicated"], ready="/readyz?exclude=lease")
        replicas = {"leader": leader, "standby": standby}
        try:
            for each in replicas.values():
                plane.say("starting a replica")
                await each.start()
                await each.warm()
            rows = _resident("in sync", replicas)
            version = await plane.version(api)
            async with PodWatch(control_plane.kubeconfig, workload.MEASURED, version) as watch:
                await plane.create(api, workload.make_pods("mixed", pods, leader.pods_name))
                await loads.until_bound(control_plane, leader, watch, pods, _PATIENCE)
            rows += _resident(f"{pods} more placed", replicas)
        finally:
            for each in replicas.values():
                await each.stop()
    return rows


@click.command()
@click.option("--nodes", default=5_000, show_default=True, type=click.IntRange(min=1))
@click.option("--running", default=50_000, show_default=True, type=click.IntRange(min=0))
@click.option("--pods", default=1_000, show_default=True, type=click.IntRange(min=1), help="Pods to place.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(nodes: int, running: int, pods: int, output: str) -> None:
    """Measures memory beside a large cluster."""
    told = conditions()
    rows = asyncio.run(measure(nodes, running, pods))
    if output == "json":
        sys.stdout.buffer.write(
            msgspec.json.encode({"conditions": told, "rows": [asdict(row) for row in rows]}) + b"\n"
        )
        return
    table = Table(title=f"{nodes:,} nodes, {running:,} running pods: resident MiB")
    for at, name in enumerate(("when", "replica", "operator", "worker", "together")):
        table.add_column(name, justify="right" if at > 1 else "left")
    for row in rows:
        table.add_row(
            row.when, row.replica, f"{row.operator:.0f}", f"{row.worker:.0f}", f"{row.operator + row.worker:.0f}"
        )
    console.print(table)
    print_conditions(told)


if __name__ == "__main__":
    run(main)
