"""StatefulSets with local volumes: Thalweg's binder and the real kube-scheduler, each alone on a fresh real API server.

    python bench/volumes.py --nodes 200 --pods 500
    python bench/volumes.py --nodes 20 --pods 40 --warm-up 100 -o json

Each node has some local PersistentVolumes. Claims and pods are made as the StatefulSet controller makes
them: a claim for each pod, whose class waits for its first consumer. Then all pods are created at once. The
PersistentVolume controller of kube-controller-manager binds the claims, in either row. KWOK plays the kubelets.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
from harness import loads, options, plane, room, schedulers, workload
from harness.conditions import conditions
from harness.pod_watch import PodWatch, Seen
from harness.tables import console, print_conditions
from harness.usage import server_processes, used
from rich.table import Table
from thalweg_controlplane import Api, Binaries, ControlPlane
from thalweg_controlplane.client.objects import Manifest, node, pod

_CLASS = "local"
_HOST = "kubernetes.io/hostname"
#: Volumes of a node, and their size.
_VOLUMES_OF_NODE, _SIZE = 3, "100Gi"
#: Pods of a StatefulSet.
_REPLICAS = 50
_REST_SECONDS, _SETTLE_SECONDS = 1.0, 0.5
_AVAILABLE_SECONDS = 120.0
_VOLUMES = "/api/v1/persistentvolumes"
_EXPLAINED = {
    "pods/s": "pods bound per second, from the first one's creation to the last binding, as a watch sees them",
    "p50, p99": "ms from a pod's creation to its binding",
    "CPU s": "of all the scheduler's processes over that time; API, etcd: of these servers",
    "over": "nodes overcommitted at the end, and volumes that two pods have or whose node is another one: anything but "
    "0 is a bug",
}


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured; all of it but the scheduler's name follows from this."""

    nodes: int
    pods: int
    warm_up: int
    patience: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it."""

    volumes: int
    bound: int
    seconds: float
    pods_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_seconds: float
    api_server_cpu_seconds: float
    etcd_cpu_seconds: float
    overcommitted: int


def make_nodes(count: int) -> list[Manifest]:
    """All alike."""
    return [node(f"node-{i:05}", cpu="64", memory="512Gi") for i in range(count)]


def make_volumes(nodes: int) -> list[Manifest]:
    """Local volumes of each node."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"volume-{at:05}-{place}"},
            "spec": {
                "capacity": {"storage": _SIZE},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": _CLASS,
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": f"/mnt/{place}"},
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": _HOST, "operator": "In", "values": [f"node-{at:05}"]}]}
                        ]
                    }
                },
            },
        }
        for at in range(nodes)
        for place in range(_VOLUMES_OF_NODE)
    ]


def storage_class() -> Manifest:
    """Of volumes that are there."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": _CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def pod_names(count: int) -> list[str]:
    """Of StatefulSets one after the other."""
    return [f"set-{i // _REPLICAS:03}-{i % _REPLICAS}" for i in range(count)]


def make_claims(count: int) -> list[Manifest]:
    """One for each pod."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"data-{name}", "namespace": workload.MEASURED},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": _CLASS,
                "resources": {"requests": {"storage": _SIZE}},
            },
        }
        for name in pod_names(count)
    ]


def make_pods(count: int, scheduler: str) -> list[Manifest]:
    """With their claims."""
    return [
        pod(
            name,
            "500m",
            "1Gi",
            workload.MEASURED,
            scheduler,
            labels={"app": name.rpartition("-")[0]},
            volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}],
        )
        for name in pod_names(count)
    ]


async def fill(api: Api, load: Load) -> list[Manifest]:
    """Makes nodes, volumes and claims; the volumes once the controller has taken them up."""
    await api.create(storage_class())
    await plane.create(api, make_nodes(load.nodes))
    volumes = make_volumes(load.nodes)
    await plane.create(api, volumes)
    await plane.create(api, make_claims(load.pods))
    async with asyncio.timeout(_AVAILABLE_SECONDS):
        while not await _are_available(api):  # noqa: ASYNC110 - the controller has no event for all
            await asyncio.sleep(0.2)
    return volumes


async def _are_available(api: Api) -> bool:
    return all(each["status"].get("phase") == "Available" for each in await api.list(_VOLUMES))


async def measure(executables: Binaries, name: str, load: Load, logs: Path | None) -> Measured:
    """One scheduler on a fresh control plane."""
    async with plane.bare(executables, name, controllers=True) as (control_plane, api):
        await plane.warm_up(api, load.warm_up)
        volumes = await fill(api, load)
        version = await plane.version(api)
        scheduler = schedulers.make(name, control_plane)
        with schedulers.log_kept(scheduler, logs, f"volumes-{name}-{load.nodes}"):
            async with PodWatch(control_plane.kubeconfig, workload.MEASURED, version) as watch:
                try:
                    return await _load(control_plane, api, scheduler, watch, len(volumes), load)
                finally:
                    await scheduler.stop()


async def _load(
    control_plane: ControlPlane,
    api: Api,
    scheduler: schedulers.Scheduler,
    watch: PodWatch,
    volumes: int,
    load: Load,
) -> Measured:
    pods = make_pods(load.pods, scheduler.pods_name)
    api_server, etcd = server_processes()
    await scheduler.start()
    await scheduler.warm()
    await asyncio.sleep(_REST_SECONDS)
    before, api_before, etcd_before = used(scheduler.pids()), used([api_server]), used([etcd])
    async with asyncio.TaskGroup() as group:
        group.create_task(loads.create(api, pods))
        group.create_task(loads.until_bound(control_plane, scheduler, watch, load.pods, load.patience))
    after, api_after, etcd_after = used(scheduler.pids()), used([api_server]), used([etcd])
    await asyncio.sleep(_SETTLE_SECONDS)
    seen = await watch.seen()
    nodes, there = await api.list("/api/v1/nodes"), await api.list("/api/v1/pods")
    for reason, count in Counter(map(_why_left, there)).most_common(4):
        if reason:
            plane.say(f"  {count} wait: {reason}")
    wrong = _misplaced(there, await api.list(f"/api/v1/namespaces/{workload.MEASURED}/persistentvolumeclaims"))
    return Measured(
        volumes=volumes,
        **_times(seen),
        cpu_seconds=after.cpu_seconds - before.cpu_seconds,
        api_server_cpu_seconds=api_after.cpu_seconds - api_before.cpu_seconds,
        etcd_cpu_seconds=etcd_after.cpu_seconds - etcd_before.cpu_seconds,
        overcommitted=len(room.overcommitted(nodes, there)) + wrong,
    )


def _why_left(manifest: Manifest) -> str:
    """Why a pod has no node; "": it has one."""
    if manifest["spec"].get("nodeName"):
        return ""
    conditions = manifest["status"].get("conditions", ())
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "no reason yet")


def _misplaced(pods: list[Manifest], claims: list[Manifest]) -> int:
    """Pods whose volume is not on their node, and volumes that several claims have."""
    volume_of = {each["metadata"]["name"]: each["spec"].get("volumeName", "") for each in claims}
    placed = [each for each in pods if each["spec"].get("nodeName")]
    used_volumes = Counter(volume_of[f"data-{each['metadata']['name']}"] for each in placed)
    elsewhere = sum(
        volume_of[f"data-{each['metadata']['name']}"].rpartition("-")[0].removeprefix("volume-")
        != each["spec"]["nodeName"].removeprefix("node-")
        for each in placed
    )
    return elsewhere + sum(count > 1 for count in used_volumes.values())


def _times(seen: Seen) -> dict[str, Any]:
    bound = sorted(each.bound for each in seen.pods.values() if each.bound is not None)
    seconds = bound[-1] - min(each.added for each in seen.pods.values()) if bound else 0.0
    waited = loads.latencies(seen.pods.values(), None)
    return {
        "bound": len(bound),
        "seconds": seconds,
        "pods_per_second": len(bound) / seconds if seconds else 0.0,
        "p50_ms": loads.percentile(waited, 50),
        "p99_ms": loads.percentile(waited, 99),
    }


def _print(rows: list[tuple[str, Measured]], load: Load, told: dict[str, str]) -> None:
    table = Table(title=f"{load.pods} pods with a claim each on {load.nodes} nodes with {rows[0][1].volumes} volumes")
    table.add_column("scheduler")
    for column in ("bound", "seconds", "pods/s", "p50", "p99", "CPU s", "API", "etcd", "over"):
        table.add_column(column, justify="right")
    for name, row in rows:
        table.add_row(
            name,
            str(row.bound),
            f"{row.seconds:.1f}",
            f"{row.pods_per_second:.0f}",
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
@click.option("--nodes", default=200, show_default=True, type=click.IntRange(min=1))
@click.option("--pods", default=500, show_default=True, type=click.IntRange(min=2))
@click.option("--schedulers", "names", default=",".join(schedulers.SCHEDULERS), show_default=True,
              callback=options.words(schedulers.SCHEDULERS))  # fmt: skip
@click.option("--warm-up", default=2000, show_default=True, type=click.IntRange(min=0),
              help="Pods created and deleted beforehand, so that the API server is not new.")  # fmt: skip
@click.option("--patience", default=60.0, show_default=True, help="Seconds without a binding after which to give up.")
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder that logs are kept in.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    nodes: int, pods: int, names: list[str], warm_up: int, patience: float, logs: Path | None, output: str
) -> None:
    """Pods with local volumes bound per second, beside the real kube-scheduler."""
    told, load = conditions(), Load(nodes, pods, warm_up, patience)
    executables = plane.binaries()
    rows: list[tuple[str, Measured]] = []
    for name in names:
        plane.say(f"{name}: {pods} pods with local volumes on {nodes} nodes")
        rows.append((name, asyncio.run(measure(executables, name, load, logs))))
        plane.say(f"  {rows[-1][1].bound} bound, {rows[-1][1].pods_per_second:.0f} pods/s")
    if output == "json":
        results = [{"scheduler": name, **asdict(load), **asdict(row)} for name, row in rows]
        click.echo(msgspec.json.encode({"conditions": told, "rows": results}))
    else:
        _print(rows, load, told)
    sys.exit(any(row.overcommitted for _, row in rows))


if __name__ == "__main__":
    main()
