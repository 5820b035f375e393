"""What our admission policies cost the API server for each write of anybody: CPU time with each of them and without.

    python bench/admission.py
    python bench/admission.py --writes 100 --runs 1          # does it work?

Rows: none of them, the one that gates pods with one and with ten FlowSchedulingPolicies that it decides by, and the one
that confines our account. Writes are dry runs, of an administrator: admission and validation without etcd and watches.
The rows take turns on one API server. After a first turn, which does not count, the median of all turns does.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import click
import msgspec
from harness import admission, plane
from harness.conditions import conditions
from harness.errors import run
from harness.schedulers import THALWEG
from harness.tables import console, print_conditions
from harness.usage import server_processes, used
from rich.table import Table
from thalweg_controlplane import Api
from thalweg_controlplane.client.api import MERGE_PATCH, STRATEGIC_PATCH
from thalweg_controlplane.client.objects import Manifest, collection_path, object_path, pod

from flowcore.model.gang_spec import GANG

#: Row -> its admission policies, by their file of rights/, and by how many FlowSchedulingPolicies they decide.
_ROWS: Final[dict[str, dict[str, int]]] = {
    "none": {},
    "gates": {admission.GATES: 1},
    "gates, 10 policies": {admission.GATES: 10},
    "gates, 50 policies": {admission.GATES: 50},
    "confinement": {admission.CONFINEMENT: 1},
}
_PROBE: Final = {"httpGet": {"path": "/healthy", "port": 8080}, "periodSeconds": 10}
_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


class Write(NamedTuple):
    """A request that is made again and again."""

    method: str
    path: str
    body: Mapping[str, Any]
    content_type: str = "application/json"

    async def send(self, api: Api) -> None:
        """As a dry run."""
        dry = {"dryRun": "All"}
        await api.request(self.method, self.path, self.body, params=dry, content_type=self.content_type)


def _usual_pod(name: str, **metadata: Any) -> Manifest:
    """A pod as controllers make them: with probes, ports, variables and an owner."""
    container = {
        "name": "main",
        "image": "example.invalid/main",
        "ports": [{"name": name, "containerPort": port} for name, port in (("http", 8080), ("metrics", 9090))],
        "env": [{"name": f"SETTING_{number}", "value": "a value of a setting"} for number in range(12)],
        "livenessProbe": _PROBE,
        "readinessProbe": _PROBE,
        "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"memory": "200Mi"}},
    }
    made = pod(name, scheduler="default-scheduler", labels={"app": "web", "tier": "front"}, containers=[container])
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "5", "controller": True}
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [owner], **metadata}}


def _status(phase: str) -> dict[str, Any]:
    """What a kubelet writes of a pod."""
    state = {"waiting": {"reason": "ContainerCreating"}} if phase == "Pending" else {"running": {}}
    container = {"name": "main", "image": "example.invalid/main", "imageID": "", "restartCount": 0, "state": state}
    ready = phase != "Pending"
    told = [{"type": each, "status": str(ready)} for each in _CONDITIONS]
    return {"status": {"phase": phase, "conditions": told, "containerStatuses": [{**container, "ready": ready}]}}


async def _writes(api: Api) -> dict[str, Write]:
    """By what is written; the objects that are changed are there afterwards."""
    new, gang = _usual_pod("new"), _usual_pod("member", annotations={GANG: "gang"})
    there = _usual_pod("there")
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a", "namespace": "default"}}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "there.", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "there", "namespace": "default", "uid": "5"},
        "type": "Normal",
        "reason": "Pulled",
        "message": 'Container image "example.invalid/main" already present on machine',
        "source": {"component": "kubelet", "host": "node-1"},
    }
    for each in (there, lease):
        await api.create(each)
    status = f"{object_path(there)}/status"
    await api.patch(status, _status("Pending"), content_type=STRATEGIC_PATCH)
    renewal = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    return {
        "a pod": Write("POST", collection_path(new), new),
        "a pod of a gang": Write("POST", collection_path(gang), gang),
        "status of a pod": Write("PATCH", status, _status("Running"), STRATEGIC_PATCH),
        "an Event": Write("POST", collection_path(event), event),
        "a Lease": Write("PATCH", object_path(lease), renewal, MERGE_PATCH),
    }


async def _cost(api: Api, api_server: int, write: Write, count: int) -> float:
    """Microseconds of the API server's CPU time for each of so many writes."""
    gate, before = asyncio.Semaphore(plane.CONCURRENCY), used([api_server]).cpu_seconds

    async def send() -> None:
        async with gate:
            await write.send(api)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(send())
    return 1e6 * (used([api_server]).cpu_seconds - before) / count


async def _measure_all(count: int, runs: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, list[float]]] = {row: defaultdict(list) for row in _ROWS}
    async with plane.bare(plane.binaries(), THALWEG) as (_, api):
        api_server, _ = server_processes()
        writes = await _writes(api)
        for turn in range(runs + 1):
            for row, times in _ROWS.items():
                plane.say(f"{row}, turn {turn} of {runs}")
                await admission.install(api, times)
                await admission.govern(api, times.get(admission.GATES, 0))
                await admission.until_asked(api, times)
                for name, write in writes.items():
                    cost = await _cost(api, api_server, write, count)
                    if turn:
                        found[row][name].append(cost)
                if admission.GATES in times:
                    await admission.forget(api)
    return {row: {name: statistics.median(costs) for name, costs in each.items()} for row, each in found.items()}


def _print(found: Mapping[str, Mapping[str, float]]) -> None:
    table = Table(title="Microseconds of the API server's CPU time for each write, and how many more than with none")
    table.add_column("admission policies")
    for name in found["none"]:
        table.add_column(name, justify="right")
    for row, costs in found.items():
        cells = [f"{cost:.0f} ({cost - found['none'][name]:+.0f})" for name, cost in costs.items()]
        table.add_row(row, *cells)
    console.print(table)


@click.command()
@click.option("--writes", default=2_000, show_default=True, type=click.IntRange(min=1), help="Of each kind, in a turn.")
@click.option("--runs", default=5, show_default=True, type=click.IntRange(min=1))
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(writes: int, runs: int, output: str) -> None:
    """CPU time of the API server for writes of anybody, with our admission policies and without."""
    told = conditions()
    found = asyncio.run(_measure_all(writes, runs))
    if output == "json":
        rows = [{"admission policies": row, "microseconds": costs} for row, costs in found.items()]
        sys.stdout.buffer.write(msgspec.json.encode({"conditions": told, "rows": rows}) + b"\n")
        return
    _print(found)
    print_conditions(told)


if __name__ == "__main__":
    run(main)
