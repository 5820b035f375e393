"""Memory of Thalweg beside a large cluster at rest: the operator and its worker.

    python bench/memory.py --nodes 5000 --running 50000
    python bench/memory.py --nodes 500 --running 2000          # does it work?

The running pods have their nodes from their creation on. The operator is measured once it is in sync, and again after
it has placed more pods.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click
import msgspec
from harness import loads, plane, workload
from harness.conditions import conditions
from harness.errors import BenchError
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
    operator: float
    worker: float


def _resident(when: str, thalweg: Thalweg) -> Row:
    operator, *workers = thalweg.pids()
    return Row(when, resident_mib([operator]), resident_mib(workers))


async def measure(nodes: int, running: int, pods: int) -> Iterator[Row]:
    """The rows."""
    async with plane.bare(plane.binaries(), THALWEG) as (control_plane, api):
        plane.say(f"{nodes} nodes, {running} running pods")
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": workload.RUNNING}})
        await plane.create(api, workload.make_nodes(nodes))
        await plane.create(api, workload.make_running(running, nodes))
        thalweg = Thalweg(control_plane)
        try:
            await thalweg.start()
            await thalweg.warm()
            rows = [_resident("in sync", thalweg)]
            version = await plane.version(api)
            async with PodWatch(control_plane.kubeconfig, workload.MEASURED, version) as watch:
                await plane.create(api, workload.make_pods("mixed", pods, thalweg.pods_name))
                await loads.until_bound(control_plane, thalweg, watch, pods, _PATIENCE)
            rows.append(_resident(f"{pods} more placed", thalweg))
        finally:
            await thalweg.stop()
    return iter(rows)


@click.command()
@click.option("--nodes", default=5_000, show_default=True, type=click.IntRange(min=1))
@click.option("--running", default=50_000, show_default=True, type=click.IntRange(min=0))
@click.option("--pods", default=1_000, show_default=True, type=click.IntRange(min=1), help="Pods to place.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(nodes: int, running: int, pods: int, output: str) -> None:
    """Measures memory beside a large cluster."""
    told = conditions()
    rows = list(asyncio.run(measure(nodes, running, pods)))
    if output == "json":
        sys.stdout.buffer.write(
            msgspec.json.encode({"conditions": told, "rows": [asdict(row) for row in rows]}) + b"\n"
        )
        return
    table = Table(title=f"{nodes:,} nodes, {running:,} running pods: resident MiB")
    for at, name in enumerate(("when", "operator", "worker", "together")):
        table.add_column(name, justify="right" if at else "left")
    for row in rows:
        table.add_row(row.when, f"{row.operator:.0f}", f"{row.worker:.0f}", f"{row.operator + row.worker:.0f}")
    console.print(table)
    print_conditions(told)


if __name__ == "__main__":
    try:
        main()
    except BenchError as problem:
        print(problem, file=sys.stderr)
        sys.exit(1)
