"""How Thalweg is doing, in one answer: the cluster in numbers, policies, queues, the last rounds and who leaves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

import msgspec

from flowcore.planning.plan_document import PlanDocument, PlanEviction
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.plan_listing import unknown_namespace
from flowcore.questions.scenario.planned_workloads import PlannedWorkload, acting_evictions, what_is_short
from flowcore.questions.scenario.reading.moment import moment_text
from flowcore.questions.scenario.waiting_counts import LeavingCounts, count_leaving, ungoverned_pods
from thalweg_view.pictures.overview import OverviewAnswer, answer_overview, codes_of, counts_of, placed_pods
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

#: Rounds, evictions, workloads and lines of what was placed in one answer at most.
MAX_ROUNDS: Final = 20
MAX_EVICTIONS: Final = 1000
MAX_WORKLOADS: Final = 1000
MAX_PLACED: Final = 1000


class StatusQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for the status.

    Attributes:
        pods: with the pods that wait, one by one.
        namespace: of the pods, workloads and reasons that are listed; "": all.
    """

    pods: bool = False
    namespace: str = ""


class StatusEviction(msgspec.Struct, frozen=True, rename="camel"):
    """A running pod that leaves its node by the newest round.

    Attributes:
        kind: why it leaves.
        to: where room for its replacement is reserved; "": nowhere.
        acts: whether it is carried out; not so if it leaves for pods that are only observed.
    """

    pod: str
    node: str
    kind: str
    to: str
    acts: bool = False


class StatusAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The status.

    Attributes:
        overview: of the whole cluster; where a namespace is asked for, its pods that wait are those of that.
        rounds: the last ones, the newest first.
        workloads: what waits and what the newest round placed, those of which the most pods wait first, 1,000 at most.
        workload_count: number of all of them.
        short: how many pods wait for what, in a few words, the most first.
        placed: what the last rounds placed, the newest first, 1,000 lines at most.
        placed_count: number of all these lines.
        evictions: pods that leave by the newest round, the first 1,000 of them.
        eviction_count: number of all that leave.
        leaving: all of them, counted.
        pods: what waits, pod by pod, in the order of the planner; empty unless asked for.
        now: the moment that the answer is for; "": unknown.
        waiting: how many pods have no node now, of the namespace that is asked for.
        planned: of these, how many the newest round gives a node.
        namespace: as asked for.
        warnings: sentences for the asker.
    """

    overview: OverviewAnswer
    policies: list[PolicyRow]
    queues: list[QueueRow]
    rounds: list[RoundRow]
    evictions: list[StatusEviction]
    eviction_count: int
    leaving: LeavingCounts
    workloads: list[PlannedWorkload]
    placed: list[PlacedWorkload]
    now: str = ""
    pods: list[PodWithoutNode] = []
    waiting: int = 0
    planned: int = 0
    namespace: str = ""
    warnings: list[str] = []
    workload_count: int = 0
    placed_count: int = 0
    short: dict[str, int] = {}


def answer_status(data: ViewData, query: StatusQuery, context: AnswerContext) -> StatusAnswer:
    """The status."""
    newest = data.rounds.find()
    listed = context.only(query.namespace)
    counts = _counted(query, context)
    pending = [each for each in waiting_pods(data, newest, context, newest=True) if counts(each.pod)]
    waiting = [each for each in pending if listed.may_name(each.pod)]
    evictions = [] if newest is None else [each for each in newest.evictions if _concerns(counts, newest, each)]
    planned = [key for key in placed_pods(data, newest) if counts(key)]
    acting = set() if newest is None else acting_evictions(data.scenario, newest)
    overview = answer_overview(data, RoundQuery(), context)
    if query.namespace:
        overview = msgspec.structs.replace(
            overview,
            waiting=len(pending),
            codes=codes_of(pending),
            counts=counts_of(data, planned, pending, query.namespace),
            ungoverned=ungoverned_pods(data.scenario, [*planned, *(each.pod for each in pending)]),
        )
    placed = list(placed_lately(data, data.rounds.newest_whole(), listed))
    workloads = workload_rows(data, newest, waiting, listed)
    return StatusAnswer(
        overview,
        answer_policies(data, RoundQuery(), context).policies,
        answer_queues(data, RoundQuery(), context).queues,
        list(islice(reversed(data.rounds.rows), MAX_ROUNDS)),
        [
            StatusEviction(
                context.name(eviction.key),
                context.node(eviction.node),
                eviction.kind.value,
                context.node(eviction.to) if eviction.to else "",
                eviction.key in acting,
            )
            for eviction in evictions[:MAX_EVICTIONS]
        ],
        len(evictions),
        count_leaving((bool(each.to), each.key in acting) for each in evictions),
        workloads[:MAX_WORKLOADS],
        placed[:MAX_PLACED],
        moment_text(context.now),
        waiting if query.pods else [],
        len(pending) + len(planned),
        len(planned),
        query.namespace,
        unknown_namespace(data.scenario, query.namespace, context),
        len(workloads),
        len(placed),
        what_is_short(workloads),
    )


def _counted(query: StatusQuery, context: AnswerContext) -> Callable[[str], bool]:
    """Which pods the numbers count, by key: those of all namespaces, or of the one that is asked for.

    Of a namespace that the asker may not see they count none, as of one that is not there.
    """
    return context.only(query.namespace).may_name if query.namespace else lambda _key: True


def _concerns(counts: Callable[[str], bool], plan: PlanDocument, eviction: PlanEviction) -> bool:
    return any(counts(key) for key in (eviction.key, *(plan.pending[place].key for place in eviction.for_pods)))
