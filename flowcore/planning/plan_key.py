"""What plans are compared by, the smaller the better: the one order for waiting and running pods.

Duties come first, then level by level what has no node, then who leaves and who moves, and the cost at last. A search
that decides only some of it leaves the rest as it is in every plan that it compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

#: kube-scheduler adds this to each priority, so that fewer victims of low priority are better than many
#: (framework/preemption pickOneNodeForPreemption).
PRIORITY_OFFSET = 2**31


class Loss(NamedTuple):
    """Running pods that leave, in the order in which kube-scheduler compares nodes (pickOneNodeForPreemption).

    Attributes:
        highest: priority among them.
        total: sum of their priorities with ``PRIORITY_OFFSET``, or what a policy has summed in its place.
        number: of them. This and ``total`` are for each pod that they leave for.
        pods: how many they leave for, negative: of equal losses the one for more pods is better.
        latest: when the first of those with the highest priority started, negative: the later the better.
    """

    highest: float = -math.inf
    total: float = 0.0
    number: float = 0.0
    pods: int = 0
    latest: float = 0.0

    @classmethod
    def together(cls, parts: Iterable[Loss]) -> Loss:
        """Of all of these; for which pods, and since when they run, is left out."""
        highest, total, numbers, *_ = zip(NOBODY, *parts, strict=True)
        return cls(max(highest), sum(total), sum(numbers))


NOBODY = Loss()


class AtLevel(NamedTuple):
    """What has no node at a level.

    Attributes:
        waiting: what the pods that wait count for (``Demand.worth``).
        strays: pods that are not on the node that they wish for.
        lost: running pods that leave and that no pod of a lower level may have.
    """

    waiting: int = 0
    strays: int = 0
    lost: Loss = NOBODY


class PlanKey(NamedTuple):
    """The key of a plan.

    Attributes:
        duties: not met: gangs that go first, at what they cost to leave, and pods that must be placed.
        levels: from the highest.
        victims: pods that leave without a new node, as far as ``levels`` do not have them.
        moves: made for waiting pods.
        moved: who they are.
        cost: of the pods of the round.
    """

    duties: int = 0
    levels: tuple[AtLevel, ...] = ()
    victims: Loss = NOBODY
    moves: int = 0
    moved: Loss = NOBODY
    cost: int = 0
