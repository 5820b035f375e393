"""More gangs than fit, on a real API server: the real kube-scheduler, our binder, and kube-scheduler steered by us.

    python bench/cluster_gangs.py
    python bench/cluster_gangs.py --gangs 60 --size 8 --fit 40 --schedulers thalweg,gated -o json

All rows share one API server and its nodes. The pods of all gangs are created first, the first of each gang, then the
second of each, and so on: what many jobs that start at once look like. Every third gang has a priority above the
others'. kube-scheduler knows nothing of gangs here, as in a cluster without add-ons.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass

import click
import msgspec
from harness import loads, options, plane, room, workload
from harness.conditions import conditions
from harness.extended import GATED, KUBE_SCHEDULER, Steered, forget_policy, steered_policy
from harness.pod_watch import PodWatch, Sighting
from harness.schedulers import THALWEG, KubeScheduler, Scheduler, Thalweg
from harness.tables import console, print_conditions
from rich.table import Table
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import Manifest, node, pod
from thalweg_controlplane.components import DEFAULT_SCHEDULER_CONFIG

from flowcore.model.policies import GATE

KINDS = (KUBE_SCHEDULER, THALWEG, GATED)
_PRIORITY_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "dear"},
    "value": 1000,
}
_SETTLE_SECONDS = 0.3
_EXPLAINED = {
    "whole, part": "gangs all of whose pods, or some and not all, have a node once nothing is bound any more",
    "dear": "of those that are whole, how many have the higher priority (in brackets: how many gangs have)",
    "useless": "pods that have a node and whose gang is not whole",
    "partial": "ms, the longest that any gang had some of its pods bound and not all; or until the end",
    "s": "seconds from the scheduler's start to the last binding",
    "over": "nodes overcommitted at the end; anything but 0 is a bug",
}


@dataclass(frozen=True, slots=True)
class Load:
    """How many gangs of how many pods, and how many of them there is room for."""

    gangs: int
    size: int
    fit: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it."""

    whole: int
    dear: int
    partial: int
    useless: int
    longest_partial_ms: float
    seconds: float
    overcommitted: int


def make_nodes(load: Load) -> list[Manifest]:
    """One node for each gang that fits; its slots are as many as a gang has pods."""
    return [node(f"node-{i:03}", cpu=str(load.size), memory="64Gi") for i in range(load.fit)]


def make_pods(load: Load, scheduler: str, *, gated: bool) -> list[Manifest]:
    """A slot each, in turns over the gangs; gated ones bring the gate that a policy's admission would give them."""
    pods = []
    for member in range(load.size):
        for gang in range(load.gangs):
            terms = {"scheduling.thalweg/gang": _gang(gang), "scheduling.thalweg/gang-min-member": str(load.size)}
            spec = {"priorityClassName": "dear"} if _is_dear(gang) else {}
            gates = {"schedulingGates": [{"name": GATE}]} if gated else {}
            name = f"{_gang(gang)}-{member:02}"
            pods.append(pod(name, "1", "1Gi", workload.MEASURED, scheduler, annotations=terms, **spec, **gates))
    return pods


def _gang(number: int) -> str:
    return f"gang-{number:03}"


def _is_dear(gang: int) -> bool:
    return gang % 3 == 0


def _make(kind: str, control_plane: ControlPlane) -> Scheduler:
    if kind == THALWEG:
        return Thalweg(control_plane)
    if kind == GATED:
        return Steered(control_plane, GATED, 0)
    control_plane.configure_scheduler(DEFAULT_SCHEDULER_CONFIG)
    return KubeScheduler(control_plane)


async def measure(control_plane: ControlPlane, api: Api, kind: str, load: Load, patience: float) -> Measured:
    """One row on a plane that is clean before and after."""
    scheduler = _make(kind, control_plane)
    if kind == GATED:
        await steered_policy(api)
    pods = make_pods(load, scheduler.pods_name, gated=kind == GATED)
    version = await plane.version(api)
    async with PodWatch(control_plane.kubeconfig, workload.MEASURED, version) as watch:
        try:
            await loads.create(api, pods)
            begun = time.monotonic()
            await scheduler.start()
            # Wanted is one more than there is room for: it ends once nothing has been bound for a while.
            await loads.until_bound(control_plane, scheduler, watch, load.fit * load.size + 1, patience)
            await scheduler.stop()
            await asyncio.sleep(_SETTLE_SECONDS)
            ended = time.monotonic()
            seen = (await watch.seen()).pods
            nodes, there = await api.list("/api/v1/nodes"), await api.list("/api/v1/pods")
        finally:
            await scheduler.stop()
            await plane.delete(api, pods)
            if kind == GATED:
                await forget_policy(api)
    return _measured(seen, load, begun, ended, len(room.overcommitted(nodes, there)))


def _measured(seen: dict[str, Sighting], load: Load, begun: float, ended: float, overcommitted: int) -> Measured:
    bound: dict[str, list[float]] = defaultdict(list)
    for name, each in seen.items():
        if each.bound is not None:
            bound[name.rpartition("-")[0]].append(each.bound)
    whole = {gang for gang, times in bound.items() if len(times) == load.size}
    lasted = [(max(times) if gang in whole else ended) - min(times) for gang, times in bound.items()]
    return Measured(
        whole=len(whole),
        dear=sum(_is_dear(number) for number in range(load.gangs) if _gang(number) in whole),
        partial=len(bound) - len(whole),
        useless=sum(len(times) for gang, times in bound.items() if gang not in whole),
        longest_partial_ms=1000 * max(lasted, default=0.0),
        seconds=max((max(times) for times in bound.values()), default=begun) - begun,
        overcommitted=overcommitted,
    )


async def _measure_all(kinds: list[str], load: Load, runs: int, patience: float) -> list[tuple[str, int, Measured]]:
    found = []
    async with plane.shared(plane.binaries()) as (control_plane, api):
        await api.create(_PRIORITY_CLASS)
        await plane.create(api, make_nodes(load))
        for run in range(1, runs + 1):
            for kind in kinds:
                plane.say(f"{kind}: {load.gangs} gangs of {load.size}, room for {load.fit}, run {run}")
                found.append((kind, run, await measure(control_plane, api, kind, load, patience)))
    return found


def _print(rows: list[tuple[str, int, Measured]], load: Load, told: dict[str, str]) -> None:
    table = Table(title=f"{load.gangs} gangs of {load.size} pods, room for {load.fit}")
    table.add_column("scheduler")
    for column in ("whole", "dear", "part", "useless", "partial", "s", "over"):
        table.add_column(column, justify="right")
    dear = sum(map(_is_dear, range(load.gangs)))
    for kind, _, found in rows:
        table.add_row(
            kind,
            str(found.whole),
            f"{found.dear} ({dear})",
            str(found.partial),
            str(found.useless),
            f"{found.longest_partial_ms:.0f}",
            f"{found.seconds:.1f}",
            str(found.overcommitted),
        )
    console.print(table)
    print_conditions({**_EXPLAINED, **told})


@click.command()
@click.option("--gangs", default=60, show_default=True, type=click.IntRange(min=1))
@click.option("--size", default=8, show_default=True, type=click.IntRange(min=1), help="Pods of a gang.")
@click.option("--fit", default=40, show_default=True, type=click.IntRange(min=1), help="Gangs that there is room for.")
@click.option("--schedulers", "kinds", default=",".join(KINDS), show_default=True, callback=options.words(KINDS))
@click.option("--runs", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--patience", default=8.0, show_default=True, help="Seconds without a binding after which it is at rest.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(gangs: int, size: int, fit: int, kinds: list[str], runs: int, patience: float, output: str) -> None:
    """Whole gangs, partial ones and for how long, with kube-scheduler alone and with both ways of ours."""
    told, load = conditions(), Load(gangs, size, fit)
    rows = asyncio.run(_measure_all(kinds, load, runs, patience))
    if output == "json":
        results = [{"scheduler": kind, "run": run, **asdict(load), **asdict(found)} for kind, run, found in rows]
        click.echo(msgspec.json.encode({"conditions": told, "rows": results}))
    else:
        _print(rows, load, told)
    sys.exit(any(found.overcommitted for *_, found in rows))


if __name__ == "__main__":
    main()
