"""How good a round's plan is, in pods and by size: what it leaves, and what every plan leaves.

The bounds are those of ``methods.pooled_room``.

The room of every running pod that the round's policies, priorities and queues may let go counts as room. A pod that may
only be moved needs room somewhere: it is one more pod, which every plan places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.shares.kept_out import LeftByLimits, QueueLimits
from flowcore.model.pod_index import EMPTY_SIGNATURE
from flowcore.model.pods import PodClass
from flowcore.model.policies import DuringExecution, ReschedulingMode
from flowcore.model.resources import Amounts, is_extended
from flowcore.model.running_pods import RunningPod
from flowcore.planning.evictions.eligibility import highest_preempting
from flowcore.planning.methods.pod_kinds import PodKind
from flowcore.planning.methods.pooled_room import PooledRoom
from flowcore.planning.problem.bounds.bound_notes import BoundNote
from flowcore.planning.problem.cost_matrix import FitCounts, spare_room
from flowcore.planning.problem.demands.demands import node_totals
from flowcore.planning.problem.left_at_least import LeftAtLeast, LeftOfLevel
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Unplaced
from flowcore.rules.filters import pod_independent_fits
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.reasons.codes import CHEAPER_TO_WAIT, QUEUE_LIMIT

#: Kinds of pods that may only be moved and are told apart. Of the others those of about one size count as one kind, as
#: small as the smallest, that may go anywhere.
_MOST_MOVED = 200
#: Priorities of waiting pods of which each has a bound of its own, the highest first: each costs a round in fractions.
_MOST_LEVELS = 10
#: No pod has a lower priority.
_LOWEST_PRIORITY = -(2**31)
#: Sizes are whole numbers of parts of a mean node. No pod counts as larger than this: some ask for any amount.
_PARTS, _LARGEST_SIZE = 100_000, 2**50
#: Sums of what pods count for stay below this.
_LARGEST_SUM = 2**60


def left_at_least(problem: Problem, begun: Snapshot, unplaced: Sequence[Unplaced]) -> LeftAtLeast | None:
    """What every plan of a round leaves; None where no pod waits.

    Args:
        problem: what the first part of the round solved, after all passes.
        begun: the snapshot that the round began with.
        unplaced: what its plan leaves.
    """
    if not unplaced:
        return None
    least = _LeastPods(problem, begun)
    pods, amount = least.of(_LOWEST_PRIORITY), 0
    notes = least.notes(unplaced)
    sizes = _Sizes(begun)
    size = sum(sizes.of_pod(each.pod.pod_class) for each in unplaced) / _PARTS
    if least.bounds is None:
        notes = () if pods == len(unplaced) else notes
        return LeftAtLeast(len(unplaced), pods, bound_notes=notes, size=size)
    resource, asked = _most_asked(begun, unplaced)
    if resource:
        requests = np.array([demand.requests[begun.resources.index(resource)] for demand in problem.demands])
        amount = least.bounds.least(requests)
        # So much of it is asked for by so many pods at least.
        pods = max(pods, -(-amount // max(1, int(requests.max()))))
    levels, further = _by_level(problem, least, unplaced, pods)
    # Who is left of higher priorities is left.
    pods = max([pods, *(level.pods for level in levels)])
    if (pods, amount) == (len(unplaced), asked):
        notes = ()
    least_size = 0.0
    if pods < len(unplaced) and not amount:
        parts = np.array([sizes.of_requests(demand.requests) for demand in problem.demands], dtype=np.int64)
        least_size = least.bounds.least(parts) / _PARTS
    return LeftAtLeast(len(unplaced), pods, resource, asked, amount, levels, further, notes, size, least_size)


class _Sizes:
    """How large pods are, in parts of a mean node."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        everything, offering = node_totals(snapshot)
        # What no node offers is no part of one.
        self._parts = _PARTS * np.where(snapshot.allocatable.any(axis=0), offering / everything, 0.0)
        self._known: dict[PodClass, int] = {}

    def of_requests(self, requests: Int64s) -> int:
        """Of int64[R]."""
        return int(min((requests * self._parts).max(), _LARGEST_SIZE))

    def of_pod(self, pod_class: PodClass) -> int:
        """Of a pod."""
        if pod_class not in self._known:
            self._known[pod_class] = self.of_requests(self._snapshot.vector(pod_class.requests))
        return self._known[pod_class]


class _LeastPods:
    """How many pods every plan leaves, of all pods or of the higher priorities.

    Attributes:
        bounds: of the pods that were not decided before the rest; None: there are none.
    """

    def __init__(self, problem: Problem, begun: Snapshot) -> None:
        self._problem, self._demands, self._begun = problem, problem.demands, begun
        self.bounds: _Bounds | None = None
        self._some_may_leave = self._counts_rules = False
        if problem.demands:
            leaving = _Leaving.of(problem, begun)
            self._some_may_leave = leaving.any
            # Passes have taken room for the pods that they decided. Other plans may give it to others.
            self._counts_rules = not leaving.any and problem.snapshot.used is begun.used
            self.bounds = _Bounds.of(problem) if self._counts_rules else _Bounds.with_leaving(problem, begun, leaving)
        self._limits: QueueLimits | None = None
        if begun.queues is not None and any(queue.limit for queue in begun.queues.queues):
            running = () if begun.running is None else begun.running.pods
            self._limits = QueueLimits(begun, (pod for pod in running if _may_leave(pod)))

    def of(self, lowest: int) -> int:
        """The least number of pods of this priority and of higher ones that a plan leaves.

        Limits of queues keep some out whichever they let in; of the pods of other queues room keeps some out.
        """
        kept = LeftByLimits() if self._limits is None else self._limits.kept_out(lowest)
        if self.bounds is None:
            return kept.pods
        of_level = np.array([demand.group.pod_class.priority >= lowest for demand in self._demands])
        least = self.bounds.least(of_level.astype(np.int64))
        if not kept.pods:
            return least
        apart = [kept.queues.isdisjoint(pod.queue for pod in demand.group.pods) for demand in self._demands]
        others = of_level & np.array(apart)
        return max(least, kept.pods + (self.bounds.least(others.astype(np.int64)) if others.any() else 0))

    def notes(self, unplaced: Sequence[Unplaced]) -> tuple[str, ...]:
        """Codes of what the bounds do not count in full.

        Args:
            unplaced: what the plan leaves.
        """
        ruled = any(demand.constraints.constrained for demand in self._demands)
        priorities = {pod.pod_class.priority for pod in self._begun.pending}
        # Those that limits of queues keep out are counted.
        planned = len(self._begun.pending) - sum(each.code == QUEUE_LIMIT for each in unplaced)
        parts = {
            BoundNote.FRACTIONS: self.bounds is not None,
            BoundNote.RULES: ruled and self._counts_rules,
            BoundNote.NO_RULES: ruled and not self._counts_rules,
            BoundNote.GANGS: bool(self._problem.atomic_groups.all),
            BoundNote.MAY_LEAVE: self._some_may_leave,
            BoundNote.ANY_COST: len(priorities) > 1 or any(each.code == CHEAPER_TO_WAIT for each in unplaced),
            BoundNote.DECIDED: sum(demand.count for demand in self._demands) < planned,
        }
        return tuple(note.value for note, is_there in parts.items() if is_there)


def _may_leave(pod: RunningPod) -> bool:
    """Whether a running pod may leave its node in some round."""
    return not pod.unevictable_reason or pod.during_execution is DuringExecution.EVICT


def _by_level(
    problem: Problem, least: _LeastPods, unplaced: Sequence[Unplaced], pods: int
) -> tuple[tuple[LeftOfLevel, ...], int]:
    """What every plan leaves of each priority of pods that wait and of all higher ones; how many have no answer.

    Args:
        pods: what every plan leaves of all pods.
    """
    waiting = Counter(each.pod.pod_class.priority for each in unplaced)
    priorities = {*waiting, *(demand.group.pod_class.priority for demand in problem.demands)}
    if len(priorities) < 2:
        return (), 0
    levels: list[LeftOfLevel] = []
    left = known = 0
    for priority in sorted(waiting, reverse=True)[:_MOST_LEVELS]:
        left += waiting[priority]
        known = max(known, pods if priority == min(priorities) else least.of(priority))
        levels.append(LeftOfLevel(priority, left, known))
    return tuple(levels), len(waiting) - len(levels)


def _most_asked(snapshot: Snapshot, unplaced: Sequence[Unplaced]) -> tuple[str, int]:
    """The resource, extended or of devices, of which pods ask for the largest part of what nodes offer, and how much.

    "": none.
    """
    asked: Counter[str] = Counter()
    devices = () if snapshot.columns is None else snapshot.columns.names
    for requests, pods in Counter(each.pod.pod_class.requests for each in unplaced).items():
        asked.update({name: amount * pods for name, amount in requests if is_extended(name) or name in devices})
    offered = dict(zip(snapshot.resources, snapshot.allocatable.sum(axis=0, dtype=np.float64).tolist(), strict=True))
    resource = max(
        (name for name in asked if offered.get(name)), key=lambda name: asked[name] / offered[name], default=""
    )
    return resource, asked[resource]


@dataclass(frozen=True, slots=True, eq=False)
class _Bounds:
    """What is known of every plan.

    Attributes:
        pods: int64[K], that may have room: of each demand, then those that may only be moved.
        pooled: their room; None: nobody has any.
        hopeless: int64[C], pods of each demand that no plan places.
    """

    pods: Int64s
    pooled: PooledRoom | None
    hopeless: Int64s

    @classmethod
    def of(cls, problem: Problem) -> _Bounds:
        """Where no running pod leaves: the room, and what each demand takes of it alone, are those of the round."""
        demands = problem.demands
        hopeless = _hopeless(problem, [demand.counts for demand in demands])
        for index, demand in enumerate(demands):
            if demand.constraints.limits:
                most = demand.constraints.max_placeable(demand.counts)
                hopeless[index] = max(hopeless[index], demand.count - most)
        kinds = [
            PodKind.of_room(place, demand.requests, demand.count - gone, demand.allowed, demand.counts)
            for place, (demand, gone) in enumerate(zip(demands, hopeless.tolist(), strict=True))
        ]
        return cls._of_kinds(kinds, problem.unreserved_cost_matrix.spare, hopeless)

    @classmethod
    def with_leaving(cls, problem: Problem, begun: Snapshot, leaving: _Leaving) -> _Bounds:
        """Where running pods leave, only what pods cannot change keeps nodes from a demand."""
        room, demands, run_filter = leaving.room, problem.demands, problem.cache.run_filter
        allowed: list[Bools] = []
        counts: list[FitCounts] = []
        for demand in demands:
            group = demand.group
            fits = pod_independent_fits(group.pod_class, group.signature, begun, run_filter)
            most = count_fitting(demand.requests, room) * fits
            allowed.append(fits)
            # Of all demands together these are large.
            counts.append(np.minimum(most, 1 if group.pod_class.host_ports else demand.count).astype(np.int32))
        hopeless = _hopeless(problem, counts)
        kinds = [
            PodKind.of_room(place, demand.requests, demand.count - int(hopeless[place]), allowed[place], counts[place])
            for place, demand in enumerate(demands)
        ]
        for pod_class, amounts, homes in leaving.moved:
            pods, fits = int(homes.sum()), np.ones(len(room), dtype=np.bool_)
            if pod_class is not None:
                fits = pod_independent_fits(pod_class, EMPTY_SIGNATURE, begun, run_filter) | (homes > 0)
            fitting = np.minimum(count_fitting(amounts, room) * fits, pods).astype(np.int32)
            kinds.append(PodKind.of_room(len(kinds), amounts, pods, fits, fitting))
        requests = [*(demand.requests for demand in demands), *(amounts for _, amounts, _ in leaving.moved)]
        spare = spare_room(requests, [int(kind.pods) for kind in kinds], [kind.most for kind in kinds], room)
        return cls._of_kinds(kinds, spare, hopeless)

    @classmethod
    def _of_kinds(cls, kinds: Sequence[PodKind], spare: Int64s, hopeless: Int64s) -> _Bounds:
        pods = np.array([kind.pods for kind in kinds], dtype=np.int64)
        return cls(pods, PooledRoom.of(kinds, spare), hopeless)

    def least(self, weights: Int64s) -> int:
        """The least sum of weights, int64[C] by demand, of the pods that a plan leaves."""
        pods, moved = self.pods[: len(weights)], self.pods[len(weights) :]
        # A pod may ask for any amount. One that counts for less makes the bound weaker, and no sum leaves int64.
        everybody = int((pods + self.hopeless).sum()) * (int(moved.sum()) + 1)
        weights = np.minimum(weights, _LARGEST_SUM // max(1, everybody))
        if self.pooled is None:
            return int(((pods + self.hopeless) * weights).sum())
        # A moved pod that is left would count for more than all that waits: no plan leaves one.
        most = int((pods * weights).sum()) + 1
        all_weights = np.append(weights, np.full(len(moved), most, dtype=np.int64))
        least = self.pooled.least(all_weights, self.pooled.prices(all_weights))
        return least + int((self.hopeless * weights).sum())


def _hopeless(problem: Problem, counts: Sequence[FitCounts]) -> Int64s:
    """int64[C]: pods of groups that are placed as a whole and that nodes do not have room for as a whole."""
    groups = problem.atomic_groups
    if not groups.all:
        return np.zeros(len(counts), dtype=np.int64)
    most = [int(each.sum()) for each in counts]
    absent = np.array(
        [
            group.is_certain
            and (
                bool(group.unschedulable_reason)
                or any(
                    sum(min(len(places), most[index]) for index, places in members.items()) < gang.min_placed
                    for gang, members in zip(group.gangs, group.members, strict=True)
                )
            )
            for group in groups.all
        ]
    )
    return np.array([int((absent[of] & (of >= 0)).sum()) for of in groups.group_of], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Leaving:
    """Running pods that may leave their node in this round: not those of PodDisruptionBudgets that let nobody go.

    Attributes:
        any: whether there are any.
        room: int64[N, R], what is free if all of them leave.
        moved: kinds of those that leave for another node only: the class, None for any, int64[R] what one takes at
            least, and int64[N] how many run on each node.
    """

    any: bool
    room: Int64s
    moved: tuple[tuple[PodClass | None, Int64s, Int64s], ...]

    @classmethod
    def of(cls, problem: Problem, snapshot: Snapshot) -> _Leaving:
        """The pods of a snapshot that may leave or move."""
        room, running, index = snapshot.free.copy(), snapshot.running, snapshot.table.index
        if running is None:
            return cls(False, np.maximum(room, 0), ())
        highest = highest_preempting(snapshot.pending, problem.policies, snapshot.now)
        moving = {name for name, policy in problem.policies.items() if policy.rescheduling.mode is ReschedulingMode.ACT}
        leaving: Counter[tuple[Amounts, str]] = Counter()
        moved: dict[tuple[PodClass, Amounts], list[RunningPod]] = {}
        for pod in running.pods:
            if pod.node not in index:
                continue
            guarded = any(running.budgets.get(budget, 0) <= 0 for budget in pod.budgets)
            evictable, during = not (pod.unevictable_reason or guarded), pod.during_execution
            if during is DuringExecution.EVICT or (evictable and (pod.priority < highest or pod.queue)):
                leaving[pod.usage, pod.node] += 1
            elif during is DuringExecution.REPLACE or (evictable and pod.policy in moving):
                moved.setdefault((pod.pod_class, pod.usage), []).append(pod)
        if not leaving and not moved:
            return cls(False, np.maximum(room, 0), ())
        vectors = {usage: snapshot.vector(usage) for usage in dict.fromkeys(usage for usage, _ in leaving)}
        for (usage, node), count in leaving.items():
            room[index[node]] += vectors[usage] * count
        # In an order that does not depend on how the pods became known.
        kinds = sorted(moved, key=lambda kind: (-len(moved[kind]), min(pod.key for pod in moved[kind])))
        staying = np.zeros_like(room)
        groups: dict[object, tuple[PodClass | None, Int64s, list[int]]] = {}
        for number, kind in enumerate(kinds):
            amounts, nodes = snapshot.vector(kind[1]), [index[pod.node] for pod in moved[kind]]
            np.add.at(staying, nodes, amounts)
            if number < _MOST_MOVED:
                groups[kind] = kind[0], amounts, nodes
                continue
            size = tuple(amount.bit_length() for amount in amounts.tolist())
            _, least, others = groups.get(size, (None, amounts, []))
            groups[size] = None, np.minimum(least, amounts), others + nodes
        entries = [
            (pod_class, amounts, np.bincount(nodes, minlength=len(room)))
            for pod_class, amounts, nodes in groups.values()
        ]
        # Where a node holds more than it offers, its pods may stay all the same.
        return cls(True, np.maximum(room + staying, staying).clip(0), tuple(entries))
