"""How long a round improves its plan.

What a plan places is bound and stays. So a plan that leaves pods which had room decides for long who gets it. The first
plan is the worst one there: it takes one class after the other, large pods first. The clock from the start of the
round is no good measure then: where thousands of pods wait, the first plan takes most of the budget, and on a busy
machine all of it. So such a plan is improved for the whole budget, in CPU time, and for longer if it places thousands.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from flowcore.planning.round import Round
from thalweg_operator.planning.reports.phases import Stopwatch

#: A plan that leaves pods is improved for the budget for each so many pods that it places: with the usual budget for a
#: tenth of a millisecond each. To bind a pod takes several times as long.
_PODS_OF_A_BUDGET = 3_000
#: Part of the deadline, which is by the clock, that improving may use up: the result takes time too.
_OF_DEADLINE = 0.5


class ImprovingTime:
    """The time for the steps after the first plan of one round."""

    def __init__(
        self,
        planned: Round,
        budget: float,
        deadline: float,
        since_start: Stopwatch,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        """For a round that has begun.

        Args:
            budget: seconds.
            deadline: seconds by the clock from the start of the round, after which it fails; 0: none.
            cpu_clock: CPU seconds of this process.
        """
        self._planned, self._budget, self._since_start, self._cpu_clock = planned, budget, since_start, cpu_clock
        #: Seconds by the clock from the start of the round.
        self._latest = max(budget, _OF_DEADLINE * deadline) if deadline else float("inf")
        self._began = 0.0

    def begin(self) -> None:
        """There is a first plan."""
        self._began = self._cpu_clock()

    def is_over(self) -> bool:
        """Whether the time is over, or next to nothing is left to gain. No pod is bound meanwhile."""
        if self._planned.is_close:
            return True
        passed = self._since_start.seconds
        if not self._planned.leaves_pods:
            return passed >= self._budget
        return passed >= self._latest or self._cpu_clock() - self._began >= self.seconds

    @property
    def seconds(self) -> float:
        """CPU seconds that a plan like this one may be improved for."""
        planned = self._planned
        return self._budget * max(1.0, planned.placed / _PODS_OF_A_BUDGET if planned.leaves_pods else 0.0)
