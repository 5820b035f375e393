"""What an audit says after a day of the openb trace that was placed one by one, and what it takes.

    python bench/audits.py DATA_DIR
    python bench/audits.py DATA_DIR --list multigpu50 --percent 1,5

No cluster takes part. The day is that of openb_day.py: each pod gets the node that kube-scheduler would choose as it
comes (LeastAllocated), the fullest that fits (MostAllocated), or the one where the fragments of GPUs rise least (FGD).
It leaves after a time that is drawn for it. Then the cluster is audited as a dump, with moves of so many percent of the
day's pods. tools/verify_audit.py checks each audit.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from harness import greedy, options
from harness.conditions import conditions
from harness.errors import BenchError, run
from harness.openb_rounds import load
from harness.tables import console, print_conditions
from openb import LISTS, nodes_file, pods_file, read_nodes, read_pods, write_dump
from openb_day import Day, pass_day
from rich.table import Table
from thalweg.dumps.reader import read_dump
from thalweg_controlplane.client.objects import Manifest

from flowcore.model.amount_text import short_amount
from flowcore.questions.audit.answer_audit import AuditQuery, answer_audit
from flowcore.questions.scenario.context import AnswerContext

_VERIFIER = Path(__file__).parents[1] / "tools" / "verify_audit.py"
_OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "openb", "uid": "openb", "controller": True}
_EXPLAINED = {
    "at least": "by how many fewer there are once the audit's plan is carried out",
    "at most": "no plan does better",
    "CPU s": "of the whole audit, the dump is read before",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One finding of one audit."""

    placed: str
    moves: int
    finding: str
    now: int
    at_least: int
    at_most: int
    cpu_seconds: float


def _after_day(folder: Path, which: str, nodes_kept: int, runs_for: float, taste: greedy.Taste) -> list[Manifest]:
    """The cluster as the day ends."""
    trace = load(folder, which, aged=True)
    kept = trace.table.nodes[::nodes_kept]
    day = Day(trace, kept, None, runs_for, taste)
    end = pass_day(day, trace.pending)
    names, homes, waiting = {node.name for node in kept}, day.homes(), day.waiting()
    objects = [node for node in read_nodes(nodes_file(folder)) if node["metadata"]["name"] in names]
    for pod in read_pods(pods_file(folder, which), "default-scheduler"):
        key = f"default/{pod['metadata']['name']}"
        if key in homes:
            node, started = homes[key]
            pod["metadata"]["ownerReferences"] = [_OWNER]
            pod["spec"]["nodeName"] = node
            pod["status"] = {"phase": "Running", "startTime": _text(started)}
        elif key in waiting:
            pod["metadata"]["creationTimestamp"] = _text(end)
        else:
            continue
        objects.append(pod)
    return objects


def _text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _audit(objects: list[Manifest], taste: greedy.Taste, moves: int) -> list[Row]:
    """The findings of an audit, once its verifier has found them true."""
    with tempfile.TemporaryDirectory() as scratch:
        dump, audit = Path(scratch) / "now.json", Path(scratch) / "audit.json"
        write_dump(dump, objects)
        scenario = read_dump((str(dump),))
        before = time.process_time()
        answer = answer_audit(scenario, AuditQuery(moves), AnswerContext(scenario.moment))
        seconds = time.process_time() - before
        audit.write_bytes(msgspec.json.encode(answer))
        checked = subprocess.run([sys.executable, _VERIFIER, audit, dump], capture_output=True, text=True, check=False)
        if checked.returncode:
            raise BenchError(f"the verifier does not find the audit true: {checked.stdout}{checked.stderr}")
    return [
        Row(
            taste.value,
            moves,
            f"{finding.kind} {finding.resource}".strip(),
            finding.now,
            finding.at_least,
            finding.at_most,
            seconds,
        )
        for finding in answer.findings
    ]


def _print(rows: list[Row], title: str) -> None:
    table = Table(title=title)
    for column in ("placed", "finding"):
        table.add_column(column)
    for column in ("moves", "now", "at least", "at most", "CPU s"):
        table.add_column(column, justify="right")
    for row in rows:
        resource = row.finding.partition(" ")[2]
        figures = (short_amount(resource, figure) for figure in (row.now, row.at_least, row.at_most))
        table.add_row(row.placed, row.finding, str(row.moves), *figures, f"{row.cpu_seconds:.1f}")
    console.print(table)
    print_conditions({**_EXPLAINED, **conditions()})


@click.command()
@click.argument("folder", metavar="DATA_DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--list", "which", type=click.Choice(LISTS), default="default", show_default=True, help="Which pods.")
@click.option("--percent", default="1", show_default=True, callback=options.numbers,
              help="An audit's plan moves at most so many percent of the day's pods.")  # fmt: skip
@click.option("--runs-for", default=4.0, show_default=True, type=click.FloatRange(min=0.25), help="Hours, the mean.")
@click.option("--nodes-kept", default=4, show_default=True, type=click.IntRange(min=1), help="One node of so many.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(folder: Path, which: str, percent: list[int], runs_for: float, nodes_kept: int, output: str) -> None:
    """What placement one by one costs in a day, at least and at most."""
    rows = list[Row]()

    def measure() -> None:
        pods = len(read_pods(pods_file(folder, which)))
        for taste in (greedy.Taste.LEAST, greedy.Taste.MOST, greedy.Taste.FGD):
            objects = _after_day(folder, which, nodes_kept, runs_for, taste)
            for each in percent:
                rows.extend(_audit(objects, taste, pods * each // 100))

    run(measure)
    if output == "json":
        click.echo(msgspec.json.encode({"conditions": conditions(), "rows": [asdict(row) for row in rows]}))
        return
    _print(rows, f"After a day of openb {which}, mean run {runs_for:g} h, one node of {nodes_kept}")


if __name__ == "__main__":
    main()
