"""Urgent pods on a full cluster: Thalweg's binder and the real kube-scheduler, each alone on a fresh real API server.

    python bench/preemption.py --nodes 1000 --urgent 500
    python bench/preemption.py --nodes 50 --urgent 40 --warm-up 200 -o json

All nodes are full of running pods of three low priorities and three sizes, which ReplicaSets own. Then all urgent pods
are created at once, in two sizes; each of them needs somebody to leave. Running pods have a grace period of 0: the API
server forgets them once they are evicted. No controller manager runs, so nobody creates replacements. Both schedulers
get the same pods, drawn with a fixed seed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import msgspec
from harness import loads, options, plane, room, schedulers, workload
from harness.conditions import conditions
from harness.pod_watch import PodWatch
from harness.tables import console, print_conditions
from harness.usage import server_processes, used
from rich.table import Table
from thalweg_controlplane import Api, Binaries, ControlPlane
from thalweg_controlplane.client.objects import Manifest, node, object_path, pod

_SEED = 7
#: CPUs of a node, of running pods and of urgent ones.
_NODE_CPUS = 16
_RUNNING_CPUS, _URGENT_CPUS = (1, 2, 4), (2, 6)
#: Lowest first.
_LOW = {"low": 0, "batch": 10, "usual": 20}
_URGENT = "urgent"
_SETTLE_SECONDS = 0.5
_REST_SECONDS = 1.0
_EXPLAINED = {
    "pods/s": "urgent pods bound per second, from the first one's creation to the last binding, as a watch sees them",
    "p50, p99": "ms from an urgent pod's creation to its binding",
    "victims": "running pods that left; by priority, the lowest first; CPUs: what they asked for",
    "places": "victims for whose replacement room was reserved on another node (thalweg_moves_total)",
    "CPU s": "of all the scheduler's processes over that time; API, etcd: of these servers",
    "over": "nodes overcommitted at the end, from the API server's objects; anything but 0 is a bug",
}


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured; all of it but the scheduler's name follows from this."""

    nodes: int
    urgent: int
    warm_up: int
    patience: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it."""

    running: int
    bound: int
    seconds: float
    pods_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    victims: int
    victims_by_priority: tuple[int, ...]
    victims_cpus: int
    urgent_cpus: int
    places: int
    cpu_seconds: float
    api_server_cpu_seconds: float
    etcd_cpu_seconds: float
    overcommitted: int


def make_nodes(count: int) -> list[Manifest]:
    """All alike."""
    return [node(f"node-{i:05}", cpu=str(_NODE_CPUS), memory="64Gi") for i in range(count)]


def priority_classes() -> list[Manifest]:
    """Three low ones and the urgent one."""
    values = {**_LOW, _URGENT: 1000}
    return [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in values.items()
    ]


def replica_set(name: str) -> Manifest:
    """An owner; nobody acts on it."""
    template = {"metadata": {"labels": {"app": name}}, "spec": pod("any", "1")["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": workload.RUNNING},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def make_running(nodes: int, owners: dict[str, str]) -> list[Manifest]:
    """Pods that fill all nodes to the last CPU; `owners`: uid of each priority's ReplicaSet."""
    draw = random.Random(_SEED)
    found: list[Manifest] = []
    for at in range(nodes):
        free = _NODE_CPUS
        while free:
            size = draw.choice([each for each in _RUNNING_CPUS if each <= free])
            found.append(_running_pod(len(found), at, size, draw.choice(list(_LOW)), owners))
            free -= size
    return found


def _running_pod(number: int, at: int, cpus: int, priority: str, owners: dict[str, str]) -> Manifest:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": priority, "uid": owners[priority]}
    made = pod(
        f"running-{number:06}",
        str(cpus),
        "256Mi",
        workload.RUNNING,
        "nobody",
        labels={"app": priority},
        nodeName=f"node-{at:05}",
        priorityClassName=priority,
        terminationGracePeriodSeconds=0,
    )
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return made


def make_urgent(count: int, scheduler: str) -> list[Manifest]:
    """The two sizes in turn."""
    return [
        pod(
            f"urgent-{i:05}",
            str(_URGENT_CPUS[i % len(_URGENT_CPUS)]),
            "256Mi",
            workload.MEASURED,
            scheduler,
            priorityClassName=_URGENT,
        )
        for i in range(count)
    ]


async def fill(api: Api, nodes: int) -> list[Manifest]:
    """Makes a cluster without any free CPU; its running pods."""
    await plane.create(api, priority_classes())
    await plane.create(api, make_nodes(nodes))
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": workload.RUNNING}})
    owners = await api.create_many([replica_set(name) for name in _LOW])
    running = make_running(nodes, {each["metadata"]["name"]: each["metadata"]["uid"] for each in owners})
    await plane.create(api, running)
    gate = asyncio.Semaphore(plane.CONCURRENCY)

    async def run(manifest: Manifest) -> None:
        async with gate:
            status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
            await api.patch(f"{object_path(manifest)}/status", {"status": status})

    async with asyncio.TaskGroup() as group:
        for manifest in running:
            group.create_task(run(manifest))
    return running


async def measure(executables: Binaries, name: str, load: Load, logs: Path | None) -> Measured:
    """One scheduler on a fresh control plane."""
    async with plane.bare(executables, name) as (control_plane, api):
        await plane.warm_up(api, load.warm_up)
        running = await fill(api, load.nodes)
        version = await plane.version(api)
        scheduler = schedulers.make(name, control_plane)
        with schedulers.log_kept(scheduler, logs, f"preemption-{name}-{load.nodes}"):
            async with PodWatch(control_plane.kubeconfig, workload.MEASURED, version) as watch:
                try:
                    return await _urgent(control_plane, api, scheduler, watch, running, load)
                finally:
                    await scheduler.stop()


async def _urgent(
    control_plane: ControlPlane,
    api: Api,
    scheduler: schedulers.Scheduler,
    watch: PodWatch,
    running: list[Manifest],
    load: Load,
) -> Measured:
    urgent = make_urgent(load.urgent, scheduler.pods_name)
    api_server, etcd = server_processes()
    await scheduler.start()
    await scheduler.warm()
    await asyncio.sleep(_REST_SECONDS)
    before, api_before, etcd_before = used(scheduler.pids()), used([api_server]), used([etcd])
    async with asyncio.TaskGroup() as group:
        group.create_task(loads.create(api, urgent))
        group.create_task(loads.until_bound(control_plane, scheduler, watch, load.urgent, load.patience))
    after, api_after, etcd_after = used(scheduler.pids()), used([api_server]), used([etcd])
    await asyncio.sleep(_SETTLE_SECONDS)
    samples = await scheduler.metrics()
    seen = await watch.seen()
    nodes, there = await api.list("/api/v1/nodes"), await api.list("/api/v1/pods")
    left = {each["metadata"]["name"] for each in there}
    victims = [each for each in running if each["metadata"]["name"] not in left]
    return Measured(
        running=len(running),
        **loads.times(seen.pods.values(), None),
        victims=len(victims),
        victims_by_priority=tuple(sum(each["spec"]["priorityClassName"] == name for each in victims) for name in _LOW),
        victims_cpus=_cpus(victims),
        urgent_cpus=_cpus(urgent),
        places=int(samples.get("thalweg_moves_total reserved", 0.0)),
        cpu_seconds=after.cpu_seconds - before.cpu_seconds,
        api_server_cpu_seconds=api_after.cpu_seconds - api_before.cpu_seconds,
        etcd_cpu_seconds=etcd_after.cpu_seconds - etcd_before.cpu_seconds,
        overcommitted=len(room.overcommitted(nodes, there)),
    )


def _cpus(pods: list[Manifest]) -> int:
    return int(sum(room.requests(each)["cpu"] for each in pods))


def _print(rows: list[tuple[str, Measured]], load: Load, told: dict[str, str]) -> None:
    running = rows[0][1].running
    table = Table(title=f"{load.urgent} urgent pods on {load.nodes} full nodes with {running} running pods")
    table.add_column("scheduler")
    for column in ("bound", "seconds", "pods/s", "p50", "p99", "victims", "by priority", "CPUs (urgent)", "places",
                   "CPU s", "API", "etcd", "over"):  # fmt: skip
        table.add_column(column, justify="right")
    for name, found in rows:
        table.add_row(
            name,
            str(found.bound),
            f"{found.seconds:.1f}",
            f"{found.pods_per_second:.0f}",
            _shown(found.p50_ms),
            _shown(found.p99_ms),
            str(found.victims),
            "/".join(map(str, found.victims_by_priority)),
            f"{found.victims_cpus} ({found.urgent_cpus})",
            str(found.places),
            f"{found.cpu_seconds:.1f}",
            f"{found.api_server_cpu_seconds:.1f}",
            f"{found.etcd_cpu_seconds:.1f}",
            str(found.overcommitted),
        )
    console.print(table)
    print_conditions({**_EXPLAINED, **told})


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


@click.command()
@click.option("--nodes", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option("--urgent", default=500, show_default=True, type=click.IntRange(min=2), help="Urgent pods.")
@click.option("--schedulers", "names", default=",".join(schedulers.SCHEDULERS), show_default=True,
              callback=options.words(schedulers.SCHEDULERS))  # fmt: skip
@click.option("--warm-up", default=2000, show_default=True, type=click.IntRange(min=0),
              help="Pods created and deleted beforehand, so that the API server is not new.")  # fmt: skip
@click.option("--patience", default=60.0, show_default=True, help="Seconds without a binding after which to give up.")
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder that logs are kept in.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    nodes: int, urgent: int, names: list[str], warm_up: int, patience: float, logs: Path | None, output: str
) -> None:
    """Urgent pods bound per second and who leaves for them, beside the real kube-scheduler."""
    told, load = conditions(), Load(nodes, urgent, warm_up, patience)
    executables = plane.binaries()
    rows: list[tuple[str, Measured]] = []
    for name in names:
        plane.say(f"{name}: {urgent} urgent pods on {nodes} full nodes")
        rows.append((name, asyncio.run(measure(executables, name, load, logs))))
        plane.say(f"  {rows[-1][1].bound} bound, {rows[-1][1].victims} victims")
    if output == "json":
        results = [{"scheduler": name, **asdict(load), **asdict(found)} for name, found in rows]
        click.echo(msgspec.json.encode({"conditions": told, "rows": results}))
    else:
        _print(rows, load, told)
    sys.exit(any(found.overcommitted for _, found in rows))


if __name__ == "__main__":
    main()
