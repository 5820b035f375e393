"""The scene in which pods take the place of running ones: figures 4 and 5 of the seed."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, REPLACES
from flowcore.model.snapshot import NodeTable, PendingPod, Replaced, Snapshot, build_snapshot
from flowcore.rounds import run_round

TITLE = "In the place of another"
_CORES = 1000
_RUNNING = tuple(
    Replaced(f"demo/{name}", node, (("cpu", cores * _CORES),))
    for name, node, cores in (("model-1", "node-1", 6), ("cache-1", "node-2", 4), ("web-1", "node-2", 4))
)
_NEW = (("model-2", 8, "model-1"), ("cache-2", 6, "cache-1"), ("small", 1, ""))


def snapshot() -> Snapshot:
    """Two nodes of eight cores, what runs there, and new pods, two of which name one of those."""
    nodes = [Node(name, allocatable=(("cpu", 8 * _CORES), ("pods", 110))) for name in ("node-1", "node-2")]
    there = {each.key: each for each in _RUNNING}
    pending = tuple(
        PendingPod(
            f"demo/{name}",
            "",
            PodClass(requests=(("cpu", cores * _CORES),)),
            BUILT_IN.name,
            replaces=there.get(f"demo/{old}"),
        )
        for name, cores, old in _NEW
    )
    running = [(each.node, each.usage, each.host_ports) for each in _RUNNING]
    return build_snapshot(generation=1, now=0.0, table=NodeTable.of(nodes), running=running, pending=pending)


def show_replacing(console: Console, number: int) -> None:
    """Prints the scene."""
    plan = run_round(snapshot())
    placed = {each.pod.key: each.node for each in plan.placements}
    runs = ", ".join(f"{_short(each.key)} on {each.node} ({_cores(each.usage)})" for each in _RUNNING)
    console.print(
        f"[bold]{number}. {TITLE}[/bold]\nNew pods that name a running one ({REPLACES}). That one is evicted only when "
        "the new one can start in its place,\nand nobody else gets the room meanwhile.\n"
        f"Nodes: node-1 (8 cores), node-2 (8 cores). Running: {runs}",
        highlight=False,
    )
    table = Table("POD", "ASKS FOR", "REPLACES", "THALWEG", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for pod in snapshot().pending:
        old = "-" if pod.replaces is None else _short(pod.replaces.key)
        where = placed.get(pod.key, "[red]waits[/red]")
        if pod.replaces is not None and pod.key in placed:
            where += f", once {old} has left"
        table.add_row(_short(pod.key), _cores(pod.pod_class.requests), old, where)
    console.print(table)
    for left in plan.left:
        console.print(f"[red]{_short(left.pod.key)} waits:[/red] {left.reason}")
    console.print()


def _short(key: str) -> str:
    return key.removeprefix("demo/")


def _cores(amounts: tuple[tuple[str, int], ...]) -> str:
    cores = dict(amounts)["cpu"] // _CORES
    return f"{cores} core{'s' if cores > 1 else ''}"
