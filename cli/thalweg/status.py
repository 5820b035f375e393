"""``thalweg status``."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from rich.console import Console
from thalweg_view.pictures.policies import QueueRow
from thalweg_view.rounds import RoundRow
from thalweg_view.status import StatusAnswer, StatusQuery, answer_status
from thalweg_view.view_data import SourceInfo, ViewData

from flowcore.scenario import Scenario
from flowcore.scenario.context import AnswerContext
from thalweg.asking import tell
from thalweg.source import SourceOperation, SourceOptions
from thalweg.tables import counted, print_table, stdout_console


def of_dump(scenario: Scenario, query: StatusQuery, context: AnswerContext) -> StatusAnswer:
    """The status of a dump: no round has planned it."""
    return answer_status(ViewData(scenario, source=SourceInfo("dump")), query, context)


QUESTION = SourceOperation("status", StatusAnswer, of_dump, method="GET")


def run_status(source: SourceOptions, output: str, *, watch: bool) -> None:
    """Asks for the status and prints it."""
    tell(source, QUESTION, lambda _: StatusQuery(), show, output=output, watch=watch)


def show(answer: StatusAnswer) -> None:
    """Prints a status."""
    console = stdout_console()
    for line in summary(answer):
        console.print(line, markup=False)
    _show_table(console, ("POLICY", "DELIVERY", "RUNNING", "WAITING", "PLACED"), policy_rows(answer))
    for policy in answer.policies:
        if policy.held:
            console.print(f"{policy.name}: waiting Auto. {policy.held}", markup=False)
    _show_table(console, ("QUEUE", "USED", "FAIR", "BORROWED", "WAITING"), queue_rows(answer.queues))
    _show_table(console, ("PENDING FOR", "PODS"), code_rows(answer))


def _show_table(console: Console, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    if rows:
        console.print()
        print_table(console, header, rows)


def summary(answer: StatusAnswer) -> list[str]:
    """The cluster and the newest round in two or three lines."""
    overview = answer.overview
    pods = f"{counted(overview.running, 'running pod')}, {counted(overview.waiting, 'waiting pod')}"
    lines = [f"{counted(overview.nodes, 'node')}, {pods}"]
    if overview.version:
        lines.insert(0, f"Thalweg {overview.version}, {overview.source}: {overview.name}")
    if answer.rounds:
        newest = answer.rounds[0]
        pods = f"{newest.placed:,} placed, {newest.waiting:,} pending"
        lines.append(f"round {newest.number} at {_clock(newest)}: {pods}, {newest.seconds:.2f} s, {proof(newest)}")
    else:
        lines.append("no round yet")
    return lines


def policy_rows(answer: StatusAnswer) -> list[tuple[str, ...]]:
    """A row for each policy."""
    return [
        (each.name, each.delivery, "-" if each.running is None else f"{each.running:,}", f"{each.waiting:,}",
         f"{each.placed:,}")
        for each in answer.policies
    ]  # fmt: skip


def queue_rows(queues: list[QueueRow]) -> list[tuple[str, ...]]:
    """A row for each queue."""
    return [
        (each.name, f"{each.used_share:.1%}", f"{each.fair_share:.1%}", f"{each.borrowed_share:.1%}",
         f"{each.waiting:,}")
        for each in queues
    ]  # fmt: skip


def code_rows(answer: StatusAnswer) -> list[tuple[str, ...]]:
    """A row for each reason that pods wait for, the commonest first."""
    return [(code, f"{count:,}") for code, count in answer.overview.codes.items()]


def round_rows(answer: StatusAnswer) -> list[tuple[str, ...]]:
    """A row for each of the last rounds, the newest first."""
    return [
        (str(each.number), _clock(each), f"{each.placed:,}", f"{each.waiting:,}", f"{each.evicted:,}",
         f"{each.seconds:.2f} s", str(each.cost), proof(each))
        for each in answer.rounds
    ]  # fmt: skip


def proof(row: RoundRow) -> str:
    """How good a round's plan is for sure."""
    # Rounded up, so that a plan with a gap never shows none.
    return "certified" if row.certified else f"gap <= {math.ceil(row.gap * 1000) / 10:.1f} %"


def _clock(row: RoundRow) -> str:
    return datetime.fromtimestamp(row.time, UTC).strftime("%H:%M:%SZ")
