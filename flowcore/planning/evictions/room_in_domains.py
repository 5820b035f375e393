"""Running pods leave for an atomic group. Its gangs may keep to domains, such as a block and racks within it.

Domains are searched as where nobody leaves (``methods/domain_search.py``), and pods get nodes, and victims, as all
others do. Without a plan for the whole group nobody leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.costs.model import Float64s
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.search.ladders import BoundsOfDemand
from flowcore.planning.evictions.search.search import Search
from flowcore.planning.evictions.waiting import Waiting
from flowcore.planning.methods.domain_search import DomainSearch
from flowcore.planning.methods.domain_tries import DomainTries
from flowcore.planning.plan_key import PlanKey
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.decisions import Checkpoint, Commit
from flowcore.planning.problem.placements.domain_room import DomainRoom, Need
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.topology.domains import Domains


def place_group(
    problem: Problem,
    state: Plan,
    search: Search,
    tries: DomainTries,
    waiting: Waiting,
    *,
    preempts: bool,
) -> None:
    """Places all pods of a waiting group, or changes nothing.

    Args:
        tries: those of the round.
        preempts: whether pods may be evicted for it; if not, pods are only moved.
    """
    builder = _MadeRoom(state, search, waiting, preempts=preempts)
    DomainSearch(problem, waiting.group, builder, tries).run()


class _MadeRoom:
    """Builds on what is free once others have left."""

    cheapest = False

    def __init__(self, state: Plan, search: Search, waiting: Waiting, *, preempts: bool) -> None:
        """For a group that waits; ``preempts``: see ``place_group``."""
        self.plan, self._search, self._preempts = state, search, preempts
        self._pods = dict(waiting.demands)
        self._priority = max(state.demands[number].group.pod_class.priority for number in self._pods)
        self._priced: dict[int, Demand] = {}
        #: By what a pod asks for.
        self._bounds: dict[bytes, BoundsOfDemand] = {}

    def demand(self, number: int) -> Demand:
        """A demand with what each node costs."""
        if number not in self._priced:
            self._priced[number] = self.plan.priced(number)
        return self._priced[number]

    def room(self) -> DomainRoom:
        """What is free once all have left that may. So no domain is ruled out that may hold the group."""
        free, may_leave = self._search.emptied(self._priority, preempts=self._preempts), self._may_leave()

        @cache
        def usable(number: int) -> Bools:
            check = self._search.fit_check(number)
            # Where more than amounts decides: devices of a node that are taken do not come free.
            once_left = check.possible_without(may_leave)
            return check.possible if once_left is None else check.possible & once_left

        return DomainRoom(free, usable, lambda number: count_fitting(self.plan.demands[number].requests, free))

    def _may_leave(self) -> Bools:
        """bool[V]: residents that may."""
        return self._search.may_leave(self._priority, preempts=self._preempts)

    def losses(self, needs: Sequence[Need], domains: Domains) -> tuple[Float64s, ...]:
        """float64[D] each: the sum of what counts, and the priority up to which pods leave in a domain, as estimated.

        Each node counts by itself: it takes as many pods as it can once all have left that may, and each pod needs what
        the first one needs, all that may leave at most.
        """
        highest, total = np.full(domains.count, -np.inf), np.zeros(domains.count)
        residents, free, may_leave = self.plan.residents, self.plan.free, self._may_leave()
        for need in needs:
            now = np.where(need.usable, count_fitting(need.requests, free), 0)
            more = need.fits - now
            missing = np.maximum(need.count - domains.totals(now)[: domains.count], 0)
            kind = need.requests.tobytes()
            if kind not in self._bounds:
                self._bounds[kind] = self._search.bounds_of(need.number)
            bounds = self._bounds[kind].best_first(need.usable & domains.labelled & (more > 0), may_leave)
            if not len(bounds.nodes):
                continue
            # Node by node of each domain, the most promising first.
            codes = domains.codes[bounds.nodes]
            order = np.argsort(codes, kind="stable")
            codes, extra = codes[order], more[bounds.nodes[order]]
            before = np.cumsum(extra) - extra
            first = np.searchsorted(codes, codes)
            taken = np.clip(missing[codes] - (before - before[first]), 0, extra)
            weights = self._bounds[kind].weights * may_leave
            most = np.bincount(residents.nodes, weights, len(free))[bounds.nodes[order]]
            # Where the first pod has room already, nothing is known of the next ones but what there is for all of them.
            for_one = np.where(bounds.total[order] > 0, bounds.total[order], most / extra)
            some = taken > 0
            lost = np.minimum(for_one * taken, np.maximum(most, for_one))
            total += np.bincount(codes, np.where(some, lost, 0.0), domains.count)
            np.maximum.at(highest, codes[some], bounds.priority[order][some].astype(np.float64))
        return total, highest

    def place(self, numbers: Sequence[int], kept: Mapping[int, Bools]) -> Sequence[Commit] | None:
        """Places the pods that wait, with their victims."""
        is_placed = all(
            self._search.place_all(each, self._pods[each], preempts=self._preempts, nodes=kept.get(each))
            == len(self._pods[each])
            for each in numbers
        )
        return () if is_placed else None

    def key(self, start: Checkpoint, _commits: Sequence[Commit]) -> PlanKey:
        """Who leaves."""
        leaving = list(self.plan.leaving.items())[start.leaving :]
        evicted = [resident for resident, left in leaving if left.kind is not EvictionKind.MIGRATION]
        return PlanKey(victims=self._search.loss_of(evicted, self._pods), moves=len(leaving) - len(evicted))
