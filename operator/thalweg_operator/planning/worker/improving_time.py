"""How long a round improves its plan.

What a plan places is bound and stays. So a plan that leaves pods which had room decides for long who gets it. The first
plan is the worst one there: it takes one class after the other, large pods first. The clock from the start of the
round is no good measure then: where thousands of pods wait, the first plan takes most of the budget, and on a busy
machine all of it. So such a plan is improved for the whole budget, in CPU time, and for longer if it places thousands
and leaves hundreds. Few pods that wait must not make the rounds of all others longer, nor those that no plan places.
Where hundreds wait for the room of a few, little is decided, and whoever gets that room waits for the plan: then the
time follows what is placed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from flowcore.planning.round import Round
from flowcore.planning.round.round import Outlook
from thalweg_operator.planning.reports.phases import Stopwatch

#: A plan that leaves pods is improved for the budget for each so many pods that it places: with the usual budget for a
#: tenth of a millisecond each. To bind a pod takes several times as long.
_PODS_OF_A_BUDGET = 3_000
#: No more placed pods count than this for each that is left: there is no more to gain.
_PLACED_FOR_EACH_LEFT = 10
#: Where more pods are left than this for each that is placed, the time is as much shorter, but no shorter than a part.
_LEFT_FOR_EACH_PLACED, _SHORTEST = 10, 0.2
#: The longest that a plan is improved, in budgets.
_MOST_BUDGETS = 5.0
#: How many times longer it may take by the clock than in CPU time: others wait.
_BY_CLOCK = 4.0
#: Part of the deadline, which is by the clock, that improving may use up: the result takes time too.
_OF_DEADLINE = 0.5


class ImprovingTime:
    """The time for the steps after the first plan of one round.

    Attributes:
        seconds: CPU seconds that the plan was granted so far.
    """

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
        self._began = self._began_by_clock = 0.0
        self.seconds = _SHORTEST * budget

    def begin(self) -> None:
        """There is a first plan."""
        self._began, self._began_by_clock = self._cpu_clock(), self._since_start.seconds

    def is_over(self) -> bool:
        """Whether the time is over, or next to nothing is left to gain. No pod is bound meanwhile."""
        passed = self._since_start.seconds
        if passed >= self._latest:
            return True
        outlook = self._planned.outlook()
        if outlook.is_close or not outlook.left:
            return outlook.is_close or passed >= self._budget
        # A step may look worse than the one before: what was granted stays.
        self.seconds = max(self.seconds, self._worth(outlook))
        by_clock = passed - self._began_by_clock
        return by_clock >= _BY_CLOCK * self.seconds or self._cpu_clock() - self._began >= self.seconds

    def _worth(self, outlook: Outlook) -> float:
        """CPU seconds that a plan like this one may be improved for."""
        placed = min(outlook.placed, _PLACED_FOR_EACH_LEFT * outlook.left)
        few = _LEFT_FOR_EACH_PLACED * outlook.placed / outlook.left
        least = min(1.0, max(few, _SHORTEST))
        return self._budget * min(max(least, placed / _PODS_OF_A_BUDGET), _MOST_BUDGETS)
