"""Who would carry out a plan of an audit, step by step, and what stands in the way. Nothing is carried out here.

Policies move pods for waiting ones and for gain, under their limits, and preempt for waiting ones. They decide by their
own costs, when a round plans: they may choose other moves that do as well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from flowcore.model.errors import ModelError
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, OBSERVED, PreemptionMode, ReschedulingMode, ReschedulingReason
from flowcore.model.running_pods import RunningPod
from flowcore.questions.audit.answer_audit import AuditQuery, answer_audit
from flowcore.questions.audit.finding import FindingKind, StepAction, WitnessStep
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.scenario import GovernedScenario, Scenario

#: Findings whose moves make room for no pod that waits.
_FOR_GAIN: Final = (FindingKind.EMPTY_NODES, FindingKind.STRANDED_ROOM)
_NO_POLICY: Final = "no policy governs it"


class ApplyQuery(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Asks who would carry out a plan of an audit.

    Attributes:
        plan: the finding that it is of, such as EmptyNodes or StrandedRoom/memory.
        most_moves: how many pods the plan may move at most.
    """

    plan: str
    most_moves: int = 100


class ApplicableStep(msgspec.Struct, frozen=True):
    """A step, and who would carry it out.

    Attributes:
        policy: that governs the pod that comes or moves, or the one that another is evicted for; "": none does.
        obstacle: why the policy does not do it; "": it does, under its limits.
    """

    step: WitnessStep
    policy: str
    obstacle: str


class ApplyAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The steps of a plan; there are none where nothing is better, or nothing was found.

    Attributes:
        now: the moment that it is for; "": unknown.
        sentence: of the finding.
        reason: what policies must move pods for.
        limits: sentences about limits of policies that the plan exceeds: it takes several rounds or hours.
        unknown: what the dump does not tell of the plan.
        warnings: sentences about what may change the answer.
    """

    now: str
    plan: str
    sentence: str
    reason: ReschedulingReason
    steps: list[ApplicableStep]
    limits: list[str]
    unknown: list[str]
    warnings: list[str]


def answer_apply(scenario: Scenario, query: ApplyQuery, context: AnswerContext) -> ApplyAnswer:
    """Audits, and says of each step of one plan who would carry it out; the scenario stays the same.

    Raises:
        ModelError: the audit has no finding of that name.
    """
    audit = answer_audit(scenario, AuditQuery(query.most_moves), context)
    findings = {finding.name: finding for finding in audit.findings}
    finding = findings.get(query.plan)
    if finding is None:
        raise ModelError(f"plan {query.plan}", f"the audit has none of that name; it has {', '.join(findings)}")
    steps = audit.plans.get(query.plan, [])
    reason = ReschedulingReason.GAIN if finding.kind in _FOR_GAIN else ReschedulingReason.WAITING_PODS
    carriers = _Carriers(scenario, reason, steps, context.now)
    return ApplyAnswer(
        now=audit.now,
        plan=query.plan,
        sentence=finding.sentence,
        reason=reason,
        steps=[ApplicableStep(step, *carriers.of_step(step)) for step in steps],
        limits=[*carriers.exceeded_limits(steps)],
        unknown=audit.unknown,
        warnings=audit.warnings,
    )


class _Carriers:
    """Policies, as the files have them, and what they do with the pods of some steps."""

    def __init__(
        self, scenario: Scenario, reason: ReschedulingReason, steps: Iterable[WitnessStep], now: float
    ) -> None:
        self._pods, self._reason, self._governed = scenario.cluster.pods, reason, GovernedScenario(scenario)
        self._running = {pod.key: pod for pod in self._governed.running_pods(now, ()).pods}
        self._coming: dict[str, list[Pod]] = defaultdict(list)
        for step in steps:
            if step.action is StepAction.PLACE:
                self._coming[step.node].append(self._pods[step.pod])

    def of_step(self, step: WitnessStep) -> tuple[str, str]:
        """The policy, and why it does not do this; "": it does."""
        if step.action is StepAction.PLACE:
            return self._placing(self._pods[step.pod])
        if step.action is StepAction.MOVE:
            return self._moving(self._running[step.pod])
        return self._evicting(self._running[step.pod])

    def _placing(self, pod: Pod) -> tuple[str, str]:
        policy = self._governed.policy_of(pod)
        if policy.name == OBSERVED.name:
            return "", _NO_POLICY
        return policy.name, "" if policy.delivery.acts else f"policy {policy.name} has delivery Observe"

    def _moving(self, pod: RunningPod) -> tuple[str, str]:
        if pod.policy in ("", BUILT_IN.name, OBSERVED.name):
            return "", _NO_POLICY
        policy = self._governed.policies[pod.policy]
        rescheduling = policy.rescheduling
        obstacles = {
            "delivery is Observe": not policy.delivery.acts,
            f"rescheduling.mode is {rescheduling.mode}": rescheduling.mode is not ReschedulingMode.ACT,
            f"rescheduling.reasons has no {self._reason}": self._reason not in rescheduling.reasons,
        }
        field = next((field for field, stands in obstacles.items() if stands), "")
        return policy.name, f"spec.{field}" if field else pod.immovable_reason

    def _evicting(self, pod: RunningPod) -> tuple[str, str]:
        """The policy of a pod of a higher priority that comes to its node, or to that of another pod of its gang."""
        coming = self._coming.get(pod.node) or [waiting for pods in self._coming.values() for waiting in pods]
        above = [waiting for waiting in coming if waiting.pod_class.priority > pod.priority]
        answers = map(self._preempting, above)
        return min(answers, key=lambda answer: answer[1], default=("", "no pod of a higher priority comes"))

    def _preempting(self, waiting: Pod) -> tuple[str, str]:
        name, obstacle = self._placing(waiting)
        if not obstacle and self._governed.policies[name].preemption.mode is PreemptionMode.NEVER:
            obstacle = "spec.preemption.mode is Never"
        return name, obstacle

    def exceeded_limits(self, steps: Sequence[WitnessStep]) -> Iterator[str]:
        """Sentences about limits of moves that the plan exceeds."""
        moved: dict[str, list[RunningPod]] = defaultdict(list)
        for step in steps:
            if step.action is StepAction.MOVE and not self.of_step(step)[1]:
                pod = self._running[step.pod]
                moved[pod.policy].append(pod)
        for name, pods in moved.items():
            limits = self._governed.policies[name].rescheduling
            needs = {
                "perRound": (len(pods), limits.per_round),
                "perHour": (len(pods), limits.per_hour),
                "perNode": (max(Counter(pod.node for pod in pods).values()), limits.per_node),
                "perNamespace": (max(Counter(pod.namespace for pod in pods).values()), limits.per_namespace),
                "perOwner": (max(Counter(pod.owner for pod in pods).values()), limits.per_owner),
            }
            for field, (needed, most) in needs.items():
                if needed > most:
                    limit = f"spec.rescheduling.limits.{field} of policy {name}"
                    yield f"{limit} is {most:,}, and the plan moves {needed:,} pods"
