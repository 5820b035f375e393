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
        ready: whether all is known that an answer needs, and this replica leads.
    """

    def __init__(self, shell: Shell, ready: Callable[[], bool]) -> None:
        self._shell, self._ready = shell, ready

    def advise(self, extender_pod: ExtenderPod, nodes: Sequence[str]) -> Advice | str:
        """What to answer about a pod; a text: why nothing can be said now. Changes nothing."""
        if not self._ready():
            return "not in sync yet"
        return advise(self._shell.cluster, self._shell.ledger, extender_pod, nodes)

    def answered(self, extender_pod: ExtenderPod, advice: Advice, outcome: str, passed: Sequence[str]) -> None:
        """kube-scheduler was answered."""
        self._shell.apply(SchedulerAnswered(extender_pod, outcome, passed, advice))
