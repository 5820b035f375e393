"""A candidate plan of a problem."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.planning.problem.bounds.bound_notes import BoundNote
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.result import Placement, Unplaced


@dataclass(frozen=True, slots=True)
class HeldCapacity:
    """Capacity that nobody else gets: room for some pods of an atomic group.

    Attributes:
        group: number of the atomic group.
        commits: pods that the capacity is held for, and on which nodes.
    """

    group: int
    commits: tuple[Commit, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """Pods that were decided before the rest of the round.

    Attributes:
        slack: by how much they may cost more than the least that is possible.
        before: the cluster as it was before them, where the rest of the round may cost less without them; else None.
        notes: what the bound of the rest does not count in full then.
    """

    placements: tuple[Placement, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    slack: int = 0
    before: Snapshot | None = field(default=None, compare=False)
    notes: tuple[BoundNote, ...] = ()

    @property
    def cost(self) -> int:
        """Sum of their prices."""
        return sum(each.price for each in self.placements) + sum(each.price for each in self.unplaced)

    @property
    def least_cost(self) -> int:
        """The least that is possible for them."""
        return self.cost - self.slack


NOTHING_DECIDED = Decided()


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A plan of a problem: groups that are placed whole, and where pods go.

    Attributes:
        method: what made it.
        admitted: bool[U], groups of which every needed pod is placed.
        demands: those of the problem, each kept to one domain where an admitted group must be in one.
        commits: the placements.
        capacity: what the placements leave free.
        cost: of the placements and of every pod that is left pending.
        decided: pods that a pass decided, and that are not in ``commits``; ``cost`` includes them.
        held: capacity of ``capacity`` that nobody else gets after the round either.
        put_off: groups that are not admitted and for which some domains were left untried.
    """

    method: str
    admitted: Bools
    demands: tuple[Demand, ...]
    commits: tuple[Commit, ...]
    capacity: Plan
    cost: int
    decided: Decided = NOTHING_DECIDED
    held: HeldCapacity | None = None
    put_off: frozenset[int] = frozenset()

    def with_decided(self, more: Decided) -> Candidate:
        """The candidate with these pods too, and what they cost."""
        before = self.decided
        decided = Decided(
            (*before.placements, *more.placements),
            (*before.unplaced, *more.unplaced),
            before.slack + more.slack,
            before.before if more.before is None else more.before,
            (*before.notes, *more.notes),
        )
        return replace(self, decided=decided, cost=self.cost + more.cost)
