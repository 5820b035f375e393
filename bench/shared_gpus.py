"""Pods that share GPUs, one by one on the openb cluster: the experiment of "Beware of Fragmentation" (USENIX ATC 2023).

    python bench/shared_gpus.py DATA_DIR
    python bench/shared_gpus.py DATA_DIR --list gpushare80,gpuspec33 --seeds 3 --all-nodes
    python bench/shared_gpus.py DATA_DIR --list default --rounds 1,20,200

No cluster and no engine takes part. Pods of a list come in a drawn order until they ask for 130 % of the cluster's
GPUs. Each goes to one node: pods ask for whole GPUs, or for thousandths of one. None ends. So one that finds no room
finds none later either: whether such pods are dropped, as the authors do, or wait, as Kubernetes lets them, makes no
difference. `allocated` is what pods hold, in % of all GPUs, once pods worth 100 % and 130 % have come: the mean of all
seeds, and the least and the most beyond FGD of any seed.

- `FGD`: the authors' method, written again from their simulator: the score is rounded down to whole points of 100, and
  of equal nodes the first one is taken. `published` is how far its mean is from the mean of their ten runs.
- `exact-FGD`: the same without rounding.
- `worth`: the cost of `harness/shared_gpus/room_worth.py`. `--rounds 1,20,200`: also with so many pods known together.
- `no plan more`: what no plan exceeds that knows all pods from the first on, and may leave out any of them; beside
  100 %, any of those that have come by then.

The authors' cluster has no nodes without GPUs. `--all-nodes` adds those of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Final

import click
import msgspec
from harness import options
from harness.conditions import conditions
from harness.shared_gpus.fragments import Fragments
from harness.shared_gpus.one_by_one import Method, place_one_by_one
from harness.shared_gpus.prices import Fluid
from harness.shared_gpus.room_worth import RoomWorth
from harness.shared_gpus.rounds import place_in_rounds
from harness.shared_gpus.workload import Workload, read_workload
from harness.tables import console, print_conditions
from openb import nodes_file, pods_file
from rich.table import Table

FGD, EXACT, WORTH, MOST = "FGD", "exact-FGD", "worth", "no plan more"
#: Allocated at 100 % and 130 %: means of ten seeds, expected_results/analysis_allo_discrete.csv of the authors.
_PUBLISHED: Final = {
    "default": (95.23, 95.39),
    "cpu050": (95.0, 95.21),
    "cpu100": (95.21, 95.35),
    "cpu200": (94.82, 95.05),
    "cpu250": (93.2, 93.41),
    "gpushare40": (93.96, 94.15),
    "gpushare60": (91.25, 91.4),
    "gpushare80": (89.08, 89.31),
    "gpushare100": (86.64, 86.9),
    "gpuspec10": (94.66, 94.95),
    "gpuspec20": (94.66, 94.84),
    "gpuspec25": (93.91, 94.74),
    "gpuspec33": (87.84, 94.55),
    "multigpu20": (95.53, 95.65),
    "multigpu30": (96.36, 96.46),
    "multigpu40": (96.91, 96.99),
    "multigpu50": (97.09, 97.18),
}
#: Lists of the trace without published figures.
_UNPUBLISHED: Final = ("cpu0", "cpu037", "cpu072", "cpu235", "cpu300", "gpushare20", "gpuspec05")
_ARRIVED: Final = (100.0, 130.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One method on one list.

    Attributes:
        allocated: at 100 % and 130 %, means.
        published: how far these are from the authors' means, of FGD on nodes with GPUs; None elsewhere.
        beyond: the least and the most that a seed has more than FGD at 100 % and 130 %; None: FGD itself.
        waiting: pods without a node at the end, mean; None: it is not known.
    """

    pods: str
    method: str
    allocated: tuple[float, float]
    published: tuple[float, float] | None
    beyond: tuple[tuple[float, float], tuple[float, float]] | None
    waiting: float | None


def rows_of(
    which: str, workload: Workload, seeds: int, methods: list[str], rounds: list[int], *, authors_nodes: bool
) -> list[Row]:
    """A row for each method, of ``worth`` for each size of rounds, and one of bounds.

    All have the same pods in the same orders.
    """
    figures: dict[str, list[tuple[float, float]]] = {}
    rows, orders = [], [workload.arrivals(seed, _ARRIVED[-1]) for seed in range(seeds)]
    placing = {name: _method(name, workload) for name in (FGD, *methods)}
    plays = [(name, size) for name in placing for size in (rounds if name == WORTH else [1])]
    for played, size in plays:
        method = played if size == 1 else f"{played}, rounds of {size}"
        ends = [
            place_one_by_one(workload, placing[played], order)
            if size == 1
            else place_in_rounds(workload, placing[played], order, size)
            for order in orders
        ]
        figures[method] = [(end.at(_ARRIVED[0]), end.at(_ARRIVED[1])) for end in ends]
        allocated = _by_moment(figures[method], mean)
        more = [(own[0] - fgd[0], own[1] - fgd[1]) for own, fgd in zip(figures[method], figures[FGD], strict=True)]
        first, last = ([each[moment] for each in more] for moment in (0, 1))
        published = _PUBLISHED.get(which) if method == FGD and authors_nodes else None
        rows.append(
            Row(
                pods=which,
                method=method,
                allocated=allocated,
                published=None if published is None else (allocated[0] - published[0], allocated[1] - published[1]),
                beyond=None if method == FGD else ((min(first), max(first)), (min(last), max(last))),
                waiting=mean(end.waiting for end in ends),
            )
        )
    fluid = Fluid(workload)
    most = [
        tuple(100 * fluid.most(workload.arrived(order, percent)) / workload.room for percent in _ARRIVED)
        for order in orders
    ]
    rows.append(Row(which, MOST, _by_moment(most, mean), None, None, None))
    return rows


def _by_moment(figures: Sequence[tuple[float, ...]], of: Callable[[list[float]], float]) -> tuple[float, float]:
    return of([each[0] for each in figures]), of([each[1] for each in figures])


def _method(name: str, workload: Workload) -> Method:
    return RoomWorth(workload) if name == WORTH else Fragments(workload, in_points=name == FGD)


def _print(rows: list[Row]) -> None:
    table = Table(title="openb: allocated thousandths of GPUs, in % of all, one pod after the other")
    for column in (
        "pods",
        "method",
        "at 100 %",
        "at 130 %",
        "from published",
        "beyond FGD, at 100 %",
        "at 130 %",
        "left",
    ):
        table.add_column(column, justify="left" if column in ("pods", "method") else "right")
    for row in rows:
        published = "" if row.published is None else "  ".join(f"{each:+.2f}" for each in row.published)
        beyond = ("", "") if row.beyond is None else tuple(f"{least:+.2f} to {most:+.2f}" for least, most in row.beyond)
        allocated = (f"{each:.2f}" for each in row.allocated)
        table.add_row(
            row.pods, row.method, *allocated, published, *beyond, "" if row.waiting is None else f"{row.waiting:.0f}"
        )
    console.print(table)


@click.command()
@click.argument("folder", metavar="DATA_DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--list", "lists", default="default,cpu100,gpushare40,gpushare80,gpuspec33,multigpu20", show_default=True,
              callback=options.words((*_PUBLISHED, *_UNPUBLISHED)), help="Which pods.")  # fmt: skip
@click.option("--method", "methods", default=f"{FGD},{WORTH}", show_default=True,
              callback=options.words((FGD, EXACT, WORTH)), help="How they are placed; FGD always.")  # fmt: skip
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(min=1), help="Orders of the pods.")
@click.option("--rounds", default="1", show_default=True, callback=options.numbers,
              help="Pods that worth knows together.")  # fmt: skip
@click.option("--all-nodes", is_flag=True, help="The nodes without GPUs too.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    folder: Path,
    lists: list[str],
    methods: list[str],
    seeds: int,
    rounds: list[int],
    all_nodes: bool,  # noqa: FBT001 - click passes flags so
    output: str,
) -> None:
    """Places the lists one by one or in rounds, and prints how much of the GPUs is in use."""
    told = conditions()
    rows: list[Row] = []
    for which in lists:
        workload = read_workload(nodes_file(folder), pods_file(folder, which), gpu_nodes_only=not all_nodes)
        rows += rows_of(which, workload, seeds, methods, rounds, authors_nodes=not all_nodes)
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": told, "rows": [asdict(row) for row in rows]}))
    else:
        _print(rows)
        print_conditions(told)


if __name__ == "__main__":
    main()
