"""Where one leader ends, and what shards under one API server give: computed from measured costs.

    python bench/scale.py -o json > scale.json
    python bench/scale_limits.py scale.json

The first command measures a large cluster: CPU time and memory of operator and worker. The second one measures what a
watch event costs here, and computes. A leader runs on one core beside its worker's. A pod's life brings it so many
events (`--events`): created, bound, three of its kubelet, deleted. Every leader has to see the events of all pods,
whoever placed them, and each node's status once in five minutes. What it binds itself it divides with the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
from harness.conditions import conditions
from harness.large_cluster import LargeCluster
from harness.tables import console, print_conditions
from rich.table import Table
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.sinks import NodeSink, PodSink, node_decoder, pod_decoder
from thalweg_operator.api.watch_messages import EVENTS, OBJECTS, read
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.shell import Shell

from flowcore.api import Interner
from flowcore.cluster.cluster import Cluster

#: Seconds between two writes of a node's status that changed nothing (kubelet nodeStatusReportFrequency).
_NODE_STATUS = 300.0
_NODES, _PODS = 200, 2_000
_SHARDS = (1, 2, 4, 8, 16)


class EventCosts:
    """CPU seconds and bytes of a watch event about a pod and about a node that scheduling sees no change in."""

    def __init__(self) -> None:
        large, cluster, intern = LargeCluster(_NODES, _PODS), Cluster(), Interner()
        shell = Shell(cluster, Ledger(cluster), lambda _: None)
        bad_input = BadInput(Metrics())
        pods, nodes = pod_decoder(intern, bad_input), node_decoder(intern)
        self.node, self.node_bytes = _cost(large.node, _NODES, nodes, NodeSink(shell).upsert)
        self.pod, self.pod_bytes = _cost(large.pod, _PODS, pods, PodSink(shell, bad_input).upsert)


def _cost(
    make: Callable[[int, int], bytes], count: int, decode: Callable[[bytes], Any], upsert: Callable[[Any], None]
) -> tuple[float, float]:
    """Seconds and bytes of one event, once each object is known."""
    seconds = 0.0
    size = 0
    for version in (1, 2):
        lines = [b'{"type":"MODIFIED","object":%b}' % make(number, version) for number in range(count)]
        began = time.process_time()
        for line in lines:
            raw = bytes(read(EVENTS, line, "event").object)
            read(OBJECTS, raw, "event")
            upsert(decode(raw))
        seconds = time.process_time() - began
        size = sum(map(len, lines))
    return seconds / count, size / count


@click.command()
@click.argument("measured", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--events", default=6, show_default=True, type=click.IntRange(min=2), help="Watch events of a pod's life."
)
def main(measured: Path, events: int) -> None:
    """Prints what each thing costs, and how many pods a second so many leaders can place."""
    told = conditions()
    found = msgspec.json.decode(measured.read_bytes())
    nodes, running, pods, rows = found["nodes"], found["running"], found["pods"], found["rows"]
    sets = [row for row in rows if "set" in row["what"]]
    binding, planning = (sum(row[name] for row in sets) / len(sets) / pods for name in ("operator_cpu", "worker_cpu"))
    listing = rows[0]["operator_cpu"] / max(1, running)
    operator, worker, costs = sets[-1]["operator_mib"], sets[-1]["worker_mib"], EventCosts()
    table = Table(title=f"what each costs, {nodes:,} nodes and {running:,} running pods")
    table.add_column("")
    table.add_column("", justify="right")
    for name, text in (
        ("a pod in the list at the start, operator", f"{listing * 1e6:.0f} us CPU"),
        ("a watch event about a pod", f"{costs.pod * 1e6:.0f} us CPU, {costs.pod_bytes / 1000:.1f} kB"),
        ("a watch event about a node", f"{costs.node * 1e6:.0f} us CPU, {costs.node_bytes / 1000:.1f} kB"),
        ("a pod that is bound, operator", f"{binding * 1e6:.0f} us CPU"),
        ("a pod that is planned, worker", f"{planning * 1e6:.0f} us CPU"),
        ("memory of operator and worker", f"{operator + worker:,.0f} MiB"),
    ):
        table.add_row(name, text)
    console.print(table)
    beats = nodes / _NODE_STATUS
    idle = beats * costs.node
    table = Table(title=f"leaders under one API server; node status alone: {idle:.1%} of a core")
    for name in ("shards", "pods a second", "CPU of watching", "MB/s of watches", "MiB in all"):
        table.add_column(name, justify="right")
    for shards in _SHARDS:
        # One core of each leader: what it watches of all pods, and its part of the bindings and their events.
        rate = (1 - idle) / (binding / shards + (events - 2) * costs.pod + 2 * costs.pod * (1 - 1 / shards))
        watching = idle + rate * costs.pod * ((events - 2) + 2 * (1 - 1 / shards))
        sent = shards * (rate * events * costs.pod_bytes + beats * costs.node_bytes)
        table.add_row(
            str(shards), f"{rate:,.0f}", f"{watching:.0%}", f"{sent / 1e6:,.0f}", f"{shards * (operator + worker):,.0f}"
        )
    console.print(table)
    print_conditions(told)


if __name__ == "__main__":
    main()
