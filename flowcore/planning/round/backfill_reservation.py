"""Backfill reservation: capacity held for a gang that has waited long, so that small pods do not take it bit by bit.

A gang is overdue when it has waited longer than its policy allows (``GangPolicy.hold_room_after``). Of the overdue
atomic groups that would fit if all pods left that can, the group with the highest unscheduled cost is placed after
everything that costs more. If it fits then, it is admitted before others; if not, the
capacity for as many of its pods as fit is held out of the round. Capacity is held for one group a round, up to a share
of the cluster, until a deadline (``model/backfill_history.py``), and never from a pod of a higher priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs.model import Float64s
from flowcore.model.backfill_history import BackfillHistory
from flowcore.model.policies import GangPolicy
from flowcore.model.resources import PODS
from flowcore.planning.methods.admission import Admission, complete
from flowcore.planning.methods.admission_run import AdmissionRun
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup
from flowcore.planning.problem.passes import Pass
from flowcore.planning.problem.placements.candidate import Candidate, HeldCapacity
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.domain_room import DomainRoom, may_hold, needs_of
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import RoundResult
from flowcore.rules.topology.domains import Domains


class ReserveBackfill(Pass):
    """Holds capacity for an overdue group that is not admitted, where there is one."""

    def __init__(self) -> None:
        self._before: Problem
        self._after: Problem

    def apply(self, problem: Problem) -> Problem:
        """The problem with less capacity, or with a group that goes before others."""
        self._before = problem
        self._after = _reserve(problem)
        return self._after

    def invert(self, candidate: Candidate) -> Candidate:
        """The candidate with the held capacity given back, and with groups that fit beside it after all.

        If the group itself is admitted, nothing stays held, and pods that wait may have the capacity.
        """
        held, demands = self._after.held, self._after.demands
        if held is None:
            return complete(self._after, candidate)
        if candidate.admitted[held.group]:
            released = replace(candidate, capacity=candidate.capacity.copy().hold(demands, held.commits, -1))
            return complete(self._before, released, full=True)
        completed = complete(self._after, candidate)
        return replace(completed, capacity=completed.capacity.copy().hold(demands, held.commits, -1), held=held)


def _reserve(problem: Problem) -> Problem:
    snapshot, groups = problem.snapshot, problem.atomic_groups.all
    history = snapshot.backfill_history.expired()
    next_backoffs, backing_off = history.next_backoffs, history.backing_off
    overdue = [
        (next_backoffs.get(group.name, 0.0), -group.unscheduled_cost, number)
        for number, group in enumerate(groups)
        if _overdue(group, problem) and backing_off.isdisjoint((group.name, *_namespaces(group, problem)))
    ]
    if not overdue:
        return problem
    admission, fits_when_drained = Admission(problem), _fits_when_drained(problem)
    admitted = admission.by_price().admitted
    for *_, number in sorted(overdue):
        if not admitted[number] and fits_when_drained(groups[number]):
            commits = _where_it_fits(problem, number, *admission.price_order())
            if sum(commit.count for commit in commits) == groups[number].size:
                first = replace(groups[number], goes_first=True)
                return problem.with_atomic_groups((*groups[:number], first, *groups[number + 1 :]))
            commits = _within_share(commits, problem, _reservation_share(groups[number], problem))
            return problem.with_held(HeldCapacity(number, commits)) if commits else problem
    return problem


def _where_it_fits(
    problem: Problem, number: int, groups: Int64s, demands: Int64s, values: Float64s
) -> tuple[Commit, ...]:
    """Where pods that a group needs fit after all that go first, cost more or have a higher priority.

    Args:
        groups, demands, values: the order of all (``Admission.price_order``).
    """
    all_groups = problem.atomic_groups.all
    priority = _priority_of(all_groups[number], problem)
    of_demand = np.array([demand.group.pod_class.priority for demand in problem.demands], dtype=np.int64)
    of_group = np.array([_priority_of(group, problem) for group in all_groups], dtype=np.int64)
    goes_first = np.array([group.goes_first for group in all_groups], dtype=np.bool_)
    before = (demands < 0) & goes_first[groups] | (values > all_groups[number].rank_price)
    before |= np.where(demands < 0, of_group[groups], of_demand[demands]) > priority
    run = AdmissionRun(problem)
    run.bisect(groups[before], demands[before])
    return tuple(run.fitting(number))


def _priority_of(group: AtomicGroup, problem: Problem) -> int:
    """The lowest priority of the pods that a group needs."""
    return min((problem.demands[number].group.pod_class.priority for number in group.required), default=0)


def history_after(problem: Problem, result: RoundResult, held: HeldCapacity | None) -> BackfillHistory:
    """What later rounds must know of the capacity that this one held; ``result``: with evictions."""
    history, groups = problem.snapshot.backfill_history.expired(), problem.atomic_groups.all
    placed = {each.atomic_group for each in result.placements}
    for group in groups if history.records else ():
        if group.name in placed:
            history = history.with_placed(group.name, _namespaces(group, problem))
    if held is not None and groups[held.group].name not in placed:
        group = groups[held.group]
        longest = min(terms.hold_room_for for terms in _terms(group, problem))
        history = history.with_reserved(group.name, sorted(_namespaces(group, problem)), longest)
    return history


def _terms(atomic_group: AtomicGroup, problem: Problem) -> Iterator[GangPolicy]:
    return (problem.demands[number].policy.gangs for number in atomic_group.demands)


def _reservation_share(atomic_group: AtomicGroup, problem: Problem) -> int:
    return min(terms.hold_room_share for terms in _terms(atomic_group, problem))


def _namespaces(atomic_group: AtomicGroup, problem: Problem) -> set[str]:
    """Namespaces of its pods, as the backfill history names them."""
    pods = (
        problem.demands[number].group.pods[place]
        for members in atomic_group.members
        for number, places in members.items()
        for place in places
    )
    return {f"namespace {pod.key.partition('/')[0]}" for pod in pods}


def _overdue(atomic_group: AtomicGroup, problem: Problem) -> bool:
    if atomic_group.unschedulable_reason or not atomic_group.waiting_since or atomic_group.needs_domain:
        return False
    if any(problem.demands[number].waits for number in atomic_group.demands):
        return False  # it waits for cheaper nodes, not for room
    after = [terms.hold_room_after for terms in _terms(atomic_group, problem)]
    longest = min(terms.hold_room_for for terms in _terms(atomic_group, problem))
    return min(after) > 0 and longest > 0 and problem.snapshot.now - atomic_group.waiting_since > max(after)


def _fits_when_drained(problem: Problem) -> Callable[[AtomicGroup], bool]:
    """Whether all pods that a group needs would fit if all had left that can: each demand by itself, and all in sum.

    Many groups may ask and most are alike, so answers are kept.
    """

    @cache
    def room(priority: int) -> DomainRoom:
        return DomainRoom.of_amounts(problem.demands, _drained_capacity(problem.snapshot, priority))

    @cache
    def fits(priority: int, required: frozenset[tuple[int, int]]) -> bool:
        needs = [
            need
            for number, count in required
            for need in needs_of({number: tuple(range(count))}, {number: count}, problem.demands, room(priority))
        ]
        return bool(may_hold(needs, Domains.whole(problem.snapshot.table), room(priority).free).all())

    return lambda group: fits(_priority_of(group, problem), frozenset(group.required.items()))


def _drained_capacity(snapshot: Snapshot, priority: int) -> Int64s:
    """int64[N, R]: free capacity if only pods were left that a group of this priority cannot outwait."""
    if snapshot.persistent_usage is None:
        return np.maximum(snapshot.free, 0)
    column = {name: position for position, name in enumerate(snapshot.resources)}
    empty = snapshot.allocatable.copy()
    for usage in snapshot.persistent_usage:
        position = snapshot.table.index.get(usage.node)
        if position is None or usage.priority <= priority:
            continue
        empty[position, column[PODS]] -= usage.pod_count
        for name, amount in usage.amounts:
            if name in column:
                empty[position, column[name]] -= amount
    return np.maximum(empty, 0)


def _within_share(commits: Sequence[Commit], problem: Problem, share: int) -> tuple[Commit, ...]:
    """The first pods of some commits that request at most ``share`` percent of each resource of all nodes."""
    remaining = np.maximum(problem.snapshot.allocatable, 0).astype(np.float64).sum(axis=0) * share / 100
    kept = []
    for commit in commits:
        wanted = problem.demands[commit.demand].requests.astype(np.float64)
        asked = wanted > 0
        count = min(commit.count, int((remaining[asked] / wanted[asked] + 1e-9).min()))
        if count > 0:
            remaining -= count * wanted
            kept.append(Commit(commit.demand, commit.node, count))
    return tuple(kept)
