"""The timeline of rounds."""

from __future__ import annotations

import msgspec

from flowcore.planning.problem.left_at_least import LeftAtLeast
from flowcore.questions.scenario.context import AnswerContext
from thalweg_view.view_data import ViewData


class RoundsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rounds.

    Attributes:
        last: number of newest rounds; 0: all that are kept.
    """

    last: int = 0


class RoundsAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """Rounds as columns, the oldest first; see ``thalweg_view.rounds.RoundRow``.

    Attributes:
        evicted: number of pods that leave.
        gap: part of the cost above the lower bound, 0..1; null: nothing is known of it.
        whole: whether the round can be looked at.
        certified: whether no plan costs less.
        left_at_least: what every plan leaves; null: the round left no pod.
    """

    generation: int
    number: list[int]
    time: list[float]
    seconds: list[float]
    placed: list[int]
    waiting: list[int]
    evicted: list[int]
    cost: list[int]
    lower_bound: list[int]
    gap: list[float | None]
    certified: list[bool]
    method: list[str]
    whole: list[bool]
    left_at_least: list[LeftAtLeast | None]


def answer_rounds(data: ViewData, query: RoundsQuery, _context: AnswerContext) -> RoundsAnswer:
    """The last rounds."""
    rows = list(data.rounds.rows)[-max(0, query.last) :]
    return RoundsAnswer(
        data.generation,
        [row.number for row in rows],
        [row.time for row in rows],
        [row.seconds for row in rows],
        [row.placed for row in rows],
        [row.waiting for row in rows],
        [row.evicted for row in rows],
        [row.cost for row in rows],
        [row.lower_bound for row in rows],
        [row.gap for row in rows],
        [row.certified for row in rows],
        [row.method for row in rows],
        [row.whole for row in rows],
        [row.left_at_least for row in rows],
    )
