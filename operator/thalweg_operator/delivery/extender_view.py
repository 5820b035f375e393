"""What kube-scheduler's extender sees of the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowcore.model.advice import Advice, ExtenderPod
from thalweg_operator.reservations.advise import advise
from thalweg_operator.reservations.events import SchedulerAnswered
from thalweg_operator.shell import Shell


class ExtenderView:
    """See the module.

    Args:
        problem: why nothing can be said now: something is not known yet, or this replica does not lead; "": nothing.
    """

    def __init__(self, shell: Shell, problem: Callable[[], str]) -> None:
        self._shell, self.unavailable = shell, problem

    def advise(self, extender_pod: ExtenderPod, nodes: Sequence[str]) -> Advice:
        """What to answer about a pod. Changes nothing."""
        return advise(self._shell.cluster, self._shell.ledger, extender_pod, nodes)

    def answered(self, extender_pod: ExtenderPod, advice: Advice, outcome: str, passed: Sequence[str]) -> None:
        """kube-scheduler was answered."""
        self._shell.apply(SchedulerAnswered(extender_pod, outcome, passed, advice))
