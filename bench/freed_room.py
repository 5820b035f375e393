"""Room that comes free while pods wait: from the end of a running pod to the binding of a waiting one.

    python bench/freed_room.py --waiting 60,600
    python bench/freed_room.py --waiting 12 --times 10 --warm-up 100            # does it work?

All nodes are full of running pods, and pods of the same size wait. Then one running pod after the other is deleted,
with a grace period of 0. All rows of one number of waiting pods run on the same etcd and API server, one after the
other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import msgspec
from harness import loads, options, plane, workload
from harness.conditions import conditions
from harness.errors import BenchError, run
from harness.pod_watch import PodWatch
from harness.schedulers import SCHEDULERS, Scheduler, log_kept, make
from harness.tables import console, print_conditions
from rich.table import Table
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import Manifest, node, object_path, pod

_NODES, _PODS_ON_A_NODE = 20, 8
#: Until all that wait have been tried and told.
_SETTLE_SECONDS = 15.0
_PATIENCE = 10.0
_EXPLAINED = {"p50, most": "ms from the request that deletes a running pod to the binding that a watch sees next"}


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it, in ms."""

    scheduler: str
    waiting: int
    p50_ms: float
    most_ms: float


def _running() -> list[Manifest]:
    return [
        pod(f"running-{at:04}", "1", "64Mi", workload.RUNNING, "nobody", nodeName=f"node-{at % _NODES:02}")
        for at in range(_NODES * _PODS_ON_A_NODE)
    ]


async def _wait_of_each(
    control_plane: ControlPlane, api: Api, scheduler: Scheduler, waiting: Sequence[Manifest], times: int, every: float
) -> list[float]:
    """Seconds from each running pod's end to a binding."""
    found: list[float] = []
    async with PodWatch(control_plane.kubeconfig, workload.MEASURED, await plane.version(api)) as watch:
        await plane.create(api, waiting)
        await asyncio.sleep(_SETTLE_SECONDS)
        for gone in _running()[:times]:
            deleted, bound = time.monotonic(), watch.bound
            await api.delete(object_path(gone), gracePeriodSeconds="0")
            await loads.until_bound(control_plane, scheduler, watch, bound + 1, _PATIENCE)
            if watch.bound != bound + 1:
                raise BenchError(f"{scheduler.name}: {watch.bound - bound} pods were bound to the room of one")
            found.append(watch.last - deleted)
            await asyncio.sleep(every)
    return found


async def measure(
    control_plane: ControlPlane, api: Api, name: str, count: int, times: int, every: float, logs: Path | None
) -> Measured:
    """One row on a plane that is clean before and after."""
    scheduler, running = make(name, control_plane), _running()
    waiting = [pod(f"waiting-{at:04}", "1", "64Mi", workload.MEASURED, scheduler.pods_name) for at in range(count)]
    plane.say(f"{name}: {count} pods wait")
    await plane.create(api, running)
    with log_kept(scheduler, logs, f"{name}-{count}"):
        try:
            await scheduler.start()
            await scheduler.warm()
            waits = await _wait_of_each(control_plane, api, scheduler, waiting, times, every)
        finally:
            await scheduler.stop()
            await plane.delete(api, waiting)
            await plane.delete(api, running[times:])
    p50 = loads.percentile(waits, 50)
    assert p50 is not None
    return Measured(name, count, p50, 1000 * max(waits))


async def _measure_all(
    names: Sequence[str], count: int, times: int, every: float, warm_up: int, logs: Path | None
) -> list[Measured]:
    async with plane.shared(plane.binaries()) as (control_plane, api):
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": workload.RUNNING}})
        await plane.create(api, [node(f"node-{at:02}", str(_PODS_ON_A_NODE), "64Gi") for at in range(_NODES)])
        await plane.warm_up(api, warm_up)
        return [await measure(control_plane, api, each, count, times, every, logs) for each in names]


def _print(rows: Sequence[Measured], told: Mapping[str, str]) -> None:
    table = Table(title=f"A running pod ends on one of {_NODES} full nodes")
    table.add_column("scheduler")
    for column in ("pods wait", "p50", "most"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(row.scheduler, str(row.waiting), f"{row.p50_ms:.1f}", f"{row.most_ms:.1f}")
    console.print(table)
    print_conditions({**_EXPLAINED, **told})


@click.command()
@click.option("--waiting", default="60,600", show_default=True, callback=options.numbers)
@click.option("--times", default=40, show_default=True, type=click.IntRange(2, _NODES * _PODS_ON_A_NODE),
              help="Running pods that end.")  # fmt: skip
@click.option("--every", default=300, show_default=True, type=click.IntRange(min=0),
              help="Milliseconds from a binding to the end of the next running pod.")  # fmt: skip
@click.option("--schedulers", "names", default=",".join(SCHEDULERS), show_default=True,
              callback=options.words(SCHEDULERS))  # fmt: skip
@click.option("--warm-up", default=1000, show_default=True, type=click.IntRange(min=0),
              help="Pods created and deleted beforehand, so that the API server is not new.")  # fmt: skip
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder that logs are kept in.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    waiting: list[int], times: int, every: int, names: list[str], warm_up: int, logs: Path | None, output: str
) -> None:
    """How soon room that comes free is given to a pod that waits, beside the real kube-scheduler."""
    if min(waiting) < times:
        raise click.BadParameter(
            f"{min(waiting)} pods wait, fewer than the {times} that get room", param_hint="--waiting"
        )
    told = conditions()
    rows = [
        row for count in waiting for row in asyncio.run(_measure_all(names, count, times, every / 1000, warm_up, logs))
    ]
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": told, "rows": [asdict(row) for row in rows]}))
        return
    _print(rows, told)


if __name__ == "__main__":
    run(main)
