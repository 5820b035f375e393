"""``thalweg status``."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import partial

from rich.console import Console
from thalweg_view.pictures.policies import QueueRow
from thalweg_view.rounds import RoundHistory, RoundRow
from thalweg_view.status import StatusAnswer, StatusQuery, answer_status
from thalweg_view.view_data import SourceInfo, ViewData

from flowcore.questions.scenario import Scenario, plan_scenario
from flowcore.questions.scenario.context import AnswerContext
from thalweg.asking import tell
from thalweg.source import SourceOperation, SourceOptions
from thalweg.tables import MAX_ROWS, counted, print_table, print_truncated, stdout_console
from thalweg.workload_tables import print_workloads


def of_dump(scenario: Scenario, query: StatusQuery, context: AnswerContext) -> StatusAnswer:
    """The status of a dump, with the plan of ``thalweg plan`` as its only round."""
    rounds = RoundHistory()
    plan = plan_scenario(scenario, context.now, context.models)
    rounds.put(plan.document(seconds=0.0))
    return answer_status(ViewData(scenario, rounds, SourceInfo("dump")), query, context)


QUESTION = SourceOperation("status", StatusAnswer, of_dump, method="GET")


def run_status(source: SourceOptions, output: str, *, watch: bool, pods: bool = False) -> None:
    """Asks for the status and prints it."""
    tell(source, QUESTION, lambda _: StatusQuery(pods), partial(show, pods=pods), output=output, watch=watch)


def show(answer: StatusAnswer, *, pods: bool = False) -> None:
    """Prints a status; what waits by workload, or all pods."""
    console = stdout_console()
    for line in summary(answer):
        console.print(line, markup=False)
    console.print()
    if pods:
        _show_table(console, ("PENDING", "REASON"), [(each.pod, each.reason) for each in answer.pods])
    else:
        print_workloads(console, [each for each in answer.workloads if each.waiting])
    _show_table(console, ("POLICY", "DELIVERY", "RUNNING", "WAITING", "PLACED"), policy_rows(answer))
    for policy in answer.policies:
        if policy.held:
            console.print(f"{policy.name}: waiting Auto. {policy.held}\n", markup=False)
    _show_table(console, ("QUEUE", "USED", "FAIR", "BORROWED", "WAITING"), queue_rows(answer.queues))
    _show_table(console, ("REASON", "PODS"), code_rows(answer))


def _show_table(console: Console, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    if rows:
        print_table(console, header, rows[:MAX_ROWS])
        print_truncated(console, len(rows))
        console.print()


def summary(answer: StatusAnswer) -> list[str]:
    """The cluster and the newest round in two or three lines."""
    overview = answer.overview
    pods = f"{counted(overview.running, 'running pod')}, {counted(overview.waiting, 'waiting pod')}"
    lines = [f"{counted(overview.nodes, 'node')}, {pods}"]
    if overview.version:
        lines.insert(0, f"Thalweg {overview.version}, {overview.source}: {overview.name}")
    if not answer.rounds:
        return [*lines, "no round yet"]
    newest = answer.rounds[0]
    pods = f"{newest.placed:,} placed, {newest.waiting:,} pending"
    if overview.source == "dump":
        return [*lines, f"the plan for this dump: {pods}"]
    proof = ", certified" if newest.certified else ""
    return [*lines, f"round {newest.number} at {clock(newest.time)}: {pods}, {newest.seconds:.2f} s{proof}"]


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
        (str(each.number), clock(each.time), f"{each.placed:,}", f"{each.waiting:,}", f"{each.evicted:,}",
         f"{each.seconds:.2f} s", proof(each))
        for each in answer.rounds
    ]  # fmt: skip


def proof(row: RoundRow) -> str:
    """How good a round's plan is for sure; "-": nothing is known."""
    if row.certified:
        return "certified"
    # Rounded up, so that a plan with a gap never shows none.
    return "-" if row.gap is None else f"gap <= {math.ceil(row.gap * 1000) / 10:.1f} %"


def clock(seconds: float) -> str:
    """A time of day."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%SZ")
