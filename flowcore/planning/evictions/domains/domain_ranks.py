"""Domains that may take a gang once running pods have left, in the order of an estimate of who must leave there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.model.gangs import Gang
from flowcore.planning.evictions.search.ladders import BoundsOfDemand
from flowcore.planning.evictions.search.search import Search
from flowcore.planning.problem.placements.domain_room import Members, Need, may_hold, may_hold_slices, needs_of
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.solvers.linear import Float64s
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.topology.domains import Domains


@dataclass(frozen=True, slots=True, eq=False)
class _AlikePods:
    """Pods of a gang that ask for the same and have one priority.

    Attributes:
        number: of one of their demands.
        count: how many are needed.
        usable: bool[N], nodes that may take them.
    """

    number: int
    count: int
    usable: Bools


class DomainRanks:
    """Ranks domains for the gangs of one atomic group; it follows the state."""

    def __init__(
        self, problem: Problem, state: Plan, search: Search, counts: Mapping[int, int], *, preempts: bool
    ) -> None:
        """For one group.

        Args:
            counts: demand -> how many of its pods are needed.
            preempts: whether pods may be evicted for it; if not, pods are only moved.
        """
        self._problem, self._state, self._search = problem, state, search
        self._counts, self._preempts = counts, preempts
        #: By what a pod asks for and its priority.
        self._bounds: dict[tuple[bytes, int], BoundsOfDemand] = {}

    def best_first(
        self,
        gang: Gang,
        members: Members,
        inside: Sequence[tuple[Gang, Members]],
        nodes: Mapping[int, Bools],
    ) -> list[int]:
        """Numbers of domains that may hold a gang and those within it, the most promising first.

        A domain is ruled out only where all residents that may leave free too little. Of the others those come first
        where pods of low priorities suffice, then those where least leaves, then the tightest.

        Args:
            inside: gangs that choose after it.
            nodes: demand -> bool[N], nodes that it is kept to; of others all nodes may do.
        """
        domains = self._problem.domains(gang.topology_key)
        usable = {number: self._usable(number, nodes) for number in members if number in self._counts}
        emptied = self._emptied(usable)
        needs = self._needs(members, usable, emptied)
        fine = may_hold(needs, domains, emptied[max(emptied)])
        fine &= may_hold_slices(
            domains,
            [
                (
                    self._problem.domains(within.topology_key),
                    self._needs(others, {number: usable[number] for number in others if number in usable}, emptied),
                )
                for within, others in inside
                if others.keys() <= members.keys()
            ],
        )
        if not fine.any():
            return []
        priorities, totals = np.full(domains.count, -np.inf), np.zeros(domains.count)
        for kind in self._kinds(usable):
            highest, total = self._least(kind, domains, emptied[self._priority(kind.number)])
            np.maximum(priorities, highest, out=priorities)
            totals += total
        order = np.lexsort((np.arange(domains.count), needs[0].totals(domains), totals, priorities))
        best: list[int] = order[fine[order]].tolist()
        return best

    def _priority(self, number: int) -> int:
        return self._state.demands[number].group.pod_class.priority

    def _usable(self, number: int, nodes: Mapping[int, Bools]) -> Bools:
        """bool[N]: nodes that may take pods of a demand, whoever leaves."""
        check = self._search.fit_check(number)
        possible = check.possible
        # Where more than amounts decides: devices of a node that are taken do not come free.
        once_left = check.possible_without(self._search.may_leave(self._priority(number), preempts=self._preempts))
        if once_left is not None:
            possible = possible & once_left
        return possible & nodes[number] if number in nodes else possible

    def _emptied(self, usable: Mapping[int, Bools]) -> dict[int, Int64s]:
        """Priority of some of the pods -> int64[N, R], what is free once all have left that may leave for it."""
        priorities = {self._priority(number) for number in usable}
        return {priority: self._search.emptied(priority, preempts=self._preempts) for priority in priorities}

    def _needs(self, members: Members, usable: Mapping[int, Bools], emptied: Mapping[int, Int64s]) -> list[Need]:
        """What the waiting pods of a gang need, and what fits once all have left that may."""
        fits = {
            number: count_fitting(self._state.demands[number].requests, emptied[self._priority(number)])
            for number in usable
        }
        demands = {number: replace(self._state.demands[number], allowed=nodes) for number, nodes in usable.items()}
        return needs_of(
            {number: members[number] for number in usable}, self._counts, demands, fits, emptied[max(emptied)], None
        )

    def _kinds(self, usable: Mapping[int, Bools]) -> list[_AlikePods]:
        kinds: dict[tuple[bytes, int], _AlikePods] = {}
        for number, nodes in usable.items():
            key = self._key(number)
            before = kinds.get(key, _AlikePods(number, 0, nodes))
            kinds[key] = _AlikePods(before.number, before.count + self._counts[number], before.usable | nodes)
        return list(kinds.values())

    def _key(self, number: int) -> tuple[bytes, int]:
        return self._state.demands[number].requests.tobytes(), self._priority(number)

    def _least(self, kind: _AlikePods, domains: Domains, emptied: Int64s) -> tuple[Float64s, Float64s]:
        """float64[D] each: the priority up to which pods leave in a domain, and the sum of what counts, as estimated.

        Each node counts by itself: it takes as many pods as it can once all have left that may, and each pod needs what
        the first one needs, all that may leave at most.
        """
        state, residents, number = self._state, self._state.residents, kind.number
        requests, priority = state.demands[number].requests, self._priority(number)
        now = np.where(kind.usable, count_fitting(requests, state.free), 0)
        more = np.where(kind.usable, count_fitting(requests, emptied), 0) - now
        missing = np.maximum(kind.count - domains.totals(now)[: domains.count], 0)
        may_leave = self._search.may_leave(priority, preempts=self._preempts)
        key = self._key(number)
        if key not in self._bounds:
            self._bounds[key] = self._search.bounds_of(number)
        bounds = self._bounds[key].best_first(kind.usable & domains.labelled & (more > 0), may_leave)
        highest, total = np.full(domains.count, -np.inf), np.zeros(domains.count)
        if not len(bounds.nodes):
            return highest, total
        # Node by node of each domain, the most promising first.
        codes = domains.codes[bounds.nodes]
        order = np.argsort(codes, kind="stable")
        codes, extra = codes[order], more[bounds.nodes[order]]
        before = np.cumsum(extra) - extra
        first = np.searchsorted(codes, codes)
        taken = np.clip(missing[codes] - (before - before[first]), 0, extra)
        weights = self._bounds[key].weights * may_leave
        most = np.bincount(residents.nodes, weights, len(state.free))[bounds.nodes[order]]
        # Where the first pod has room already, nothing is known of the next ones but what there is for all of them.
        for_one = np.where(bounds.total[order] > 0, bounds.total[order], most / extra)
        some = taken > 0
        lost = np.minimum(for_one * taken, np.maximum(most, for_one))
        total += np.bincount(codes, np.where(some, lost, 0.0), domains.count)
        np.maximum.at(highest, codes[some], bounds.priority[order][some].astype(np.float64))
        return highest, total
