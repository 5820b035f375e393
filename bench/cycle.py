"""kube-scheduler's own time for one pod: alone, with Thalweg as its extender, and with one that names the first node.

    python bench/cycle.py
    python bench/cycle.py --nodes 50 --pods 20 --arrivals alone,burst --shapes plain --warm-up 100     # does it work?

Of kube-scheduler's scheduling_algorithm_duration, the part of its work that one pod after the other has: its inverse is
the most pods per second that it reaches with cores of its own. Pods come one every 30 ms, or in bursts of 50, each
after the one before is bound. All rows of one number of nodes run on the same etcd and API server, one after the other.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import click
import msgspec
from harness import loads, options, plane, workload
from harness.conditions import conditions
from harness.errors import BenchError, run
from harness.extended import FIRST, KUBE_SCHEDULER, STEERED, First, Steered, forget_policy, steered_policy
from harness.pod_watch import PodWatch
from harness.schedulers import KubeScheduler, Samples, Scheduler
from harness.tables import console, print_conditions
from rich.table import Table
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import Manifest
from thalweg_controlplane.components import DEFAULT_SCHEDULER_CONFIG

KINDS = (KUBE_SCHEDULER, FIRST, STEERED)
ALONE, BURST = "alone", "burst"
#: Seconds between two pods that come alone, and pods of a burst.
_EVERY, _AT_ONCE = 0.03, 50
#: What a scheduler gets to come to rest before the first pod.
_REST_SECONDS = 1.0
_PATIENCE = 30.0
#: Milli-cores of a node (harness/workload.py).
_NODE_CPU = 64_000
#: Pods bound before those that count.
_FIRST = 50
_EXPLAINED = {
    "cycle": "ms of scheduling_algorithm_duration for each attempt; rate: of kube-scheduler alone to this",
    "bound": "ms from a pod's creation to its binding, the median, as a watch sees both",
    "held": "answers without a node; priced: pods that got a place without a round; rounds: of Thalweg",
    "unevenness": "standard deviation of what the measured pods take of the cpu of a node, in points of 100",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One row to measure."""

    shape: str
    nodes: int
    arrival: str
    scheduler: str
    pods: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it; see ``_EXPLAINED``. `attempts`: of kube-scheduler, for each pod."""

    cycle_ms: float
    bound_ms: float
    attempts: float
    held: float
    priced: float
    rounds: float
    unevenness: float


def _make(case: Case, control_plane: ControlPlane) -> Scheduler:
    if case.scheduler == STEERED:
        return Steered(control_plane, STEERED, 0)
    if case.scheduler == FIRST:
        return First(control_plane)
    control_plane.configure_scheduler(DEFAULT_SCHEDULER_CONFIG)
    return KubeScheduler(control_plane)


async def measure(control_plane: ControlPlane, api: Api, case: Case) -> Measured:
    """One row on a plane that is clean before and after."""
    scheduler = _make(case, control_plane)
    if case.scheduler == STEERED:
        await steered_policy(api)
    pods = workload.make_pods(case.shape, _FIRST + case.pods, scheduler.pods_name)
    async with PodWatch(control_plane.kubeconfig, workload.MEASURED, await plane.version(api)) as watch:

        async def until(wanted: int) -> None:
            await loads.until_bound(control_plane, scheduler, watch, wanted, _PATIENCE)

        try:
            await scheduler.start()
            await scheduler.warm()
            await asyncio.sleep(_REST_SECONDS)
            await _alone(api, pods[:_FIRST])
            await until(_FIRST)
            before = await scheduler.metrics()
            if case.arrival == ALONE:
                await _alone(api, pods[_FIRST:])
            else:
                for begun in range(_FIRST, len(pods), _AT_ONCE):
                    await plane.create(api, pods[begun : begun + _AT_ONCE])
                    await until(min(begun + _AT_ONCE, len(pods)))
            await until(len(pods))
            await asyncio.sleep(_REST_SECONDS)
            after = await scheduler.metrics()
            seen = (await watch.seen()).pods
        finally:
            await scheduler.stop()
            await plane.delete(api, pods)
            if case.scheduler == STEERED:
                await forget_policy(api)
    bound = [(each, seen[each["metadata"]["name"]]) for each in pods[_FIRST:]]
    latencies = loads.latencies((sighting for _, sighting in bound), None)
    if len(latencies) < case.pods:
        raise BenchError(f"{_title(case)}: {len(latencies)} of {case.pods} pods were bound")
    taken = Counter[str]()
    for manifest, sighting in bound:
        taken[sighting.node] += int(manifest["spec"]["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))
    shares = [100 * each / _NODE_CPU for each in (*taken.values(), *([0] * (case.nodes - len(taken))))]
    return _measured(case, before, after, 1000 * statistics.median(latencies), statistics.pstdev(shares))


def _measured(case: Case, before: Samples, after: Samples, bound_ms: float, unevenness: float) -> Measured:
    def more(*names: str) -> float:
        """By how much all samples grew whose names begin so."""
        return sum(value - before.get(name, 0.0) for name, value in after.items() if name.startswith(names))

    name = "scheduler_scheduling_algorithm_duration_seconds"
    return Measured(
        cycle_ms=1000 * more(f"{name}_sum") / max(1.0, more(f"{name}_count")),
        bound_ms=bound_ms,
        attempts=more("scheduler_schedule_attempts_total") / case.pods,
        held=more("thalweg_held_attempts_total"),
        priced=more("thalweg_placements_total priced"),
        rounds=more("thalweg_round_phase_seconds_count collect"),
        unevenness=unevenness,
    )


def _title(case: Case) -> str:
    return f"{case.scheduler}: {case.nodes} nodes, {case.shape}, {case.arrival}"


async def _alone(api: Api, pods: Sequence[Manifest]) -> None:
    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for place, each in enumerate(pods):
            await asyncio.sleep(max(0.0, begun + place * _EVERY - time.monotonic()))
            group.create_task(api.create(each))


async def _measure_all(nodes: int, cases: Sequence[Case], warm_up: int) -> list[Measured]:
    found = []
    async with plane.shared(plane.binaries()) as (control_plane, api):
        await plane.create(api, workload.make_nodes(nodes))
        await plane.warm_up(api, warm_up)
        for case in cases:
            found.append(await measure(control_plane, api, case))
            plane.say(f"{_title(case)}: {found[-1]}")
    return found


def _print(rows: Sequence[tuple[Case, Measured]], told: Mapping[str, str]) -> None:
    table = Table(title="kube-scheduler's cycle")
    for column in ("shape", "nodes", "arrival", "scheduler"):
        table.add_column(column)
    for column in ("cycle", "rate", "bound", "attempts", "held", "priced", "rounds", "unevenness"):
        table.add_column(column, justify="right")
    alone = {
        (case.shape, case.nodes, case.arrival): row.cycle_ms for case, row in rows if case.scheduler == KUBE_SCHEDULER
    }
    for case, row in rows:
        base, ours = alone.get((case.shape, case.nodes, case.arrival)), case.scheduler == STEERED
        table.add_row(
            case.shape, str(case.nodes), case.arrival, case.scheduler, f"{row.cycle_ms:.2f}",
            f"{base / row.cycle_ms:.2f}x" if base is not None else "-", f"{row.bound_ms:.1f}", f"{row.attempts:.2f}",
            *(f"{each:.0f}" if ours else "-" for each in (row.held, row.priced, row.rounds)), f"{row.unevenness:.2f}",
        )  # fmt: skip
    console.print(table)
    print_conditions({**_EXPLAINED, **told})


@click.command()
@click.option("--nodes", default="1000,5000", show_default=True, callback=options.numbers)
@click.option("--pods", default=300, show_default=True, type=click.IntRange(min=2))
@click.option("--shapes", default="plain,spread,apart,rack", show_default=True, callback=options.words(workload.MIXES))
@click.option("--arrivals", default=f"{ALONE},{BURST}", show_default=True, callback=options.words((ALONE, BURST)))
@click.option("--schedulers", "kinds", default=",".join(KINDS), show_default=True,
              callback=options.words(KINDS))  # fmt: skip
@click.option("--warm-up", default=5000, show_default=True, type=click.IntRange(min=0),
              help="Pods created and deleted beforehand, so that the API server is not new.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    nodes: list[int],
    pods: int,
    shapes: list[str],
    arrivals: list[str],
    kinds: list[str],
    warm_up: int,
    output: str,
) -> None:
    """kube-scheduler's serial time for one pod, alone and beside an extender."""
    told = conditions()
    rows: list[tuple[Case, Measured]] = []
    for count in nodes:
        cases = [Case(shape, count, how, kind, pods) for shape, how, kind in product(shapes, arrivals, kinds)]
        rows += zip(cases, asyncio.run(_measure_all(count, cases, warm_up)), strict=True)
    if output == "json":
        measured = [{**asdict(case), **asdict(row)} for case, row in rows]
        click.echo(msgspec.json.encode({"conditions": told, "rows": measured}))
    else:
        _print(rows, told)


if __name__ == "__main__":
    run(main)
