"""Pods that come one at a time: from creation to binding, by Thalweg and by the real kube-scheduler.

    python bench/lone_pods.py --nodes 1000,5000 --every 100,20
    python bench/lone_pods.py --nodes 50 --pods 20 --warm-up 100            # does it work?

Every row has its own etcd and API server. A pod is created every so many milliseconds, whether or not the one before is
bound. When pods are created and bound is seen by a watch in a process of its own. A second table says where the time of
Thalweg's rounds went.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import click
import msgspec
from harness import loads, options, plane, schedulers, workload
from harness.conditions import conditions
from harness.errors import BenchError
from harness.pod_watch import PodWatch
from harness.tables import console, print_conditions
from harness.usage import child_named, used
from rich.table import Table
from thalweg_controlplane import Api, Binaries
from thalweg_controlplane.objects import Manifest

#: What a scheduler gets to come to rest before the first pod.
_REST_SECONDS = 1.0
_PATIENCE = 30.0
#: Pods bound before those that count: connections, caches and compiled code are there then.
_FIRST = 10
_PHASES = ("collect", "transfer", "snapshot", "problem", "solve", "result", "scores", "deliver")
_EXPLAINED = {
    "p50, p99": "ms from a pod's creation to its binding, both as a watch sees them",
    "CPU": "CPU ms for each pod, of all the scheduler's processes and of the API server",
    "rounds": "Thalweg's rounds for each pod; the phases are ms of one round, on the side of the operator (collect,"
    " transfer, deliver) and in the worker",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One row to measure; `every`: milliseconds between two pods."""

    scheduler: str
    nodes: int
    mix: str
    every: int
    pods: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it.

    Attributes:
        phases: of Thalweg's rounds, ms of a round by phase.
        rounds: for each pod.
    """

    p50_ms: float
    p99_ms: float
    cpu_ms: float
    api_server_cpu_ms: float
    rounds: float
    phases: Mapping[str, float]


async def measure(executables: Binaries, case: Case, warm_up: int, logs: Path | None, profile: Path | None) -> Measured:
    """One row: a fresh control plane, one scheduler, one pod after the other."""
    title = f"{case.scheduler}-{case.nodes}-{case.mix}-{case.every}"
    async with plane.bare(executables, case.scheduler) as (control_plane, api):
        await plane.create(api, workload.make_nodes(case.nodes))
        await plane.warm_up(api, warm_up)
        scheduler = schedulers.make(case.scheduler, control_plane, profile and profile / f"{title}.prof")
        pods = workload.make_pods(case.mix, _FIRST + case.pods, scheduler.pods_name)
        with schedulers.log_kept(scheduler, logs, title):
            await scheduler.start()
            try:
                await scheduler.warm()
                async with PodWatch(control_plane.kubeconfig, workload.MEASURED, await plane.version(api)) as watch:
                    await asyncio.sleep(_REST_SECONDS)
                    await _create_each(api, pods[:_FIRST], case.every)
                    await loads.until_bound(control_plane, scheduler, watch, _FIRST, _PATIENCE)
                    api_server = child_named("kube-apiserver")
                    if api_server is None:
                        raise BenchError("the API server's process is not found")
                    before, api_before, rounds_before = (
                        used(scheduler.pids()),
                        used([api_server]),
                        await _rounds(scheduler),
                    )
                    await _create_each(api, pods[_FIRST:], case.every)
                    await loads.until_bound(control_plane, scheduler, watch, len(pods), _PATIENCE)
                    after, api_after = used(scheduler.pids()), used([api_server])
                    rounds, phases = _difference(rounds_before, await _rounds(scheduler))
                    seen = (await watch.seen()).pods
            finally:
                await scheduler.stop()
    measured = [seen[each["metadata"]["name"]] for each in pods[_FIRST:]]
    latencies = loads.latencies(measured, None)
    p50, p99 = (loads.percentile(latencies, at) for at in (50, 99))
    if len(latencies) < case.pods or p50 is None or p99 is None:
        raise BenchError(f"{title}: {len(latencies)} of {case.pods} pods were bound")
    return Measured(
        p50_ms=p50,
        p99_ms=p99,
        cpu_ms=1000 * (after.cpu_seconds - before.cpu_seconds) / case.pods,
        api_server_cpu_ms=1000 * (api_after.cpu_seconds - api_before.cpu_seconds) / case.pods,
        rounds=rounds / case.pods,
        phases=phases,
    )


async def _create_each(api: Api, pods: Sequence[Manifest], every: int) -> None:
    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for place, each in enumerate(pods):
            await asyncio.sleep(max(0.0, begun + place * every / 1000 - time.monotonic()))
            group.create_task(api.create(each))


async def _rounds(scheduler: schedulers.Scheduler) -> dict[str, tuple[float, float]]:
    """Number and seconds so far, by phase; empty for kube-scheduler."""
    if scheduler.name != schedulers.THALWEG:
        return {}
    samples, name = await scheduler.metrics(), "thalweg_round_phase_seconds"
    return {
        phase: (samples.get(f"{name}_count {phase}", 0.0), samples.get(f"{name}_sum {phase}", 0.0)) for phase in _PHASES
    }


def _difference(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]]
) -> tuple[float, dict[str, float]]:
    """Rounds since, and ms of one by phase."""
    rounds = {phase: after[phase][0] - before[phase][0] for phase in after}
    seconds = {phase: after[phase][1] - before[phase][1] for phase in after}
    return rounds.get("collect", 0.0), {
        phase: 1000 * seconds[phase] / rounds[phase] for phase in after if rounds[phase]
    }


def _print(rows: Sequence[tuple[Case, Measured]], told: Mapping[str, str]) -> None:
    table = Table(title=f"{rows[0][0].pods} pods, one at a time")
    table.add_column("scheduler")
    for column in ("nodes", "mix", "every ms", "p50", "p99", "CPU", "API CPU", "rounds"):
        table.add_column(column, justify="right")
    phases = Table(title="ms of a round")
    for column in ("nodes", "mix", "every ms", *_PHASES):
        phases.add_column(column, justify="right")
    for case, found in rows:
        table.add_row(
            case.scheduler, str(case.nodes), case.mix, str(case.every),
            *(f"{each:.1f}" for each in (found.p50_ms, found.p99_ms, found.cpu_ms, found.api_server_cpu_ms)),
            f"{found.rounds:.2f}" if found.phases else "-",
        )  # fmt: skip
        if found.phases:
            shown = (f"{found.phases.get(phase, 0.0):.2f}" for phase in _PHASES)
            phases.add_row(str(case.nodes), case.mix, str(case.every), *shown)
    console.print(table)
    console.print(phases)
    print_conditions({**_EXPLAINED, **told})


@click.command()
@click.option("--nodes", default="1000,5000", show_default=True, callback=options.numbers)
@click.option("--pods", default=300, show_default=True, type=click.IntRange(min=2))
@click.option("--mix", default="plain", show_default=True, callback=options.words(workload.MIXES))
@click.option("--every", default="100,20", show_default=True, callback=options.numbers,
              help="Milliseconds between two pods.")  # fmt: skip
@click.option("--schedulers", "names", default=",".join(schedulers.SCHEDULERS), show_default=True,
              callback=options.words(schedulers.SCHEDULERS))  # fmt: skip
@click.option("--warm-up", default=5000, show_default=True, type=click.IntRange(min=0),
              help="Pods created and deleted beforehand, so that the API server is not new.")  # fmt: skip
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder that logs are kept in.")
@click.option("--profile", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for cProfile's results of the operator; its figures are then too low.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    nodes: list[int],
    pods: int,
    mix: list[str],
    every: list[int],
    names: list[str],
    warm_up: int,
    logs: Path | None,
    profile: Path | None,
    output: str,
) -> None:
    """Latency of pods that come alone, beside the real kube-scheduler."""
    told, executables = conditions(), plane.binaries()
    if profile is not None:
        profile.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[Case, Measured]] = []
    for count, kind, pause, name in product(nodes, mix, every, names):
        case = Case(name, count, kind, pause, pods)
        plane.say(f"{name}: {count} nodes, a {kind} pod every {pause} ms")
        rows.append((case, asyncio.run(measure(executables, case, warm_up, logs, profile))))
    if output == "json":
        results = [{**asdict(case), **asdict(found)} for case, found in rows]
        click.echo(msgspec.json.encode({"conditions": told, "results": results}))
    else:
        _print(rows, told)


if __name__ == "__main__":
    try:
        main()
    except BenchError as problem:
        print(problem, file=sys.stderr)
        sys.exit(1)
