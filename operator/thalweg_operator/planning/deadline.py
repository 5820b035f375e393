"""The deadline of a round: a multiple of what recent rounds took for the namespaces whose pods it has.

A round that fails costs its deadline, and everybody waits. So what one namespace made long is no measure for rounds of
others, and a smaller one for its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

#: Shortest deadline in seconds, and the seconds that each pod and each class adds: caches may be cold.
_LEAST = 5.0
_PER_POD, _PER_CLASS = 0.002, 0.02
#: The deadline is this multiple of the longest of the last rounds; how many rounds are remembered.
_TIMES, _ROUNDS = 10.0, 100
#: A namespace that took more seconds of a round is dear. What it took counts for rounds with its pods only, and by this
#: multiple once there were pods of others.
_DEAR, _TIMES_DEAR = 0.1, 3.0


class RoundDeadline:
    """Deadline = min(max_seconds, budget + max(_LEAST + pods * _PER_POD + classes * _PER_CLASS, multiple))."""

    def __init__(self, max_seconds: float, budget: float) -> None:
        """Without finished rounds; then the deadline is ``max_seconds``.

        Args:
            max_seconds: upper limit of the deadline in seconds.
            budget: seconds that a round may spend on improving its plan. It is added, because recent rounds may have
                ended without it: a round where all pods fit does not use its budget.
        """
        self._max_seconds, self._budget = max_seconds, budget
        #: Of the last rounds: seconds of dear namespaces, and those of all others together.
        self._rounds: deque[tuple[Mapping[str, float], float]] = deque(maxlen=_ROUNDS)
        #: The namespace of all pods so far; "": there were several.
        self._only = ""

    def round_took(self, seconds: float, by_namespace: Mapping[str, float]) -> None:
        """Records a finished round.

        Args:
            seconds: its length.
            by_namespace: CPU seconds by the namespaces of its pods.
        """
        if not self._rounds:
            self._only = next(iter(by_namespace), "")
        if by_namespace.keys() != {self._only}:
            self._only = ""
        whole = sum(by_namespace.values())
        parts = {name: seconds * part / whole for name, part in by_namespace.items()} if whole else {}
        dear = {name: part for name, part in parts.items() if part > _DEAR}
        self._rounds.append((dear, seconds - sum(dear.values())))

    def seconds_for(self, pods: int, classes: int, namespaces: Collection[str]) -> float:
        """Deadline in seconds of a round.

        Args:
            pods, classes: how many it has.
            namespaces: those of its pods.
        """
        if not self._rounds:
            return self._max_seconds
        least = _LEAST + _PER_POD * pods + _PER_CLASS * classes
        times_own = _TIMES if self._only else _TIMES_DEAR
        usual = max(
            _TIMES * rest + times_own * sum(part for name, part in dear.items() if name in namespaces)
            for dear, rest in self._rounds
        )
        return min(self._max_seconds, self._budget + max(least, usual))
