"""The pods that wait, with reasons and positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flowcore.model.errors import ModelError
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.planned_workloads import PlannedWorkload, what_is_short
from flowcore.rules.reasons.short_words import without_amounts
from thalweg_view.pictures.shapes import Picture, RoundQuery
from thalweg_view.pictures.waiting import PodWithoutNode, waiting_pods
from thalweg_view.pictures.workloads import workload_rows
from thalweg_view.view_data import ViewData

#: Items of one answer at most.
MAX_ITEMS: Final = 1000
_SORTS: Final[dict[str, Callable[[PodWithoutNode], Any]]] = {
    "position": lambda each: (each.position or float("inf"), each.pod),
    "pod": lambda each: each.pod,
    "code": lambda each: (each.code, each.position),
    "since": lambda each: each.since,
    "priority": lambda each: each.priority,
    "policy": lambda each: each.policy,
    "queue": lambda each: each.queue,
    "gang": lambda each: each.gang,
    "workload": lambda each: (each.workload, each.pod),
}


class PendingQuery(RoundQuery, frozen=True, forbid_unknown_fields=True):
    """Which waiting pods.

    Attributes:
        offset, limit: which part of the list; at most 1000 items.
        query: text that the pod, its workload, code, short words, policy, queue, gang or reason contains, without
            regard to case; "": any.
        short: what the pod waits for, as in ``short`` of the answer; "": anything.
        sort: "position", "pod", "code", "since", "priority", "policy", "queue", "gang" or "workload"; with "-" in
            front: the other way round.
    """

    offset: int = 0
    limit: int = 100
    query: str = ""
    short: str = ""
    sort: str = "position"


class PendingAnswer(Picture, frozen=True, rename="camel"):
    """A part of the list.

    Attributes:
        total: how many pods match and may be seen.
        codes: how many of these wait for which code of reason, the most first.
        short: how many of these wait for what, in a few words, the most first.
        items: the pods of the part that is asked for.
        workloads: all pods that match by workload, those of which the most wait first; at most 1000 workloads.
        workload_count: how many workloads there are.
    """

    total: int
    codes: dict[str, int]
    short: dict[str, int]
    items: list[PodWithoutNode]
    workloads: list[PlannedWorkload]
    workload_count: int


def answer_pending(data: ViewData, query: PendingQuery, context: AnswerContext) -> PendingAnswer:
    """The waiting pods that may be seen.

    Raises:
        ModelError: the list cannot be sorted so, or offset or limit is out of range.
        UnknownName: the round is not kept.
    """
    downwards, key = query.sort.startswith("-"), _SORTS.get(query.sort.removeprefix("-"))
    if key is None:
        raise ModelError("sort", f'"{query.sort}" is unknown; known are: {", ".join(_SORTS)}')
    if query.offset < 0 or not 0 <= query.limit <= MAX_ITEMS:
        raise ModelError("limit", f"offset must be at least 0, limit between 0 and {MAX_ITEMS}")
    plan = data.rounds.find(query.round)
    text = query.query.casefold()
    waiting_rows = [
        pod
        for pod in waiting_pods(data, plan, context, newest=not query.round)
        if context.may_name(pod.pod)
        and (not text or _contains(pod, text))
        and query.short in ("", without_amounts(pod.short))
    ]
    codes: dict[str, int] = {}
    for pod in waiting_rows:
        codes[pod.code] = codes.get(pod.code, 0) + 1
    rows = [each for each in workload_rows(data, plan, waiting_rows, context) if each.waiting]
    waiting_rows.sort(key=key, reverse=downwards)
    return PendingAnswer(
        data.generation,
        0 if plan is None else plan.number,
        len(waiting_rows),
        dict(sorted(codes.items(), key=lambda entry: (-entry[1], entry[0]))),
        what_is_short(rows),
        waiting_rows[query.offset : query.offset + query.limit],
        rows[:MAX_ITEMS],
        len(rows),
    )


def _contains(pod: PodWithoutNode, text: str) -> bool:
    fields = (pod.pod, pod.code, pod.short, pod.policy, pod.queue, pod.gang, pod.workload, pod.reason)
    return any(text in field.casefold() for field in fields)
