"""What measured load is worth, and what it costs.

    python bench/usage.py --openb DATA_DIR
    python bench/usage.py --rounds
    python bench/usage.py --memory

Parts can be combined; without any, --rounds and --memory run. No cluster takes part.

- openb: the trace with simulated use (harness/simulated_use.py), planned by requests one by one and in rounds, by the
  larger of requests and use, by use, and by use without what pods are foreseen to use and without pods that no sample
  contains yet: for how long nodes are overloaded, and how long pods wait. Means over the seeds; every row has the same
  pods, with the same use and run time.
- rounds: CPU time of a round on 12,500 nodes by requests, and by use with a sample of each node and a foreseen use of
  each class; and of what comes before it: a poll's samples taken over, and the loads of all nodes.
- memory: of the samples of 150,000 pods.
"""

from __future__ import annotations

import statistics
from dataclasses import fields
from pathlib import Path

import click
import msgspec
from harness.conditions import conditions
from harness.instances import Size
from harness.openb_rounds import load
from harness.options import numbers
from harness.simulated_use import Row, capacity, simulate
from harness.tables import console, print_conditions
from harness.usage_costs import SAMPLES, Cost, Memory, memory, rounds
from rich.table import Table

from flowcore.model.cost_policy import Utilisation
from flowcore.planning.round import run_one_by_one, run_round

_SAMPLES_ALONE = "Measured, newest samples alone"
_METHODS = (
    ("Requested, one by one", Utilisation.REQUESTED, run_one_by_one),
    ("Requested", Utilisation.REQUESTED, run_round),
    ("Larger", Utilisation.LARGER, run_round),
    ("Measured", Utilisation.MEASURED, run_round),
    (_SAMPLES_ALONE, Utilisation.MEASURED, run_round),
)


def replay(folder: Path, seeds: list[int], nodes_kept: int, pods: int, arrivals: int, ticks: int) -> list[Row]:
    """A row for each method."""
    trace = load(folder, "default", aged=True)
    nodes, rows = trace.table.nodes[::nodes_kept], []
    for name, utilisation, run_round_by in _METHODS:
        found = [
            simulate(
                trace.pending[:pods],
                nodes,
                name,
                utilisation,
                run_round_by,
                arrivals=arrivals,
                ticks=ticks,
                seed=seed,
                samples_alone=name == _SAMPLES_ALONE,
            )
            for seed in seeds
        ]
        means = {
            each.name: statistics.mean(getattr(row, each.name) for row in found)
            for each in fields(Row)
            if each.name != "method"
        }
        rows.append(Row(name, **means))
    title = f"openb default: {pods:,} pods, {arrivals} each 15 s, run {ticks / 4:g} min in the mean, {capacity(nodes)}"
    _print_replay(rows, f"{title}, seeds {seeds}")
    return rows


def _print_replay(rows: list[Row], title: str) -> None:
    table = Table("method", title=title)
    for column in ("overloaded node-min", "core-min short", "waiting pod-min", "placed", "busiest", "wanted", "CPU s"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.method,
            f"{row.overloaded:.0f}",
            f"{row.short:.0f}",
            f"{row.waited:.0f}",
            f"{row.placed:.0f}",
            f"{row.busiest:.2f}",
            f"{row.wanted:.2f}",
            f"{row.cpu_seconds:.0f}",
        )
    console.print(table)


def _print_costs(costs: list[Cost], size: Size) -> None:
    table = Table("what", "CPU s", "", title=f"{size} (nodes / pending / classes / running), {SAMPLES} samples kept")
    for cost in costs:
        table.add_row(cost.what, f"{cost.seconds:.3f}", cost.note)
    console.print(table)


def _print_memory(found: list[Memory]) -> None:
    table = Table("pods", "samples of each", "arrays, MB", "with indexes, MB")
    for each in found:
        row = (f"{each.pods:,}", str(each.samples), f"{each.arrays / 1e6:.0f}", f"{each.everything / 1e6:.0f}")
        table.add_row(*row)
    console.print(table)


@click.command()
@click.option(
    "--openb",
    "folder",
    metavar="DATA_DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Replay the trace in this folder.",
)
@click.option("--rounds", "with_rounds", is_flag=True, help="CPU time of rounds and of what comes before them.")
@click.option("--memory", "with_memory", is_flag=True, help="Memory of samples.")
@click.option("--seeds", callback=numbers, default="1,2", show_default=True, help="Of the simulated use.")
@click.option("--pods", default=3_000, show_default=True, type=click.IntRange(min=1), help="Of the trace.")
@click.option("--nodes-kept", default=8, show_default=True, type=click.IntRange(min=1), help="One node of so many.")
@click.option("--arrivals", default=20, show_default=True, type=click.IntRange(min=1), help="Pods in 15 seconds.")
@click.option("--ticks", default=40, show_default=True, type=click.IntRange(min=1), help="That a pod runs in the mean.")
@click.option("--nodes", default=12_500, show_default=True, type=click.IntRange(min=1), help="For --rounds.")
@click.option("-n", "--repeat", default=5, show_default=True, type=click.IntRange(min=1), help="Take the median of.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    *,
    folder: Path | None,
    with_rounds: bool,
    with_memory: bool,
    seeds: list[int],
    pods: int,
    nodes_kept: int,
    arrivals: int,
    ticks: int,
    nodes: int,
    repeat: int,
    output: str,
) -> None:
    """Overload avoided by measured load, and what samples cost."""
    every = folder is None and not with_rounds and not with_memory
    console.quiet = output == "json"
    found: dict[str, list[Row] | list[Cost] | list[Memory]] = {}
    if folder is not None:
        found["openb"] = replay(folder, seeds, nodes_kept, pods, arrivals, ticks)
    if with_rounds or every:
        size = Size(nodes, 3_000, 200, running=4 * nodes)
        found["rounds"] = costs = rounds(size, repeat)
        _print_costs(costs, size)
    if with_memory or every:
        found["memory"] = sizes = [memory(each) for each in (1, 5, SAMPLES)]
        _print_memory(sizes)
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": conditions(), **found}))
        return
    print_conditions(conditions())


if __name__ == "__main__":
    main()
