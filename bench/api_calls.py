"""Calls to the API server for each pod that is placed, by delivery, as the API server itself counts them.

    python bench/api_calls.py --nodes 500 --pods 1000
    python bench/api_calls.py --nodes 20 --pods 50           # does it work?

Rows: kube-scheduler alone, Thalweg's binder, kube-scheduler steered by Thalweg, and the same with gated pods. The calls
of both schedulers count; the creation of the pods does not.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import click
import msgspec
from harness import loads, plane, workload
from harness.conditions import conditions
from harness.errors import BenchError, run
from harness.extended import GATED, STEERED, Steered, forget_policy, steered_policy
from harness.pod_watch import PodWatch
from harness.schedulers import KUBE_SCHEDULER, THALWEG, Scheduler, make
from harness.tables import console, print_conditions
from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.components import DEFAULT_SCHEDULER_CONFIG

_KINDS = (KUBE_SCHEDULER, THALWEG, STEERED, GATED)
_PATIENCE = 60.0
#: Seconds for Events that are written after the last binding.
_SETTLE_SECONDS = 5.0
#: Calls for a pod that are too few to be shown by themselves; they count in the sum.
_SELDOM = 0.005
_READS = {"GET", "LIST", "WATCH"}
_CREATION = "POST pods"


async def _counts(api: Api) -> Counter[str]:
    """Requests so far by verb, resource and subresource; reads together."""
    counts = Counter[str]()
    for family in text_string_to_metric_families(str(await api.request("GET", "/metrics"))):
        for sample in family.samples:
            if sample.name == "apiserver_request_total":
                verb, words = sample.labels["verb"], [sample.labels["resource"], sample.labels["subresource"]]
                counts["reads" if verb in _READS else f"{verb} {'/'.join(filter(None, words))}"] += int(sample.value)
    return counts


def _scheduler(kind: str, control_plane: ControlPlane) -> Scheduler:
    if kind in (STEERED, GATED):
        return Steered(control_plane, kind, 0)
    control_plane.configure_scheduler(DEFAULT_SCHEDULER_CONFIG)
    return make(kind, control_plane)


async def measure(control_plane: ControlPlane, api: Api, kind: str, count: int) -> dict[str, float]:
    """Calls for each pod, by what was called."""
    plane.say(kind)
    if kind in (STEERED, GATED):
        await steered_policy(api, **({"waiting": "Gate"} if kind == GATED else {}))
    scheduler = _scheduler(kind, control_plane)
    pods = workload.make_pods("plain", count, scheduler.pods_name)
    if kind == GATED:
        gate = [{"name": "scheduling.thalweg/plan"}]
        pods = [{**each, "spec": {**each["spec"], "schedulingGates": gate}} for each in pods]
    await scheduler.start()
    await scheduler.warm()
    try:
        async with PodWatch(control_plane.kubeconfig, workload.MEASURED, await plane.version(api)) as watch:
            before = await _counts(api)
            await plane.create(api, pods)
            await loads.until_bound(control_plane, scheduler, watch, count, _PATIENCE)
            await asyncio.sleep(_SETTLE_SECONDS)
            calls = await _counts(api) - before
            bound = watch.bound
    finally:
        await scheduler.stop()
    if bound < count:
        raise BenchError(f"{kind}: {bound} of {count} pods were bound")
    calls.pop(_CREATION, None)
    await plane.delete(api, pods)
    if kind in (STEERED, GATED):
        await forget_policy(api)
    return {name: number / count for name, number in calls.items()}


async def _measure_all(nodes: int, pods: int) -> dict[str, dict[str, float]]:
    async with plane.shared(plane.binaries()) as (control_plane, api):
        await plane.create(api, workload.make_nodes(nodes))
        await plane.warm_up(api, pods)
        return {kind: await measure(control_plane, api, kind, pods) for kind in _KINDS}


def _rows(found: dict[str, dict[str, float]]) -> list[dict[str, str | float]]:
    """A row for each call: how often each scheduler made it for a pod."""
    names = sorted({name for calls in found.values() for name, each in calls.items() if each >= _SELDOM})
    rows: list[dict[str, str | float]] = [
        {"call": name, **{kind: calls.get(name, 0.0) for kind, calls in found.items()}} for name in names
    ]
    return [*rows, {"call": "all", **{kind: sum(calls.values()) for kind, calls in found.items()}}]


def _print(rows: list[dict[str, str | float]]) -> None:
    table = Table(title="Calls to the API server for each pod")
    for kind in rows[0]:
        table.add_column(kind, justify="left" if kind == "call" else "right")
    for row in rows:
        table.add_row(*(each if isinstance(each, str) else f"{each:.2f}" for each in row.values()))
    console.print(table)


@click.command()
@click.option("--nodes", default=500, show_default=True, type=click.IntRange(min=1))
@click.option("--pods", default=1_000, show_default=True, type=click.IntRange(min=1))
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(nodes: int, pods: int, output: str) -> None:
    """Counts calls to the API server for each pod."""
    told = conditions()
    rows = _rows(asyncio.run(_measure_all(nodes, pods)))
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.encode({"conditions": told, "rows": rows}) + b"\n")
        return
    _print(rows)
    print_conditions(told)


if __name__ == "__main__":
    run(main)
