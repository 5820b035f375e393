"""What audits said over days, and whose placements closed rooms."""

from __future__ import annotations

from collections import Counter

import msgspec

from flowcore.model.errors import ModelError
from flowcore.model.regret import ClosedRoom, RegretFigure, RegretRecord
from flowcore.questions.scenario.context import AnswerContext
from thalweg_view.view_data import ViewData


class RegretQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The question.

    Attributes:
        since: seconds before now whose audits count; 0: all that are kept.
        limit: closed rooms that are listed, those of the latest audits; 0: all. All count in ``by`` and ``hidden``.
    """

    since: int = 0
    limit: int = 0


class RegretLine(msgspec.Struct, frozen=True, rename="camel"):
    """The numbers of one finding over all audits; null: that audit has no such finding.

    Attributes:
        finding: its kind.
        resource: of stranded room; "": none.
        now: how many there were.
        at_least: by how many fewer there are in a plan.
        at_most: no plan does better.
    """

    finding: str
    resource: str
    now: list[int | None]
    at_least: list[int | None]
    at_most: list[int | None]


class ClosedBy(msgspec.Struct, frozen=True):
    """Pods that wait whose room placements of a scheduler and namespace closed, all audits together.

    Attributes:
        scheduler, namespace: of the pods that were placed.
        reason: how they closed it.
        pods: how many wait for that.
    """

    scheduler: str
    namespace: str
    reason: str
    pods: int


class RegretAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The audits of a running operator that are kept, the oldest first.

    Attributes:
        generation: grows with each new state and each new round.
        time: of each audit, in seconds since the epoch.
        lines: numbers of its findings.
        open_pods: pods that wait though a plan runs them in room that is free.
        by: whose placements closed rooms, those of most pods first.
        closed: rooms that placements closed, those of the latest audit first, of namespaces that may be seen.
        hidden: how many of these may not be seen.
    """

    generation: int
    time: list[float]
    lines: list[RegretLine]
    open_pods: list[int]
    by: list[ClosedBy]
    closed: list[ClosedRoom]
    hidden: int


def answer_regret(data: ViewData, query: RegretQuery, context: AnswerContext) -> RegretAnswer:
    """What is kept of audits.

    Raises:
        ModelError: a number is below zero.
    """
    if min(query.since, query.limit) < 0:
        raise ModelError("", f"since {query.since}, limit {query.limit}: give numbers from 0 on")
    records = [record for record in data.scenario.regret if not query.since or record.time >= context.now - query.since]
    rooms = [room for record in reversed(records) for room in record.closed]
    seen = [room for room in rooms if context.may_name(room.pod) and context.may_name(room.waiting)]
    by = Counter[tuple[str, str, str]]()
    for room in seen:
        by[room.scheduler, room.namespace, room.reason] += room.pods
    return RegretAnswer(
        data.generation,
        [record.time for record in records],
        _lines(records),
        [record.open_pods for record in records],
        [ClosedBy(*key, pods) for key, pods in by.most_common()],
        seen[: query.limit] if query.limit else seen,
        len(rooms) - len(seen),
    )


def _lines(records: list[RegretRecord]) -> list[RegretLine]:
    columns: dict[tuple[str, str], list[RegretFigure | None]] = {}
    for number, record in enumerate(records):
        for figure in record.figures:
            column = columns.setdefault((figure.finding, figure.resource), [None] * len(records))
            column[number] = figure
    return [
        RegretLine(
            *name,
            [None if figure is None else figure.now for figure in column],
            [None if figure is None else figure.at_least for figure in column],
            [None if figure is None else figure.at_most for figure in column],
        )
        for name, column in columns.items()
    ]
