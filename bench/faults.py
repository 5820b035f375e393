"""How long it takes until everything runs after a fault: the fault tests, timed.

    python bench/faults.py
    python bench/faults.py --only worker

While pods of both deliveries and gangs arrive that fill a cluster exactly, something breaks. Time runs from when it is
mended until every pod that can run is bound; 0 means that all were bound before. The tests also check that no pod is
bound twice, no node is overcommitted, gangs are whole or absent, and memory is back.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import msgspec
from harness.conditions import conditions
from harness.tables import console, print_conditions
from rich.table import Table

_ROOT = Path(__file__).parents[1]
_COLUMNS = ("fault", "seconds to converge", "MiB before", "MiB after")


def _run(only: str, report: Path) -> int:
    """Pytest's exit code."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-q",
        "tests/faults/test_faults.py",
    ]
    command += [
        "-o",
        "junit_family=xunit1",
        f"--junit-xml={report}",
        "-m",
        "slow",
        *(["-k", only] if only else []),
    ]
    return subprocess.run(command, cwd=_ROOT, check=False, stdout=sys.stderr).returncode


def _rows(report: Path) -> list[dict[str, str]]:
    """The properties of the tests that passed."""
    cases = ET.parse(report).iter("testcase")  # noqa: S314 - written by pytest a moment ago
    rows = [{each.attrib["name"]: each.attrib["value"] for each in case.iter("property")} for case in cases]
    return [row for row in rows if row]


@click.command()
@click.option("--only", default="", metavar="WORD", help="Faults whose name has this word.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(only: str, output: str) -> None:
    """Measures the time to converge after each fault."""
    told = conditions()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        code = _run(only, report)
        rows = _rows(report) if report.exists() else []
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.encode({"conditions": told, "rows": rows}) + b"\n")
        sys.exit(code)
    table = Table(title="After a fault")
    for at, name in enumerate(_COLUMNS):
        table.add_column(name, justify="right" if at else "left")
    for row in rows:
        table.add_row(*(row.get(name, "") for name in _COLUMNS))
    console.print(table)
    print_conditions(told)
    sys.exit(code)


if __name__ == "__main__":
    main()
