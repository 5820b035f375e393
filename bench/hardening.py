"""What hostile and broken tenants cost everybody else: each attack on a fresh control plane.

python bench/hardening.py --only gangs,poison --churn 5000
python bench/hardening.py --only resident,budgets,data,wishes,classes,queues      # others' wait, quiet and beside

To compare with another version, run this in a checkout of it, in the same sitting.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import click
import msgspec
from harness import attacks, loads, options, plane, workload
from harness.conditions import conditions
from harness.errors import run
from harness.pod_watch import PodWatch
from harness.schedulers import THALWEG, Thalweg, log_kept
from harness.tables import console, print_conditions
from harness.usage import resident_mib
from rich.table import Table
from thalweg_controlplane import Api, Binaries, ControlPlane
from thalweg_controlplane.client.objects import Manifest, node, pod

_NODES = 300
#: Seconds without any binding after which the rest is given up.
_PATIENCE = 120.0
#: Seconds between two arrivals of a steady load.
_ARRIVAL_SECONDS = 0.05
_SLOW_ARRIVAL_SECONDS = 0.3
_SETTLE_SECONDS = 5.0

Figures = dict[str, float | None]
"""Name with its unit -> value; None: it could not be measured."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One version on one control plane, with nodes and the attacker's namespace."""

    control_plane: ControlPlane
    api: Api
    thalweg: Thalweg
    extender: tuple[str, int, str]
    churn: int

    async def started(self) -> None:
        """Returns once it is in sync and its worker runs."""
        await self.thalweg.start()
        await self.thalweg.warm()

    async def arrivals(self, pods: list[Manifest], every: float) -> Figures:
        """Creates pods of a tenant that behaves, one after the other, and sees when they are bound."""
        async with PodWatch(self.control_plane.kubeconfig, workload.MEASURED, await plane.version(self.api)) as watch:
            begun = time.monotonic()
            for at, each in enumerate(pods):
                await asyncio.sleep(max(0.0, begun + at * every - time.monotonic()))
                await self.api.create(each)
            await loads.until_bound(self.control_plane, self.thalweg, watch, len(pods), _PATIENCE)
            seen = await watch.seen()
        bound = sorted(each.bound for each in seen.pods.values() if each.bound is not None)
        waits = loads.latencies(seen.pods.values(), None)
        return {
            "others bound": float(len(bound)),
            "others' p50 ms": loads.percentile(waits, 50),
            "others' p99 ms": loads.percentile(waits, 99),
            "others' pods/s": len(bound) / (bound[-1] - begun) if bound else None,
        }

    async def busy_ms(self) -> float | None:
        """The longest step of the event loop so far."""
        seconds = (await self.thalweg.metrics()).get("thalweg_event_loop_longest_busy_seconds")
        return None if seconds is None else 1000 * seconds


def _others(count: int, name: str = "other") -> list[Manifest]:
    return [pod(f"{name}-{at:04}", "10m", "10Mi", workload.MEASURED) for at in range(count)]


async def _beside(setting: Setting, attack: Callable[[], Awaitable[None]]) -> Figures:
    """How long pods of others wait, one by one: before the attack, and while what it made is there."""
    await setting.started()
    await setting.arrivals(_others(5, "first"), _SLOW_ARRIVAL_SECONDS)
    quiet = await setting.arrivals(_others(20, "quiet"), _SLOW_ARRIVAL_SECONDS)
    await attack()
    await asyncio.sleep(_SETTLE_SECONDS)
    found = await setting.arrivals(_others(20), _SLOW_ARRIVAL_SECONDS)
    return {
        "others' p50 ms, quiet": quiet["others' p50 ms"],
        "others' p99 ms, quiet": quiet["others' p99 ms"],
        "others bound": found["others bound"],
        "others' p50 ms": found["others' p50 ms"],
        "others' p99 ms": found["others' p99 ms"],
        "longest step of the loop ms": await setting.busy_ms(),
    }


async def _hopeless(setting: Setting, pods: list[Manifest]) -> Figures:
    return await _beside(setting, lambda: plane.create(setting.api, pods))


async def resident(setting: Setting) -> Figures:
    """40 running pods with 6,000 anti-affinity terms each about their own namespace; 20 pods of others."""
    return await _beside(
        setting, lambda: plane.create(setting.api, (attacks.many_terms(at, 6_000, _name(0)) for at in range(40)))
    )


async def budgets(setting: Setting) -> Figures:
    """3,000 PodDisruptionBudgets, one changed twice a second; 1,500 running pods and 20 new pods of others."""
    await plane.create(setting.api, attacks.bystanders(1_500, [_name(at) for at in range(_NODES)]))
    await plane.create(setting.api, [attacks.urgent_class()])
    changing: list[asyncio.Task[None]] = []

    async def attack() -> None:
        await plane.create(setting.api, attacks.budgets(3_000))
        await setting.api.create(attacks.urgent())
        changing.append(asyncio.create_task(_change_budget(setting.api)))

    try:
        return await _beside(setting, attack)
    finally:
        for each in changing:
            each.cancel()


async def _change_budget(api: Api) -> None:
    for number in count():
        await api.patch(attacks.BUDGET, {"spec": {"selector": {"matchLabels": {"changed": str(number)}}}})
        await asyncio.sleep(0.5)


async def data(setting: Setting) -> Figures:
    """300 pods that fit nowhere, each with 64 data sources in 16 places; 20 pods of others."""
    await setting.api.create(attacks.data_policy())
    return await _hopeless(setting, attacks.far_data(300, [_name(at) for at in range(_NODES)]))


async def wishes(setting: Setting) -> Figures:
    """300 pods that fit nowhere, each with 200 preferred affinity terms; 20 pods of others."""
    return await _hopeless(setting, attacks.many_wishes(300))


async def apart(setting: Setting) -> Figures:
    """200 pods that fit nowhere, each with 192 required anti-affinity terms; 20 pods of others."""
    return await _hopeless(setting, attacks.many_rules(200))


async def classes(setting: Setting) -> Figures:
    """1,000 pods that fit nowhere, each with a request of its own; 20 pods of others."""
    return await _hopeless(setting, attacks.distinct_requests(1_000))


async def queues(setting: Setting) -> Figures:
    """1,000 FlowQueues, one for each of 1,000 namespaces with a running pod; 20 pods of others."""
    await plane.create(setting.api, attacks.teams(1_000, [_name(at) for at in range(_NODES)]))
    return await _beside(setting, lambda: plane.create(setting.api, attacks.queues(1_000)))


async def gangs(setting: Setting) -> Figures:
    """600 gangs of one pod that name each other, then 100 pods of others."""
    await setting.started()
    await plane.create(setting.api, attacks.gangs_naming_each_other(600))
    found = await setting.arrivals(_others(100), _ARRIVAL_SECONDS)
    return {**found, "longest step of the loop ms": await setting.busy_ms()}


async def poison(setting: Setting) -> Figures:
    """A pod with 2,000 spread constraints, then 300 pods of others."""
    await setting.started()
    await setting.api.create(attacks.poison(0, 2000))
    return await setting.arrivals(_others(300), _ARRIVAL_SECONDS)


async def webhook(setting: Setting) -> Figures:
    """64 pods whose bindings are answered with 500, and 600 pods of others at once."""
    await setting.api.create(attacks.failing_webhook())
    await setting.started()
    refused = [pod(f"refused-{at:03}", "10m", "10Mi", attacks.HOSTILE) for at in range(64)]
    await plane.create(setting.api, refused)
    await asyncio.sleep(1.0)
    return await setting.arrivals(_others(600), 0.0)


async def flood(setting: Setting) -> Figures:
    """10,000 bad requests a second at the extender, beside a client that asks as kube-scheduler does."""
    await setting.started()
    asked = await setting.api.create(pod("asked", "10m", "10Mi", workload.MEASURED, "default-scheduler"))
    await asyncio.sleep(1.0)
    host, port, path = setting.extender
    body = attacks.filter_request(asked, [_name(at) for at in range(_NODES)])
    quiet = await asyncio.to_thread(attacks.good_requests, host, port, path, body, 5.0)
    with attacks.Flood(host, port, path, 10_000) as flooding:
        flooded = await asyncio.to_thread(attacks.good_requests, host, port, path, body, 15.0)
    return {
        "bad requests/s sent": flooding.sent,
        "bad requests/s answered": flooding.answered,
        "good p99 ms, quiet": loads.percentile(quiet, 99),
        "good p99 ms, flooded": loads.percentile(flooded, 99),
    }


async def churn(setting: Setting) -> Figures:
    """Pods with labels and resource names of their own and nodes with names of their own, created and deleted."""
    await setting.started()
    size = 500
    for batch in range(20):  # caches fill over the first 10,000 pods
        await _come_and_go(setting.api, -batch - 1, size)
    await asyncio.sleep(_SETTLE_SECONDS)
    begun = resident_mib(setting.thalweg.pids())
    for batch in range(setting.churn // size):
        await _come_and_go(setting.api, batch, size)
    await asyncio.sleep(_SETTLE_SECONDS)
    ended = resident_mib(setting.thalweg.pids())
    return {"MiB before": begun, "MiB after": ended, "growth %": 100 * (ended / begun - 1)}


async def _come_and_go(api: Api, batch: int, size: int) -> None:
    things = [*_unique_nodes(batch, size // 10), *_unique_pods(batch, size)]
    await plane.create(api, things)
    await plane.delete(api, things)


def _unique_nodes(batch: int, count: int) -> Iterator[Manifest]:
    for at in range(count):
        unique = f"{batch}-{at}".replace("-", "x")
        yield node(f"churn-{unique}", extended={f"example.com/device-{unique}": "1"})


def _unique_pods(batch: int, count: int) -> Iterator[Manifest]:
    for at in range(count):
        unique = f"{batch}-{at}".replace("-", "x")
        labels = {f"example.com/label-{unique}": "value" * 10}
        extended = {f"example.com/wanted-{unique}": "1"}
        yield pod(f"churn-{unique}", "1m", "1Mi", attacks.HOSTILE, labels=labels, extended=extended)


ATTACKS: dict[str, Callable[[Setting], Awaitable[Figures]]] = {
    "gangs": gangs,
    "poison": poison,
    "webhook": webhook,
    "flood": flood,
    "churn": churn,
    "resident": resident,
    "budgets": budgets,
    "data": data,
    "wishes": wishes,
    "apart": apart,
    "classes": classes,
    "queues": queues,
}


@asynccontextmanager
async def _setting(executables: Binaries, churned: int, logs: Path | None, name: str) -> AsyncIterator[Setting]:
    async with plane.bare(executables, THALWEG) as (control_plane, api):
        await plane.create(api, [node(_name(at), "64", "512Gi") for at in range(_NODES)])
        await plane.warm_up(api, 1000)
        await api.create(attacks.namespace())
        thalweg = Thalweg(control_plane)
        host, _, port = thalweg.extender.rpartition(":")
        try:
            with log_kept(thalweg, logs, name):
                yield Setting(control_plane, api, thalweg, (host, int(port), "/extender/filter"), churned)
        finally:
            await thalweg.stop()


def _name(at: int) -> str:
    return f"node-{at:05}"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one attack."""

    attack: str
    figure: str
    value: float | None


async def measure(executables: Binaries, name: str, churned: int, logs: Path | None) -> list[Row]:
    """All figures of one attack."""
    plane.say(name)
    async with _setting(executables, churned, logs, name) as setting:
        figures = await ATTACKS[name](setting)
    plane.say(json.dumps(figures))
    return [Row(name, figure, value) for figure, value in figures.items()]


def _print(rows: list[Row]) -> None:
    table = Table(title="Attacks: what others notice")
    for name in ("attack", "figure"):
        table.add_column(name)
    table.add_column("", justify="right")
    last = ""
    for row in rows:
        value = "-" if row.value is None else f"{row.value:,.1f}"
        table.add_row(row.attack if row.attack != last else "", row.figure, value)
        last = row.attack
    console.print(table)
    for name, attack in ATTACKS.items():
        if any(row.attack == name for row in rows):
            console.print(f"  {name}: {(attack.__doc__ or '').strip()}", highlight=False)


@click.command()
@click.option("--only", default=",".join(ATTACKS), show_default=True, callback=options.words(tuple(ATTACKS)))
@click.option(
    "--churn", "churned", default=20_000, show_default=True, type=click.IntRange(min=500), help="Pods that come and go."
)
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder for the schedulers' logs.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(only: list[str], churned: int, logs: Path | None, output: str) -> None:
    """Measures what everybody else notices of an attack."""
    executables, told = plane.binaries(), conditions()
    rows = [row for name in only for row in asyncio.run(measure(executables, name, churned, logs))]
    if output == "json":
        sys.stdout.buffer.write(
            msgspec.json.encode({"conditions": told, "rows": [asdict(row) for row in rows]}) + b"\n"
        )
        return
    _print(rows)
    print_conditions(told)


if __name__ == "__main__":
    run(main)
