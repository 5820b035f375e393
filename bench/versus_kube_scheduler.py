"""Thalweg and the real kube-scheduler under the same load, each alone on a fresh real API server.

    python bench/versus_kube_scheduler.py --nodes 1000,5000 --pods 3000 --mix plain,mixed
    python bench/versus_kube_scheduler.py --nodes 5000 --running 20000 --pods 3000 --mix plain
    python bench/versus_kube_scheduler.py --arrival backlog -o json

Every row has its own etcd and API server, so no row sees what an earlier one left. Two shapes of load: `--arrival
burst` creates all pods as fast as the API server takes them while the scheduler runs; `--arrival backlog` creates them
first and then starts the scheduler. When pods are created and bound is seen by a watch in a process of its own.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import click
import msgspec
from harness import legal, loads, options, pinning, plane, room, schedulers, workload
from harness.conditions import conditions
from harness.errors import BenchError
from harness.pod_watch import PodWatch
from harness.tables import console, print_conditions
from harness.usage import server_processes, used
from rich.table import Table
from thalweg_controlplane import Api, Binaries, ControlPlane

BURST, BACKLOG = "burst", "backlog"

#: What a scheduler gets to come to rest before a burst.
_REST_SECONDS = 1.0
#: What the watch gets to see the last bindings of a scheduler that was stopped.
_SETTLE_SECONDS = 0.3
_EXPLAINED = {
    "pods/s": "pods bound per second, from the first creation (backlog: from in sync) to the last binding",
    "binding/s": "the same from the first binding to the last: what it reaches once it is going",
    "p50, p99": "ms from a pod's creation (backlog: from in sync) to its binding, both as a watch sees them",
    "created": "seconds that creating the pods took: a burst cannot be bound faster than it comes",
    "CPU s": "CPU seconds of all the scheduler's processes over that time; API, etcd: of these servers",
    "peak MiB": "sum of VmHWM of the scheduler's processes since their start; pages they share count in each",
    "lag, busy": "thalweg only, ms, the longest since in sync: how late its event loop woke a sleeper (other processes"
    " on the cores count), and how much CPU time one step of that loop took",
    "cut": "watches that the API server ended because they did not keep up, the scheduler's + the benchmark's own; the"
    " more warm-up or running pods before, the fewer",
    "over": "nodes overcommitted at the end, from the API server's objects; anything but 0 is a bug",
    "wrong": "pods of sets that kube-scheduler's filters would refuse where they are, in whatever order they came",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One row to measure."""

    scheduler: str
    nodes: int
    running: int
    pods: int
    mix: str
    arrival: str
    run: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it; `None` where the scheduler has no such figure, or nothing was bound."""

    bound: int
    seconds: float
    pods_per_second: float
    bindings_per_second: float | None
    p50_ms: float | None
    p99_ms: float | None
    creation_seconds: float
    start_seconds: float
    cpu_seconds: float
    api_server_cpu_seconds: float
    etcd_cpu_seconds: float
    watch_cpu_seconds: float
    peak_mib: float
    longest_lag_ms: float | None
    longest_busy_ms: float | None
    overcommitted: int
    misplaced: int
    cut_watches: int
    cut_own_watches: int


@dataclass(frozen=True, slots=True)
class Options:
    """What is the same for all rows.

    Attributes:
        core: of the scheduler alone; None: all processes share all cores.
    """

    patience: float
    logs: Path | None
    profile: Path | None
    warm_up: int
    core: int | None


async def measure(executables: Binaries, case: Case, given: Options) -> Measured:
    """One row: a fresh control plane, one scheduler, one load."""
    async with plane.bare(executables, case.scheduler) as (control_plane, api):
        await plane.create(api, workload.make_nodes(case.nodes))
        await plane.warm_up(api, given.warm_up)
        if case.running:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": workload.RUNNING}}
            await api.create(namespace)
            await plane.create(api, workload.make_running(case.running, case.nodes))
        version = await plane.version(api)
        profile = given.profile / f"{_title(case)}.prof" if given.profile else None
        scheduler = schedulers.make(case.scheduler, control_plane, profile)
        with schedulers.log_kept(scheduler, given.logs, _title(case)):
            async with PodWatch(control_plane.kubeconfig, workload.MEASURED, version) as watch:
                try:
                    return await _load(control_plane, api, scheduler, watch, case, given)
                finally:
                    await scheduler.stop()


async def _load(
    control_plane: ControlPlane,
    api: Api,
    scheduler: schedulers.Scheduler,
    watch: PodWatch,
    case: Case,
    given: Options,
) -> Measured:
    pods = workload.make_pods(case.mix, case.pods, scheduler.pods_name)
    api_server, etcd = server_processes()
    cut_before = await plane.cut_watches(api)
    creation_seconds = await loads.create(api, pods) if case.arrival == BACKLOG else 0.0
    asked = time.monotonic()
    await scheduler.start()
    begun = time.monotonic()
    start_seconds = begun - asked
    if given.core is not None:
        pinning.pin(scheduler.pids(), given.core)
    if case.arrival == BURST:
        await scheduler.warm()
        await asyncio.sleep(_REST_SECONDS)
        begun = time.monotonic()
    before, api_before, etcd_before = used(scheduler.pids()), used([api_server]), used([etcd])
    async with asyncio.TaskGroup() as group:
        creating = group.create_task(loads.create(api, pods)) if case.arrival == BURST else None
        group.create_task(loads.until_bound(control_plane, scheduler, watch, case.pods, given.patience))
    after, api_after, etcd_after = used(scheduler.pids()), used([api_server]), used([etcd])
    samples = await scheduler.metrics() if case.scheduler == schedulers.THALWEG else {}
    await scheduler.stop()
    await asyncio.sleep(_SETTLE_SECONDS)
    seen = await watch.seen()
    cut = await plane.cut_watches(api) - seen.reopened - cut_before
    if creating is not None:
        creation_seconds = creating.result()
        begun = min(each.added for each in seen.pods.values())
    nodes, there = await api.list("/api/v1/nodes"), await api.list("/api/v1/pods")
    really = sum(bool(each["spec"].get("nodeName")) for each in there) - case.running
    bound = sorted(each.bound for each in seen.pods.values() if each.bound is not None)
    if really != len(bound):
        raise BenchError(f"the watch saw {len(bound)} bindings, the API server has {really}")
    # A backlog's first bindings may be seen before /readyz was asked again.
    begun = min([begun, *bound[:1]])
    seconds = bound[-1] - begun if bound else 0.0
    latencies = loads.latencies(seen.pods.values(), begun if case.arrival == BACKLOG else None)
    return Measured(
        bound=len(bound),
        seconds=seconds,
        pods_per_second=len(bound) / seconds if seconds else 0.0,
        bindings_per_second=_rate(bound),
        p50_ms=loads.percentile(latencies, 50),
        p99_ms=loads.percentile(latencies, 99),
        creation_seconds=creation_seconds,
        start_seconds=start_seconds,
        cpu_seconds=after.cpu_seconds - before.cpu_seconds,
        api_server_cpu_seconds=api_after.cpu_seconds - api_before.cpu_seconds,
        etcd_cpu_seconds=etcd_after.cpu_seconds - etcd_before.cpu_seconds,
        watch_cpu_seconds=seen.cpu_seconds,
        peak_mib=after.peak_mib,
        longest_lag_ms=_milliseconds(samples.get("thalweg_event_loop_longest_lag_seconds")),
        longest_busy_ms=_milliseconds(samples.get("thalweg_event_loop_longest_busy_seconds")),
        overcommitted=len(room.overcommitted(nodes, there)),
        misplaced=len(legal.misplaced(plane.binaries(), nodes, there)),
        cut_watches=cut,
        cut_own_watches=seen.reopened,
    )


def _rate(bound: list[float]) -> float | None:
    """Of the bindings after the first."""
    return (len(bound) - 1) / (bound[-1] - bound[0]) if len(bound) > 1 and bound[-1] > bound[0] else None


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _title(case: Case) -> str:
    return f"{case.scheduler}-{case.nodes}-nodes-{case.mix}-{case.arrival}-{case.run}"


def _print(rows: list[tuple[Case, Measured]], told: dict[str, str]) -> None:
    arrival, pods, running = rows[0][0].arrival, rows[0][0].pods, rows[0][0].running
    table = Table(title=f"{pods} pods in a {arrival}, {running} pods bound before")
    table.add_column("scheduler")
    for column in ("nodes", "mix", "bound", "pods/s", "binding/s", "p50", "p99", "created", "CPU s", "API", "etcd",
                   "peak MiB", "lag", "busy", "cut", "over", "wrong"):  # fmt: skip
        table.add_column(column, justify="right")
    for case, found in rows:
        table.add_row(
            case.scheduler,
            str(case.nodes),
            case.mix,
            str(found.bound),
            f"{found.pods_per_second:.0f}",
            _shown(found.bindings_per_second),
            _shown(found.p50_ms),
            _shown(found.p99_ms),
            f"{found.creation_seconds:.1f}",
            f"{found.cpu_seconds:.2f}",
            f"{found.api_server_cpu_seconds:.2f}",
            f"{found.etcd_cpu_seconds:.2f}",
            f"{found.peak_mib:.0f}",
            _shown(found.longest_lag_ms),
            _shown(found.longest_busy_ms),
            f"{found.cut_watches}+{found.cut_own_watches}",
            str(found.overcommitted),
            str(found.misplaced),
        )
    console.print(table)
    print_conditions({**_EXPLAINED, **told})


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


@click.command()
@click.option("--nodes", default="1000,5000", show_default=True, callback=options.numbers)
@click.option("--pods", default=3000, show_default=True, type=click.IntRange(min=2))
@click.option("--mix", default="plain,mixed", show_default=True, callback=options.words(workload.MIXES))
@click.option("--schedulers", "names", default=",".join(schedulers.SCHEDULERS), show_default=True,
              callback=options.words(schedulers.SCHEDULERS))  # fmt: skip
@click.option("--running", default=0, show_default=True, type=click.IntRange(min=0), help="Pods bound before.")
@click.option("--arrival", type=click.Choice([BURST, BACKLOG]), default=BURST, show_default=True)
@click.option("--runs", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--warm-up", default=5000, show_default=True, type=click.IntRange(min=0),
              help="Pods created and deleted beforehand, so that the API server is not new.")  # fmt: skip
@click.option("--patience", default=30.0, show_default=True, help="Seconds without a binding after which to give up.")
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder that logs are kept in.")
@click.option("--profile", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for cProfile's results of the operator; its figures are then too low.")  # fmt: skip
@click.option("--pin", is_flag=True, help="The scheduler alone on one core, everything else on the others.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    nodes: list[int],
    pods: int,
    mix: list[str],
    names: list[str],
    running: int,
    arrival: str,
    runs: int,
    warm_up: int,
    patience: float,
    logs: Path | None,
    profile: Path | None,
    output: str,
    *,
    pin: bool,
) -> None:
    """Pods per second, latency, CPU and memory, beside the real kube-scheduler."""
    core = pinning.leave_a_core() if pin else None
    told = conditions(pinned=pin)
    executables = plane.binaries()
    if profile is not None:
        profile.mkdir(parents=True, exist_ok=True)
    given = Options(patience, logs, profile, warm_up, core)
    rows: list[tuple[Case, Measured]] = []
    for run, count, kind, name in product(range(1, runs + 1), nodes, mix, names):
        case = Case(name, count, running, pods, kind, arrival, run)
        plane.say(f"{name}: {count} nodes, {pods} {kind} pods, run {run}")
        rows.append((case, asyncio.run(measure(executables, case, given))))
        plane.say(f"  {rows[-1][1].bound} bound, {rows[-1][1].pods_per_second:.0f} pods/s")
    if output == "json":
        results = [{**asdict(case), **asdict(found)} for case, found in rows]
        click.echo(msgspec.json.encode({"conditions": told, "results": results}))
    else:
        _print(rows, told)
    sys.exit(any(found.overcommitted or found.misplaced for _, found in rows))


if __name__ == "__main__":
    main()
