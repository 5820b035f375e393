"""Reasons of a round, for who asks."""

from __future__ import annotations

from functools import cache

from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.redaction import Redaction
from thalweg_view.view_data import ViewData


class Reasons:
    """Gives texts without names that the asker may not read; a text that was given before costs nothing.

    Args:
        plan: the round; it may know pods that the newest state does not.
    """

    def __init__(self, data: ViewData, plan: PlanDocument | None, context: AnswerContext) -> None:
        keys = [] if plan is None else [*(each.key for each in plan.pending), *(each.key for each in plan.evictions)]
        self.text = cache(Redaction(data.scenario, context, {key.partition("/")[0] for key in keys}))
