"""What a round returns."""

from __future__ import annotations

from dataclasses import dataclass

from flowcore.model.snapshot import PendingPod, Snapshot


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod, the node it is to go to, and what that costs."""

    pod: PendingPod
    node: str
    price: int


@dataclass(frozen=True, slots=True)
class Left:
    """A pod that stays pending, why, and what that costs."""

    pod: PendingPod
    reason: str
    price: int


@dataclass(frozen=True, slots=True)
class RoundResult:
    """A plan for all pending pods of a snapshot: each is either placed or left, never both.

    Attributes:
        generation: of the snapshot that it was made from.
        placements: in commit order; each passed every filter against the snapshot and those before it.
        left: what stays pending.
        cost: sum of all prices, of what is left too.
        method: which way gave it: ``flow``, or the one-by-one floor where that was cheaper.
        solves: how many min-cost flows were solved.
        arcs: arcs of the largest of them.
        after: the snapshot with the placements counted as taken and nothing pending.
    """

    generation: int
    placements: tuple[Placement, ...]
    left: tuple[Left, ...]
    cost: int
    method: str
    solves: int
    arcs: int
    after: Snapshot
