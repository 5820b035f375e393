"""The deadline of a round: a multiple of the longest recent round."""

from __future__ import annotations

from collections import deque

#: Shortest deadline in seconds, and the seconds that each pod and each class adds: caches may be cold.
_LEAST = 5.0
_PER_POD, _PER_CLASS = 0.002, 0.02
#: Seconds more for a round with pods of declared networks. Their work is limited by count: five to eleven seconds
#: (flowcore/planning/declared_networks/programs/work.py), and more on a busy machine.
_NETWORKS = 20.0
#: The deadline is this multiple of the longest of the last rounds; how many rounds are remembered.
_TIMES, _ROUNDS = 10.0, 100


class RoundDeadline:
    """Deadline = min(max_seconds, budget + max(_LEAST + pods * _PER_POD + classes * _PER_CLASS, _TIMES * longest)).

    With declared networks _NETWORKS more.
    """

    def __init__(self, max_seconds: float, budget: float) -> None:
        """Without finished rounds; then the deadline is ``max_seconds``.

        Args:
            max_seconds: upper limit of the deadline in seconds.
            budget: seconds that a round may spend on improving its plan. It is added, because recent rounds may have
                ended without it: a round where all pods fit does not use its budget.
        """
        self._max_seconds, self._budget = max_seconds, budget
        self._durations: deque[float] = deque(maxlen=_ROUNDS)

    def round_took(self, seconds: float) -> None:
        """Records the length of a finished round."""
        self._durations.append(seconds)

    def seconds_for(self, pods: int, classes: int, *, networks: bool = False) -> float:
        """Deadline in seconds of a round.

        Args:
            pods, classes: how many it has.
            networks: whether it may have pods of declared networks.
        """
        if not self._durations:
            return self._max_seconds
        least = _LEAST + _PER_POD * pods + _PER_CLASS * classes
        usual = self._budget + max(least, _TIMES * max(self._durations))
        return min(self._max_seconds, usual + _NETWORKS * networks)
