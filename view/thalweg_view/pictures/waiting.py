"""The pods that wait after a round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from flowcore.model.workloads import workload_of
from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario import GovernedScenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.planned_workloads import NOT_PLANNED
from flowcore.rules.reasons.codes import WAITING_FOR_DEVICES, WAITING_FOR_VOLUMES
from flowcore.rules.reasons.short_words import short_words
from thalweg_view.pictures.reasons import Reasons
from thalweg_view.view_data import ViewData

#: Code of pods that came after the round, beside those of rounds (flowcore/rules/reasons/codes.py).
NEW: Final = "New"
_NEXT_ROUND: Final = "the next round"


class PodWithoutNode(msgspec.Struct, frozen=True):
    """A pod without a node.

    Attributes:
        pod: ``namespace/name``.
        position: its place among the pods that the round left, in the planner's order, from 1; 0: it was not planned.
        since: seconds since the epoch since when it could be placed.
        gang: name of its first gang; "": none.
        workload: its gang, its controller, or itself: ``kind/namespace/name``.
        short: what it waits for in a few words.
    """

    position: int
    pod: str
    code: str
    reason: str
    since: float
    priority: int
    policy: str
    queue: str = ""
    gang: str = ""
    workload: str = ""
    short: str = ""


def workload_name(data: ViewData, key: str, gangs: tuple[str, ...] = ()) -> str:
    """The workload of a pod; one that the state does not know has its gang's name, or stands for itself.

    Args:
        gangs: names of its gangs, such as "PodGroup ml/train".
    """
    pod = data.scenario.cluster.pods.get(key)
    if pod is not None:
        return workload_of(pod)
    names = [word for gang in gangs for word in gang.split() if word.count("/") == 1]
    return f"gang/{names[0]}" if names else f"pod/{key}"


def waiting_pods(
    data: ViewData, plan: PlanDocument | None, context: AnswerContext, *, newest: bool
) -> list[PodWithoutNode]:
    """The pods that a round left, in the planner's order, then those that it did not plan.

    Args:
        newest: the newest state counts too: pods that came after the round are added, those that wait no longer left
            out.
    """
    reasons = Reasons(data, plan, context)
    pods = list(_left(data, plan, reasons, newest=newest)) if plan is not None else []
    pods.extend(_not_planned(data, plan, reasons, newest=newest))
    return pods


def _left(data: ViewData, plan: PlanDocument, texts: Reasons, *, newest: bool) -> Iterator[PodWithoutNode]:
    reasons, waiting = dict(plan.unplaced), data.scenario.cluster.waiting
    # A state that was read before the round does not know all of its pods.
    checked = newest and data.source.kind == "live" and data.state_after >= plan.number
    position = 0
    for place in plan.order():
        reason, pod = reasons.get(place), plan.pending[place]
        if reason is None or (checked and pod.key not in waiting):
            continue
        position += 1
        yield PodWithoutNode(
            position,
            pod.key,
            plan.codes[reason],
            texts.text(plan.reasons[reason]),
            pod.since or pod.created,
            plan.classes[pod.pod_class].priority,
            plan.policies[pod.policy].name,
            pod.queue,
            pod.gangs[0] if pod.gangs else "",
            workload_name(data, pod.key, pod.gangs),
            short_words(plan.codes[reason], plan.reasons[reason], plan.lacks.get(pod.key, "")),
        )


def _not_planned(
    data: ViewData, plan: PlanDocument | None, texts: Reasons, *, newest: bool
) -> Iterator[PodWithoutNode]:
    scenario, skipped = data.scenario, {} if plan is None else plan.skipped
    if data.source.kind == "record" or not (newest or skipped):
        return
    governed = GovernedScenario(scenario)
    planned = set() if plan is None else {pod.key for pod in plan.pending}
    earlier = _earlier(data, scenario.cluster.waiting.keys() - planned - skipped.keys()) if newest else {}
    for key, pod in scenario.cluster.waiting.items():
        if key in planned:
            continue
        policy = governed.policy_of(pod)
        reason = skipped.get(key, "")
        if not reason and (not newest or (scenario.complete and not governed.governs(pod))):
            continue
        code = NOT_PLANNED
        if not reason and pod.unschedulable_reason in (WAITING_FOR_DEVICES, WAITING_FOR_VOLUMES):
            code, reason = pod.unschedulable_reason, pod.unschedulable_message
        if not reason:
            reason = pod.skip_reason
        if not reason:
            code, reason = earlier.get((key, pod.created), (NEW, "it waits for the next round"))
        queue = scenario.cluster.queues.of(pod, scenario.cluster.namespaces)
        gang = pod.gang.key.display_name if pod.gang is not None else ""
        since = pod.unschedulable_since or pod.created
        priority, workload = pod.pod_class.priority, workload_of(pod)
        short = _NEXT_ROUND if code == NEW else short_words(code, reason, gated=pod.held_by_gates)
        yield PodWithoutNode(
            0, key, code, texts.text(reason), since, priority, policy.name, queue, gang, workload, short
        )


def _earlier(data: ViewData, keys: set[str]) -> dict[tuple[str, float], tuple[str, str]]:
    """Code and reason of these pods in the last round that planned them: not every round plans all that wait.

    Args:
        keys: of pods.

    Returns:
        By key and time of creation: a pod that was made anew has no reason yet.
    """
    known: dict[tuple[str, float], tuple[str, str]] = {}
    wanted = set(keys)
    for plan in data.rounds.newest_whole():
        if not wanted:
            break
        reasons = dict(plan.unplaced)
        for place, pod in enumerate(plan.pending):
            if pod.key in wanted:
                wanted.discard(pod.key)
                if place in reasons:
                    known[pod.key, pod.created] = plan.codes[reasons[place]], plan.reasons[reasons[place]]
    return known
