"""Why a pod waits, by one plan of its scenario."""

from __future__ import annotations

from collections import Counter

from flowcore.model.pods import Pod
from flowcore.planning.problem.result import Placement
from flowcore.questions.diagnosis.answers import WhyAnswer, WhyKind, WhyQuery
from flowcore.questions.diagnosis.blocked import why_skipped
from flowcore.questions.diagnosis.finding import Finding, UnplacedCase
from flowcore.questions.diagnosis.fixes import find_fixes
from flowcore.questions.diagnosis.leaving import waits_for_victims
from flowcore.questions.diagnosis.lists import listed
from flowcore.questions.diagnosis.missing_dependencies import missing_names
from flowcore.questions.diagnosis.moves import why_moves
from flowcore.questions.diagnosis.observed_pods import (
    needs_evictions_by_others,
    spares_evictions,
    without_evictions_by_others,
)
from flowcore.questions.diagnosis.targets import waiting_pods
from flowcore.questions.diagnosis.unplaced import why_unplaced
from flowcore.questions.scenario import GovernedScenario, Scenario, ScenarioPlan, plan_scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.reading.moment import moment_text
from flowcore.questions.scenario.redaction import Redaction
from flowcore.rules.reasons.codes import WAITING_FOR_DEVICES, WAITING_FOR_VOLUMES

#: Who waits for these need only wait: what would place it earlier comes after that.
_WAIT = frozenset((WhyKind.VICTIMS_LEAVING, WhyKind.PLANNED, WhyKind.HANDED_OVER))


def answer_why(scenario: Scenario, query: WhyQuery, context: AnswerContext) -> WhyAnswer:
    """Why a pod, or most pods of a gang or a controller, wait; of a running pod, why it moves for gain.

    Raises:
        UnknownName: there is no such target, or it does not wait and is not moved for gain.
    """
    moves = why_moves(scenario, query.target, context)
    if moves is not None:
        return moves
    pods = waiting_pods(scenario, query.target, context)
    plan = plan_scenario(scenario, context.now, context.models)
    pod, waiting, alike = _first_of_most(plan, pods)
    diagnosis = diagnose(scenario, plan, pod, context)
    keys = [each.key for each in pods]
    nobody_evicts = needs_evictions_by_others(scenario, plan, pod)
    if nobody_evicts:
        diagnosis, fixes = without_evictions_by_others(scenario, diagnosis, keys, query, context)
    else:
        fixes = find_fixes(scenario, plan, keys, context) if query.fixes else []
        fixes = fixes or (spares_evictions(scenario, plan, keys, context) if query.fixes else [])
    missing = missing_names(scenario, pod)
    steps = [each.step for each in missing]
    frees = any(each.frees for each in plan.result.unplaced if each.pod.key == pod.key)
    steps += [each.text for each in fixes] if nobody_evicts or not (frees or diagnosis.kind in _WAIT) else []
    redacted = Redaction(scenario, context)
    return WhyAnswer(
        pod=pod.key,
        kind=diagnosis.kind,
        text=redacted(diagnosis.text),
        fixes=fixes,
        evidence=[redacted(each) for each in (*(each.text for each in missing), *diagnosis.evidence)],
        next=steps[0] if steps else redacted(diagnosis.next),
        waiting=waiting,
        alike=alike,
        now=moment_text(context.now),
        details=[redacted(each) for each in diagnosis.details],
    )


def diagnose(scenario: Scenario, plan: ScenarioPlan, pod: Pod, context: AnswerContext) -> Finding:
    """Why a waiting pod waits.

    Args:
        plan: for the scenario.
    """
    governed = GovernedScenario(scenario)
    if awaited := scenario.awaiting.get(pod.key) or plan.awaiting.get(pod.key):
        return waits_for_victims(scenario, awaited.node, awaited.victims)
    if pod.key in plan.skipped:
        return why_skipped(plan.skipped[pod.key], pod, scenario, governed, context)
    for placement in plan.result.placements:
        if placement.pod.key == pod.key:
            if placement.victims and governed.governs(pod) and governed.policy_of(pod).delivery.acts:
                return waits_for_victims(scenario, placement.node, placement.victims)
            return _placed(placement, pod, governed)
    unplaced = next(each for each in plan.result.unplaced if each.pod.key == pod.key)
    return why_unplaced(UnplacedCase(scenario, governed, plan, unplaced, context))


def _first_of_most(plan: ScenarioPlan, pods: list[Pod]) -> tuple[Pod, int, int]:
    """The first of the pods that wait for the commonest reason, how many the plan leaves, and how many for this reason.

    Where the plan leaves none, all of them count.
    """
    reasons = plan.skipped | {each.pod.key: each.reason for each in plan.result.unplaced}
    counts = Counter(reasons[pod.key] for pod in pods if pod.key in reasons)
    if not counts:
        return pods[0], len(pods), len(pods)
    reason, alike = max(counts.items(), key=lambda entry: entry[1])
    return next(pod for pod in pods if reasons.get(pod.key) == reason), counts.total(), alike


def _placed(placement: Placement, pod: Pod, governed: GovernedScenario) -> Finding:
    policy, victims = governed.policy_of(pod), placement.victims
    room, nobody = f"{placement.node} for it", ""
    if victims:
        room += f", once {listed(victims)} {'has' if len(victims) == 1 else 'have'} left"
        them = "it" if len(victims) == 1 else "them"
        nobody = f" Nobody evicts {them}: {pod.scheduler_name} did not, and Thalweg observes."
    if not governed.governs(pod):
        return Finding(
            WhyKind.HANDED_OVER,
            f"The plan has {room}, and no policy governs it: the scheduler {pod.scheduler_name} is to bind it.{nobody}",
            (f"{pod.scheduler_name} says: {pod.unschedulable_message}",) if pod.unschedulable_message else (),
            f"Look at the pod's Events of {pod.scheduler_name}.",
        )
    if policy.delivery.acts and not policy.delivery.through_kube_scheduler:
        if pod.unschedulable_reason in (WAITING_FOR_DEVICES, WAITING_FOR_VOLUMES):
            return Finding(
                WhyKind.PLANNED,
                f"The plan has room for it on {placement.node}, and it is bound once its claims are ready.",
                (f"It was told: {pod.unschedulable_message}",),
                "Wait. If that lasts, look at the Events of its claims.",
            )
        return Finding(
            WhyKind.PLANNED,
            f"It waits for nothing: the plan has room for it on {placement.node}.",
            next="Wait for the next round. If that does not bind it, look at the operator: thalweg doctor.",
        )
    binds = "is to bind it" if policy.delivery.acts else f"binds it: policy {policy.name} only observes"
    says = (f"kube-scheduler says: {pod.unschedulable_message}",) if pod.unschedulable_message else ()
    text = f"The plan has {room}, and kube-scheduler {binds}.{nobody}"
    return Finding(WhyKind.HANDED_OVER, text, says, "Look at the pod's Events of kube-scheduler.")
