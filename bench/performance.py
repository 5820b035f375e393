"""Measures all that docs/reference/performance.md shows, and writes the page: one command.

    python bench/performance.py ~/results --openb DATA_DIR                 # measures what is missing, then writes
    python bench/performance.py ~/results --only engine --only gangs       # these only, and does not write
    python bench/performance.py ~/results --minutes 30                     # ends after the run that passes half an hour
    python bench/performance.py ~/results --write                          # writes from what was measured
    python bench/performance.py ~/results --only gangs --write             # writes the sections of these only
    python bench/performance.py ~/trial --trial --runs 1                   # do all commands work?

RESULTS_DIR keeps one JSON file for each run, in a folder of the commit. A run that is there is not measured again, so
the command may be ended and called again. The page is written when all measurements have a run at this commit; the
template is bench/performance.md. Nothing else may run on the machine: before each run the command waits until the cores
are idle.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from harness.errors import BenchError
from harness.figures.declared import TABLES
from harness.figures.measurements import MEASUREMENTS, Measurement, chosen
from harness.figures.results import Record, Results
from harness.plane import say

_BENCH = Path(__file__).parent
_PAGE = _BENCH.parent / "docs" / "reference" / "performance.md"
_TEMPLATE = _BENCH / "performance.md"
_MARK = re.compile(r"\{(?:(table) ([^}]+)|(conditions)|(cores))\}")
_SECTIONS = re.compile(r"(?m)^(?=#{2,3} )")
_NOT_MEASURED = "Not measured at this commit."
_TABLES = {table.name: table for table in TABLES}


def _commit() -> str:
    command = ["git", "-C", str(_BENCH), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def measure(results: Results, wanted: Sequence[Measurement], runs: int, openb: Path | None, minutes: float) -> bool:
    """The first runs of all measurements come first, then the second ones; False where one failed or time is over."""
    complete, deadline = True, time.monotonic() + 60 * minutes
    for run in range(1, runs + 1):
        for each in wanted:
            if (run > 1 and not each.repeats) or (each.needs_openb and openb is None):
                continue
            if results.file(each, run).exists():
                continue
            if time.monotonic() > deadline:
                say(f"{minutes:g} minutes are over")
                return False
            say(f"{each.name}, run {run} ...")
            try:
                results.measure(each, run, openb)
            except BenchError as error:
                say(f"{each.name}: {error}")
                complete = False
    return complete


def page(template: str, found: Mapping[str, Sequence[Record]]) -> str:
    """The template with its tables; a table without a run says so."""
    conditions = [run["conditions"] for runs in found.values() for run in runs]

    def filled(mark: re.Match[str]) -> str:
        if mark[1]:
            table = _TABLES[mark[2]]
            runs = found[table.measurement]
            return table.markdown(runs) + _runs(runs) if runs else _NOT_MEASURED
        return _conditions(conditions) if mark[3] else _cores(conditions)

    return _MARK.sub(filled, template)


def with_sections(written: str, template: str, found: Mapping[str, Sequence[Record]]) -> str:
    """The written page with some sections anew: those with a table of these measurements that has a run.

    Such tables name the commit of their runs, as that of the page is another one. Others there say that they have none.

    Raises:
        BenchError: the page has no section with the heading of the template.
    """
    sections = _SECTIONS.split(written)
    places = {_heading(section): place for place, section in enumerate(sections)}
    for section in _SECTIONS.split(template):
        tables = [_TABLES[mark[2]] for mark in _MARK.finditer(section) if mark[1]]
        conditions = [run["conditions"] for table in tables for run in found.get(table.measurement) or ()]
        if not conditions:
            continue

        def filled(mark: re.Match[str], conditions: Sequence[Mapping[str, str]] = conditions) -> str:
            if not mark[1]:
                return _cores(conditions)
            table = _TABLES[mark[2]]
            runs = found.get(table.measurement)
            if not runs:
                return _NOT_MEASURED
            return table.markdown(runs) + _runs(runs, _conditions([run["conditions"] for run in runs]))

        anew = _MARK.sub(filled, section)
        if _heading(anew) not in places:
            raise BenchError(f"the page has no section {_heading(anew)}: write all of it")
        sections[places[_heading(anew)]] = anew
    return "".join(sections)


def _cores(conditions: Sequence[Mapping[str, str]]) -> str:
    return conditions[0]["cores"].split()[0]


def _heading(section: str) -> str:
    return section.partition("\n")[0]


def _runs(runs: Sequence[Record], conditions: str = "") -> str:
    shares = sorted(int(run["conditions"]["busy with other work"].partition("%")[0]) for run in runs)
    count = "one run" if len(runs) == 1 else f"medians of {len(runs)} runs"
    own = f" {conditions}" if conditions else ""
    return f"\n\n({count}; cores busy with other work: {shares[0]} to {shares[-1]} %){own}"


def _conditions(conditions: Sequence[Mapping[str, str]]) -> str:
    """What is the same for all, in sentences.

    Raises:
        BenchError: the runs are of several commits or machines.
    """
    said = []
    for name in ("thalweg", "processor", "kubernetes", "python"):
        values = {each[name] for each in conditions if name in each}
        if len(values) > 1:
            raise BenchError(f"the runs have several values of {name}: {', '.join(sorted(values))}")
        said += [f"{name} {values.pop()}"] if values else []
    dates = sorted(each["date"] for each in conditions)
    when = f"from {dates[0]} to {dates[-1]}" if dates[0] != dates[-1] else f"at {dates[0]}"
    return f"{'; '.join(said)}. Measured {when}."


@click.command()
@click.argument("folder", metavar="RESULTS_DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--openb", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DATA_DIR",
              help="The production trace; without it its tables are missing.")  # fmt: skip
@click.option("--runs", default=5, show_default=True, type=click.IntRange(min=1), help="Of what varies between runs.")
@click.option("--only", multiple=True, type=click.Choice([each.name for each in MEASUREMENTS]),
              help="These measurements only.")  # fmt: skip
@click.option("--minutes", default=1e6, metavar="N", help="No run begins after so many minutes.  [default: no limit]")
@click.option("--commit", help="Whose results; default: this one's.")
@click.option("--trial", is_flag=True, help="Small sizes, only to see whether all commands work; writes no page.")
@click.option("--write", is_flag=True, help="Measures nothing, writes the page from what there is.")
def main(
    folder: Path,
    openb: Path | None,
    runs: int,
    only: tuple[str, ...],
    minutes: float,
    commit: str | None,
    *,
    trial: bool,
    write: bool,
) -> None:
    """Measures what is missing in RESULTS_DIR and writes docs/reference/performance.md."""
    results = Results(folder / (commit or _commit()), trial)
    complete = write or measure(results, list(chosen(only)), runs, openb, minutes)
    if trial or (only and not write):
        sys.exit(not complete)
    found = {measurement.name: results.runs(measurement) for measurement in chosen(only)}
    missing = [name for name, kept in found.items() if not kept]
    if missing and not write:
        raise click.ClickException(f"the page is not written; without a run: {', '.join(missing)}")
    try:
        template = _TEMPLATE.read_text().partition("\n")[2]  # its first line is not for the page
        _PAGE.write_text(with_sections(_PAGE.read_text(), template, found) if only else page(template, found))
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    say(f"{_PAGE.relative_to(_BENCH.parent)} is written" + (f"; not measured: {', '.join(missing)}" if missing else ""))


if __name__ == "__main__":
    main()
