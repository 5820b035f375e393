"""What a round returns."""

from __future__ import annotations

from dataclasses import dataclass

from flowcore.model.holds import NO_HOLDS, Holds
from flowcore.model.snapshot import PendingPod, Snapshot
from flowcore.rounds.contradictions import Contradiction


def gap(cost: int, lower_bound: int) -> float:
    """How much of a cost is not proved to be needed, 0..1."""
    return (cost - lower_bound) / cost if cost > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod, the node it is to go to, what that costs, and when its turn is.

    Attributes:
        chain, wave: those of one chain go wave by wave, no chain waits for another (``waves``); 0: whenever.
        unit: placements with the same unit are carried out all or not at all; "": by itself.
        spare: its unit does without it, but it is nothing without its unit: a gang's pod beyond those it needs.
    """

    pod: PendingPod
    node: str
    price: int
    wave: int = 0
    chain: int = 0
    unit: str = ""
    spare: bool = False


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
        placements: in commit order; each passed every filter against the snapshot and those before it, one that
            replaces another without that one.
        left: what stays pending.
        cost: sum of all prices, of what is left too.
        lower_bound: no plan for the snapshot that replaces the same pods costs less; computed from the snapshot by our
            own code, whatever solvers said.
        method: which way gave it.
        steps: steps of work taken; the same snapshot, policies, seed and steps give the same plan.
        solves: how many min-cost flows were solved.
        arcs: arcs of the largest of them.
        after: the snapshot with the placements counted as taken and nothing pending.
        contradictions: policies that rule some of their own pods out.
        holds: how long room has been kept for gangs, this round included; the next one is to be told.
    """

    generation: int
    placements: tuple[Placement, ...]
    left: tuple[Left, ...]
    cost: int
    lower_bound: int
    method: str
    steps: int
    solves: int
    arcs: int
    after: Snapshot
    contradictions: tuple[Contradiction, ...] = ()
    holds: Holds = NO_HOLDS

    @property
    def gap(self) -> float:
        """How much of the cost is not proved to be needed, 0..1."""
        return gap(self.cost, self.lower_bound)

    @property
    def certified(self) -> bool:
        """Whether no plan can cost less: the cost is its lower bound."""
        return self.cost == self.lower_bound
