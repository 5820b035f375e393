"""What more cores give a round: the same wall time on one core and on several, side by side.

    python bench/cores.py                       # 1 and 2 cores, and what 4, 8 and 16 would give
    python bench/cores.py --cores 1 --cores 4   # on a machine with more cores
    python bench/cores.py --budget 1 -n 5 --no-simulate -o json

Each instance is planned on every number of cores with the same budget in wall time, by turns. So a round on several
cores has a partner on one core that met the same load of the machine, and pairs are compared: whose plan is cheaper,
and how long the steps took that both did. A round after the same number of steps must have the same plan; else the
command fails. The last instance has room for all pods, so its rounds search little: they show what children cost.

The second table is computed from one round on one core, whose tasks are timed (harness/timeline.py): how many steps
end within the budget on so many cores, and what the plan after these steps costs. That table does not depend on how
busy the machine is.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import click
import msgspec
from harness.budget import USUAL
from harness.conditions import conditions
from harness.errors import BenchError, run
from harness.instances import Size, make
from harness.tables import console, print_conditions
from harness.timeline import record, step_ends
from rich.table import Table

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.planning.round import Round, RoundResult, run_round
from thalweg_executor.forked import ForkedExecutor

#: Nodes, pending, classes, running, load.
INSTANCES = (
    (100, 1_000, 50, 0, 1.0),
    (600, 10_000, 50, 0, 1.1),
    (1_000, 5_000, 100, 10_000, 1.1),
    (5_000, 5_000, 100, 50_000, 1.1),
    (5_000, 1_000, 50, 50_000, 0.7),
)
SIMULATED = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Row:
    """Rounds of an instance on some cores: medians.

    Attributes:
        part: measured or computed.
        case: nodes / pending / classes / running.
        left: pods without a node.
        gap: part of the cost above the lower bound.
        seconds: wall time of the round; of a computed one when its last step would end.
        against: cost against that of the round on one core of the same turn, 0 for the same; the median.
        cheaper, dearer: turns in which the plan was cheaper than on one core, and dearer.
        pace: wall time of the steps that both rounds of a turn took, over that on one core; the median.
    """

    part: str
    case: str
    load: float
    cores: int
    steps: int
    left: int
    cost: int
    gap: float
    seconds: float
    against: float = 0.0
    cheaper: int = 0
    dearer: int = 0
    pace: float | None = None


@dataclass(frozen=True, slots=True)
class _Planned:
    """A round, and when each of its steps ended."""

    result: RoundResult
    ends: tuple[float, ...]


def planned(snapshot: Snapshot, cores: int, budget: float) -> _Planned:
    """A round in the worker's way, with nothing cached."""
    began, ends = time.perf_counter(), [0.0]
    with ForkedExecutor(cores) as executor:
        this = Round(snapshot, executor=executor)
        while ends[-1] < budget and this.step():
            ends.append(time.perf_counter() - began)
        result = this.result()
    return _Planned(result, tuple(ends[1:]))


def measured(size: Size, snapshot: Snapshot, cores: Sequence[int], budget: float, repeat: int) -> list[Row]:
    """A row for each number of cores, compared with the first.

    Raises:
        BenchError: two rounds of as many steps have different plans.
    """
    turns = [[planned(snapshot, number, budget) for number in cores] for _ in range(repeat)]
    seen: dict[int, RoundResult] = {}
    for each in (this.result for turn in turns for this in turn):
        first = seen.setdefault(each.steps, each)
        if (first.cost, first.placements) != (each.cost, each.placements):
            raise BenchError(f"{size}: two plans after {each.steps} steps")
    rows = []
    for at, number in enumerate(cores):
        pairs = [(turn[0], turn[at]) for turn in turns]
        results = [other.result for _, other in pairs]
        against = [other.result.cost / max(one.result.cost, 1) - 1 for one, other in pairs]
        rows.append(
            Row(
                part="measured",
                case=str(size),
                load=size.load,
                cores=number,
                steps=_median([each.steps for each in results]),
                left=_median([len(each.unplaced) for each in results]),
                cost=_median([each.cost for each in results]),
                gap=statistics.median(each.gap for each in results),
                seconds=statistics.median(other.ends[-1] for _, other in pairs),
                against=statistics.median(against),
                cheaper=sum(each < 0 for each in against),
                dearer=sum(each > 0 for each in against),
                pace=statistics.median(_pace(one.ends, other.ends) for one, other in pairs) if at else None,
            )
        )
    return rows


def _median(values: Sequence[int]) -> int:
    return statistics.median_low(values)


def _pace(one: Sequence[float], other: Sequence[float]) -> float:
    both = min(len(one), len(other)) - 1
    return other[both] / one[both]


def simulated(size: Size, snapshot: Snapshot, budget: float) -> list[Row]:
    """What the budget would give on more cores."""
    events = record(snapshot, budget * max(SIMULATED))
    rows: list[Row] = []
    for cores in SIMULATED:
        ends = [end for end in step_ends(events, cores) if end <= budget]
        steps, seconds = max(1, len(ends)), ends[-1] if ends else 0.0
        if rows and rows[-1].steps == steps:
            rows.append(replace(rows[-1], cores=cores))
            continue
        found = run_round(snapshot, steps=steps)
        against = found.cost / max(rows[0].cost, 1) - 1 if rows else 0.0
        rows.append(
            Row(
                "computed", str(size), size.load, cores, steps, len(found.unplaced), found.cost, found.gap, seconds,
                against,
            )
        )  # fmt: skip
    return rows


def show(title: str, rows: Sequence[Row]) -> None:
    """A table."""
    table = Table(title=title, caption="case: nodes / pending / classes / running")
    for name in ("case", "load", "cores", "steps", "left", "cost", "against one core", "cheaper", "dearer", "gap", "s",
                 "pace"):  # fmt: skip
        table.add_column(name, justify="left" if name == "case" else "right")
    for at, row in enumerate(rows):
        if at and row.cores <= rows[at - 1].cores:
            table.add_section()
        table.add_row(
            row.case, str(row.load), str(row.cores), str(row.steps), f"{row.left:,}", f"{row.cost:,}",
            f"{row.against:+.2%}", str(row.cheaper), str(row.dearer), f"{row.gap:.1%}", f"{row.seconds:.2f}",
            "" if row.pace is None else f"{row.pace:.2f}",
        )  # fmt: skip
    console.print(table)


@click.command()
@click.option("--cores", multiple=True, type=click.IntRange(min=1), default=(1, 2), show_default=True,
              help="Numbers of cores to measure; others are compared with the first.")  # fmt: skip
@click.option("--budget", default=USUAL, show_default=True, help="Seconds of each round.")
@click.option("-n", "--repeat", default=5, show_default=True, type=click.IntRange(min=1), help="Turns.")
@click.option("--instances", default=len(INSTANCES), show_default=True, type=click.IntRange(1, len(INSTANCES)),
              help="How many of the instances, the smallest first.")  # fmt: skip
@click.option("--simulate/--no-simulate", default=True, show_default=True, help="The second table.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(cores: tuple[int, ...], budget: float, repeat: int, instances: int, output: str, *, simulate: bool) -> None:
    """Rounds with the same budget on one core and on several."""
    told = conditions()
    found: list[Row] = []
    computed: list[Row] = []
    for *shape, load in INSTANCES[:instances]:
        size = Size(*shape, load=load)
        snapshot = make(size).snapshot
        found += measured(size, snapshot, cores, budget, repeat)
        if simulate:
            computed += simulated(size, snapshot, budget)
    if output == "json":
        rows = [asdict(row) for row in (*found, *computed)]
        sys.stdout.buffer.write(msgspec.json.encode({"conditions": told, "rows": rows}) + b"\n")
        return
    show(f"Measured, {budget:g} s of wall time", found)
    if simulate:
        show(f"Computed from one round on one core, {budget:g} s", computed)
    print_conditions(told)


if __name__ == "__main__":
    run(main)
