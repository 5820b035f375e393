"""How long a round may take before it counts as failed: several times what rounds took lately."""

from __future__ import annotations

from collections import deque

#: Seconds that any round may take, and what each pod and class adds: caches may be cold.
_LEAST = 5.0
_PER_POD, _PER_CLASS = 0.002, 0.02
#: So many times as long as the longest of so many rounds.
_TIMES, _ROUNDS = 10.0, 100


class RoundDeadline:
    """See the module."""

    def __init__(self, most: float, budget: float) -> None:
        """With no round finished yet.

        Args:
            most: seconds that no round may exceed; until one was finished, each may take as long.
            budget: seconds that a round may go on looking for a better plan. Rounds where all pods fit do not use them,
                so what rounds took lately does not tell of it.
        """
        self._most, self._budget = most, budget
        self._took: deque[float] = deque(maxlen=_ROUNDS)

    def took(self, seconds: float) -> None:
        """A round was finished after so many seconds."""
        self._took.append(seconds)

    def of(self, pods: int, classes: int) -> float:
        """Seconds that a round of so many pods in so many classes may take."""
        if not self._took:
            return self._most
        least = _LEAST + _PER_POD * pods + _PER_CLASS * classes
        return min(self._most, self._budget + max(least, _TIMES * max(self._took)))
