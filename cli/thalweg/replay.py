"""``thalweg replay``: plays a recorded round again."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
from thalweg_operator.cost_models import find_models
from thalweg_operator.record import Record, UnreadableRecord, differences, read
from thalweg_operator.wire import RoundReply
from thalweg_operator.worker import Replica, answer


def run_replay(path: Path, output: str) -> None:
    """Plays the round and says whether it gave the recorded plan; exit code 1 where not, 2 where it cannot be read."""
    try:
        record = read(path)
    except UnreadableRecord as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    again = answer(Replica(), record.request, find_models().usable)
    found = differences(record.reply, again)
    if output == "json":
        click.echo(msgspec.json.encode(as_json(record, again, found)))
    else:
        click.echo(
            f"round {record.request.number}: {len(again.placements)} placed, {len(again.left)} left, "
            f"cost {again.cost}, {again.steps} steps, {again.method}; "
            f"recorded in {record.reply.seconds:.3f} s, now {again.seconds:.3f} s"
        )
        click.echo("the recorded plan" if not found else "not the recorded plan: " + "; ".join(found))
    sys.exit(1 if found else 0)


def as_json(record: Record, again: RoundReply, found: list[str]) -> dict[str, object]:
    """What ``-o json`` prints."""
    keys = [waiting.key for waiting in record.request.waiting]
    return {
        "round": record.request.number,
        "generation": record.request.generation,
        "same": not found,
        "differences": found,
        "placements": {keys[at]: node for at, node, *_ in again.placements},
        "left": {keys[at]: again.reasons[reason] for at, reason in again.left},
        "cost": again.cost,
        "lowerBound": again.lower_bound,
        "steps": again.steps,
        "seconds": round(again.seconds, 6),
    }
