"""Pods that a round does not plan, whatever room there is: who must do what before it may."""

from __future__ import annotations

from typing import Final

from flowcore.model.pods import Pod
from flowcore.questions.diagnosis.answers import WhyKind
from flowcore.questions.diagnosis.finding import Finding
from flowcore.questions.diagnosis.missing_dependencies import missing_storage
from flowcore.questions.scenario import GovernedScenario, Scenario
from flowcore.questions.scenario.context import AnswerContext

#: Who sets and opens a gate, by the domain of its name, and a command that shows why it is closed.
_GATE_OWNERS: Final = {
    "kueue.x-k8s.io": "Kueue opens it when it admits the pod's Workload: kubectl get workloads.kueue.x-k8s.io -n {}.",
    "scheduling.thalweg": "Thalweg opens it once every other gate is open.",
}


def why_skipped(
    reason: str, pod: Pod, scenario: Scenario, governed: GovernedScenario, context: AnswerContext
) -> Finding:
    """The finding for a pod that a plan leaves out, from the reason that the plan gives."""
    if not governed.governs(pod) and not pod.skip_reason:
        return Finding(
            WhyKind.HANDED_OVER,
            f"It is left to the scheduler {pod.scheduler_name}: {reason}.",
            next="Ask that scheduler, or write a FlowSchedulingPolicy that selects the pod.",
        )
    text = f"{reason[:1].upper()}{reason[1:].removesuffix('.')}."
    missing = missing_storage(scenario, pod, context)
    evidence = tuple(entry.text for entry in missing)
    if missing:
        return Finding(WhyKind.BLOCKED, text, evidence, missing[0].step)
    return Finding(WhyKind.BLOCKED, text, evidence, _next(pod, governed=governed.governs(pod)))


def _next(pod: Pod, *, governed: bool) -> str:
    if pod.deleting:
        return "Wait until it is gone: a pod that is being deleted gets no node."
    if pod.held_by_gates:
        return " ".join(_opens(gate, pod) for gate in pod.gates)
    if pod.asks_gpu_share and (governed or _is_default(pod)):
        return "Give the pod the schedulerName of that scheduler, and let no policy select it."
    if not governed and pod.unsupported_reason and not pod.blocked_reason:
        return f"It is left to the scheduler {pod.scheduler_name} already: look at the pod's Events of that scheduler."
    return "Mend what the reason names. Room does not matter before that."


def _is_default(pod: Pod) -> bool:
    return pod.scheduler_name == "default-scheduler"


def _opens(gate: str, pod: Pod) -> str:
    owner = _GATE_OWNERS.get(gate.partition("/")[0])
    if owner is None:
        return f"Ask whoever sets the gate {gate}: only its controller opens it."
    return f"Gate {gate}: {owner.format(pod.namespace)}"
