"""The real kube-scheduler alone, Thalweg's binder, and kube-scheduler steered by Thalweg, under the same load.

    python bench/schedulers.py --nodes 1000,5000 --pods 3000 --mix plain,apart --arrival backlog,burst
    python bench/schedulers.py --nodes 5000 --running 20000 --schedulers kube-scheduler,thalweg
    python bench/schedulers.py --nodes 5000 --mix plain --arrival backlog,beforehand --runs 2
    python bench/schedulers.py --waiting 1000 --nodes 1000
    python bench/schedulers.py --arrival burst --schedulers kube-scheduler,floor,watched-json,beside,steered
    python bench/schedulers.py --mix groups-of-10 --schedulers kube-scheduler,steered,gated

All rows of one number of nodes run on the same etcd and API server, one after the other; the pods of a row are deleted
before the next. Arrivals: `burst` creates all pods as fast as the API server takes them while everything runs;
`backlog` creates them first and then starts the scheduler, kube-scheduler as soon as its extender answers; `beforehand`
lets Thalweg nominate the whole backlog before kube-scheduler starts. With `--waiting` a burst of pods of the default
scheduler is measured while so many others wait: held though they fit, as the members of a gang are (an extender that
holds them for good), steered and fitting nowhere, behind our gate and fitting nowhere, or steered by a second
kube-scheduler and fitting nowhere; and beside kube-scheduler without us, with none, with the same pods that fit
nowhere, and with these behind the gate. The last two are what the rows with us are compared with. When pods are created
and bound is seen by a watch in a process of its own.

With a mix `groups`, gangs that are PodGroups of Kubernetes itself, kube-scheduler's own gang scheduling is on in all
rows: the row kube-scheduler is that alone, in `steered` we answer it, and in `gated` its pods have our gate besides.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click
import msgspec
from harness import admission, api_profile, binding_costs, legal, loads, options, pinning, plane, room, workload
from harness.conditions import conditions
from harness.extended import (
    BESIDE,
    FLOOR,
    GATED,
    HELD,
    KUBE_SCHEDULER,
    PASS_THROUGH,
    STEERED,
    Accompanied,
    Floor,
    Holding,
    PassThrough,
    Steered,
    forget_policy,
    steered_policy,
)
from harness.pod_watch import PodWatch
from harness.samples import labelled, own_p99
from harness.schedulers import RAW, THALWEG, KubeScheduler, RawClient, Scheduler, Thalweg, log_kept
from harness.second_scheduler import SECOND, Second
from harness.tables import console, print_conditions
from harness.usage import server_processes, used, workers
from harness.watching import WATCHED_JSON, WATCHED_PROTOBUF, Watching
from rich.table import Table
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import Manifest, pod
from thalweg_controlplane.components import DEFAULT_SCHEDULER_CONFIG

from flowcore.model.policies import GATE, STEERED_NAME

BURST, BACKLOG, BEFOREHAND = "burst", "backlog", "beforehand"
_WATCHED = (WATCHED_JSON, WATCHED_PROTOBUF)
KINDS = (RAW, KUBE_SCHEDULER, THALWEG, STEERED, GATED, PASS_THROUGH, FLOOR, BESIDE, *_WATCHED, *admission.FILES)
#: Rows of clusters without Thalweg; the others have the admission policy that gates pods too.
_WITHOUT_US = (KUBE_SCHEDULER, PASS_THROUGH, FLOOR, *_WATCHED)
#: Measured where nothing else is said: what users have with default settings.
_DEFAULT_KINDS = (KUBE_SCHEDULER, THALWEG, STEERED)
WAITING_KINDS = (KUBE_SCHEDULER, *loads.BESIDE_ALONE.values(), HELD, STEERED, GATED, SECOND)

#: Feature gates of kube-scheduler's own gang scheduling.
_GANG_SCHEDULING = ("GenericWorkload=true", "GangScheduling=true")
_REST_SECONDS = 1.0
_SETTLE_SECONDS = 0.5
_EXPLAINED = {
    "pods/s": "pods bound per second, from the first creation (backlog, beforehand: from kube-scheduler's readiness) to"
    " the last binding",
    "gangs/s": "whole gangs per second, over the same time; kube-scheduler takes their pods for single ones, but for"
    " groups",
    "p50, p99": "ms from a pod's creation (backlog, beforehand: from readiness) to its binding, as a watch sees them",
    "peak MiB": "sum of VmHWM of the scheduler's processes since their start; pages they share count in each",
    "lag": "Thalweg only, ms: how late its event loop woke a sleeper at most; other processes on the cores count",
    "calls": "filter calls per pod bound; held: answers of no node, in all",
    "writes": "nominations, clearings, openings and wakes per pod bound",
    "CPU s": "of kube-scheduler and extender or Thalweg together, over that time; kube: of kube-scheduler alone;"
    " API, etcd: of these",
    "operator": "Thalweg without its worker; in other rows the extender, or the client that watches or binds",
    "kube x alone, API x alone": "CPU time for each pod, over that of the row kube-scheduler",
    "floor": "Thalweg's configuration of kube-scheduler, with an extender that lets every node pass at once",
    "beside, watched": "kube-scheduler as it is alone, beside Thalweg with nothing to do, beside a client that watches"
    " what Thalweg watches and reads nothing of it",
    "gates, confinement": "kube-scheduler as it is alone, with one admission policy of rights/ and nothing else of us",
    "alone, alone gated": "kube-scheduler without an extender, while the same pods wait in its queue or behind a gate",
    "second": "kube-scheduler as it is alone, beside Thalweg with a kube-scheduler of its own; both count in CPU s",
    "rounds": "rounds of Thalweg in that time, with and without pods",
    "own p99": "ms, the bucket of Thalweg's own time per filter answer that holds the 99th percentile",
    "over": "nodes overcommitted at the end, from the API server's objects; anything but 0 is a bug",
    "wrong": "pods of sets that kube-scheduler's filters would refuse where they are, in whatever order they came",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One row to measure."""

    scheduler: str
    nodes: int
    pods: int
    mix: str
    arrival: str
    running: int
    waiting: int
    run: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it."""

    bound: int
    whole_gangs: int | None
    seconds: float
    pods_per_second: float
    gangs_per_second: float | None
    p50_ms: float | None
    p99_ms: float | None
    creation_seconds: float
    first_ms: float | None
    cpu_seconds: float
    kube_scheduler_cpu_seconds: float
    extender_cpu_seconds: float
    worker_cpu_seconds: float
    api_server_cpu_seconds: float
    etcd_cpu_seconds: float
    peak_mib: float
    longest_lag_ms: float | None
    attempts: float
    filter_calls: float | None
    held: float | None
    writes: float | None
    rounds: float | None
    own_p99_ms: float | None
    overcommitted: int
    misplaced: int


@dataclass(frozen=True, slots=True)
class Options:
    """What is the same for all rows.

    Attributes:
        core: of kube-scheduler alone; None: all processes share all cores.
    """

    patience: float
    logs: Path | None
    profile: Path | None
    api_profile: Path | None
    core: int | None


def _make(case: Case, control_plane: ControlPlane, given: Options) -> Scheduler:
    profile = given.profile / f"{_title(case)}.prof" if given.profile else None
    if case.scheduler == THALWEG:
        return Thalweg(control_plane, profile)
    if case.scheduler == RAW:
        return RawClient(control_plane)
    if case.scheduler in (PASS_THROUGH, FLOOR):
        return (Floor if case.scheduler == FLOOR else PassThrough)(control_plane)
    if case.scheduler in _WATCHED:
        return Accompanied(control_plane, case.scheduler, Watching(control_plane, case.scheduler))
    if case.scheduler == BESIDE:
        return Accompanied(control_plane, BESIDE, Thalweg(control_plane, profile))
    if case.scheduler == HELD:
        return Holding(control_plane)
    if case.scheduler == SECOND:
        return Second(control_plane)
    if case.scheduler in (KUBE_SCHEDULER, *loads.BESIDE_ALONE.values(), *admission.FILES):
        control_plane.configure_scheduler(DEFAULT_SCHEDULER_CONFIG)
        return KubeScheduler(control_plane)
    return Steered(control_plane, case.scheduler, case.pods if case.arrival == BEFOREHAND else 0, profile)


def _gated(pods: list[Manifest]) -> list[Manifest]:
    """As the policy's admission leaves them; the pods bring the gate themselves, so no row pays for anything else."""
    return [{**each, "spec": {**each["spec"], "schedulingGates": [{"name": GATE}]}} for each in pods]


async def _admit_by(api: Api, row: str) -> None:
    """Puts the admission policies there that a row has, and what they decide by."""
    if row not in admission.FILES:
        await admission.install(api, () if row in _WITHOUT_US else [admission.GATES])
        return
    await admission.install(api, [row])
    if row == admission.GATES:
        await admission.govern(api)
    await admission.until_asked(api, {row: 1})


async def measure(control_plane: ControlPlane, api: Api, case: Case, given: Options) -> Measured:
    """One row on a plane that is clean before and after."""
    await _admit_by(api, case.scheduler)
    scheduler = _make(case, control_plane, given)
    steers = isinstance(scheduler, Steered)
    if steers:
        # "steered" is what a policy does that says no more than its delivery.
        gates = {"waiting": "Gate", "gangs": {"waiting": "Gate"}}
        await steered_policy(api, **(gates if case.scheduler == GATED else {}))
    size = "1" if case.scheduler == HELD else "1000"
    waiting_name = scheduler.pods_name if case.scheduler in loads.BESIDE_ALONE.values() else STEERED_NAME
    waiting = [
        pod(f"waiting-{i:06}", size, "1Gi", workload.MEASURED, waiting_name)
        for i in range(0 if case.scheduler == KUBE_SCHEDULER else case.waiting)
    ]
    measured_name = "default-scheduler" if case.waiting else scheduler.pods_name
    pods = workload.make_pods(case.mix, case.pods, measured_name)
    if case.scheduler in (GATED, loads.BESIDE_ALONE[GATED]):
        waiting, pods = _gated(waiting), pods if case.waiting else _gated(pods)
    elif steers and case.mix in workload.GANG_SIZES and case.mix not in workload.POD_GROUPS:
        pods = _gated(pods)  # as the policy's default says for gangs
    groups = workload.make_groups(case.mix, case.pods)
    await plane.create(api, groups)
    version = await plane.version(api)
    with log_kept(scheduler, given.logs, _title(case)):
        async with PodWatch(control_plane.kubeconfig, workload.MEASURED, version) as watch:
            try:
                return await _load(control_plane, api, scheduler, watch, case, given, pods, waiting)
            finally:
                await scheduler.stop()
                await plane.delete(api, [*pods, *waiting])
                await plane.delete(api, groups)
                if steers:
                    await forget_policy(api)
                if case.scheduler == admission.GATES:
                    await admission.forget(api)


async def _load(
    control_plane: ControlPlane,
    api: Api,
    scheduler: Scheduler,
    watch: PodWatch,
    case: Case,
    given: Options,
    pods: list[Manifest],
    waiting: list[Manifest],
) -> Measured:
    api_server, etcd = server_processes()
    creation_seconds = await loads.create(api, pods) if case.arrival != BURST else 0.0
    await scheduler.start()
    begun = time.monotonic()
    if given.core is not None:
        pinning.pin(_alone(scheduler), given.core)
    if case.arrival == BURST:
        await scheduler.warm()
        await plane.create(api, waiting)
        if waiting:
            await loads.until_waiting(scheduler, len(waiting), tells=isinstance(scheduler, Steered))
        await asyncio.sleep(_REST_SECONDS)
    samples_before = await scheduler.metrics()
    before, kube_before, worker_before = (
        used(each) for each in (scheduler.pids(), _kube_scheduler(scheduler), workers(scheduler.pids()))
    )
    api_before, etcd_before = used([api_server]), used([etcd])
    profiling = None
    if given.api_profile is not None:
        file = given.api_profile / f"{_title(case)}.pprof"
        profiling = asyncio.create_task(api_profile.profile_api_server(control_plane.kubeconfig, file))
    async with asyncio.TaskGroup() as group:
        creating = group.create_task(loads.create(api, pods)) if case.arrival == BURST else None
        group.create_task(loads.until_bound(control_plane, scheduler, watch, case.pods, given.patience))
    after, kube_after, worker_after = (
        used(each) for each in (scheduler.pids(), _kube_scheduler(scheduler), workers(scheduler.pids()))
    )
    api_after, etcd_after = used([api_server]), used([etcd])
    samples = await scheduler.metrics()
    if profiling is not None:
        await profiling
    await scheduler.stop()
    await asyncio.sleep(_SETTLE_SECONDS)
    seen = {name: each for name, each in (await watch.seen()).pods.items() if not name.startswith("waiting-")}
    if creating is not None:
        creation_seconds = creating.result()
        begun = min(each.added for each in seen.values())
    nodes, there = await api.list("/api/v1/nodes"), await api.list("/api/v1/pods")
    bound = sorted(each.bound for each in seen.values() if each.bound is not None)
    begun = min([begun, *bound[:1]])
    seconds = bound[-1] - begun if bound else 0.0
    whole = workload.whole_gangs(case.mix, [name for name, each in seen.items() if each.bound is not None])
    since = None if case.arrival == BURST else begun
    latencies = loads.latencies(seen.values(), since)

    def more(prefix: str) -> float:
        return sum(value - samples_before.get(name, 0.0) for name, value in samples.items() if name.startswith(prefix))

    steered, ours = isinstance(scheduler, Steered), isinstance(scheduler, (Steered, Thalweg))
    follows_rules = not isinstance(scheduler, RawClient)
    lag = samples.get("thalweg_event_loop_longest_lag_seconds")
    return Measured(
        bound=len(bound),
        whole_gangs=whole,
        seconds=seconds,
        pods_per_second=len(bound) / seconds if seconds else 0.0,
        gangs_per_second=whole / seconds if whole is not None and seconds else None,
        p50_ms=loads.percentile(latencies, 50),
        p99_ms=loads.percentile(latencies, 99),
        creation_seconds=creation_seconds,
        first_ms=1000 * (bound[0] - begun) if bound else None,
        cpu_seconds=after.cpu_seconds - before.cpu_seconds,
        kube_scheduler_cpu_seconds=kube_after.cpu_seconds - kube_before.cpu_seconds,
        extender_cpu_seconds=(after.cpu_seconds - before.cpu_seconds)
        - (kube_after.cpu_seconds - kube_before.cpu_seconds),
        worker_cpu_seconds=worker_after.cpu_seconds - worker_before.cpu_seconds,
        api_server_cpu_seconds=api_after.cpu_seconds - api_before.cpu_seconds,
        etcd_cpu_seconds=etcd_after.cpu_seconds - etcd_before.cpu_seconds,
        peak_mib=after.peak_mib,
        longest_lag_ms=1000 * lag if ours and lag is not None else None,
        attempts=more("scheduler_schedule_attempts_total"),
        filter_calls=labelled(samples, samples_before, "thalweg_extender_seconds_count", "filter") if steered else None,
        held=labelled(samples, samples_before, "thalweg_extender_answers_total", "held") if steered else None,
        writes=labelled(samples, {}, "thalweg_steering_writes_total", "done") if steered else None,
        rounds=more("thalweg_rounds_total") if ours else None,
        own_p99_ms=own_p99(samples) if steered else None,
        overcommitted=len(room.overcommitted(nodes, there)) if follows_rules else 0,
        misplaced=len(legal.misplaced(plane.binaries(), nodes, there)) if follows_rules else 0,
    )


def _kube_scheduler(scheduler: Scheduler) -> list[int]:
    """kube-scheduler's process; none where another scheduler is measured."""
    return scheduler.kube_scheduler() if isinstance(scheduler, KubeScheduler) else []


def _alone(scheduler: Scheduler) -> list[int]:
    """The processes that get a core of their own: kube-scheduler's, without one all of Thalweg's."""
    return _kube_scheduler(scheduler) or scheduler.pids()


def _title(case: Case) -> str:
    return f"{case.scheduler}-{case.nodes}-nodes-{case.mix}-{case.arrival}-{case.run}"


async def _measure_all(nodes: int, running: int, cases: list[Case], given: Options, warm_up: int) -> list[Measured]:
    found = []
    takes_groups = any(case.mix in workload.POD_GROUPS for case in cases)
    async with plane.shared(plane.binaries(), _GANG_SCHEDULING if takes_groups else ()) as (control_plane, api):
        await plane.create(api, workload.make_nodes(nodes))
        await plane.warm_up(api, warm_up)
        if running:
            await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": workload.RUNNING}})
            await plane.create(api, workload.make_running(running, nodes))
        for case in cases:
            plane.say(f"{case.scheduler}: {nodes} nodes, {case.pods} {case.mix} pods, {case.arrival}, run {case.run}")
            found.append(await measure(control_plane, api, case, given))
            plane.say(f"  {found[-1].bound} bound, {found[-1].pods_per_second:.0f} pods/s")
    return found


def _print(rows: list[tuple[Case, Measured]], told: dict[str, str]) -> None:
    waiting = rows[0][0].waiting
    beside = f" while {waiting} others wait" if waiting else ""
    table = Table(title=f"{rows[0][0].pods} pods, {rows[0][0].running} bound before{beside}")
    table.add_column("scheduler")
    for column in ("nodes", "mix", "arrival", "bound", "pods/s", "x alone", "gangs/s", "p50", "p99", "calls", "held",
                   "writes", "rounds", "attempts", "CPU s", "kube", "API", "etcd", "peak MiB", "lag",
                   "own p99", "over", "wrong"):  # fmt: skip
        table.add_column(column, justify="right")
    rates = {(case.scheduler, _group(case)): found.pods_per_second for case, found in rows}
    for case, found in rows:
        base = rates.get((loads.compared_with(case.scheduler, waiting=bool(case.waiting)), _group(case)))
        table.add_row(
            case.scheduler,
            str(case.nodes),
            case.mix,
            case.arrival,
            str(found.bound),
            f"{found.pods_per_second:.0f}",
            f"{found.pods_per_second / base:.2f}" if base else "-",
            "-" if found.gangs_per_second is None else f"{found.gangs_per_second:.1f}",
            _shown(found.p50_ms),
            _shown(found.p99_ms),
            _per(found.filter_calls, found.bound),
            _shown(found.held),
            _per(found.writes, found.bound),
            _shown(found.rounds),
            f"{found.attempts:.0f}",
            f"{found.cpu_seconds:.1f}",
            f"{found.kube_scheduler_cpu_seconds:.1f}",
            f"{found.api_server_cpu_seconds:.1f}",
            f"{found.etcd_cpu_seconds:.1f}",
            f"{found.peak_mib:.0f}",
            _shown(found.longest_lag_ms),
            "-" if found.own_p99_ms is None else f"{found.own_p99_ms:g}",
            str(found.overcommitted),
            str(found.misplaced),
        )
    console.print(table)
    binding_costs.print_costs(rows)
    print_conditions({**_EXPLAINED, **told})


def _group(case: Case) -> tuple[Any, ...]:
    # What is known beforehand is compared with kube-scheduler taking up the same backlog.
    arrival = BACKLOG if case.arrival == BEFOREHAND else case.arrival
    return case.nodes, case.mix, arrival, case.run


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _per(value: float | None, pods: int) -> str:
    return "-" if value is None or not pods else f"{value / pods:.2f}"


@click.command()
@click.option("--nodes", default="1000,5000", show_default=True, callback=options.numbers)
@click.option("--pods", default=3000, show_default=True, type=click.IntRange(min=2))
@click.option("--mix", default="plain,mixed", show_default=True, callback=options.words(workload.MIXES))
@click.option(
    "--schedulers", "kinds", default=",".join(_DEFAULT_KINDS), show_default=True, callback=options.words(KINDS)
)
@click.option("--arrival", "arrivals", default=f"{BACKLOG},{BURST}", show_default=True,
              callback=options.words((BURST, BACKLOG, BEFOREHAND)))  # fmt: skip
@click.option("--running", default=0, show_default=True, type=click.IntRange(min=0), help="Pods bound before.")
@click.option("--waiting", default=0, show_default=True, type=click.IntRange(min=0),
              help="Pods that wait meanwhile; a burst of others is measured.")  # fmt: skip
@click.option("--runs", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--warm-up", default=5000, show_default=True, type=click.IntRange(min=0),
              help="Pods created and deleted beforehand, so that the API server is not new.")  # fmt: skip
@click.option("--patience", default=60.0, show_default=True, help="Seconds without a binding after which to give up.")
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder that logs are kept in.")
@click.option("--profile", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for cProfile's results of the operator; its figures are then too low.")  # fmt: skip
@click.option("--api-profile", "profiles", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for CPU profiles of the API server, of the first seconds of each row.")  # fmt: skip
@click.option("--pin", is_flag=True, help="kube-scheduler, or else Thalweg, alone on one core, all else on the others.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    nodes: list[int],
    pods: int,
    mix: list[str],
    kinds: list[str],
    arrivals: list[str],
    running: int,
    waiting: int,
    runs: int,
    warm_up: int,
    patience: float,
    logs: Path | None,
    profile: Path | None,
    profiles: Path | None,
    output: str,
    *,
    pin: bool,
) -> None:
    """Pods per second, latency, CPU time, memory, calls and writes, beside kube-scheduler alone."""
    core = pinning.leave_a_core() if pin else None
    told = conditions(pinned=pin)
    if profile is not None:
        profile.mkdir(parents=True, exist_ok=True)
    given = Options(patience, logs, profile, profiles, core)
    rows: list[tuple[Case, Measured]] = []
    for count in nodes:
        cases = [
            Case(kind, count, pods, each, arrival, running, waiting, run)
            for run, each, arrival, kind in product(
                range(1, runs + 1), mix, [BURST] if waiting else arrivals, WAITING_KINDS if waiting else kinds
            )
            # Nobody nominates beforehand but us.
            if (arrival != BEFOREHAND or kind in (STEERED, GATED))
            # Nobody opens gates there.
            and not (kind == admission.GATES and each in workload.GANG_SIZES)
        ]
        rows += zip(cases, asyncio.run(_measure_all(count, running, cases, given, warm_up)), strict=True)
    if output == "json":
        measured = [
            {**asdict(case), **asdict(found), "cpu_ms_per_pod": binding_costs.cpu_ms_per_pod(found)}
            for case, found in rows
        ]
        click.echo(msgspec.json.encode({"conditions": told, "rows": measured}))
    else:
        _print(rows, told)
    sys.exit(any(found.overcommitted or found.misplaced for _, found in rows))


if __name__ == "__main__":
    main()
