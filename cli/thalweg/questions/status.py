"""What ``thalweg status`` shows: the question, and its answer as lines and tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from thalweg_view.pictures.policies import QueueRow
from thalweg_view.rounds import RoundHistory, RoundRow
from thalweg_view.status import StatusAnswer, StatusQuery, answer_status
from thalweg_view.view_data import SourceInfo, ViewData

from flowcore.model.amount_text import counted
from flowcore.questions.scenario import Scenario, plan_scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.planned_workloads import PlannedWorkload
from flowcore.questions.scenario.reading.moment import parse_moment
from thalweg.sources.source import SourceOperation
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.tables import MAX_ROWS, print_names, print_table, print_truncated
from thalweg.terminal.telling import tell_note

#: Orders of the waiting workloads, as the key s goes through them.
_ORDERS: Final[dict[str, Callable[[PlannedWorkload], Any]]] = {
    "age": lambda row: (row.since or float("inf"), row.workload),
    "pods": lambda row: (-row.waiting, row.workload),
    "namespace": lambda row: (row.namespace, row.since),
    "reason": lambda row: (row.why, row.since),
}
SORTS: Final = tuple(_ORDERS)
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
#: Kinds of sources whose plan no operator made.
_PLANNED_HERE: Final = ("dump", "listing")

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
Tables = list[Table]


def planned_here(kind: str, scenario: Scenario, query: StatusQuery, context: AnswerContext) -> StatusAnswer:
    """The status of a dump or of a listed cluster, with the plan of ``thalweg plan`` as its only round.

    Args:
        kind: "dump" or "listing".
    """
    rounds = RoundHistory()
    plan = plan_scenario(scenario, context.now, context.models)
    rounds.put(plan.document())
    return answer_status(ViewData(scenario, rounds, SourceInfo(kind)), query, context)


of_dump = partial(planned_here, "dump")
QUESTION_OF_DUMP = SourceOperation("status", StatusAnswer, of_dump, method="GET")
QUESTION_OF_CLUSTER = SourceOperation("status", StatusAnswer, partial(planned_here, "listing"), method="GET")


def show(answer: StatusAnswer) -> None:
    """Prints a status."""
    console = stdout_console()
    for line in summary(answer):
        console.print(line, markup=False)
    for header, rows in tables_of(answer, SORTS[0]):
        console.print()
        print_table(console, header, rows[:MAX_ROWS])
        print_truncated(console, len(rows))


def names(answer: StatusAnswer) -> None:
    """Prints the names of what waits: workloads, the longest first, or pods if these were asked for."""
    if answer.pods:
        print_names(f"pod/{each.pod}" for each in answer.pods)
        return
    waiting = sorted((each for each in answer.workloads if each.waiting), key=_ORDERS[SORTS[0]])
    print_names(each.workload for each in waiting)
    if answer.workload_count > len(answer.workloads):
        tell_note(f"only the first {len(answer.workloads):,} of {answer.workload_count:,} workloads are listed")


def summary(answer: StatusAnswer) -> list[str]:
    """The cluster and the newest round in a few lines, and what policies decided by themselves."""
    least = answer.rounds[0].left_at_least if answer.rounds else None
    sentence = "" if least is None else least.sentence_of_all if answer.namespace else least.sentence
    held = [f"{each.name}: waiting Auto. {each.held}" for each in answer.policies if each.held]
    return [*_cluster_and_round(answer), *([sentence] if sentence else []), *held]


def _cluster_and_round(answer: StatusAnswer) -> list[str]:
    overview = answer.overview
    size = f"{counted(overview.nodes, 'node')}, {counted(overview.running, 'running pod')}"
    lines = [f"{size}; {overview.counts.sentence}", answer.leaving.sentence, overview.ungoverned.sentence]
    if overview.version:
        lines.insert(0, f"Thalweg {overview.version}, {overview.source}: {overview.name}")
    if not answer.rounds:
        lines.append("no round yet")
    elif not _is_planned_here(answer):
        newest = answer.rounds[0]
        pods, proof = f"{newest.placed:,} placed, {newest.waiting:,} left", ", certified" if newest.certified else ""
        lines.append(f"round {newest.number} at {clock(newest.time)}: {pods}, {newest.seconds:.2f} s{proof}")
    return [line for line in lines if line]


def policy_rows(answer: StatusAnswer) -> list[tuple[str, ...]]:
    """A row for each policy."""
    return [
        (each.name, each.delivery, "-" if each.running is None else f"{each.running:,}", f"{each.waiting:,}",
         f"{each.placed:,}")
        for each in answer.policies
    ]  # fmt: skip


def queue_rows(queues: list[QueueRow]) -> list[tuple[str, ...]]:
    """A row for each queue; where one has a mistake they say what is wrong, and one that has no share has none."""
    rows: list[tuple[str, ...]] = []
    wrong = any(each.problem for each in queues)
    for queue in queues:
        shares = (queue.used_share, queue.fair_share, queue.borrowed_share)
        known = any(shares) or not queue.problem
        remark = (queue.problem or "-",) if wrong else ()
        rows.append(
            (queue.name, *(f"{share:.1%}" if known else "-" for share in shares), f"{queue.waiting:,}", *remark)
        )
    return rows


def short_rows(answer: StatusAnswer) -> list[tuple[str, ...]]:
    """A row for what pods wait for, the commonest first."""
    return [(words, f"{count:,}") for words, count in answer.short.items()]


def round_rows(answer: StatusAnswer) -> list[tuple[str, ...]]:
    """A row for each of the last rounds, the newest first."""
    return [
        (str(each.number), clock(each.time), f"{each.placed:,}", f"{each.waiting:,}", f"{each.evicted:,}",
         f"{each.seconds:.2f} s", proof(each))
        for each in answer.rounds
    ]  # fmt: skip


def eviction_rows(answer: StatusAnswer, *, acts: bool) -> list[tuple[str, ...]]:
    """A row for each pod that leaves, or would leave if somebody acted; the last one says how many more do."""
    rows: list[tuple[str, ...]] = [
        (each.pod, each.node, each.to or "-", each.kind) for each in answer.evictions if each.acts == acts
    ]
    leaving = answer.leaving
    more = (leaving.moved + leaving.evicted if acts else leaving.would_move + leaving.would_be_evicted) - len(rows)
    return [*rows, (f"... and {more:,} more", "", "", "")] if more > 0 else rows


def proof(row: RoundRow) -> str:
    """How good a round's plan is for sure; "-": nothing is known."""
    if row.certified:
        return "certified"
    # Rounded up, so that a plan with a gap never shows none.
    return "-" if row.gap is None else f"gap <= {math.ceil(row.gap * 1000) / 10:.1f} %"


def clock(seconds: float) -> str:
    """A time of day."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%SZ")


def tables_of(answer: StatusAnswer, sort: str) -> Tables:
    """Headers and rows of all tables that have rows. What waits is a row for each workload, or for each pod if asked.

    Args:
        sort: order of the waiting workloads, one of ``SORTS``.
    """
    now = parse_moment(answer.now) if answer.now else 0.0
    waiting = sorted((each for each in answer.workloads if each.waiting), key=_ORDERS[sort])
    tables: Tables = [
        (("PENDING", "REASON"), [(each.pod, each.reason) for each in answer.pods]),
        (("WAITS LONGEST" if sort == "age" else "WAITS", "FOR", "PENDING", "QUEUE", "WAITS FOR"),
         [(each.workload, age(now - each.since) if each.since and now else "-", f"{each.waiting:,} of {each.pods:,}",
           each.queue or "-", each.why) for each in ([] if answer.pods else waiting)]),
        _placed(answer),
        (("WAIT FOR", "PODS"), short_rows(answer)),
        (("QUEUE", "USED", "FAIR", "BORROWED", "PENDING", *(["MISTAKE"] if any(each.problem for each in answer.queues)
                                                           else [])), queue_rows(answer.queues)),
        (("POLICY", "DELIVERY", "RUNNING", "PENDING", "PLACED"), policy_rows(answer)),
        (("ROUND", "AT", "PLACED", "PENDING", "LEAVE", "TIME", "PROOF"),
         [] if _is_planned_here(answer) else round_rows(answer)),
        (("LEAVES", "NODE", "TO", "WHY"), eviction_rows(answer, acts=True)),
        (("WOULD LEAVE", "NODE", "TO", "WHY"), eviction_rows(answer, acts=False)),
    ]  # fmt: skip
    return [(header, rows) for header, rows in tables if rows]


def _placed(answer: StatusAnswer) -> Table:
    """What was placed, and by which rounds; a plan that was made here is the only one, and binds no pod."""
    if _is_planned_here(answer):
        return ("PLACED", "PODS"), [(each.workload, f"{each.pods:,}") for each in answer.placed]
    return ("PLACED LATELY", "PODS", "BOUND", "ROUND", "AT"), [
        (each.workload, f"{each.pods:,}", f"{each.bound:,}", str(each.round), clock(each.time))
        for each in answer.placed
    ]


def _is_planned_here(answer: StatusAnswer) -> bool:
    return answer.overview.source in _PLANNED_HERE


def age(seconds: float) -> str:
    """A time span as kubectl has it: 45s, 12m, 3h, 2d."""
    for unit, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= 2 * unit or (unit == _MINUTE and seconds >= unit):
            return f"{int(seconds // unit)}{letter}"
    return f"{max(0, int(seconds))}s"
