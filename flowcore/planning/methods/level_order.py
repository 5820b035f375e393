"""The order of levels in a plan: no pod waits for room that pods of lower levels get, and none that has room.

Level by level, the highest first, a plan is carried out again: pods that it places stay where they are if there is
room, and pods of the level that it leaves get nodes before any lower level comes, there where the lower levels lose
least. In the end everything that fits beside all others is placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.admission import complete
from flowcore.planning.methods.admission_run import AdmissionRun
from flowcore.planning.methods.greedy import greedy
from flowcore.planning.problem.levels import key_of, waiting_places
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.rules.filters.node_resources_fit import count_fitting


def in_level_order(problem: Problem, candidate: Candidate) -> Candidate:
    """A plan that keeps the order of levels, made of one that may not; and no pod waits that has room."""
    if not any(len(places) for places in waiting_places(problem, candidate)):
        return candidate
    best = complete(problem, candidate, full=True)
    levels = np.array([demand.level for demand in problem.demands], dtype=np.int64)
    if not _is_out_of_order(problem, best, levels):
        return best
    return min(best, _LevelRun(problem, best, levels).result(), key=partial(key_of, problem))


def _is_out_of_order(problem: Problem, candidate: Candidate, levels: Int64s) -> bool:
    """Whether pods wait for room that pods of lower levels get: by resources, whatever rules say."""
    placed = np.zeros(len(levels), dtype=np.bool_)
    placed[[commit.demand for commit in candidate.commits]] = True
    if not placed.any() or levels.max() == levels[placed].min():
        return False
    waiting = waiting_places(problem, candidate)
    for level in sorted(set(levels[levels > levels[placed].min()].tolist()), reverse=True):
        lower = None
        for number in np.nonzero(levels == level)[0].tolist():
            demand = candidate.demands[number]
            if not len(waiting[number]) or demand.waits:
                continue
            if lower is None:
                lower = _requests_of(problem, [each for each in candidate.commits if levels[each.demand] < level])
            nodes = demand.allowed & lower.any(axis=1)
            if count_fitting(demand.requests, (candidate.capacity.free + lower)[nodes]).any():
                return True
    return False


def _requests_of(problem: Problem, commits: Sequence[Commit]) -> Int64s:
    """int64[N, R]: what the pods of commits ask for, by node."""
    total = np.zeros(problem.start.free.shape, dtype=np.int64)
    if commits:
        requests = np.array([problem.demands[each.demand].requests * each.count for each in commits], dtype=np.int64)
        np.add.at(total, [each.node for each in commits], requests)
    return total


class _LevelRun(AdmissionRun):
    """Carries a plan out again, level by level."""

    def __init__(self, problem: Problem, known: Candidate, levels: Int64s) -> None:
        """Begins with nothing placed."""
        super().__init__(problem)
        self._known, self._levels = known, levels
        groups = problem.atomic_groups.all
        #: int64[C]: placed pods of each demand, as far as commits were counted, and how many of them were.
        self._placed, self._counted = np.zeros(len(self._demands), dtype=np.int64), 0
        #: The level of each group; where it needs no pod, that of any of its pods.
        self._group_levels = [
            min((int(levels[demand]) for demand in group.required or group.demands), default=0) for group in groups
        ]

    def result(self) -> Candidate:
        """The plan in the order of the levels."""
        for level in sorted(set(self._levels.tolist()), reverse=True):
            self._keep(level)
            self._add(level)
        return self.conclude(self._known.method)

    def _keep(self, level: int) -> None:
        """Places the pods of a level that the known plan places, where it does, as far as there is room."""
        known, atomic_groups = self._known, self._problem.atomic_groups
        groups = [
            number
            for number, admitted in enumerate(known.admitted.tolist())
            if admitted and self._group_levels[number] == level
        ]
        for number in groups:
            self._admitted[number] = True
            for demand in atomic_groups.all[number].demands:
                if self._demands[demand].counts is not known.demands[demand].counts:
                    self._demands[demand], self._restricted = known.demands[demand], None
        commits = [each for each in known.commits if self._levels[each.demand] == level]
        before, first = self._capacity.checkpoint(), len(self._commits)
        # Groups that have lost a pod that they need leave; they may come again where others of the level wait.
        while groups:
            placed = self._place_again(commits)
            short = [
                number
                for number in groups
                if any(
                    placed[demand] < atomic_groups.required(demand, self._admitted)
                    for demand in atomic_groups.all[number].required
                )
            ]
            if not short:
                return
            self._admitted[short] = False
            groups = [number for number in groups if number not in short]
            self._capacity.roll_back(before)
            del self._commits[first:]
        self._place_again(commits)

    def _place_again(self, commits: Sequence[Commit]) -> Int64s:
        """Places pods of admitted groups and of none, where commits have them; int64[C]: how many of each demand."""
        placed = np.zeros(len(self._demands), dtype=np.int64)
        orders, most = self._problem.atomic_groups, dict[int, int]()
        rest = []
        for commit in commits:
            if commit.demand not in most:
                most[commit.demand] = len(orders.placement_order(commit.demand, self._admitted))
            count = min(commit.count, most[commit.demand])
            most[commit.demand] -= count
            rest.append((commit.demand, commit.node, count))
        table = np.array(rest, dtype=np.int64).reshape(-1, 3)
        # What fits by amounts alone goes at once, and takes nothing from the others: they have other nodes.
        fits = self._capacity.place_all(self._demands, *table.T)
        for (demand, node, count), took in zip(rest, fits.tolist(), strict=True):
            taken = count if took else self._capacity.place(self._demands[demand], node, count)
            if taken:
                placed[demand] += taken
                self._commits.append(Commit(demand, node, taken))
        return placed

    def _add(self, level: int) -> None:
        """Places the pods of a level that the known plan leaves: groups and single pods, the dearest first."""
        problem, groups = self._problem, self._problem.atomic_groups.all
        rejected = [
            number
            for number, of_group in enumerate(self._group_levels)
            if of_group == level and not self._admitted[number] and not groups[number].unschedulable_reason
        ]
        demands = [
            number for number in np.nonzero(self._levels == level)[0].tolist() if not problem.demands[number].waits
        ]
        entries = [(*_importance(problem, number), 0, number) for number in rejected]
        for number in demands:
            left = self._left(number)
            if len(left):
                demand = problem.demands[number]
                entries.append((False, float(demand.prices[left].max()) / demand.weight, 1, number))
        if not entries:
            return
        lower = [each for each in self._known.commits if self._levels[each.demand] < level]
        room, price = _requests_of(problem, lower), np.zeros(len(self._capacity.free))
        for commit in lower:
            price[commit.node] += commit.count * self._mean_prices[commit.demand]
        for *_, is_single, number in sorted(entries, key=lambda entry: (not entry[0], -entry[1], entry[2:])):
            if is_single:
                self._place_singles(number, room, price)
            else:
                self.bisect(np.array([number], dtype=np.int64), np.array([-1], dtype=np.int64))
        for number in demands if rejected else ():
            self._place_singles(number, room, price)

    def _left(self, number: int) -> Int64s:
        """Places of the pods of a demand that may be placed and are not."""
        for commit in self._commits[self._counted :]:
            self._placed[commit.demand] += commit.count
        self._counted = len(self._commits)
        return self._problem.atomic_groups.placement_order(number, self._admitted)[int(self._placed[number]) :]

    @cached_property
    def _mean_prices(self) -> list[float]:
        """Of the pods of each demand."""
        return [float(demand.prices.mean()) for demand in self._problem.demands]

    def _place_singles(self, number: int, room: Int64s, price: Float64s) -> None:
        """Places the pods of a demand that are left, where lower levels lose least.

        Args:
            room: int64[N, R], what pods of lower levels have in the known plan.
            price: float64[N], what it costs to leave these.
        """
        demand, capacity = self._demands[number], self._capacity
        is_short = capacity.free - room < demand.requests
        lost = np.where(is_short, price[:, np.newaxis] / np.maximum(room, 1), 0.0)
        self._commits += greedy(self._restricted_cost_matrix(), [(number, len(self._left(number)))], capacity, lost)


def _importance(problem: Problem, number: int) -> tuple[bool, float]:
    """Groups that go first, then the dearest to leave for what they count."""
    group = problem.atomic_groups.all[number]
    return group.goes_first, group.rank_price
