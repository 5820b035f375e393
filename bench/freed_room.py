"""Room that comes while pods wait: from a pod that goes, a node that comes or a claim that is freed to a binding.

    python bench/freed_room.py --waiting 1,60 --nodes 20,1000
    python bench/freed_room.py --waiting 1 --nodes 20 --times 3 --warm-up 100            # does it work?

All nodes are full of running pods and all devices are claimed; pods wait that need the room of one pod, or one device.
Then comes one event after the other: a running pod is deleted with a grace period of 0, a node comes with room for one
pod, a ResourceClaim gives its device back. Each lets one waiting pod in, and another one comes in its place. Then many
running pods are deleted at once. All rows of one number of nodes run on the same etcd and API server, one after the
other.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import click
import msgspec
from harness import loads, options, plane, workload
from harness.claimed import held_devices
from harness.conditions import conditions
from harness.errors import BenchError, run
from harness.extended import KUBE_SCHEDULER, STEERED, Steered, forget_policy, steered_policy
from harness.pod_watch import PodWatch
from harness.schedulers import THALWEG, KubeScheduler, Samples, Scheduler, Thalweg, log_kept
from harness.tables import console, print_conditions
from rich.table import Table
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import Manifest, node, object_path, pod
from thalweg_controlplane.components import DEFAULT_SCHEDULER_CONFIG

KINDS = (KUBE_SCHEDULER, THALWEG, STEERED)
POD, NODE, CLAIM, BURST = "pod", "node", "claim", "burst"
EVENTS = (POD, NODE, CLAIM, BURST)
_PODS_ON_A_NODE = 4
#: Until all that wait have been tried and told.
_SETTLE_SECONDS = 5.0
_PATIENCE = 10.0
_EXPLAINED = {
    "p50, most": "ms from the request that lets a pod in (a running pod deleted, a node made, a claim's devices given"
    " back) to the binding that a watch sees next; of a burst to the bindings",
    "nominated": "ms, the median, from that request to the nomination that a watch sees, whoever writes it; -: none",
    "attempts, held, writes, rounds": "for each pod that is bound: of kube-scheduler, those of them that got no node"
    " from Thalweg, writes to pods that it binds, Thalweg's rounds; round: ms of one",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One row to measure."""

    scheduler: str
    nodes: int
    event: str
    waiting: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it; see ``_EXPLAINED``."""

    p50_ms: float
    most_ms: float
    nominated_ms: float | None
    attempts: float
    held: float
    writes: float
    rounds: float
    round_ms: float


@dataclass(frozen=True, slots=True)
class Options:
    """What is the same for all rows.

    Attributes:
        times: events of each row.
        every: seconds from a binding to the next event.
        burst: pods that are deleted at once.
    """

    times: int
    every: float
    burst: int
    logs: Path | None


def _nodes(count: int) -> list[Manifest]:
    return [node(f"node-{place:04}", str(_PODS_ON_A_NODE), "64Gi") for place in range(count)]


def _running(nodes: int) -> list[Manifest]:
    return [
        pod(f"running-{place:05}", "1", "64Mi", workload.RUNNING, "nobody", nodeName=f"node-{place % nodes:04}")
        for place in range(nodes * _PODS_ON_A_NODE)
    ]


def _make(case: Case, control_plane: ControlPlane) -> Scheduler:
    if case.scheduler == THALWEG:
        return Thalweg(control_plane)
    if case.scheduler == STEERED:
        return Steered(control_plane, STEERED, 0)
    control_plane.configure_scheduler(DEFAULT_SCHEDULER_CONFIG)
    return KubeScheduler(control_plane)


class _Waiting:
    """The pods that wait, as many at each event; they need a device where claims are freed."""

    def __init__(self, api: Api, case: Case, scheduler: Scheduler) -> None:
        self._api, self._case, self._scheduler = api, case, scheduler
        self.pods: list[Manifest] = []

    async def come(self, count: int) -> None:
        begun, name = len(self.pods), self._scheduler.pods_name
        names = [f"waiting-{place:04}" for place in range(begun, begun + count)]
        if self._case.event == CLAIM:
            await plane.create(self._api, [held_devices.claim(each) for each in names])
            pods = [pod(each, None, None, workload.MEASURED, name, **held_devices.claims(each)) for each in names]
        else:
            pods = [pod(each, "1", "64Mi", workload.MEASURED, name) for each in names]
        self.pods += pods
        await plane.create(self._api, pods)

    async def leave(self) -> None:
        await plane.delete(self._api, self.pods)
        if self._case.event == CLAIM:
            await held_devices.delete(self._api, [each["metadata"]["name"] for each in self.pods])


async def _let_in(api: Api, case: Case, place: int, running: Sequence[Manifest]) -> None:
    """Something lets one pod in."""
    match case.event:
        case "pod":
            await api.delete(object_path(running[place]), gracePeriodSeconds="0")
        case "node":
            await api.create(node(f"new-{place:04}", "1", "64Gi"))
        case _:
            await held_devices.free(api, place)


async def _events(
    control_plane: ControlPlane, api: Api, case: Case, given: Options, scheduler: Scheduler, watch: PodWatch,
    waiting: _Waiting, running: Sequence[Manifest],
) -> list[float]:  # fmt: skip
    """When each of them was asked of the API server."""
    asked: list[float] = []
    for place in range(given.times):
        bound = watch.bound
        asked.append(time.monotonic())
        await _let_in(api, case, place, running)
        await loads.until_bound(control_plane, scheduler, watch, bound + 1, _PATIENCE)
        if watch.bound != bound + 1:
            raise BenchError(f"{case}: {watch.bound - bound} pods were bound to the room of one")
        await waiting.come(1)
        await asyncio.sleep(given.every)
    return asked


async def _burst(
    control_plane: ControlPlane, api: Api, case: Case, given: Options, scheduler: Scheduler, watch: PodWatch,
    running: Sequence[Manifest],
) -> list[float]:  # fmt: skip
    bound = watch.bound
    asked = time.monotonic()
    await plane.delete(api, running[: given.burst])
    await loads.until_bound(control_plane, scheduler, watch, bound + given.burst, _PATIENCE)
    if watch.bound != bound + given.burst:
        raise BenchError(f"{case}: {watch.bound - bound} pods were bound to the room of {given.burst}")
    return [asked] * given.burst


async def measure(control_plane: ControlPlane, api: Api, case: Case, given: Options) -> Measured:
    """One row on a plane that is the same before and after."""
    scheduler, running = _make(case, control_plane), _running(case.nodes)
    waiting = _Waiting(api, case, scheduler)
    if case.scheduler == STEERED:
        await steered_policy(api)
    with log_kept(scheduler, given.logs, f"{case.scheduler}-{case.nodes}-{case.event}-{case.waiting}"):
        async with PodWatch(control_plane.kubeconfig, workload.MEASURED, await plane.version(api)) as watch:
            try:
                await scheduler.start()
                await scheduler.warm()
                await waiting.come(max(case.waiting, given.burst) if case.event == BURST else case.waiting)
                await asyncio.sleep(_SETTLE_SECONDS)
                before = await scheduler.metrics()
                if case.event == BURST:
                    asked = await _burst(control_plane, api, case, given, scheduler, watch, running)
                else:
                    asked = await _events(control_plane, api, case, given, scheduler, watch, waiting, running)
                after = await scheduler.metrics()
                seen = (await watch.seen()).pods
            finally:
                await scheduler.stop()
                await waiting.leave()
                if case.scheduler == STEERED:
                    await forget_policy(api)
    await _restore(api, case, given, running)
    found = ((each.bound, each.nominated) for each in seen.values() if each.bound is not None)
    bound = sorted(found, key=lambda times: times[0])
    waits = [when - since for (when, _), since in zip(bound, asked, strict=True)]
    nominated = [when - since for (_, when), since in zip(bound, asked, strict=True) if when is not None]
    return _measured(before, after, len(bound), waits, nominated)


async def _restore(api: Api, case: Case, given: Options, running: Sequence[Manifest]) -> None:
    match case.event:
        case "pod" | "burst":
            await plane.create(api, list(running[: given.burst if case.event == BURST else given.times]))
        case "node":
            for place in range(given.times):
                await api.delete(f"/api/v1/nodes/new-{place:04}")
        case _:
            await held_devices.hold(api, range(given.times))


def _measured(
    before: Samples, after: Samples, bound: int, waits: Sequence[float], nominated: Sequence[float]
) -> Measured:
    def more(*names: str) -> float:
        """By how much all samples grew whose names begin so."""
        return sum(value - before.get(name, 0.0) for name, value in after.items() if name.startswith(names))

    rounds = more("thalweg_round_phase_seconds_count collect")
    return Measured(
        p50_ms=1000 * statistics.median(waits),
        most_ms=1000 * max(waits),
        nominated_ms=1000 * statistics.median(nominated) if nominated else None,
        attempts=more("scheduler_schedule_attempts_total") / bound,
        held=more("thalweg_held_attempts_total") / bound,
        writes=more("thalweg_steering_writes_total") / bound,
        rounds=rounds / bound,
        round_ms=1000 * more("thalweg_round_phase_seconds_sum") / max(1.0, rounds),
    )


async def _measure_all(nodes: int, cases: Sequence[Case], given: Options, warm_up: int) -> list[Measured]:
    found = []
    async with plane.shared(plane.binaries()) as (control_plane, api):
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": workload.RUNNING}})
        await plane.create(api, _nodes(nodes))
        await plane.create(api, _running(nodes))
        if any(each.event == CLAIM for each in cases):
            await held_devices.publish(api, [each["metadata"]["name"] for each in _nodes(nodes)])
            await held_devices.hold(api, range(nodes))
        await plane.warm_up(api, warm_up)
        for case in cases:
            found.append(await measure(control_plane, api, case, given))
            plane.say(f"{case}: {found[-1]}")
    return found


def _print(rows: Sequence[tuple[Case, Measured]], told: Mapping[str, str]) -> None:
    table = Table(title="Something lets a waiting pod in")
    for column in ("event", "nodes", "scheduler"):
        table.add_column(column)
    for column in ("pods wait", "p50", "most", "nominated", "attempts", "held", "writes", "rounds", "round"):
        table.add_column(column, justify="right")
    for case, row in rows:
        times = (row.p50_ms, row.most_ms, row.nominated_ms)
        counts = (row.attempts, row.held, row.writes, row.rounds)
        table.add_row(
            case.event, str(case.nodes), case.scheduler, str(case.waiting),
            *("-" if each is None else f"{each:.1f}" for each in times),
            *(f"{each:.2f}" for each in counts), f"{row.round_ms:.1f}",
        )  # fmt: skip
    console.print(table)
    print_conditions({**_EXPLAINED, **told})


@click.command()
@click.option("--waiting", default="1,60", show_default=True, callback=options.numbers)
@click.option("--nodes", default="20,1000", show_default=True, callback=options.numbers)
@click.option("--events", default=",".join(EVENTS), show_default=True, callback=options.words(EVENTS))
@click.option("--times", default=20, show_default=True, type=click.IntRange(2), help="Events of each row.")
@click.option("--burst", default=60, show_default=True, type=click.IntRange(2),
              help="Running pods that are deleted at once; as many wait.")  # fmt: skip
@click.option("--every", default=1500, show_default=True, type=click.IntRange(min=0),
              help="Milliseconds from a binding to the next event.")  # fmt: skip
@click.option("--schedulers", "names", default=",".join(KINDS), show_default=True,
              callback=options.words(KINDS))  # fmt: skip
@click.option("--warm-up", default=1000, show_default=True, type=click.IntRange(min=0),
              help="Pods created and deleted beforehand, so that the API server is not new.")  # fmt: skip
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder that logs are kept in.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    waiting: list[int], nodes: list[int], events: list[str], times: int, burst: int, every: int, names: list[str],
    warm_up: int, logs: Path | None, output: str,
) -> None:  # fmt: skip
    """How soon room that comes is given to a pod that waits, beside the real kube-scheduler."""
    told = conditions()
    given = Options(times, every / 1000, burst, logs)
    rows: list[tuple[Case, Measured]] = []
    for count in nodes:
        if count < times or count * _PODS_ON_A_NODE < burst:
            raise click.BadParameter(f"{count} nodes are too few for so many events", param_hint="--nodes")
        cases = [
            Case(name, count, event, burst if event == BURST else wait)
            for event, wait, name in product(events, waiting, names)
            if event != BURST or wait == waiting[0]
        ]
        rows += zip(cases, asyncio.run(_measure_all(count, cases, given, warm_up)), strict=True)
    if output == "json":
        click.echo(
            msgspec.json.encode({"conditions": told, "rows": [{**asdict(case), **asdict(row)} for case, row in rows]})
        )
        return
    _print(rows, told)


if __name__ == "__main__":
    run(main)
