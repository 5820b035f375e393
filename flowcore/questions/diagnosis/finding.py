"""What a diagnosis works with, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.policies import Policy
from flowcore.planning.problem.result import Unplaced
from flowcore.questions.diagnosis.answers import WhyKind
from flowcore.questions.scenario import GovernedScenario, Scenario, ScenarioPlan
from flowcore.questions.scenario.context import AnswerContext
from flowcore.rules.filters import Verdicts, run_filters


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a pod waits: the fields of a WhyAnswer.

    Attributes:
        details: sentences with the numbers of the plan, for programs.
    """

    kind: WhyKind
    text: str
    evidence: tuple[str, ...] = ()
    next: str = ""
    details: tuple[str, ...] = ()


class UnplacedCase:
    """A pod that a plan leaves, and what the plan was made from."""

    def __init__(
        self,
        scenario: Scenario,
        governed: GovernedScenario,
        plan: ScenarioPlan,
        unplaced: Unplaced,
        context: AnswerContext,
    ) -> None:
        self.scenario, self.governed, self.plan, self.unplaced = scenario, governed, plan, unplaced
        self.context = context

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.unplaced.pod.key

    @property
    def policy(self) -> Policy:
        """The policy that governs the pod."""
        return self.governed.policies[self.unplaced.pod.policy]

    def verdicts(self, snapshot: Snapshot) -> Verdicts:
        """Verdicts of all filters on the pod in a snapshot."""
        return run_filters(self.unplaced.pod.pod_class, snapshot, self.unplaced.pod.signature)

    @cached_property
    def before(self) -> Verdicts:
        """Before any waiting pod is placed."""
        return self.verdicts(self.plan.before)

    @cached_property
    def after(self) -> Verdicts:
        """Beside all that the plan places."""
        return self.verdicts(self.plan.result.after)
