"""What a plan loses for what it places, level by level: how plans with the same pods are compared.

The levels are the priorities of the pods that come. Running pods of a level's priority and above, but below the next
higher level, leave for pods of higher levels only. So after the pods of a level that wait come the victims that no
lower level may have: the highest priority of them, the sum of their priorities, as kube-scheduler compares victims
(framework/preemption pickOneNodeForPreemption), then the next level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowcore.planning.problem.placements.residents import PRIORITY_OFFSET

#: Below every priority: nobody leaves.
_NOBODY = -(2**32)

#: For each level from the highest: the highest priority of a victim, and the sum of the victims' priorities, each with
#: kube-scheduler's offset: so of equal highest priorities fewer victims are better.
Losses = tuple[int, ...]


class Levels:
    """The levels of the pods that come, the highest first."""

    def __init__(self, priorities: Iterable[int]) -> None:
        self._levels = sorted(set(priorities), reverse=True)
        self.none: Losses = (_NOBODY, 0) * len(self._levels)

    def __len__(self) -> int:
        return len(self._levels)

    def place(self, priority: int) -> int:
        """Which level a pod that comes is on, from 0."""
        return self._levels.index(priority)

    def loss(self, priority: int) -> Losses:
        """What it is to lose one running pod; a pod that is above all levels leaves for none."""
        level = next((place for place, lower in enumerate(self._levels[1:]) if priority >= lower), len(self) - 1)
        before, after = (_NOBODY, 0) * level, (_NOBODY, 0) * (len(self) - 1 - level)
        return (*before, priority, priority + PRIORITY_OFFSET, *after)

    def together(self, parts: Iterable[Losses]) -> Losses:
        """What it is to lose all of them."""
        total = list(self.none)
        for part in parts:
            for place in range(0, len(total), 2):
                total[place] = max(total[place], part[place])
                total[place + 1] += part[place + 1]
        return tuple(total)

    def standing(self, waiting: Sequence[int], losses: Losses) -> tuple[int, ...]:
        """What plans are compared by, the smaller the better.

        Args:
            waiting: what the pods of each level count for that get no node.
        """
        return tuple(
            amount
            for level, count in enumerate(waiting)
            for amount in (count, losses[2 * level], losses[2 * level + 1])
        )
