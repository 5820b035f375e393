"""What more cores give a round: the same wall time on one core and on several, side by side.

    python bench/cores.py                       # 1 and 2 cores, and what 4, 8 and 16 would give
    python bench/cores.py --cores 1 --cores 4   # on a machine with more cores

Each instance is planned on every number of cores with the same budget in wall time, by turns; the median round by steps
counts. The second table is computed from one round on one core, whose tasks are timed (harness/timeline.py): how many
steps end within the budget on so many cores, and what the plan after these steps costs. That table does not depend on
how busy the machine is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import click
from harness.budget import USUAL
from harness.conditions import conditions
from harness.instances import Size, make
from harness.tables import console, print_conditions
from harness.timeline import record, step_ends
from rich.table import Table

from flowcore.cluster.snapshot import Snapshot
from flowcore.planning import Round, RoundResult, run_round
from thalweg_executor.forked import ForkedExecutor

#: Nodes, pending, classes, running, load.
INSTANCES = (
    (100, 1_000, 50, 0, 1.0),
    (600, 10_000, 50, 0, 1.1),
    (1_000, 5_000, 100, 10_000, 1.1),
    (5_000, 5_000, 100, 50_000, 1.1),
)
SIMULATED = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Row:
    """A round of an instance on some cores."""

    cores: int
    steps: int
    left: int
    cost: int
    gap: float
    seconds: float


def planned(snapshot: Snapshot, cores: int, budget: float) -> Row:
    """A round in the worker's way, with nothing cached."""
    began = time.perf_counter()
    with ForkedExecutor(cores) as executor:
        this = Round(snapshot, executor=executor)
        while this.step() and time.perf_counter() - began < budget:
            pass
    result = this.result()
    return _row(result, cores, time.perf_counter() - began)


def _row(result: RoundResult, cores: int, seconds: float) -> Row:
    return Row(cores, result.steps, len(result.unplaced), result.cost, result.gap, seconds)


def measured(snapshot: Snapshot, cores: tuple[int, ...], budget: float, repeat: int) -> list[Row]:
    """The median round by steps, of rounds on all numbers of cores by turns."""
    rounds = [[planned(snapshot, number, budget) for number in cores] for _ in range(repeat)]
    return [sorted(rows, key=lambda row: row.steps)[repeat // 2] for rows in zip(*rounds, strict=True)]


def simulated(snapshot: Snapshot, budget: float) -> list[Row]:
    """What the budget would give on more cores."""
    events = record(snapshot, budget * max(SIMULATED))
    rows: list[Row] = []
    for cores in SIMULATED:
        ends = [end for end in step_ends(events, cores) if end <= budget]
        steps = max(1, len(ends))
        if rows and rows[-1].steps == steps:
            rows.append(Row(cores, steps, rows[-1].left, rows[-1].cost, rows[-1].gap, rows[-1].seconds))
        else:
            rows.append(_row(run_round(snapshot, steps=steps), cores, ends[-1] if ends else 0.0))
    return rows


def show(title: str, rows: list[tuple[str, list[Row]]]) -> None:
    table = Table(title=title, caption="case: nodes / pending / classes / running; load")
    for name in ("case", "cores", "steps", "left", "cost", "against one core", "gap", "s"):
        table.add_column(name, justify="left" if name == "case" else "right")
    for case, found in rows:
        for row in found:
            against = f"{row.cost / found[0].cost - 1:+.2%}" if found[0].cost else ""
            table.add_row(
                case, str(row.cores), str(row.steps), f"{row.left:,}", f"{row.cost:,}", against, f"{row.gap:.1%}",
                f"{row.seconds:.2f}",
            )  # fmt: skip
        table.add_section()
    console.print(table)


@click.command()
@click.option("--cores", multiple=True, type=click.IntRange(min=1), default=(1, 2), show_default=True,
              help="Numbers of cores to measure.")  # fmt: skip
@click.option("--budget", default=USUAL, show_default=True, help="Seconds of each round.")
@click.option("-n", "--repeat", default=3, show_default=True, help="Rounds of each number of cores.")
@click.option("--instances", default=len(INSTANCES), show_default=True, type=click.IntRange(1, len(INSTANCES)),
              help="How many of the instances, the smallest first.")  # fmt: skip
@click.option("--simulate/--no-simulate", default=True, show_default=True, help="The second table.")
def main(cores: tuple[int, ...], budget: float, repeat: int, instances: int, *, simulate: bool) -> None:
    """Rounds with the same budget on one core and on several."""
    before = conditions()
    found, computed = [], []
    for *size, load in INSTANCES[:instances]:
        this = Size(*size, load=load)
        snapshot = make(this).snapshot
        found.append((f"{this}; {load}", measured(snapshot, cores, budget, repeat)))
        if simulate:
            computed.append((f"{this}; {load}", simulated(snapshot, budget)))
    show(f"Measured, {budget:g} s of wall time", found)
    if simulate:
        show(f"Computed from one round on one core, {budget:g} s", computed)
    print_conditions(before)


if __name__ == "__main__":
    main()
