"""What polls of measured usage cost the operator's event loop, with the lists as metrics-server sends them: whole.

    python bench/usage_poll.py
    python bench/usage_poll.py --nodes 1000 --pods 10000

A child process serves NodeMetrics and PodMetrics over HTTP. CPU time is that of the operator's thread.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import time
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import msgspec
from aiohttp import web
from harness.conditions import conditions
from harness.tables import console, print_conditions
from rich.table import Table
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import connect
from thalweg_operator.health import watch_event_loop
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.measured_usage import MeasuredUsageTracker
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.settings import UsageSettings
from thalweg_operator.usage.poller import UsagePoller

from flowcore.api.policies import parse_policy
from flowcore.cluster.cluster import Cluster
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.usage import UsageClass

_POLLS = 3
_CLASSES = 500


def _metrics(kind: str, number: int, at: str) -> dict[str, Any]:
    usage = {"cpu": f"{number * 7919 % 900_000_000 + 1}n", "memory": f"{number * 104_729 % 4_000_000 + 1}Ki"}
    meta: dict[str, Any] = {
        "name": f"{kind}-{number}",
        "creationTimestamp": at,
        "labels": {"app": f"app-{number % _CLASSES}"},
    }
    shown: dict[str, Any] = {"metadata": meta, "timestamp": at, "window": "20.4s"}
    if kind == "pod":
        meta["namespace"] = f"ns-{number % 100}"
        return shown | {"containers": [{"name": "main", "usage": usage}, {"name": "proxy", "usage": usage}]}
    return shown | {"usage": usage}


def _serve(nodes: int, pods: int, told: Connection) -> None:
    """Runs in the child: serves both lists, each time with the present time."""

    async def answer(request: web.Request) -> web.Response:
        kind, count = {"nodes": ("node", nodes), "pods": ("pod", pods)}[request.match_info["plural"]]
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        items = [_metrics(kind, number, at) for number in range(count)]
        return web.Response(body=msgspec.json.encode({"metadata": {}, "items": items}), content_type="application/json")

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/apis/metrics.k8s.io/v1beta1/{plural}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        told.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


def _cluster(nodes: int, pods: int) -> Cluster:
    cluster, started = Cluster(), time.time() - 86_400
    for number in range(nodes):
        cluster.put_node(Node(f"node-{number}", allocatable=(("cpu", 64_000), ("memory", 2**38), ("pods", 110))))
    classes = [UsageClass(f"ns-{at % 100}", (f"registry/app-{at}",), (("cpu", 100),)) for at in range(_CLASSES)]
    pod_class = PodClass((("cpu", 100),))
    for number in range(pods):
        cluster.put_pod(
            Pod(f"ns-{number % 100}", f"pod-{number}", str(number), pod_class, node_name=f"node-{number % nodes}",
                usage=pod_class.requests, started=started, usage_class=classes[number % _CLASSES])
        )  # fmt: skip
    spec = {"selects": {"podSelector": {}}, "cost": {"utilisation": "Measured"}}
    cluster.policies.replace([parse_policy("p", spec, BUILT_IN_MODELS)])
    return cluster


async def _measure(nodes: int, pods: int, port: int) -> list[tuple[str, str]]:
    cluster, metrics = _cluster(nodes, pods), Metrics()
    gc.freeze()  # as the operator does once its snapshot is in sync
    gc.set_threshold(50_000, 20, 50)
    with TemporaryDirectory() as folder:
        user = {"users": [{"name": "u", "user": {"token": "t"}}]}
        context = {"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}
        server = {"clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}]}
        config = Path(folder) / "kubeconfig"
        config.write_bytes(msgspec.json.encode(user | context | server))
        async with connect(config, 4) as api:
            poller = UsagePoller(api, cluster, UsageSettings(), metrics, BadInput(metrics))
            tracker = MeasuredUsageTracker(cluster, Ledger(cluster), poller)
            watch = asyncio.create_task(watch_event_loop(metrics))
            polls = []
            for _ in range(_POLLS):
                before = time.thread_time()
                await poller.poll(None)
                polls.append(time.thread_time() - before)
            rounds = []
            for _ in range(_POLLS):
                before = time.thread_time()
                await tracker.changes((), (), time.time(), planned=True, fresh=False)
                rounds.append(time.thread_time() - before)
            watch.cancel()
    assert poller.condition()[0] == "True", poller.condition()
    longest = metrics.registry.get_sample_value("thalweg_event_loop_longest_busy_seconds") or 0.0
    return [
        ("CPU time of a poll, mean", f"{sum(polls) / _POLLS:.2f} s"),
        ("CPU time of the longest step of the event loop", f"{longest * 1000:.0f} ms"),
        ("CPU time in the first round after a poll", f"{rounds[0] * 1000:.0f} ms"),
        ("CPU time in a round without a poll before it", f"{min(rounds[1:]) * 1000:.0f} ms"),
        ("samples, 20 of each node and pod", f"{poller.store.nbytes / 2**20:.0f} MiB"),
    ]


@click.command()
@click.option("--nodes", default=12_500, show_default=True)
@click.option("--pods", default=150_000, show_default=True)
def main(nodes: int, pods: int) -> None:
    """See the module."""
    told, tell = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_serve, args=(nodes, pods, tell), daemon=True)
    child.start()
    try:
        rows = asyncio.run(_measure(nodes, pods, told.recv()))
    finally:
        child.kill()
    table = Table("what", "figure", title=f"{nodes:,} nodes, {pods:,} pods")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    print_conditions(conditions())


if __name__ == "__main__":
    main()
