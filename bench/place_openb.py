"""Places the openb GPU cluster trace on a real API server.

    python bench/place_openb.py DATA_DIR
    python bench/place_openb.py DATA_DIR --list gpuspec33 --kube-scheduler

Nodes and pods (see openb.py for how the trace becomes objects) are all there before the scheduler starts. Its time runs
from the moment it is in sync to the last binding; the run ends when nothing was bound for ten seconds and what the
scheduler says about waiting pods did not change either. With `--kube-scheduler` the real one does the same, alone, on a
second fresh control plane.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import msgspec
from harness import plane, room, schedulers
from harness.conditions import conditions
from harness.pod_watch import PodWatch
from harness.tables import console, print_conditions
from openb import GPU, LISTS, nodes_file, pods_file, read_nodes, read_pods
from rich.table import Table
from thalweg_controlplane import Binaries
from thalweg_controlplane.client.objects import Manifest

#: How often the schedulers are asked whether they still work.
_ASK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one scheduler made of the trace.

    Attributes:
        told: pending pods that have a condition PodScheduled=False when the run ends.
        seconds: from in sync to the last binding.
        multi_gpu: pods that want several GPUs, placed of all.
    """

    scheduler: str
    placed: int
    pending: int
    told: int
    seconds: float
    pods_per_second: float
    overcommitted: int
    gpus: int
    gpus_total: int
    cpu_share: float
    multi_gpu: tuple[int, int]


async def place(
    executables: Binaries, name: str, nodes: list[Manifest], pods: list[Manifest], quiet: float, logs: Path | None
) -> Outcome:
    """One scheduler, alone on a fresh control plane."""
    async with plane.bare(executables, name) as (control_plane, api):
        plane.say(f"{name}: creating {len(nodes)} nodes and {len(pods)} pods")
        await plane.create(api, nodes)
        version = await plane.version(api)
        async with PodWatch(control_plane.kubeconfig, "default", version) as watch:
            await plane.create(api, pods)
            scheduler = schedulers.make(name, control_plane)
            with schedulers.log_kept(scheduler, logs, f"openb-{name}"):
                try:
                    await scheduler.start()
                    in_sync = time.monotonic()
                    plane.say(f"{name}: in sync, placing")
                    await _until_stable(scheduler, watch, in_sync, quiet)
                    last = watch.last
                finally:
                    await scheduler.stop()
        return _judge(name, await api.list("/api/v1/nodes"), await api.list("/api/v1/pods"), last - in_sync)


async def _until_stable(scheduler: schedulers.Scheduler, watch: PodWatch, since: float, quiet: float) -> None:
    waiting, changed, bound = await scheduler.waiting(), since, 0
    while time.monotonic() - max(changed, watch.last) < quiet:
        await asyncio.sleep(_ASK_SECONDS)
        scheduler.check()
        now = await scheduler.waiting()
        if now != waiting:
            waiting, changed = now, time.monotonic()
        if watch.bound != bound:
            bound = watch.bound
            plane.say(f"{scheduler.name}: {bound} bound")


def _judge(name: str, nodes: list[Manifest], pods: list[Manifest], seconds: float) -> Outcome:
    placed = [pod for pod in pods if pod["spec"].get("nodeName")]
    pending = [pod for pod in pods if not pod["spec"].get("nodeName")]
    has, taken = room.allocatable(nodes), room.taken(pods).values()
    gpus, cpus = (sum(amounts.get(what, 0) for amounts in taken) for what in (GPU, "cpu"))
    return Outcome(
        scheduler=name,
        placed=len(placed),
        pending=len(pending),
        told=sum(_is_told(pod) for pod in pending),
        seconds=max(0.0, seconds),
        pods_per_second=len(placed) / seconds if seconds > 0 else 0.0,
        overcommitted=len(room.overcommitted(nodes, pods)),
        gpus=int(gpus),
        gpus_total=int(has.get(GPU, 0)),
        cpu_share=float(cpus / has["cpu"]),
        multi_gpu=(sum(_wants_several(pod) for pod in placed), sum(_wants_several(pod) for pod in pods)),
    )


def _is_told(pod: Manifest) -> bool:
    conditions_ = pod["status"].get("conditions", ())
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions_)


def _wants_several(pod: Manifest) -> bool:
    return room.requests(pod).get(GPU, 0) > 1


def _print(outcomes: list[Outcome]) -> None:
    table = Table(title="openb: all pods waiting when the scheduler starts")
    for column in ("scheduler", "placed", "pending", "of them told", "seconds", "pods/s", "overcommitted nodes",
                   "GPUs", "CPU", "multi-GPU pods"):  # fmt: skip
        table.add_column(column, justify="left" if column == "scheduler" else "right")
    for each in outcomes:
        table.add_row(
            each.scheduler,
            str(each.placed),
            str(each.pending),
            str(each.told),
            f"{each.seconds:.1f}",
            f"{each.pods_per_second:.0f}",
            str(each.overcommitted),
            f"{each.gpus} / {each.gpus_total}",
            f"{each.cpu_share:.0%}",
            f"{each.multi_gpu[0]} / {each.multi_gpu[1]}",
        )
    console.print(table)


@click.command()
@click.argument("folder", metavar="DATA_DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--list", "which", type=click.Choice(LISTS), default="default", show_default=True, help="Which pods.")
@click.option("--limit", type=click.IntRange(min=1), help="Only so many pods, and the same share of the nodes.")
@click.option("--kube-scheduler", "both", is_flag=True, help="The real kube-scheduler too, on a plane of its own.")
@click.option("--quiet", default=10.0, show_default=True, help="Seconds without any change that end a run.")
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder that logs are kept in.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    folder: Path,
    which: str,
    limit: int | None,
    both: bool,  # noqa: FBT001 - click passes flags so
    quiet: float,
    logs: Path | None,
    output: str,
) -> None:
    """Places the trace with `thalweg run`, and prints how well and how fast."""
    told = conditions()
    outcomes = []
    executables = plane.binaries()
    for name in (schedulers.THALWEG, schedulers.KUBE_SCHEDULER) if both else (schedulers.THALWEG,):
        pods_name = "thalweg" if name == schedulers.THALWEG else "default-scheduler"
        nodes, pods = read_nodes(nodes_file(folder)), read_pods(pods_file(folder, which), pods_name)
        if limit is not None and limit < len(pods):
            # Every so-manieth of each, so that all sizes and models stay; both lists are sorted by kind or time.
            nodes, pods = _thinned(nodes, max(1, len(nodes) * limit // len(pods))), _thinned(pods, limit)
        outcomes.append(asyncio.run(place(executables, name, nodes, pods, quiet, logs)))
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": told, "rows": [asdict(each) for each in outcomes]}))
    else:
        _print(outcomes)
        print_conditions(told)
    sys.exit(any(each.overcommitted for each in outcomes))


def _thinned(objects: list[Manifest], count: int) -> list[Manifest]:
    return [objects[i * len(objects) // count] for i in range(count)]


if __name__ == "__main__":
    main()
