"""Pods whose nodes the program decides, and what the round's plans are compared by beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod


@dataclass(frozen=True, slots=True, eq=False)
class Coming:
    """Pods of one demand, the dearest to leave first.

    Attributes:
        worths: what each counts for among those that wait, at least 1.
        preempts: whether others may be evicted for them; if not, others are only moved.
        group: number of their atomic group; -1: each by itself.
        residents: their placements, of pods that have nodes and keep one; (): they wait.
    """

    demand: int
    pods: tuple[PendingPod, ...]
    preempts: bool
    worths: tuple[int, ...]
    group: int = -1
    residents: tuple[int, ...] = ()

    @property
    def priority(self) -> int:
        """Of each."""
        return self.pods[0].pod_class.priority

    @property
    def only_forbids(self) -> bool:
        """Whether no rule of theirs wants others near them, or evenly spread."""
        constraints = self.pods[0].signature.constraints
        return constraints is None or not (constraints.affinity or constraints.spread)


@dataclass(frozen=True, slots=True, eq=False)
class ChoosingGang:
    """A gang whose waiting pods all go to the same domain.

    Attributes:
        group: number of its atomic group.
        demands: of its pods.
        domains: int64[N], the domain of each node; below zero: none.
    """

    group: int
    demands: frozenset[int]
    domains: Int64s


class Levels:
    """The priorities of pods that come, the highest first."""

    def __init__(self, coming: Sequence[Coming]) -> None:
        self.priorities = sorted({each.priority for each in coming}, reverse=True)

    def of_victim(self, priority: int) -> int:
        """The first level whose pods alone may have a victim of a priority: those of the next one are not above it."""
        lower = enumerate(self.priorities[1:])
        return next((level for level, each in lower if priority >= each), len(self.priorities) - 1)
