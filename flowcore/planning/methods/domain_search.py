"""Finds topology domains for the gangs of an atomic group, and places the pods that it needs there.

The gang with most pods chooses first, then those within it: a gang of a block before its slices of a rack. The pods of
a gang that is the last to choose for them are placed at once, so that two slices do not choose a rack that has room for
one. Of the domains with room a gang takes the one where least is left over: so others stay whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.methods.greedy import greedy
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.domain_room import (
    Members,
    Need,
    by_turns,
    is_untouched,
    left_over,
    may_hold,
    may_hold_slices,
    needs_of,
)
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import added_cost
from flowcore.rules.topology.domains import Domains

#: Domains that are really tried for a gang at each of its levels, the likeliest first.
_MOST_TRIES: Final = 8
#: Placements that are tried beside one for each gang: within one domain of the widest gang, and in all.
_TRIES_WITHIN, _TRIES_IN_ALL = 32, 100
#: Domains that differ by less than this per pod in what the pods' authors prefer are alike: a tenth of a node's cost.
_ALIKE: Final = 100


@dataclass(frozen=True, slots=True, eq=False)
class PlacedGroup:
    """The pods that an atomic group needs, placed.

    Attributes:
        demands: those that are kept to domains now, by number.
        commits: the placements.
        capacity: what they leave free.
    """

    demands: Mapping[int, Demand]
    commits: tuple[Commit, ...]
    capacity: Plan


class DomainSearch:
    """One search, for one atomic group.

    Attributes:
        in_vain: choices that were tried and led to nothing.
        is_short: whether a choice was not tried for the tries that other groups have used.
    """

    def __init__(
        self,
        problem: Problem,
        group: AtomicGroup,
        demands: Sequence[Demand],
        capacity: Plan,
        fit_counts: Callable[[int], Int64s],
        most: int,
        limit: int | None = None,
    ) -> None:
        """Begins with what is placed.

        Args:
            demands: of the problem, by number; those of admitted groups are kept to their domains.
            capacity: what is free. It stays as it is.
            fit_counts: of a demand int64[N], how many of its pods fit each node now.
            most: choices that may be tried beside one for each gang; 0: none is tried.
            limit: what the pods must cost less than; None: whatever they cost.
        """
        self._limit = limit
        self._problem, self._group, self._capacity, self._fit_counts = problem, group, capacity, fit_counts
        self._start = {number: demands[number] for number in group.demands}
        #: Gangs that choose, each with its pods by demand.
        self._gangs = by_turns(group, self._start, lambda gang: gang.chooses_domain)
        last = {number: place for place, (_, members) in enumerate(self._gangs) for number in members}
        #: For each of them, and in the end for no gang: demands that are placed once it has chosen, large ones first.
        self._due = [
            sorted(
                (number for number in group.required if last.get(number, len(self._gangs)) == place),
                key=lambda number: -self._start[number].dominant_share,
            )
            for place in range(len(self._gangs) + 1)
        ]
        #: Placements that may still be tried: within the domain of the widest gang, and in all.
        self._left, self._left_in_all = 0, min(most, _TRIES_IN_ALL) + len(self._gangs) if most else 0
        self._may_be_short = most < _TRIES_IN_ALL
        self.in_vain, self.is_short = 0, False

    def run(self) -> PlacedGroup | None:
        """The pods placed; None: no domains were found for them."""
        return self._choose(0, PlacedGroup({}, (), self._capacity))

    def _choose(self, place: int, before: PlacedGroup) -> PlacedGroup | None:
        """Lets one gang after the other choose; where one finds nothing, the gang before it chooses again."""
        if place == len(self._gangs):
            placed = self._place(self._due[place], before)
            return placed if placed is not None and self._is_cheap(placed) else None
        for nodes in self._choices(place, before):
            if place == 0:
                # Slices that are alike fail alike: then the widest gang chooses again, not the slice before.
                self._left = min(_TRIES_WITHIN + len(self._gangs), self._left_in_all)
            if self._left <= 0:
                self.is_short |= self._may_be_short and self._left_in_all <= 0
                return None
            self._left -= 1
            self._left_in_all -= 1
            kept = dict(before.demands)
            for number in self._gangs[place][1]:
                kept[number] = self._demand(number, before).restricted_to(nodes)
            chosen = self._place(self._due[place], replace(before, demands=kept))
            placed = self._choose(place + 1, chosen) if chosen is not None else None
            if placed is not None:
                return placed
            self.in_vain += 1
        return None

    def _is_cheap(self, placed: PlacedGroup) -> bool:
        if self._limit is None:
            return True
        return added_cost(self._problem.demands, placed.commits, self._capacity, placed.capacity) < self._limit

    def _demand(self, number: int, state: PlacedGroup) -> Demand:
        return state.demands.get(number, self._start[number])

    def _place(self, numbers: Sequence[int], before: PlacedGroup) -> PlacedGroup | None:
        """Places what is needed of some demands, by cost; None: not all fits."""
        if not numbers:
            return before
        capacity = before.capacity.copy()
        cost_matrix = CostMatrix([self._demand(number, before) for number in numbers], self._problem.start)
        counts = [self._group.required[number] for number in numbers]
        commits = greedy(cost_matrix, list(enumerate(counts)), capacity)
        if sum(commit.count for commit in commits) < sum(counts):
            return None
        placed = (Commit(numbers[commit.demand], commit.node, commit.count) for commit in commits)
        return PlacedGroup(before.demands, (*before.commits, *placed), capacity)

    # --- what a gang may choose ---

    def _choices(self, place: int, before: PlacedGroup) -> Iterator[Bools]:
        """Nodes that the pods of a gang may be kept to, bool[N], one choice after the other.

        A gang that prefers levels takes one domain of the narrowest level that has one with room for it. Below that
        level, or where no level has one, it takes as few domains of each level as will do.
        """
        gang, members = self._gangs[place]
        needs = self._needs(members, before)
        wishes = self._wishes(max(members, key=lambda number: (self._group.required.get(number, 0), -number)))
        domains = [self._problem.domains(key) for key, _ in gang.preferred]
        homes = [_node_of(key, home, self._problem) for key, home in gang.preferred]

        def narrowed(nodes: Bools, begin: int) -> Bools:
            for level in range(begin, len(domains)):
                nodes = _fewest(domains[level], [need.within(nodes) for need in needs], homes[level]) & nodes
            return nodes

        for level in reversed(range(len(domains))):
            for nodes in self._ranked(place, domains[level], needs, wishes, before.capacity, homes[level]):
                yield narrowed(nodes, level + 1)
        if gang.needs_domain:
            required = self._problem.domains(gang.topology_key)
            for nodes in self._ranked(place, required, needs, wishes, before.capacity):
                if gang.preferred:
                    yield narrowed(nodes, 0)
                yield nodes
        else:
            everywhere = np.ones(len(before.capacity.free), dtype=np.bool_)
            yield narrowed(everywhere, 0)
            yield everywhere

    def _needs(self, members: Members, before: PlacedGroup) -> list[Need]:
        """What a gang needs beside what is placed."""
        demands = {number: self._demand(number, before) for number in members}
        fits = {
            number: self._fit_counts(number)
            if before.capacity is self._capacity
            else before.capacity.fit_counts(self._start[number])
            for number in members
        }
        return needs_of(members, self._group.required, demands, fits, before.capacity.free, before.capacity)

    def _wishes(self, number: int) -> Int64s:
        """int64[N]: what a pod of a demand pays for a node beside what the cost model asks."""
        demand, models = self._start[number], self._problem.models
        load = self._problem.start.load(demand.potential.utilisation)
        weights = demand.policy.cost.weights
        asked = models[demand.policy.cost.model].arc_costs(demand.group.pod_class, demand.size, load, weights)
        wishes: Int64s = demand.arc - asked
        return wishes

    def _ranked(
        self,
        place: int,
        domains: Domains,
        needs: Sequence[Need],
        wishes: Int64s,
        capacity: Plan,
        home: int = -1,
    ) -> Iterator[Bools]:
        """Domains that may hold a gang, the best first: bool[N], their nodes.

        The domain of its running pods comes first. Then those come that have room for all of its pods, that their
        authors prefer, where least is left over, that have begun to fill, and that are cheapest.

        Args:
            home: a node of the domain where its pods run; -1: none does.
        """
        fine = may_hold(needs, domains, capacity.free) & self._may_hold_slices(place, domains, capacity)
        if not fine.any():
            return
        most = needs[0]
        fits_all = np.all([need.totals(domains) >= need.wanted for need in needs], axis=0)
        preferred = np.floor_divide(_mean(wishes, most, domains), _ALIKE)
        is_home = np.arange(domains.count) == (domains.codes[home] if home >= 0 else -1)
        cheapest = np.full(domains.count + 1, np.inf)
        for number in self._gangs[place][1]:
            nodes = (most.fits > 0) & (self._start[number].counts > 0)
            np.minimum.at(cheapest, domains.codes[nodes], self._start[number].first_cost[nodes].astype(np.float64))
        order = np.lexsort(
            (
                np.arange(domains.count),
                cheapest[: domains.count],
                is_untouched(most, domains, self._problem.snapshot.allocatable),
                left_over(most, domains),
                # A gang that waits for cheap nodes takes the cheapest, or none.
                cheapest[: domains.count] if self._limit is not None else preferred,
                ~fits_all,
                ~is_home,
            )
        )
        for code in order[fine[order]][:_MOST_TRIES].tolist():
            yield domains.codes == code

    def _may_hold_slices(self, place: int, domains: Domains, capacity: Plan) -> Bools:
        """bool[D]: domains that may hold all gangs within a gang, each in a domain of its own topology."""
        state = PlacedGroup({}, (), capacity)
        return may_hold_slices(
            domains,
            (
                (self._problem.domains(gang.topology_key), self._needs(members, state))
                for gang, members in self._gangs[place + 1 :]
                if gang.needs_domain and members.keys() <= self._gangs[place][1].keys()
            ),
        )


def _fewest(domains: Domains, needs: Sequence[Need], home: int) -> Bools:
    """bool[N]: the nodes of as few domains as may hold what is needed together; all nodes where none will do.

    Largest domains first, behind that where pods of the gang run. The last one is the tightest that has room for the
    rest.
    """
    everywhere = np.ones(len(domains.codes), dtype=np.bool_)
    totals = np.array([need.totals(domains) for need in needs]).reshape(len(needs), domains.count)
    counts = np.array([need.count for need in needs])
    is_home = np.arange(domains.count) == (domains.codes[home] if home >= 0 else -1)
    order = np.lexsort((-totals[0], ~is_home))
    sums = np.cumsum(totals[:, order], axis=1)
    enough = np.nonzero((sums >= counts[:, np.newaxis]).all(axis=0))[0]
    if not len(enough):
        return everywhere
    full = order[: int(enough[0])]
    rest = counts - totals[:, full].sum(axis=1)
    last = np.setdiff1d(np.nonzero((totals >= rest[:, np.newaxis]).all(axis=0))[0], full)
    tightest = last[np.lexsort((totals[0, last], ~is_home[last]))[0]]
    chosen: Bools = np.isin(domains.codes, [*full.tolist(), int(tightest)])
    return chosen


def _mean(values: Int64s, need: Need, domains: Domains) -> Int64s:
    """int64[D]: the mean of int64[N] values over the pods that fit each domain."""
    pods = np.minimum(need.fits, need.wanted)
    totals = np.maximum(domains.totals(pods)[: domains.count], 1)
    return np.bincount(domains.codes, values * pods, domains.count + 1)[: domains.count].astype(np.int64) // totals


def _node_of(key: str, domain: str, problem: Problem) -> int:
    """A node of a domain; -1: no node is in it."""
    column = problem.snapshot.table.column(key)
    if not domain or domain not in column.values:
        return -1
    nodes = np.nonzero(column.codes == column.values.index(domain))[0]
    return int(nodes[0]) if len(nodes) else -1
