"""Pods with claims: Thalweg's binder and the real kube-scheduler, each alone on a fresh real API server.

    python bench/claims.py --claims devices --nodes 1000 --pods 3000 --arrival backlog
    python bench/claims.py --claims volumes --nodes 200 --pods 500
    python bench/claims.py --nodes 20 --pods 40 --warm-up 100 -o json

`devices`: each node has eight GPUs, and each pod claims one by a template. `volumes`: StatefulSets of 50 pods, each
node has three local PersistentVolumes, and each pod claims one, by a class that waits for its first consumer. Arrivals:
`burst` creates all pods at once while the scheduler runs; `backlog` creates them first, and starts the scheduler once
their claims are there. kube-controller-manager makes claims of templates and binds volumes, in either row. KWOK plays
the kubelets; nobody else acts for a driver.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import msgspec
from harness import loads, options, plane, room, schedulers, workload
from harness.claimed import devices, volumes
from harness.conditions import conditions
from harness.pod_watch import PodWatch
from harness.tables import console, print_conditions
from harness.usage import server_processes, used
from rich.table import Table
from thalweg_controlplane import Api, Binaries, ControlPlane
from thalweg_controlplane.client.objects import Manifest

BURST, BACKLOG = "burst", "backlog"
_KINDS = {"devices": devices, "volumes": volumes}
_REST_SECONDS, _SETTLE_SECONDS = 1.0, 0.5
_EXPLAINED = {
    "pods/s": "pods bound per second, from the first one's creation (backlog: from the scheduler's readiness) to the "
    "last binding, as a watch sees them",
    "p50, p99": "ms from a pod's creation (backlog: from readiness) to its binding",
    "CPU s": "of all the scheduler's processes over that time; API, etcd: of these servers",
    "over": "nodes overcommitted at the end, volumes and devices that two pods have, and those whose pod is on another "
    "node: anything but 0 is a bug",
}


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured; all of it but the scheduler's name follows from this."""

    claims: str
    nodes: int
    pods: int
    arrival: str
    warm_up: int
    patience: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it.

    Attributes:
        claimable: devices or volumes of the cluster.
    """

    claimable: int
    bound: int
    seconds: float
    pods_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_seconds: float
    api_server_cpu_seconds: float
    etcd_cpu_seconds: float
    overcommitted: int


async def measure(executables: Binaries, name: str, load: Load, logs: Path | None) -> Measured:
    """One scheduler on a fresh control plane."""
    async with plane.bare(executables, name, controllers=True) as (control_plane, api):
        await plane.warm_up(api, load.warm_up)
        claimable = await _KINDS[load.claims].fill(api, load.nodes, load.pods)
        version = await plane.version(api)
        scheduler = schedulers.make(name, control_plane)
        with schedulers.log_kept(scheduler, logs, f"{load.claims}-{name}-{load.nodes}"):
            async with PodWatch(control_plane.kubeconfig, workload.MEASURED, version) as watch:
                try:
                    return await _load(control_plane, api, scheduler, watch, claimable, load)
                finally:
                    await scheduler.stop()


async def _load(
    control_plane: ControlPlane,
    api: Api,
    scheduler: schedulers.Scheduler,
    watch: PodWatch,
    claimable: int,
    load: Load,
) -> Measured:
    kind = _KINDS[load.claims]
    pods = kind.make_pods(load.pods, scheduler.pods_name)
    api_server, etcd = server_processes()
    if load.arrival == BACKLOG:
        await loads.create(api, pods)
        await kind.until_claimed(api, load.pods)
    await scheduler.start()
    ready = time.monotonic()
    if load.arrival == BURST:
        await scheduler.warm()
        await asyncio.sleep(_REST_SECONDS)
    before, api_before, etcd_before = used(scheduler.pids()), used([api_server]), used([etcd])
    async with asyncio.TaskGroup() as group:
        if load.arrival == BURST:
            group.create_task(loads.create(api, pods))
        group.create_task(loads.until_bound(control_plane, scheduler, watch, load.pods, load.patience))
    after, api_after, etcd_after = used(scheduler.pids()), used([api_server]), used([etcd])
    await asyncio.sleep(_SETTLE_SECONDS)
    seen = list((await watch.seen()).pods.values())
    nodes, there = await api.list("/api/v1/nodes"), await api.list("/api/v1/pods")
    for reason, count in Counter(map(_why_left, there)).most_common(4):
        if reason:
            plane.say(f"  {count} wait: {reason}")
    return Measured(
        claimable=claimable,
        **loads.times(seen, ready if load.arrival == BACKLOG else None),
        cpu_seconds=after.cpu_seconds - before.cpu_seconds,
        api_server_cpu_seconds=api_after.cpu_seconds - api_before.cpu_seconds,
        etcd_cpu_seconds=etcd_after.cpu_seconds - etcd_before.cpu_seconds,
        overcommitted=len(room.overcommitted(nodes, there)) + await kind.misplaced(api, there),
    )


def _why_left(manifest: Manifest) -> str:
    """Why a pod has no node; "": it has one."""
    if manifest["spec"].get("nodeName"):
        return ""
    told = manifest["status"].get("conditions", ())
    return next((each.get("message", "") for each in told if each["type"] == "PodScheduled"), "no reason yet")


def _print(rows: list[tuple[str, Load, Measured]], told: dict[str, str]) -> None:
    first = rows[0][1]
    table = Table(title=f"{first.pods} pods with a claim each on {first.nodes} nodes, {first.arrival}")
    table.add_column("scheduler")
    for column in ("claims", "bound", "seconds", "pods/s", "x alone", "p50", "p99", "CPU s", "API", "etcd", "over"):
        table.add_column(column, justify="right")
    alone = {load.claims: row.pods_per_second for name, load, row in rows if name == schedulers.KUBE_SCHEDULER}
    for name, load, row in rows:
        base = alone.get(load.claims)
        table.add_row(
            name,
            f"{load.claims} of {row.claimable}",
            str(row.bound),
            f"{row.seconds:.1f}",
            f"{row.pods_per_second:.0f}",
            f"{row.pods_per_second / base:.2f}" if base else "-",
            _shown(row.p50_ms),
            _shown(row.p99_ms),
            f"{row.cpu_seconds:.1f}",
            f"{row.api_server_cpu_seconds:.1f}",
            f"{row.etcd_cpu_seconds:.1f}",
            str(row.overcommitted),
        )
    console.print(table)
    print_conditions({**_EXPLAINED, **told})


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


@click.command()
@click.option("--claims", "kinds", default=",".join(_KINDS), show_default=True,
              callback=options.words(tuple(_KINDS)))  # fmt: skip
@click.option("--nodes", default=200, show_default=True, type=click.IntRange(min=1))
@click.option("--pods", default=500, show_default=True, type=click.IntRange(min=2))
@click.option("--arrival", type=click.Choice([BURST, BACKLOG]), default=BURST, show_default=True)
@click.option("--schedulers", "names", default=",".join(schedulers.SCHEDULERS), show_default=True,
              callback=options.words(schedulers.SCHEDULERS))  # fmt: skip
@click.option("--warm-up", default=2000, show_default=True, type=click.IntRange(min=0),
              help="Pods created and deleted beforehand, so that the API server is not new.")  # fmt: skip
@click.option("--patience", default=60.0, show_default=True, help="Seconds without a binding after which to give up.")
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder that logs are kept in.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    kinds: list[str],
    nodes: int,
    pods: int,
    arrival: str,
    names: list[str],
    warm_up: int,
    patience: float,
    logs: Path | None,
    output: str,
) -> None:
    """Pods with claims bound per second, beside the real kube-scheduler."""
    told, executables = conditions(), plane.binaries()
    rows: list[tuple[str, Load, Measured]] = []
    for kind in kinds:
        load = Load(kind, nodes, pods, arrival, warm_up, patience)
        for name in names:
            plane.say(f"{name}: {pods} pods that claim {kind} on {nodes} nodes, {arrival}")
            row = asyncio.run(measure(executables, name, load, logs))
            rows.append((name, load, row))
            plane.say(f"  {row.bound} bound, {row.pods_per_second:.0f} pods/s")
    if output == "json":
        results = [{"scheduler": name, **asdict(load), **asdict(row)} for name, load, row in rows]
        click.echo(msgspec.json.encode({"conditions": told, "rows": results}))
    else:
        _print(rows, told)
    sys.exit(any(row.overcommitted for _, _, row in rows))


if __name__ == "__main__":
    main()
