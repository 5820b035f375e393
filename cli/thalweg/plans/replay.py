"""``thalweg replay``: replays a recorded round."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
from thalweg_operator.planning.reports.record import RoundRecord, UnreadableRecord, differences, read_record
from thalweg_operator.planning.worker.messages import RoundReply, document_of
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica

from thalweg.terminal.documents import print_document
from thalweg.terminal.progress import passing
from thalweg.terminal.telling import tell_error
from thalweg_cost_models import find_models


def run_replay(path: Path, output: str) -> None:
    """Replays the round and compares the plans. Exit code 1: the plans differ; 2: the record cannot be read."""
    try:
        record = read_record(path)
    except UnreadableRecord as error:
        tell_error(error)
        sys.exit(2)
    with passing("planning the round again", record.reply.seconds):
        again = run_request(Replica(), record.request, find_models().usable)
    sentences = differences(record.reply, again)
    if output != "table":
        print_document(as_json(record, again, sentences), output)
    else:
        click.echo(
            f"round {record.request.number}: {len(again.placements)} placed, {len(again.unplaced)} pending, "
            f"cost {again.cost}, {again.steps} steps, {again.method}; "
            f"recorded in {record.reply.seconds:.3f} s, now {again.seconds:.3f} s"
        )
        if again.left_at_least is not None and again.left_at_least.sentence:
            click.echo(again.left_at_least.sentence)
        click.echo("same plan as recorded" if not sentences else "different plan: " + "; ".join(sentences))
    sys.exit(1 if sentences else 0)


def as_json(record: RoundRecord, again: RoundReply, sentences: list[str]) -> dict[str, object]:
    """The output of ``-o json``; ``sentences``: the differences."""
    plan = document_of(record.request, again)
    return {
        "round": record.request.number,
        "generation": record.request.generation,
        "same": not sentences,
        "differences": sentences,
        "placements": plan.nodes_by_pod(),
        "waiting": plan.reasons_by_pod(),
        "cost": again.cost,
        "lowerBound": again.lower_bound,
        "leftAtLeast": msgspec.to_builtins(again.left_at_least),
        "steps": again.steps,
        "seconds": round(again.seconds, 6),
    }
