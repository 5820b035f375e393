"""Places the openb GPU cluster trace on a real API server, beside what the engine makes of all its pods at once.

    python bench/place_openb.py DATA_DIR
    python bench/place_openb.py DATA_DIR --list gpuspec33,multigpu50 --arrival start,minute,ends --kube-scheduler

Nodes (see openb.py for how the trace becomes objects) are all there before the scheduler starts, and with `start` the
pods too. With `minute` the pods come evenly within a minute, in the trace's order; with `ends` a tenth of them ends
five seconds after the binding. The time of a scheduler runs from the moment it is in sync to the last binding; the run
ends when nothing was bound for ten seconds and what the scheduler says about waiting pods did not change either. With
`--kube-scheduler` the real one does the same, alone, on a second fresh control plane.

Rows of the engine are no cluster. `engine, at once`: one round for all pods, as `thalweg plan` plans them. If pods end,
those that it placed leave, and it plans the rest again. `engine, in rounds`: pods come and end as in the run, and every
200 arrivals a round begins; it knows no better than a scheduler what comes later.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
import msgspec
from harness import openb_live, options, plane, room, schedulers
from harness.conditions import conditions
from harness.pod_watch import PodWatch
from harness.tables import console, print_conditions
from openb import GPU, LISTS, nodes_file, pods_file, read_nodes, read_pods
from rich.table import Table
from thalweg_controlplane import Api, Binaries
from thalweg_controlplane.client.objects import Manifest

ENGINE, ROUNDS = "engine, at once", "engine, in rounds"
_PODS_NAMES = {
    schedulers.THALWEG: schedulers.Thalweg.pods_name,
    schedulers.KUBE_SCHEDULER: schedulers.KubeScheduler.pods_name,
}
#: How often the schedulers are asked whether they still work.
_ASK_SECONDS = 1.0
_EXPLAINED = {
    "placed": "pods that got a node; some may have ended since",
    "short": "by which part fewer than the engine at once; of rounds: than the engine in rounds",
    "multi-GPU pods": "that want several whole GPUs, placed of all",
    "seconds": "from in sync to the last binding; of the engine: CPU time of its rounds",
    "GPUs, CPU": "of pods that have not ended",
}


@dataclass(frozen=True, slots=True)
class Case:
    """What is placed, and how it comes."""

    which: str
    arrival: str
    nodes: list[Manifest]
    pods: list[Manifest]

    @classmethod
    def read(cls, folder: Path, which: str, arrival: str, limit: int | None) -> Case:
        """Reads the trace; ``limit``: so many of its pods at most, and the same share of its nodes."""
        nodes, pods = read_nodes(nodes_file(folder)), read_pods(pods_file(folder, which))
        if limit is not None and limit < len(pods):
            # Every so-manieth of each, so that all sizes and models stay; both lists are sorted by kind or time.
            nodes, pods = _thinned(nodes, max(1, len(nodes) * limit // len(pods))), _thinned(pods, limit)
        return cls(which, arrival, nodes, openb_live.with_ends(pods) if arrival == openb_live.ENDS else pods)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one scheduler made of the trace.

    Attributes:
        short: by which part of the pods that the engine places at once it placed fewer; negative: more; None: itself.
        short_of_rounds: the same beside the engine in rounds; None: itself, or all come at the start.
        told: pending pods that have a condition PodScheduled=False when the run ends; None: nobody is told.
        seconds: from in sync to the last binding; of the engine the CPU time.
        multi_gpu: pods that want several GPUs, placed of all.
    """

    which: str
    arrival: str
    scheduler: str
    placed: int
    short: float | None
    short_of_rounds: float | None
    pending: int
    told: int | None
    seconds: float
    pods_per_second: float | None
    overcommitted: int
    gpus: int
    gpus_total: int
    cpu_share: float
    multi_gpu: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Engine:
    """Pods that the engine places without a cluster; ``in_rounds`` is None where all come at the start."""

    at_once: int
    in_rounds: int | None


async def place(
    executables: Binaries, name: str, case: Case, quiet: float, logs: Path | None
) -> tuple[list[Manifest], float]:
    """One scheduler, alone on a fresh control plane: the pods at the end, and the seconds to the last binding."""
    async with plane.bare(executables, name) as (control_plane, api):
        plane.say(f"{name}, {case.which}, {case.arrival}: {len(case.nodes)} nodes and {len(case.pods)} pods")
        await plane.create(api, case.nodes)
        version = await plane.version(api)
        async with PodWatch(control_plane.kubeconfig, "default", version) as watch:
            if case.arrival == openb_live.START:
                await plane.create(api, case.pods)
            scheduler = schedulers.make(name, control_plane)
            with schedulers.log_kept(scheduler, logs, f"openb-{case.which}-{case.arrival}-{name}"):
                try:
                    await scheduler.start()
                    in_sync = time.monotonic()
                    plane.say(f"{name}: in sync, placing")
                    await _until_placed(api, scheduler, watch, case, quiet)
                    last = watch.last
                finally:
                    await scheduler.stop()
        return await api.list("/api/v1/pods"), max(0.0, last - in_sync)


async def _until_placed(api: Api, scheduler: schedulers.Scheduler, watch: PodWatch, case: Case, quiet: float) -> None:
    """Has pods come and end as the case says; returns when all have come and nothing changes any more."""
    async with asyncio.TaskGroup() as group:
        finishing = group.create_task(openb_live.end_bound_pods(api)) if case.arrival == openb_live.ENDS else None
        if case.arrival != openb_live.START:
            await scheduler.warm()
            await openb_live.create_within_a_minute(api, case.pods)
        await _until_stable(scheduler, watch, time.monotonic(), quiet)
        if finishing is not None:
            finishing.cancel()


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


def compare(
    executables: Binaries, names: tuple[str, ...], case: Case, quiet: float, logs: Path | None
) -> Iterator[Outcome]:
    """Rows of the engine, then one for each scheduler."""
    plan = openb_live.plan_at_once(case.nodes, case.pods)
    beside = _Engine(_placed(plan.pods), None)
    yield _judge(case, ENGINE, plan.pods, plan.seconds, None)
    if case.arrival != openb_live.START:
        plan = openb_live.plan_in_rounds(case.nodes, case.pods)
        yield _judge(case, ROUNDS, plan.pods, plan.seconds, beside)
        beside = replace(beside, in_rounds=_placed(plan.pods))
    for name in names:
        pods_name = _PODS_NAMES[name]
        named = [{**pod, "spec": {**pod["spec"], "schedulerName": pods_name}} for pod in case.pods]
        pods, seconds = asyncio.run(place(executables, name, replace(case, pods=named), quiet, logs))
        yield _judge(case, name, pods, seconds, beside)


def _judge(case: Case, name: str, pods: list[Manifest], seconds: float, beside: _Engine | None) -> Outcome:
    placed = [pod for pod in pods if _has_node(pod)]
    pending = [pod for pod in pods if not _has_node(pod)]
    has, taken = room.allocatable(case.nodes), room.taken(pods).values()
    gpus, cpus = (sum(amounts.get(what, 0) for amounts in taken) for what in (GPU, "cpu"))
    is_live = name not in (ENGINE, ROUNDS)
    return Outcome(
        which=case.which,
        arrival=openb_live.WORDS[case.arrival],
        scheduler=name,
        placed=len(placed),
        short=None if beside is None else _short(len(placed), beside.at_once),
        short_of_rounds=None if beside is None else _short(len(placed), beside.in_rounds),
        pending=len(pending),
        told=sum(_is_told(pod) for pod in pending) if is_live else None,
        seconds=seconds,
        pods_per_second=len(placed) / seconds if is_live and seconds > 0 else None,
        overcommitted=len(room.overcommitted(case.nodes, pods)),
        gpus=int(gpus),
        gpus_total=int(has.get(GPU, 0)),
        cpu_share=float(cpus / has["cpu"]),
        multi_gpu=(sum(_wants_several(pod) for pod in placed), sum(_wants_several(pod) for pod in pods)),
    )


def _placed(pods: list[Manifest]) -> int:
    return sum(_has_node(pod) for pod in pods)


def _short(placed: int, by_engine: int | None) -> float | None:
    return 1.0 - placed / by_engine if by_engine else None


def _has_node(pod: Manifest) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _is_told(pod: Manifest) -> bool:
    conditions_ = pod["status"].get("conditions", ())
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions_)


def _wants_several(pod: Manifest) -> bool:
    return room.requests(pod).get(GPU, 0) > 1


def _percent(part: float | None) -> str:
    return "" if part is None else f"{part:.1%}"


def _print(outcomes: list[Outcome]) -> None:
    table = Table(title="openb: placed live, beside what the engine places at once")
    for column in ("pods", "arrival", "scheduler", "placed", "short", "of rounds", "pending", "of them told", "seconds",
                   "pods/s", "overcommitted nodes", "GPUs", "CPU", "multi-GPU pods"):  # fmt: skip
        table.add_column(column, justify="left" if column in ("pods", "arrival", "scheduler") else "right")
    for outcome in outcomes:
        table.add_row(
            outcome.which,
            outcome.arrival,
            outcome.scheduler,
            str(outcome.placed),
            _percent(outcome.short),
            _percent(outcome.short_of_rounds),
            str(outcome.pending),
            "" if outcome.told is None else str(outcome.told),
            f"{outcome.seconds:.1f}",
            "" if outcome.pods_per_second is None else f"{outcome.pods_per_second:.0f}",
            str(outcome.overcommitted),
            f"{outcome.gpus} / {outcome.gpus_total}",
            f"{outcome.cpu_share:.0%}",
            f"{outcome.multi_gpu[0]} / {outcome.multi_gpu[1]}",
        )
    console.print(table)


@click.command()
@click.argument("folder", metavar="DATA_DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--list", "lists", default="default", show_default=True, callback=options.words(LISTS),
              help="Which pods.")  # fmt: skip
@click.option("--arrival", "arrivals", default="start", show_default=True, callback=options.words(openb_live.ARRIVALS),
              help="How they come: start, minute, ends.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), help="Only so many pods, and the same share of the nodes.")
@click.option("--kube-scheduler", "both", is_flag=True, help="The real kube-scheduler too, on a plane of its own.")
@click.option("--quiet", default=10.0, show_default=True, type=click.FloatRange(min=2 * openb_live.ENDS_AFTER),
              help="Seconds without any change that end a run.")  # fmt: skip
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder that logs are kept in.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    folder: Path,
    lists: list[str],
    arrivals: list[str],
    limit: int | None,
    both: bool,  # noqa: FBT001 - click passes flags so
    quiet: float,
    logs: Path | None,
    output: str,
) -> None:
    """Places the trace with `thalweg run`, and prints how well and how fast, beside the engine at once."""
    told = conditions()
    executables = plane.binaries()
    names = (schedulers.THALWEG, schedulers.KUBE_SCHEDULER) if both else (schedulers.THALWEG,)
    outcomes: list[Outcome] = []
    for which in lists:
        for arrival in arrivals:
            outcomes += compare(executables, names, Case.read(folder, which, arrival, limit), quiet, logs)
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": told, "rows": [asdict(outcome) for outcome in outcomes]}))
    else:
        _print(outcomes)
        print_conditions({**_EXPLAINED, **told})
    sys.exit(any(outcome.overcommitted for outcome in outcomes))


def _thinned(objects: list[Manifest], count: int) -> list[Manifest]:
    return [objects[i * len(objects) // count] for i in range(count)]


if __name__ == "__main__":
    main()
