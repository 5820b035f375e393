"""One pass of admission through an order of atomic groups and pods: batches are halved where they do not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.methods.constructive import refilled
from flowcore.planning.methods.domain_search import DomainSearch, FreeRoom
from flowcore.planning.methods.domain_tries import DomainTries
from flowcore.planning.methods.greedy import greedy
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import added_cost, may_wait


class AdmissionRun:
    """Takes in the entries of an order, beginning with nothing placed or with another candidate.

    Attributes:
        put_off: groups for which domains were left untried, as others have used the tries.
    """

    def __init__(self, problem: Problem, base: Candidate | None = None, tries: DomainTries | None = None) -> None:
        """``base``: None: nothing is placed. ``tries``: of domains, shared with other runs; None: its own."""
        base = problem.nothing_placed() if base is None else base
        self._problem = problem
        self._demands = list(base.demands)
        self._capacity = base.capacity.copy()
        self._commits = list(base.commits)
        self._admitted = base.admitted.copy()
        self.put_off, self._tries = set[int](), tries
        #: The cost matrix of ``_demands``; None: not computed yet.
        self._restricted: CostMatrix | None = problem.cost_matrix
        if base.demands is not problem.demands:
            self._restricted = None
            for group, admitted in zip(problem.atomic_groups.all, base.admitted.tolist(), strict=True):
                # A group that is not admitted may choose its domain again.
                for demand in group.demands if not (admitted or group.any_domain) else ():
                    self._demands[demand] = problem.demands[demand]
        #: Demands of which no further pod fits.
        self._exhausted = ~problem.cost_matrix.placeable
        groups = problem.atomic_groups.all
        self._waits = np.array([may_wait(problem, group) for group in range(len(groups))], dtype=np.bool_)
        #: Groups that are placed by themselves: they choose a domain, or wait where that is cheaper.
        self._alone = self._waits | np.array([not group.any_domain for group in groups], dtype=np.bool_)
        #: For each demand what ``_fit_counts_of`` said last, and how many changes of the capacity it knew.
        self._fit_counts: dict[int, tuple[Int64s, int]] = {}

    def _restricted_cost_matrix(self) -> CostMatrix:
        """The cost matrix of demands restricted to the domains that were found for them."""
        if self._restricted is None:
            self._restricted = CostMatrix(tuple(self._demands), self._problem.start)
        return self._restricted

    def bisect(self, group: Int64s, demand: Int64s) -> None:
        """Takes in what fits: all entries at once, else one half after the other.

        Args:
            group: int64[E], the group of each entry, or the group that its pod is optional in, or -1.
            demand: int64[E], the demand of an entry that is a pod by itself, else -1.
        """
        group, demand = self._viable(group, demand)
        if not len(group):
            return
        groups = group[demand < 0]
        if not self._alone[groups].any() and self._place(self._pods_by_demand(groups, demand)):
            self._admitted[groups] = True
            return
        if not len(groups) and (demand == demand[0]).all():
            self._place_what_fits(int(demand[0]), len(demand))
            return
        if len(group) == 1:
            if self._alone[groups[0]]:
                self._place_alone(int(groups[0]))
            return
        half = len(group) // 2
        self.bisect(group[:half], demand[:half])
        self.bisect(group[half:], demand[half:])

    def fitting(self, group: int) -> list[Commit]:
        """Where pods that a group needs fit beside what is placed; nothing is placed."""
        required = self._problem.atomic_groups.all[group].required
        order = [(demand, required[demand]) for demand in self._problem.by_size if demand in required]
        return greedy(self._restricted_cost_matrix(), order, self._capacity.copy())

    def cost_to_place(self, group: int) -> int | None:
        """What it would cost to place a group now, whether it waits or not; None: it does not fit."""
        self._waits[:] = False
        before, commits = self._capacity.copy(), len(self._commits)
        self.bisect(np.array([group], dtype=np.int64), np.array([-1], dtype=np.int64))
        if not self._admitted[group]:
            return None
        return added_cost(self._demands, self._commits[commits:], before, self._capacity)

    def conclude(self, method: str) -> Candidate:
        """The candidate, completed with all pods that still fit."""
        matrix, admitted = self._restricted_cost_matrix(), self._admitted
        self._commits, self._capacity = refilled(self._problem, matrix, self._commits, self._capacity, admitted)
        candidate = self._problem.candidate(method, self._commits, self._capacity, admitted)
        return replace(candidate, demands=tuple(self._demands), put_off=frozenset(self.put_off))

    def _viable(self, group: Int64s, demand: Int64s) -> tuple[Int64s, Int64s]:
        """The entries without those that certainly do not fit any more."""
        is_group = demand < 0
        viable = np.zeros(len(group), dtype=np.bool_)
        required = self._problem.required[group[is_group]]
        demands = np.nonzero(required.any(axis=0))[0]
        total = np.array(
            [int(np.minimum(self._fit_counts_of(demand), 2**31).sum()) for demand in demands.tolist()], dtype=np.int64
        )
        viable[is_group] = (required[:, demands] <= total).all(axis=1)
        may_be_admitted = self._admitted.copy()
        may_be_admitted[group[is_group & viable]] = True
        optional_in = group[~is_group]
        fine = np.ones(len(optional_in), dtype=np.bool_)
        if len(may_be_admitted):
            fine = (optional_in < 0) | may_be_admitted[optional_in]
        viable[~is_group] = fine & ~self._exhausted[demand[~is_group]]
        return group[viable], demand[viable]

    def _pods_by_demand(self, groups: Int64s, demand: Int64s) -> Int64s:
        """int64[C]: how many pods of each demand the entries have in sum."""
        pods = np.bincount(demand[demand >= 0], minlength=len(self._demands))
        counts: Int64s = self._problem.required[groups].sum(axis=0) + pods
        return counts

    def _place(self, counts: Int64s) -> bool:
        """Places int64[C] pods of each demand, or none at all."""
        demands = np.nonzero(counts)[0]
        if not self._may_fit(demands, counts[demands]):
            return False
        before = self._capacity.checkpoint()
        if self._problem.not_packable[demands].any():
            order = [(demand, int(counts[demand])) for demand in self._problem.by_size if counts[demand]]
            commits = greedy(self._restricted_cost_matrix(), order, self._capacity)
            if sum(commit.count for commit in commits) < counts.sum():
                self._capacity.roll_back(before)
                return False
            self._commits += commits
            return True
        placed = list[tuple[int, Int64s, Int64s]]()
        for demand in self._problem.by_size:
            if not counts[demand]:
                continue
            nodes, pods = self._packed(demand, int(counts[demand]))
            if int(pods.sum()) < counts[demand]:
                self._capacity.roll_back(before)
                return False
            self._capacity.place_many(self._demands[demand], nodes, pods)
            placed.append((demand, nodes, pods))
        for demand, nodes, pods in placed:
            self._commits += [Commit(demand, node, n) for node, n in zip(nodes.tolist(), pods.tolist(), strict=True)]
        return True

    def _may_fit(self, demands: Int64s, counts: Int64s) -> bool:
        """Whether the capacity suffices for each demand by itself and for the sum of their requests."""
        if any(
            int(self._fit_counts_of(demand).sum()) < count
            for demand, count in zip(demands.tolist(), counts.tolist(), strict=True)
        ):
            return False
        requests = np.array([self._demands[demand].requests for demand in demands.tolist()], dtype=np.float64)
        free = np.maximum(self._capacity.free, 0).astype(np.float64).sum(axis=0)
        total = counts @ requests
        return bool(((total <= free * (1 + 1e-9)) | (total == 0)).all())

    def _packed(self, demand: int, count: int) -> tuple[Int64s, Int64s]:
        """int64[M] nodes and pods of each: the first that fit any, in packing order."""
        nodes = self._problem.packing(demand)
        counts = self._fit_counts_of(demand)[nodes]
        sums = np.cumsum(np.minimum(counts, count))
        last = int(np.searchsorted(sums, count)) + 1
        pods = np.minimum(counts[:last], count)
        if last <= len(sums):
            pods[-1] -= sums[last - 1] - count
        used = pods > 0
        return nodes[:last][used], pods[used]

    def _place_what_fits(self, demand: int, count: int) -> None:
        """Places as many single pods of a demand as fit."""
        if self._problem.not_packable[demand]:
            self._commits += greedy(self._restricted_cost_matrix(), [(demand, count)], self._capacity)
        else:
            nodes, pods = self._packed(demand, count)
            self._capacity.place_many(self._demands[demand], nodes, pods)
            self._commits += [Commit(demand, node, n) for node, n in zip(nodes.tolist(), pods.tolist(), strict=True)]
        self._exhausted[demand] = True

    def _limit(self, group: int) -> int | None:
        """What a group must cost less than; None: whatever it costs."""
        return self._problem.atomic_groups.all[group].unscheduled_cost if self._waits[group] else None

    def _place_alone(self, group: int) -> None:
        """Places all pods that a group needs, in domains that it chooses, if they cost less than by waiting."""
        self._tries = self._tries or DomainTries.for_all(self._problem)
        limit = self._limit(group)
        builder = FreeRoom(self._problem, group, self._demands, self._capacity, self._fit_counts_of, limit)
        search = DomainSearch(self._problem, group, builder, self._tries)
        placed = search.run()
        if placed is None:
            if search.is_short:
                self.put_off.add(group)
            return
        self._commits += placed.commits
        for index, nodes in placed.nodes.items():
            demand = self._demands[index] = self._demands[index].restricted_to(nodes)
            self._restricted = None
            self._fit_counts.pop(index, None)
            self._exhausted[index] = not demand.counts.any()
        self._admitted[group] = True

    def _fit_counts_of(self, index: int) -> Int64s:
        """int64[N]: how many pods of a demand fit each node now. Not to be written to."""
        demand, capacity = self._demands[index], self._capacity
        counts, known_changes = self._fit_counts.get(index, (None, 0))
        if counts is None:
            counts = np.array(capacity.fit_counts(demand))
        elif known_changes < capacity.changes:
            nodes = capacity.changed_since(known_changes)
            nodes = nodes[demand.counts[nodes] > 0]
            counts[nodes] = capacity.fit_counts_at(demand, nodes)
        self._fit_counts[index] = counts, capacity.changes
        return counts
