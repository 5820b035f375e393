"""Running pods that the plan moves for gain, or that a policy proposes to move."""

from __future__ import annotations

from flowcore.model.policies import ReschedulingMode, ReschedulingReason
from flowcore.questions.diagnosis.answers import WhyAnswer, WhyKind
from flowcore.questions.scenario import GovernedScenario, Scenario, plan_scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.reading.moment import moment_text
from flowcore.questions.scenario.redaction import Redaction

_MODES = (ReschedulingMode.ACT, ReschedulingMode.PROPOSE)


def why_moves(scenario: Scenario, target: str, context: AnswerContext) -> WhyAnswer | None:
    """Why a running pod moves for gain; None: the target is no running pod that may be seen, or it does not.

    Args:
        target: ``namespace/pod`` or ``pod/namespace/pod``.
    """
    key = target.removeprefix("pod/")
    pod = scenario.cluster.pods.get(key) if context.may_name(key) else None
    if pod is None or not pod.node_name or pod.terminal:
        return None
    policy = GovernedScenario(scenario).policy_of(pod)
    if not policy.rescheduling.moves_for(ReschedulingReason.GAIN, _MODES):
        return None
    result = plan_scenario(scenario, context.now, context.models).result
    move = next((each for each in (*result.evictions, *result.proposals) if each.gain and each.pod.key == key), None)
    if move is None:
        return None
    acts = policy.rescheduling.mode is ReschedulingMode.ACT
    who = "The plan moves it" if acts else f"Policy {policy.name} proposes to move it"
    return WhyAnswer(
        pod=key,
        kind=WhyKind.MOVES,
        text=Redaction(scenario, context)(f"{who} to {move.to}: {move.reason}."),
        next="" if acts else f"If it is to move, set spec.rescheduling.mode of policy {policy.name} to Act.",
        waiting=0,
        alike=0,
        now=moment_text(context.now),
    )
