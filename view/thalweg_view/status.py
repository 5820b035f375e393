"""How Thalweg is doing, in one answer: the cluster in numbers, policies, queues, the last rounds and who leaves."""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.planned_workloads import PlannedWorkload
from flowcore.questions.scenario.reading.moment import moment_text
from thalweg_view.pictures.overview import OverviewAnswer, answer_overview
from thalweg_view.pictures.policies import (
    PolicyRow,
    QueueRow,
    answer_policies,
    answer_queues,
)
from thalweg_view.pictures.shapes import RoundQuery
from thalweg_view.pictures.waiting import PodWithoutNode, waiting_pods
from thalweg_view.pictures.workloads import PlacedWorkload, placed_lately, workload_rows
from thalweg_view.rounds import RoundRow
from thalweg_view.view_data import ViewData

#: Rounds, leaving pods, workloads and lines of what was placed in one answer at most.
MAX_ROUNDS: Final = 20
MAX_LEAVING: Final = 20
MAX_WORKLOADS: Final = 1000
MAX_PLACED: Final = 20


class StatusQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for the status.

    Attributes:
        pods: with the pods that wait, one by one.
    """

    pods: bool = False


class StatusMove(msgspec.Struct, frozen=True, rename="camel"):
    """A running pod that leaves its node by the newest round.

    Attributes:
        to: where room for its replacement is reserved; "": nowhere.
    """

    pod: str
    node: str
    kind: str
    to: str


class StatusAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The status.

    Attributes:
        rounds: the last ones, the newest first.
        workloads: what waits and what the newest round placed, those of which the most pods wait first.
        placed: what the last rounds placed, the newest first.
        moves: pods that leave by the newest round, the first of them.
        leaving: number of all that leave.
        pods: what waits, pod by pod, in the order of the planner; empty unless asked for.
        now: the moment that the answer is for; "": unknown.
    """

    overview: OverviewAnswer
    policies: list[PolicyRow]
    queues: list[QueueRow]
    rounds: list[RoundRow]
    moves: list[StatusMove]
    leaving: int
    workloads: list[PlannedWorkload]
    placed: list[PlacedWorkload]
    now: str = ""
    pods: list[PodWithoutNode] = []


def answer_status(data: ViewData, query: StatusQuery, context: AnswerContext) -> StatusAnswer:
    """The status."""
    newest = data.rounds.find()
    waiting = [each for each in waiting_pods(data, newest, context, newest=True) if context.may_name(each.pod)]
    evictions = [] if newest is None else newest.evictions
    return StatusAnswer(
        answer_overview(data, RoundQuery(), context),
        answer_policies(data, RoundQuery(), context).policies,
        answer_queues(data, RoundQuery(), context).queues,
        list(islice(reversed(data.rounds.rows), MAX_ROUNDS)),
        [
            StatusMove(
                context.name(eviction.key),
                context.node(eviction.node),
                eviction.kind.value,
                context.node(eviction.to) if eviction.to else "",
            )
            for eviction in evictions[:MAX_LEAVING]
        ],
        len(evictions),
        workload_rows(data, newest, waiting, context)[:MAX_WORKLOADS],
        list(islice(placed_lately(data, data.rounds.newest_whole(), context), MAX_PLACED)),
        moment_text(context.now),
        waiting if query.pods else [],
    )
