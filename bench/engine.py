"""The engine's figures: one command, one table. No cluster is needed.

    python bench/engine.py                         # everything but openb
    python bench/engine.py --openb DATA_DIR        # openb too
    python bench/engine.py --sizes --growth -n 3

Parts: `sizes` (rounds over generated clusters, CPU time and peak memory), `bounds` (the same with the usual budget),
`rules` (with rules between pods and gangs), `networks` (where a cost model's own network decides), `growth` (the same
batch on 1,250 and on 12,500 nodes, the worker's state kept), `classes` (the same batch in 1 to 1,000 classes, another
in up to 3,000), `quality` (small instances beside what CP-SAT proves), `openb` (a production trace beside one-by-one
placement).
docs/reference/performance.md says what the columns mean, the modules in harness/ how instances are made and checked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import msgspec
from harness.conditions import conditions
from harness.instances import Size
from harness.jobs import DrawnJob, Job, NetworkJob, OpenbJob, QualityJob, SizeJob, WarmJob
from harness.plane import say
from harness.rows import Row
from harness.tables import console, print_conditions
from openb import LISTS
from rich.console import Console
from rich.markup import escape
from rich.table import Table

PARTS = ("sizes", "bounds", "rules", "networks", "growth", "classes", "quality", "openb")
LOADS = (0.7, 1.1)
QUALITY_LOADS = (0.6, 0.9, 1.0, 1.2)
#: Nodes, pending, classes, running; CPU seconds and peak GB to reach.
SIZES = (
    ((600, 10_000, 50, 0), 0.3, None),
    ((2_700, 35_000, 100, 0), 1.5, None),
    ((5_000, 1_000, 50, 50_000), 0.12, None),
    ((12_500, 100, 10, 150_000), 0.03, None),
    ((12_500, 20_000, 200, 150_000), 2.5, 1.5),
)
#: With rules between pods and gangs.
RULED = ((600, 2_000, 48, 2_000), (5_000, 5_000, 100, 50_000))
#: Under a network with limits, minimums and gains that a cost model draws, without gangs and with them.
NETWORKS = (100, 300, 12, 300), (1_000, 3_000, 50, 3_000)
#: Beside the same round without a network; and how many racks the nodes are in.
DRAWN, RACKS = (((12_500, 2_000, 50, 0), 0.1), ((1_000, 3_000, 50, 0), 1.1)), 40
#: The same pods on a tenth of the nodes, and how much more the larger cluster may cost.
GROWTH = ((1_250, 100, 10, 15_000), (12_500, 100, 10, 150_000))
GROWTH_GOAL = 1.5
CLASSES = (1, 10, 100, 1_000)
#: On few nodes, with the time for the steps that know the relaxation: of over 200 classes it takes alike ones for one.
MANY_CLASSES, MANY_LOAD, MANY_BUDGET = (290, 310, 1_000, 3_000), 1.3, 5.0


@dataclass(frozen=True, slots=True)
class Choice:
    """What the command line asks for; its options say what each is."""

    parts: tuple[str, ...]
    repeat: int
    seed: int
    spread: bool
    openb: Path | None
    which: str
    arrivals: int
    cpsat_seconds: float

    def size(self, nodes: int, pending: int, classes: int, running: int, load: float) -> Size:
        """A generated cluster."""
        return Size(nodes, pending, classes, running, load=load, seed=self.seed, spread=self.spread)


def jobs(choice: Choice) -> Iterator[tuple[str, Job]]:
    """What there is to do, each with a name for people: its part, then what it is."""
    if "sizes" in choice.parts:
        for row, seconds, gigabytes in SIZES:
            for load in LOADS:
                size = choice.size(*row, load)
                yield f"sizes: {size}, load {load}", SizeJob("sizes", size, choice.repeat, seconds, gigabytes)
    if "bounds" in choice.parts:
        for row, _, _ in SIZES:
            for load in LOADS:
                size = choice.size(*row, load)
                yield f"bounds: {size}, load {load}", SizeJob("bounds", size, choice.repeat)
    if "rules" in choice.parts:
        for row in RULED:
            for load in LOADS:
                size = choice.size(*row, load)
                yield f"rules: {size}, load {load}", SizeJob("rules", size, choice.repeat, ruled=True)
    if "networks" in choice.parts:
        for row in NETWORKS:
            for load in LOADS:
                for gangs in (False, True):
                    size = replace(choice.size(*row, load), spread=False)
                    name = f"networks: {size}, load {load}{', gangs' if gangs else ''}"
                    yield name, NetworkJob(size, choice.repeat, gangs)
        for row, load in DRAWN:
            size = replace(choice.size(*row, load), spread=False, zones=RACKS)
            yield f"networks: {size}, load {load}, drawn by policies", DrawnJob(size, choice.repeat)
    if "growth" in choice.parts:
        for row in GROWTH:
            size = choice.size(*row, LOADS[0])
            yield f"growth: {size}", WarmJob(size, 5 + 5 * choice.repeat)
    if "classes" in choice.parts:
        for classes in CLASSES:
            for load in LOADS:
                size = choice.size(5_000, 5_000, classes, 50_000, load)
                yield f"classes: {size}, load {load}", SizeJob("classes", size, choice.repeat)
        for classes in MANY_CLASSES:
            size = replace(choice.size(1_000, 8_000, classes, 0, MANY_LOAD), spread=False)
            name = f"classes: {size}, load {MANY_LOAD}"
            yield name, SizeJob("classes", size, choice.repeat, budget=MANY_BUDGET)
    if "quality" in choice.parts:
        for load in QUALITY_LOADS:
            yield f"quality: load {load}", QualityJob(load, 5, choice.cpsat_seconds, os.cpu_count() or 1)
    if "openb" in choice.parts and choice.openb is not None:
        for each in (0, choice.arrivals):
            name = f"openb: {choice.which}, " + (f"rounds of {each} arrivals" if each else "all at once")
            yield name, OpenbJob(str(choice.openb.resolve()), choice.which, each)


def do(name: str, job: Job, limit: float) -> list[Row]:
    """A job in a fresh process. One that takes too long or fails has a row that says so."""
    command = [sys.executable, "-m", "harness.jobs"]
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(job), stdout=subprocess.PIPE, cwd=Path(__file__).parent,
            timeout=limit, check=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [_missing(name, job, f"over {limit:g} s")]
    except subprocess.CalledProcessError as error:
        return [_missing(name, job, f"failed with exit code {error.returncode}")]
    return msgspec.json.decode(done.stdout, type=list[Row])


def _missing(name: str, job: Job, what: str) -> Row:
    part, _, case = name.partition(": ")
    row = Row(part=part, case=case, method="", note=what, reached=False)
    if isinstance(job, SizeJob):
        row.case, row.load = str(job.size), job.size.load
        row.goal = f"{job.goal_seconds:g} s" if job.goal_seconds else ""
    return row


def compare_growth(rows: list[Row]) -> None:
    """Sets the larger cluster's cost beside the smaller one's."""
    found = [row for row in rows if row.part == "growth" and row.cpu_seconds is not None]
    if len(found) == len(GROWTH):
        small, large = found
        assert small.cpu_seconds
        assert large.cpu_seconds
        ratio = large.cpu_seconds / small.cpu_seconds
        large.goal, large.reached = f"{GROWTH_GOAL}x", ratio <= GROWTH_GOAL
        large.note = f"{ratio:.2f}x; {large.note}"


#: Columns: what is above them, what is in them.
COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("part", lambda row: row.part),
    ("case", lambda row: row.case),
    ("load", lambda row: _cell(row.load)),
    ("method", lambda row: row.method),
    ("placed", lambda row: _cell(row.placed)),
    ("left", lambda row: _cell(row.left)),
    ("fewest", lambda row: _cell(row.fewest)),
    ("GPUs", lambda row: _cell(row.gpus)),
    ("stranded", lambda row: _cell(row.stranded)),
    ("CPU s", lambda row: "" if row.cpu_seconds is None else f"{row.cpu_seconds:.3f}"),
    ("again", lambda row: "" if row.again_seconds is None else f"{row.again_seconds:.3f}"),
    ("goal", lambda row: row.goal if row.reached is None else f"{row.goal}: {'yes' if row.reached else 'NO'}"),
    ("peak MiB", lambda row: "" if row.peak_mib is None else f"{row.peak_mib:.0f}"),
    ("solves", lambda row: _cell(row.solves)),
    ("cost", lambda row: _cell(row.cost)),
    ("gap", lambda row: "certified" if row.certified else "" if row.gap is None else f"{row.gap:.2%}"),
    ("safe", lambda row: row.safe or ""),
    ("note", lambda row: row.note),
)
_LEFT = ("part", "case", "method", "goal", "safe", "note")


def print_table(rows: list[Row]) -> None:
    """All rows; columns that none of them has are left out."""
    table = Table(title="The engine", caption="case: nodes / pending / classes / running")
    cells = {name: [cell(row) for row in rows] for name, cell in COLUMNS}
    shown = [name for name, column in cells.items() if any(column)]
    for name in shown:
        table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=name != "safe")
    for at, row in enumerate(rows):
        if at and row.part != rows[at - 1].part:
            table.add_section()
        table.add_row(*(escape(cells[name][at]) for name in shown))
    # Where nobody looks on, nothing is cut off.
    wide = console if console.is_terminal else Console(width=Console(width=1_000).measure(table).maximum)
    wide.print(table)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


@click.command()
@click.option("--sizes", "parts", flag_value="sizes", multiple=True, help="Rounds over generated clusters.")
@click.option("--bounds", "parts", flag_value="bounds", multiple=True, help="The same with the usual budget.")
@click.option("--rules", "parts", flag_value="rules", multiple=True, help="With rules between pods, and gangs.")
@click.option("--networks", "parts", flag_value="networks", multiple=True, help="Under networks that are drawn.")
@click.option("--growth", "parts", flag_value="growth", multiple=True, help="One batch on few and on many nodes.")
@click.option("--classes", "parts", flag_value="classes", multiple=True, help="One batch in 1 to 1,000 classes.")
@click.option("--quality", "parts", flag_value="quality", multiple=True, help="Small instances beside CP-SAT.")
@click.option(
    "--openb",
    metavar="DATA_DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The production trace; see the README for its files.",
)
@click.option("--only", metavar="TEXT", default="", help="Rows whose name has this in it; --dry-run prints names.")
@click.option("--dry-run", is_flag=True, help="Prints the rows' names.")
@click.option(
    "-n",
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Rounds a row, each with nothing cached; the median counts.",
)
@click.option("--limit", default=180.0, show_default=True, help="Seconds after which a row is given up.")
@click.option("--seed", default=1, show_default=True, help="Of the generated clusters.")
@click.option("--spread/--no-spread", default=True, show_default=True,
              help="A tenth of the generated classes spread over zones (DoNotSchedule).")  # fmt: skip
@click.option("--list", "which", type=click.Choice(LISTS), default="default", show_default=True, help="openb's pods.")
@click.option(
    "--arrivals",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Pods that come between two rounds (openb).",
)
@click.option("--cpsat-seconds", default=8.0, show_default=True, help="CP-SAT's time for an instance (quality).")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(
    parts: tuple[str, ...],
    openb: Path | None,
    only: str,
    dry_run: bool,  # noqa: FBT001 - click passes flags so
    repeat: int,
    limit: float,
    seed: int,
    spread: bool,  # noqa: FBT001
    which: str,
    arrivals: int,
    cpsat_seconds: float,
    output: str,
) -> None:
    """Measures the engine. No part named: all of them, openb where DATA_DIR is given."""
    if openb is not None and parts:
        parts = (*parts, "openb")
    choice = Choice(parts or PARTS, repeat, seed, spread, openb, which, arrivals, cpsat_seconds)
    todo = [(name, job) for name, job in jobs(choice) if only in name]
    if dry_run:
        for name, _ in todo:
            print(name)
        return
    told = {
        **conditions(),
        "cores": f"{os.cpu_count()}; CPU seconds are those of all threads together",
        "runs": f"median of {repeat}, seed {seed}; a row is given up after {limit:g} s",
        "zone spread": "a tenth of the classes" if spread else "none",
    }
    rows: list[Row] = []
    for name, job in todo:
        say(f"{name} ...")
        rows += do(name, job, limit)
    compare_growth(rows)
    if output == "json":
        print(msgspec.json.encode({"conditions": told, "rows": rows}).decode())
    else:
        print_table(rows)
        print_conditions(told)
    if any(row.safe is not None and not row.safe.startswith("yes") for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
