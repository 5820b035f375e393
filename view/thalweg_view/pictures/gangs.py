"""The gangs, whole or not."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario.context import AnswerContext
from flowcore.rules.reasons.short_words import short_words
from thalweg_view.pictures.reasons import Reasons
from thalweg_view.pictures.shapes import Picture, RoundQuery
from thalweg_view.view_data import ViewData


class GangRow(msgspec.Struct, rename="camel"):
    """One gang.

    Attributes:
        gang: as its users know it, such as "PodGroup ml/train".
        namespace: of its pods.
        pods: keys of some of its pods that wait, for links.
        min_member: how many of its pods run at once, or none; null: unknown.
        running: number of its pods with a node.
        planned: number of its pods without one that the round places.
        waiting: number of its pods without one that it does not place.
        code, reason: why the others wait; "": none waits, or the round did not plan them.
        short: the same in a few words.
    """

    gang: str
    namespace: str
    pods: list[str]
    min_member: int | None = None
    running: int = 0
    waiting: int = 0
    planned: int = 0
    code: str = ""
    reason: str = ""
    short: str = ""


class GangsAnswer(Picture, frozen=True, rename="camel"):
    """The gangs of the namespaces that may be seen.

    Attributes:
        gangs: those that wait first, then by name.
    """

    gangs: list[GangRow]


#: Keys of pods in one row.
_SOME = 5


def answer_gangs(data: ViewData, query: RoundQuery, context: AnswerContext) -> GangsAnswer:
    """The gangs.

    Raises:
        UnknownName: the round is not kept.
    """
    plan = data.rounds.find(query.round)
    reasons = Reasons(data, plan, context)
    rows = _of_state(data, context, reasons)
    if plan is not None:
        state = data.scenario.cluster.waiting if plan.nodes is None else None
        _add_round(rows, plan, context, reasons, state)
    ordered = sorted(rows.values(), key=lambda row: (not row.waiting, row.gang))
    return GangsAnswer(data.generation, 0 if plan is None else plan.number, ordered)


def _of_state(data: ViewData, context: AnswerContext, texts: Reasons) -> dict[str, GangRow]:
    gangs, rows = data.scenario.cluster.gangs, dict[str, GangRow]()
    keys = {pod.gang.key for pod in data.scenario.cluster.pods.values() if pod.gang is not None}
    for key in sorted(keys.union(gangs.groups)):
        if not context.sees(key.namespace):
            continue
        state, (waiting, bound) = gangs.state(key), gangs.members(key)
        row = GangRow(key.display_name, key.namespace, list(waiting)[:_SOME], state.spec.min_member)
        row.running, row.waiting, row.reason = len(bound), len(waiting), texts.text(state.unschedulable_reason)
        rows[row.gang] = row
    return rows


def _add_round(
    rows: dict[str, GangRow],
    plan: PlanDocument,
    context: AnswerContext,
    texts: Reasons,
    state: Container[str] | None,
) -> None:
    """Adds what the round says.

    Args:
        state: keys of the pods that the rows count as waiting; None: they count none, the round alone knows the pods.
    """
    placed, reasons = {each.pod for each in plan.placements}, dict(plan.unplaced)
    for place, pod in enumerate(plan.pending):
        if not pod.gangs or not context.may_name(pod.key):
            continue
        for name in pod.gangs:
            row = rows.get(name)
            if row is None:
                row = rows[name] = GangRow(name, pod.key.partition("/")[0], [])
            if state is None:
                row.waiting += 1
                row.pods += [pod.key] * (len(row.pods) < _SOME)
            if place in placed and (state is None or pod.key in state):
                row.waiting -= 1
                row.planned += 1
            if place in reasons and not row.code:
                code, reason = plan.codes[reasons[place]], plan.reasons[reasons[place]]
                row.code, row.reason = code, texts.text(reason)
                row.short = short_words(code, reason, plan.lacks.get(pod.key, ""))
