"""Pods that come one at a time: from creation to binding, by kube-scheduler, by Thalweg's binder, and by both together.

    python bench/lone_pods.py --nodes 1000,5000 --every 100,20
    python bench/lone_pods.py --nodes 50 --pods 20 --warm-up 100            # does it work?

All rows of one number of nodes run on the same etcd and API server, one after the other. A pod is created every so many
milliseconds, whether or not the one before is bound. When pods are created and bound is seen by a watch in a process of
its own. A second table says where the time of Thalweg's rounds went.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import click
import msgspec
from harness import loads, options, plane, workload
from harness.conditions import conditions
from harness.errors import BenchError, run
from harness.extended import KUBE_SCHEDULER, STEERED, Steered, forget_policy, steered_policy
from harness.pod_watch import PodWatch
from harness.schedulers import THALWEG, KubeScheduler, Scheduler, Thalweg, log_kept
from harness.tables import console, print_conditions
from harness.usage import server_processes, used
from rich.table import Table
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import Manifest
from thalweg_controlplane.components import DEFAULT_SCHEDULER_CONFIG

KINDS = (KUBE_SCHEDULER, THALWEG, STEERED)
#: What a scheduler gets to come to rest before the first pod.
_REST_SECONDS = 1.0
_PATIENCE = 30.0
#: Pods bound before those that count: connections, caches and compiled code are there then.
_FIRST = 10
_PHASES = ("collect", "transfer", "snapshot", "problem", "solve", "result", "prices", "deliver")
_EXPLAINED = {
    "p50, p99": "ms from a pod's creation to its binding, both as a watch sees them",
    "CPU": "CPU ms for each pod, of all the scheduler's processes; API, etcd: of these",
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
    etcd_cpu_ms: float
    rounds: float
    phases: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Options:
    """What is the same for all rows."""

    logs: Path | None
    profile: Path | None


def _make(case: Case, control_plane: ControlPlane, given: Options) -> Scheduler:
    profile = given.profile / f"{_title(case)}.prof" if given.profile else None
    if case.scheduler == THALWEG:
        return Thalweg(control_plane, profile)
    if case.scheduler == STEERED:
        return Steered(control_plane, STEERED, 0, profile)
    control_plane.configure_scheduler(DEFAULT_SCHEDULER_CONFIG)
    return KubeScheduler(control_plane)


def _title(case: Case) -> str:
    return f"{case.scheduler}-{case.nodes}-nodes-{case.mix}-every-{case.every}-ms"


async def measure(control_plane: ControlPlane, api: Api, case: Case, given: Options) -> Measured:
    """One row on a plane that is clean before and after."""
    scheduler = _make(case, control_plane, given)
    if case.scheduler == STEERED:
        await steered_policy(api)
    pods = workload.make_pods(case.mix, _FIRST + case.pods, scheduler.pods_name)
    with log_kept(scheduler, given.logs, _title(case)):
        async with PodWatch(control_plane.kubeconfig, workload.MEASURED, await plane.version(api)) as watch:
            try:
                await scheduler.start()
                await scheduler.warm()
                await asyncio.sleep(_REST_SECONDS)
                await _create_each(api, pods[:_FIRST], case.every)
                await loads.until_bound(control_plane, scheduler, watch, _FIRST, _PATIENCE)
                servers = server_processes()
                processes = [scheduler.pids(), *([each] for each in servers)]
                before, rounds_before = [used(each) for each in processes], await _rounds(scheduler)
                await _create_each(api, pods[_FIRST:], case.every)
                await loads.until_bound(control_plane, scheduler, watch, len(pods), _PATIENCE)
                after = [used(each) for each in processes]
                rounds, phases = _difference(rounds_before, await _rounds(scheduler))
                seen = (await watch.seen()).pods
            finally:
                await scheduler.stop()
                await plane.delete(api, pods)
                if case.scheduler == STEERED:
                    await forget_policy(api)
    latencies = loads.latencies((seen[each["metadata"]["name"]] for each in pods[_FIRST:]), None)
    p50, p99 = (loads.percentile(latencies, at) for at in (50, 99))
    if len(latencies) < case.pods or p50 is None or p99 is None:
        raise BenchError(f"{_title(case)}: {len(latencies)} of {case.pods} pods were bound")
    cpu, api_cpu, etcd_cpu = (
        1000 * (late.cpu_seconds - early.cpu_seconds) / case.pods for early, late in zip(before, after, strict=True)
    )
    return Measured(p50, p99, cpu, api_cpu, etcd_cpu, rounds / case.pods, phases)


async def _measure_all(nodes: int, cases: Sequence[Case], given: Options, warm_up: int) -> list[Measured]:
    found = []
    async with plane.shared(plane.binaries()) as (control_plane, api):
        await plane.create(api, workload.make_nodes(nodes))
        await plane.warm_up(api, warm_up)
        for case in cases:
            plane.say(f"{case.scheduler}: {nodes} nodes, a {case.mix} pod every {case.every} ms")
            found.append(await measure(control_plane, api, case, given))
            plane.say(f"  p50 {found[-1].p50_ms:.1f} ms, p99 {found[-1].p99_ms:.1f} ms")
    return found


async def _create_each(api: Api, pods: Sequence[Manifest], every: int) -> None:
    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for place, each in enumerate(pods):
            await asyncio.sleep(max(0.0, begun + place * every / 1000 - time.monotonic()))
            group.create_task(api.create(each))


async def _rounds(scheduler: Scheduler) -> dict[str, tuple[float, float]]:
    """Number and seconds so far, by phase; empty for kube-scheduler."""
    if scheduler.name == KUBE_SCHEDULER:
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
    for column in ("nodes", "mix", "every ms", "p50", "p99", "CPU", "API", "etcd", "rounds"):
        table.add_column(column, justify="right")
    phases = Table(title="ms of a round")
    phases.add_column("scheduler")
    for column in ("nodes", "mix", "every ms", *_PHASES):
        phases.add_column(column, justify="right")
    for case, found in rows:
        table.add_row(
            case.scheduler, str(case.nodes), case.mix, str(case.every),
            *(f"{each:.1f}" for each in (found.p50_ms, found.p99_ms)),
            *(f"{each:.1f}" for each in (found.cpu_ms, found.api_server_cpu_ms, found.etcd_cpu_ms)),
            f"{found.rounds:.2f}" if found.phases else "-",
        )  # fmt: skip
        if found.phases:
            shown = (f"{found.phases.get(phase, 0.0):.2f}" for phase in _PHASES)
            phases.add_row(case.scheduler, str(case.nodes), case.mix, str(case.every), *shown)
    console.print(table)
    console.print(phases)
    print_conditions({**_EXPLAINED, **told})


@click.command()
@click.option("--nodes", default="1000,5000", show_default=True, callback=options.numbers)
@click.option("--pods", default=300, show_default=True, type=click.IntRange(min=2))
@click.option("--mix", default="plain", show_default=True, callback=options.words(workload.MIXES))
@click.option("--every", default="100,20", show_default=True, callback=options.numbers,
              help="Milliseconds between two pods.")  # fmt: skip
@click.option("--schedulers", "kinds", default=",".join(KINDS), show_default=True,
              callback=options.words(KINDS))  # fmt: skip
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
    kinds: list[str],
    warm_up: int,
    logs: Path | None,
    profile: Path | None,
    output: str,
) -> None:
    """Latency of pods that come alone, beside the real kube-scheduler."""
    told = conditions()
    if profile is not None:
        profile.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[Case, Measured]] = []
    for count in nodes:
        cases = [Case(kind, count, each, pause, pods) for each, pause, kind in product(mix, every, kinds)]
        rows += zip(cases, asyncio.run(_measure_all(count, cases, Options(logs, profile), warm_up)), strict=True)
    if output == "json":
        measured = [{**asdict(case), **asdict(found)} for case, found in rows]
        click.echo(msgspec.json.encode({"conditions": told, "rows": measured}))
    else:
        _print(rows, told)


if __name__ == "__main__":
    run(main)
