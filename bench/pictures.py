"""What the pictures of the view cost, on one plan: time from a question to its JSON, and bytes.

    python bench/pictures.py
    python bench/pictures.py --nodes 1000 --pods 10000

Nodes and pods are those of `schedulers.py --mix mixed`. Times are the median of some repetitions, in one
process that has the state and the round already, as the view's process does.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
from harness.conditions import conditions
from harness.tables import console, print_conditions
from harness.workload import MEASURED, RUNNING, make_nodes, make_pods, make_running
from rich.table import Table
from thalweg.dumps.reader import read_dump
from thalweg_view.operations import OPERATIONS
from thalweg_view.rounds import RoundHistory
from thalweg_view.view_data import SourceInfo, ViewData

from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario import Scenario, plan_scenario
from flowcore.questions.scenario.context import AnswerContext

_PICTURES = ("overview", "flow", "nodes", "pending", "gangs", "policies", "queues", "rounds", "pods")


def _scenario(nodes: int, pods: int, running: int) -> Scenario:
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (MEASURED, RUNNING)]
    objects = [*namespaces, *make_nodes(nodes), *make_running(running, nodes), *make_pods("mixed", pods, "thalweg")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "dump.json")
        path.write_bytes(msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": objects}))
        return read_dump((str(path),))


def _timed(make: Callable[[], bytes], repeats: int) -> tuple[float, int]:
    """Median seconds and bytes."""
    seconds, size = [], 0
    for _ in range(repeats):
        began = time.perf_counter()
        size = len(make())
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), size


@click.command()
@click.option("--nodes", default=5000, show_default=True)
@click.option("--pods", default=50_000, show_default=True, help="Pods that wait before the plan.")
@click.option("--running", default=0, help="Running pods. Default: five per node.")
@click.option("--repeats", default=5, show_default=True)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def main(nodes: int, pods: int, running: int, repeats: int, output: str) -> None:
    """Plans once, then makes every picture of the plan."""
    found = conditions()
    scenario = _scenario(nodes, pods, running or 5 * nodes)
    now, began = time.time(), time.perf_counter()
    plan = plan_scenario(scenario, now).document(seconds=0.0)
    planning = time.perf_counter() - began
    encoded = msgspec.msgpack.encode(plan)
    crossing, _ = _timed(lambda: msgspec.msgpack.encode(msgspec.msgpack.decode(encoded, type=PlanDocument)), repeats)
    data = ViewData(scenario, RoundHistory(), SourceInfo("dump", "bench", ""), 1)
    data.rounds.put(plan)
    rows = [("round, to the process and back", crossing, len(encoded))]
    for name in _PICTURES:
        operation = OPERATIONS[name]
        query = operation.query(*(plan.pending[0].key.split("/") if operation.segments else ()))
        seconds, size = _timed(
            lambda operation=operation, query=query: msgspec.json.encode(
                operation.answer(data, query, AnswerContext(now))
            ),
            repeats,
        )
        rows.append((name, seconds, size))
    found |= {"plan": f"{len(plan.placements)} placed, {len(plan.unplaced)} left, in {planning:.1f} s"}
    if output == "json":
        pictures = [{"picture": name, "seconds": seconds, "bytes": size} for name, seconds, size in rows]
        click.echo(msgspec.json.encode({"conditions": found, "rows": pictures}))
        return
    table = Table("picture", "ms", "KiB", title=f"{nodes:,} nodes, {pods:,} pods", title_justify="left")
    for name, seconds, size in rows:
        table.add_row(name, f"{seconds * 1000:.1f}", f"{size / 1024:.1f}")
    console.print(table)
    print_conditions(found)


if __name__ == "__main__":
    main()
