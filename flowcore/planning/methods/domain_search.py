"""Finds topology domains for the gangs of an atomic group, and places the pods that it needs there.

The gang with most pods chooses first, then those within it: a gang of a block before its slices of a rack. The pods of
a gang that is the last to choose for them are placed at once, so that two slices do not choose a rack that has room for
one. Where a slice finds nothing, the one before it chooses again. Of the plans that are tried the one stays for which
fewest running pods leave; where nobody may leave that is the first one. Of the domains with room a gang takes the one
where least is left over: so others stay whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.domain_tries import DomainTries
from flowcore.planning.methods.greedy import greedy
from flowcore.planning.plan_key import PlanKey
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.decisions import Checkpoint, Commit, Decisions
from flowcore.planning.problem.placements.domain_room import (
    DomainRoom,
    Members,
    Need,
    by_turns,
    is_untouched,
    may_hold,
    may_hold_slices,
    needs_of,
)
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import added_cost
from flowcore.rules.reasons.kept_domains import nodes_in
from flowcore.rules.topology.domains import Domains

#: Domains that are tried for a gang at each of its levels, the likeliest first; for the first gang after it has a plan.
_MOST_DOMAINS: Final = 8
#: Choices within one domain of the widest gang, beside one for each gang.
_TRIES_WITHIN: Final = 32
#: Domains that differ by less than this per pod in what the pods' authors prefer are alike: a tenth of a node's cost.
_ALIKE: Final = 100


class Builder(Protocol):
    """Puts pods on nodes for the search, on room that is free or that running pods leave.

    Attributes:
        plan: changes with each placement; the search takes them back.
        cheapest: whether a gang takes the cheapest domains, or none.
    """

    plan: Plan
    cheapest: bool

    def demand(self, number: int) -> Demand:
        """A demand with what each node costs."""
        ...

    def room(self) -> DomainRoom:
        """What there is beside the plan as it is now."""
        ...

    def losses(self, needs: Sequence[Need], domains: Domains) -> tuple[Float64s, ...]:
        """float64[D] each: what it is to lose the running pods of each domain that leave, what counts least first."""
        ...

    def place(self, numbers: Sequence[int], kept: Mapping[int, Bools]) -> Sequence[Commit] | None:
        """Places what the group needs of some demands; None: not all fits. Commits that the plan has not noted itself.

        Args:
            kept: demand -> bool[N], nodes that its pods are kept to.
        """
        ...

    def key(self, start: Checkpoint, commits: Sequence[Commit]) -> PlanKey | None:
        """Of what was placed since a checkpoint; None: that is worth less than to wait."""
        ...


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A way to place what an atomic group needs.

    Attributes:
        nodes: demand -> bool[N], nodes that its pods are kept to; a demand of no gang that chooses is left out.
        commits: as the builder gave them.
    """

    key: PlanKey
    decisions: Decisions
    nodes: Mapping[int, Bools]
    commits: Sequence[Commit]


class DomainSearch:
    """One search, for one atomic group.

    Attributes:
        is_short: whether a choice was not tried as there are too few tries.
    """

    def __init__(self, problem: Problem, number: int, builder: Builder, shared: DomainTries) -> None:
        """Begins with the plan of the builder.

        Args:
            number: of the group.
            shared: the tries of the round.
        """
        self._problem, self._number, self._builder, self._shared = problem, number, builder, shared
        self._group = problem.atomic_groups.all[number]
        #: Gangs that choose, each with its pods by demand.
        self._gangs = by_turns(self._group, problem.demands)
        last = {demand: place for place, (_, members) in enumerate(self._gangs) for demand in members}
        ranks = {
            each: (-problem.demands[each].dominant_share, problem.demands[each].queue_rank)
            for each in self._group.required
        }
        #: For each of them, and in the end for no gang: demands that are placed once it has chosen, large ones first.
        self._due: list[list[int]] = [[] for _ in range(len(self._gangs) + 1)]
        for demand in sorted(ranks, key=ranks.__getitem__):
            self._due[last.get(demand, -1)].append(demand)
        self._start = builder.plan.checkpoint()
        self._best: PlacedGroup | None = None
        #: Demand -> bool[N], nodes that it is kept to by the gangs that have chosen.
        self._kept: dict[int, Bools] = {}
        #: What is asked, where it is asked -> choices that were tried for a slice that asks the same.
        self._tried: dict[object, set[bytes]] = {}
        #: Choices before there was a plan, and after it; how many may be tried of each, and how many of both for now.
        self._to_find = self._for_better = self._most_within = 0
        self._most_to_find, self._most_for_better = shared.left(number), shared.left(number, better=True)
        if self._most_to_find:
            self._most_to_find += len(self._gangs)
        self.is_short = False

    def run(self) -> PlacedGroup | None:
        """The best way that was found, which the plan has now; None: there is none, and the plan is as it was."""
        plan = self._builder.plan
        self._choose(0, ())
        if self._best is None and self._gangs and not self._group.needs_domain:
            # Nobody waits for what it prefers.
            plan.roll_back(self._start)
            self._gangs, self._due = [], [[number for due in self._due for number in due]]
            self._choose(0, ())
        plan.roll_back(self._start)
        # A plan has one try for each gang at least.
        self._shared.use(self._number, self._to_find - (len(self._gangs) if self._best else 0))
        self._shared.use(self._number, self._for_better, better=True)
        if self._best is not None:
            plan.redo(self._best.decisions)
        return self._best

    def _choose(self, place: int, commits: Sequence[Commit]) -> None:
        """Lets one gang after the other choose, in all ways for which there are tries."""
        if place == len(self._gangs):
            placed = self._builder.place(self._due[place], self._kept)
            if placed is not None:
                self._keep_if_better((*commits, *placed))
            return
        if not self._most_to_find:
            self.is_short = True
            return
        plan, tried, added = self._builder.plan, self._tried.setdefault(self._kind(place), set()), set[bytes]()
        for nodes in self._choices(place):
            if self._is_free():
                break
            if place == 0:
                # Slices that are alike fail alike: then the widest gang chooses again, not the slice before.
                self._most_within = self._to_find + self._for_better + _TRIES_WITHIN + len(self._gangs)
            if not self._may_try():
                self.is_short |= self._to_find >= self._most_to_find
                break
            chosen = nodes.tobytes()
            if chosen in tried:
                continue
            self._to_find += self._best is None
            self._for_better += self._best is not None
            checkpoint, before = plan.checkpoint(), dict(self._kept)
            for number in self._gangs[place][1]:
                self._kept[number] = self._kept[number] & nodes if number in self._kept else nodes
            placed = self._builder.place(self._due[place], self._kept)
            if placed is not None and self._may_be_better():
                self._choose(place + 1, (*commits, *placed))
            plan.roll_back(checkpoint)
            self._kept = before
            if self._may_try():
                # All ways with a slice like this one here are known: the next one need not try them.
                tried.add(chosen)
                added.add(chosen)
        tried -= added

    def _may_try(self) -> bool:
        if self._to_find + self._for_better >= self._most_within:
            return False
        if self._best is None:
            return self._to_find < self._most_to_find
        return self._for_better < self._most_for_better

    def _kind(self, place: int) -> object:
        """The same for gangs that may change places."""
        gang, members = self._gangs[place]
        if any(not members.keys().isdisjoint(others) for _, others in self._gangs[place + 1 :]):
            return gang.name
        asked = Counter[object]()
        for number in members.keys() & self._group.required.keys():
            demand = self._problem.demands[number]
            nodes = self._kept.get(number, demand.allowed) & demand.allowed
            of = demand.group
            asked[of.pod_class, of.signature.constraints, nodes.tobytes()] += self._group.required[number]
        return gang.topology_key, gang.preferred, frozenset(asked.items())

    def _may_be_better(self) -> bool:
        """Whether a plan with all that is decided may be better than the best: with more victims no key is less."""
        if self._best is None:
            return True
        key = self._builder.key(self._start, ())
        return key is not None and key < self._best.key

    def _is_free(self) -> bool:
        """Whether nobody leaves for the best plan."""
        return self._best is not None and not (self._best.key.victims.number or self._best.key.moves)

    def _keep_if_better(self, commits: Sequence[Commit]) -> None:
        key = self._builder.key(self._start, commits)
        if key is not None and (self._best is None or key < self._best.key):
            self._best = PlacedGroup(key, self._builder.plan.since(self._start), dict(self._kept), commits)

    # --- what a gang may choose ---

    def _choices(self, place: int) -> Iterator[Bools]:
        """Nodes that the pods of a gang may be kept to, bool[N], one choice after the other.

        A gang that prefers levels takes one domain of the narrowest level that has one with room for it. Below that
        level, or where no level has one, it takes as few domains of each level as will do.
        """
        gang, members = self._gangs[place]
        levels = [*([(gang.topology_key, "")] if gang.needs_domain else ()), *gang.preferred]
        domains = [self._problem.domains(key) for key, _ in levels]
        homes = [
            _home(each, nodes_in(key, home, self._problem.snapshot.table)) if home else -1
            for each, (key, home) in zip(domains, levels, strict=True)
        ]
        room = self._builder.room()

        def needs_for(members: Members) -> list[Need]:
            return needs_of(members, self._group.required, self._problem.demands, room, self._kept)

        needs = needs_for(members)
        slices = [
            (self._problem.domains(within.topology_key), needs_for(others))
            for within, others in self._gangs[place + 1 :]
            if within.needs_domain and others.keys() <= members.keys()
        ]

        def narrowed(nodes: Bools, begin: int) -> Iterator[Bools]:
            within = nodes
            for level in range(begin, len(levels)):
                within = _fewest(domains[level], [need.within(within) for need in needs], homes[level]) & within
            yield within
            if within is not nodes:
                yield nodes

        for level in reversed(range(len(levels))):
            fine = may_hold(needs, domains[level], room.free) & may_hold_slices(domains[level], slices)
            best = self._best_first(fine, needs, domains[level], homes[level]) if fine.any() else []
            if place or gang.preferred:
                best = best[:_MOST_DOMAINS]
            self.is_short |= len(best) > self._most_to_find
            for rank, code in enumerate(self._shared.some_of(best, self._most_to_find)):
                if rank >= _MOST_DOMAINS and self._best is not None:
                    break
                yield from narrowed(domains[level].codes == code, level + 1)
        if not gang.needs_domain:
            yield from narrowed(np.ones(len(room.free), dtype=np.bool_), 0)

    def _best_first(self, fine: Bools, needs: Sequence[Need], domains: Domains, home: int) -> list[int]:
        """Numbers of the domains that are fine, bool[D], the best first.

        The domain of its running pods comes first. Then those come where pods of low priorities and few of them leave,
        that have room for all of its pods, that their authors prefer, where least is left over, that have begun to
        fill, and that are cheapest.

        Args:
            home: the domain where its pods run; -1: none does.
        """
        most, numbers = needs[0], np.arange(domains.count)
        demand, nodes = self._builder.demand(most.number), most.fits > 0
        cheapest = np.full(domains.count + 1, np.inf)
        np.minimum.at(cheapest, domains.codes[nodes], demand.first_cost[nodes].astype(np.float64))
        preferred = np.floor_divide(_mean(self._wishes(demand), most, domains), _ALIKE)
        order = np.lexsort(
            (
                numbers,
                cheapest[:-1],
                is_untouched(most, domains, self._problem.snapshot.allocatable),
                np.maximum(most.totals(domains) - most.wanted, 0),
                # A gang that waits for cheap nodes takes the cheapest, or none.
                cheapest[:-1] if self._builder.cheapest else preferred,
                ~np.all([need.totals(domains) >= need.wanted for need in needs], axis=0),
                *self._builder.losses(needs, domains),
                numbers != home,
            )
        )
        best: list[int] = order[fine[order]].tolist()
        return best

    def _wishes(self, demand: Demand) -> Int64s:
        """int64[N]: what a pod of a demand pays for a node beside what the cost model asks."""
        load, cost = self._problem.start.load(demand.potential.utilisation), demand.policy.cost
        asked = self._problem.models[cost.model].arc_costs(demand.group.pod_class, demand.size, load, cost.weights)
        wishes: Int64s = demand.arc - asked
        return wishes


class FreeRoom:
    """Builds on what is free: nobody leaves."""

    def __init__(
        self,
        problem: Problem,
        number: int,
        demands: Sequence[Demand],
        plan: Plan,
        fit_counts: Callable[[int], Int64s],
        limit: int | None,
    ) -> None:
        """For an atomic group.

        Args:
            demands: of the problem, by number.
            fit_counts: of a demand int64[N], how many of its pods each node has room for beside the plan.
            limit: what its pods must cost less than; None: whatever they cost.
        """
        self.plan, self.cheapest, self._limit = plan, limit is not None, limit
        self._start, self._demands, self._before = problem.start, demands, plan.copy() if limit is not None else plan
        self._required, self._fit_counts = problem.atomic_groups.all[number].required, fit_counts

    def demand(self, number: int) -> Demand:
        """A demand with what each node costs."""
        return self._demands[number]

    def room(self) -> DomainRoom:
        """What is free."""
        return replace(DomainRoom.beside(self._demands, self.plan), fits=self._fit_counts)

    def losses(self, _needs: Sequence[Need], _domains: Domains) -> tuple[Float64s, ...]:
        """None."""
        return ()

    def place(self, numbers: Sequence[int], kept: Mapping[int, Bools]) -> Sequence[Commit] | None:
        """Places pods by cost."""
        if not numbers:
            return ()
        demands = [
            self._demands[each].restricted_to(kept[each]) if each in kept else self._demands[each] for each in numbers
        ]
        counts = [self._required[each] for each in numbers]
        commits = greedy(CostMatrix(demands, self._start), list(enumerate(counts)), self.plan)
        if sum(commit.count for commit in commits) < sum(counts):
            return None
        return [Commit(numbers[commit.demand], commit.node, commit.count) for commit in commits]

    def key(self, _start: Checkpoint, commits: Sequence[Commit]) -> PlanKey | None:
        """The same for all plans but those that cost too much."""
        is_cheap = self._limit is None or added_cost(self._demands, commits, self._before, self.plan) < self._limit
        return PlanKey() if is_cheap else None


def _fewest(domains: Domains, needs: Sequence[Need], home: int) -> Bools:
    """bool[N]: the nodes of as few domains as may hold what is needed together; all nodes where none will do.

    Largest domains first, behind that where pods of the gang run. The last one is the tightest that has room for the
    rest.
    """
    everywhere = np.ones(len(domains.codes), dtype=np.bool_)
    totals = np.array([need.totals(domains) for need in needs]).reshape(len(needs), domains.count)
    counts = np.array([need.count for need in needs])
    is_home = np.arange(domains.count) == home
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


def _home(domains: Domains, nodes: Bools) -> int:
    """The domain of some nodes, bool[N], that are in one; -1: there are none."""
    return int(domains.codes[nodes.argmax()]) if nodes.any() else -1
