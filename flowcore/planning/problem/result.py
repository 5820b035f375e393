"""What a round returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.backfill_history import NO_BACKFILL_HISTORY, BackfillHistory
from flowcore.model.policies import Policy
from flowcore.model.running_pods import EvictionKind, RunningPod
from flowcore.model.volumes import VolumeChoice
from flowcore.planning.problem.bounds.bound_notes import BoundNote
from flowcore.planning.problem.contradictions import Contradiction
from flowcore.planning.problem.left_at_least import LeftAtLeast
from flowcore.rules.devices.columns.with_columns import WithColumns


class Bounded:
    """A plan's cost and a lower bound of it: how good the plan is for sure."""

    __slots__ = ()
    cost: int
    lower_bound: int

    @property
    def gap(self) -> float:
        """Optimality gap, 0..1: (cost - lower bound) / the larger of the two, whatever their signs."""
        largest = max(abs(self.cost), abs(self.lower_bound))
        return min(1.0, (self.cost - self.lower_bound) / largest) if largest else 0.0

    @property
    def certified(self) -> bool:
        """Whether no plan costs less: the cost is its lower bound."""
        return self.cost == self.lower_bound


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod, the node it is to go to, what that costs, and when its turn is.

    Attributes:
        chain, wave: those of one chain go wave by wave, no chain waits for another (``waves``); 0: whenever.
        atomic_group: placements with the same unit are carried out all or not at all; "": by itself.
        optional: its unit does without it, but it is nothing without its unit: a gang's pod beyond those it needs.
        victims: keys of the running pods that must leave before it comes (RoundResult.evictions).
        unscheduled_price: what leaving it would cost; 0: it was not up for choice.
        volumes: what each claim of it that waits for its first consumer is to get.
        way: the arcs of its policy's network that it passes, where its node does not say that; (): it does.
    """

    pod: PendingPod
    node: str
    price: int
    wave: int = 0
    chain: int = 0
    atomic_group: str = ""
    optional: bool = False
    victims: tuple[str, ...] = ()
    unscheduled_price: int = 0
    volumes: tuple[VolumeChoice, ...] = ()
    way: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Eviction:
    """A running pod that leaves its node.

    Attributes:
        for_pods: keys of the pods that it leaves for.
        to: the node where room for its replacement is free now and reserved; "": none.
        reason: a sentence for people beyond the kind; "": none.
        by_controller: another controller evicts it; only the room for its replacement is ours to reserve.
        gain: of a move for gain: what its node costs it now less what ``to`` costs it then; 0: it leaves for others.
        price: what it costs that the pod leaves, by its policy (evictions/moves/move_prices.py); 0: none governs it.
    """

    pod: RunningPod
    kind: EvictionKind
    for_pods: tuple[str, ...] = ()
    to: str = ""
    reason: str = ""
    by_controller: bool = False
    gain: int = 0
    price: int = 0

    @property
    def cost(self) -> int:
        """What it adds to the cost of a plan; below zero: it saves that."""
        return self.price - self.gain


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod that stays pending, why, and what that costs.

    Attributes:
        code: the kind of reason, one of a fixed set (rules/reasons/codes.py).
        more_nodes_help: whether another node may take it.
        settles_in: seconds until waiting costs as much as the cheapest node that has room; 0: no such reason, or never.
        frees: namespace and name of each ResourceClaim that is freed for it (rules/idle_claims.py).
    """

    pod: PendingPod
    reason: str
    price: int
    code: str
    more_nodes_help: bool
    settles_in: float = 0.0
    frees: tuple[ClaimKey, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundResult(Bounded):
    """A plan for all pending pods of a snapshot: each is either placed or left, never both.

    Attributes:
        generation: of the snapshot that it was made from.
        placements: in commit order; each passed every filter against the snapshot and those before it, one that
            replaces another without that one.
        unplaced: what stays pending.
        cost: sum of all prices, of what is left and of who leaves too, less what moves for gain gain; so a plan that
            places no pod and moves some costs less than nothing.
        lower_bound: no plan costs less that replaces the same pods, lets in the same pods of queues, and looks at the
            same kinds of pods for gain; computed from the snapshot by our own code, whatever solvers said. If no pod
            leaves, it is about plans in which none does; if pods leave for gain only, about plans in which none leaves
            for another reason.
        bound_notes: what the bound does not count in full; a gap may come of that. Empty for a certified plan.
        method: which way gave it.
        steps: steps of work taken; the same snapshot, policies, seed and steps give the same plan.
        solves: how many min-cost flows were solved.
        arcs: arcs of the largest of them.
        after: the snapshot with the placements counted as taken and nothing pending.
        contradictions: policies that rule some of their own pods out.
        holds: how long room has been kept for gangs, this round included; the next one is to be told.
        evictions: running pods that leave, each once.
        proposals: running pods that would leave if every policy that proposes moves acted.
        left_at_least: what every plan leaves; None: the plan leaves nothing.
    """

    generation: int
    placements: tuple[Placement, ...]
    unplaced: tuple[Unplaced, ...]
    cost: int
    lower_bound: int
    method: str
    steps: int
    solves: int
    arcs: int
    after: Snapshot
    contradictions: tuple[Contradiction, ...] = ()
    holds: BackfillHistory = NO_BACKFILL_HISTORY
    evictions: tuple[Eviction, ...] = ()
    proposals: tuple[Eviction, ...] = ()
    left_at_least: LeftAtLeast | None = None
    bound_notes: tuple[BoundNote, ...] = ()

    def bounded_by(self, bound: int, notes: tuple[BoundNote, ...], gained: int = 0) -> RoundResult:
        """The result with a cost that no plan goes below, and what that does not count in full.

        Args:
            bound: of what plans cost before moves for gain.
            gained: the most that these gain beyond their prices.
        """
        bound = min(max(bound, 0) - gained, self.cost)
        pods = [*(each.pod for each in self.placements), *(each.pod for each in self.unplaced)]
        if self.unplaced and len({pod.pod_class.priority for pod in pods}) > 1:
            notes = (*notes, BoundNote.PRIORITIES)
        return replace(self, lower_bound=bound, bound_notes=() if bound == self.cost else notes)


#: What a placement has beside its pod, its first field. There may be thousands of them.
_BESIDE_POD = attrgetter(*[field.name for field in fields(Placement)][1:])


def without_columns(result: RoundResult, columns: WithColumns, policies: Mapping[str, Policy]) -> RoundResult:
    """The result of a round with columns of devices for the snapshot without them: its pods claim what they claim.

    kube-scheduler gives its pods the first devices of a node that fit. Pods that we bind get others, so that seldom a
    device is given twice.
    """
    if columns.snapshot is columns.begun:
        return result
    kube_scheduler_first = sorted(result.placements, key=lambda each: policies[each.pod.policy].delivery.binds)
    placed = ((placement.pod, placement.node) for placement in kube_scheduler_first)
    return replace(
        result,
        placements=tuple(Placement(columns.pod(each.pod), *_BESIDE_POD(each)) for each in result.placements),
        unplaced=tuple(replace(each, pod=columns.pod(each.pod)) for each in result.unplaced),
        after=columns.without(result.after, placed),
        evictions=tuple(replace(each, pod=columns.running_pod(each.pod)) for each in result.evictions),
        proposals=tuple(replace(each, pod=columns.running_pod(each.pod)) for each in result.proposals),
    )
