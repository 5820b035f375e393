"""What a plan loses for what it places, level by level: how plans with the same pods are compared.

The levels are the priorities of the pods that come. Running pods of a level's priority and above, but below the next
higher level, leave for pods of higher levels only. So after the pods of a level that wait come the victims that no
lower level may have: the highest priority of them, the sum of their priorities, as kube-scheduler compares victims
(framework/preemption pickOneNodeForPreemption), then the next level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowcore.planning.plan_key import NOBODY, PRIORITY_OFFSET, AtLevel, Loss, PlanKey

#: For each level from the highest.
Losses = tuple[Loss, ...]


class Levels:
    """The levels of the pods that come, the highest first."""

    def __init__(self, priorities: Iterable[int]) -> None:
        self._levels = sorted(set(priorities), reverse=True)
        self.none: Losses = (NOBODY,) * len(self._levels)

    def __len__(self) -> int:
        return len(self._levels)

    def place(self, priority: int) -> int:
        """Which level a pod that comes is on, from 0."""
        return self._levels.index(priority)

    def loss(self, priority: int) -> Losses:
        """What it is to lose one running pod; a pod that is above all levels leaves for none."""
        level = next((place for place, lower in enumerate(self._levels[1:]) if priority >= lower), len(self) - 1)
        return (*self.none[:level], Loss(priority, priority + PRIORITY_OFFSET, 1), *self.none[level + 1 :])

    def together(self, parts: Iterable[Losses]) -> Losses:
        """What it is to lose all of them."""
        return tuple(map(Loss.together, zip(self.none, *parts, strict=True)))

    def key(self, waiting: Sequence[int], losses: Losses) -> PlanKey:
        """What plans are compared by.

        Args:
            waiting: what the pods of each level count for that get no node.
        """
        return PlanKey(levels=tuple(AtLevel(count, lost=lost) for count, lost in zip(waiting, losses, strict=True)))
