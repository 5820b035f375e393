"""Admission: decides which atomic groups a round places, together with the pods that are in none.

Groups and single pods compete by the same unscheduled prices. They are taken in an order, in batches that are halved if
they do not fit as a whole; a group is admitted only after all pods that it needs were really placed. Several orders are
tried, and the best candidate is kept (engine.md section 3: a candidate set with bisection).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.admission_run import AdmissionRun
from flowcore.planning.methods.assignment_program import AtomicBundles
from flowcore.planning.methods.relaxation import RelaxedSolution, relax
from flowcore.planning.methods.ruin_and_rebuild import RuinAndRebuild
from flowcore.planning.problem.bounds.bounds import first_bound, lower_bound
from flowcore.planning.problem.levels import key_of
from flowcore.planning.problem.objective import open_counts
from flowcore.planning.problem.passes import AdmittedDemands
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.problem import Problem

#: Of this many pods the first order takes about as long as a round may, and leaves no time for a bound.
_MANY = 1_000
#: The round in fractions for that case. With fewer classes more states of nodes are told apart.
_ROUGH: Final = {"most_kinds": 40, "most_pairs": 20_000}
#: A rough bound is enough where the plan costs more by less than this part of its cost: a tenth.
_NEAR = 10


@dataclass(frozen=True, slots=True, eq=False)
class IndividualPods:
    """The P pods that no atomic group needs, on demands that fit some node.

    Attributes:
        demand: int64[P].
        group: int64[P], the group that a pod is optional in: it is placed only if the group is; -1: none.
        price: int64[P], what leaving it pending costs.
        rank_price: float64[P], the same for what it counts.
    """

    demand: Int64s
    group: Int64s
    price: Int64s
    rank_price: Float64s

    @classmethod
    def of(cls, problem: Problem) -> IndividualPods:
        """Without optional pods of groups that are unschedulable."""
        pods: list[tuple[Int64s, Int64s, Int64s]] = [(np.zeros(0, dtype=np.int64),) * 3]
        for index, demand in enumerate(problem.demands):
            group_of, free = problem.atomic_groups.group_of[index], ~problem.atomic_groups.needed[index]
            if len(problem.unschedulable):
                free &= (group_of < 0) | ~problem.unschedulable[group_of]
            if demand.counts.any():
                pods.append((np.full(int(free.sum()), index, dtype=np.int64), group_of[free], demand.prices[free]))
        of, groups, prices = (np.concatenate(columns) for columns in zip(*pods, strict=True))
        weights = np.array([each.weight for each in problem.demands], dtype=np.float64)
        return cls(of, groups, prices, prices / weights[of])


class Admission:
    """Decides which groups are admitted, one order a step; the second step is the bound.

    Attributes:
        best: the best candidate so far.
        bound: a cost that no candidate goes below.
        improved_by: methods whose candidate was better than the best before.
        relaxed: the round in fractions, as often as it was solved so.
        fine: the last of them, if it is not a rough one.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem, self.bound = problem, 0
        self.improved_by = set[str]()
        self.relaxed: list[RelaxedSolution] = []
        self.fine: RelaxedSolution | None = None
        self._pods = IndividualPods.of(problem)
        self._group_prices = np.array([group.unscheduled_cost for group in problem.atomic_groups.all], dtype=np.float64)
        self._pod_prices = self._pods.price.astype(np.float64)
        self.best = problem.nothing_placed()

    def run(self) -> Generator[None, None, None]:
        """Yields after each order, and after the bound; of many pods the first step has a bound."""
        problem, certain = self._problem, self._problem.atomic_groups.certain
        shares = np.array([max(demand.dominant_share, 1e-12) for demand in problem.demands])
        if problem.runs("gangs by price"):
            self.offer(self.by_price())
        is_short = any(open_counts(self.best.commits, self.best.demands))
        if is_short:
            self._shift()
        # Of many pods the budget may not last for another step: then the first one has the better bound, in rough.
        is_many = sum(demand.count for demand in problem.demands) >= _MANY
        is_bounded = is_many and self._relax(**_ROUGH)
        if not problem.demands:
            self.bound = self.best.cost
        elif is_bounded:
            # What pods pay alone may be more than what rough prices say. This takes a tenth of the other one's time.
            self.bound = max(self.bound, first_bound(problem.unreserved_cost_matrix, certain))
        else:
            self.bound = lower_bound(problem.unreserved_cost_matrix, atomic_groups=certain)
        yield
        is_near = (self.best.cost - self.bound) * _NEAR <= self.best.cost
        if self.best.cost == self.bound or (is_bounded and is_near and not is_short):
            return
        if self._relax():
            yield
        if not is_short:
            return  # other orders are for what stays out
        if problem.runs("gangs by share"):
            group_values = self._group_prices / np.maximum(problem.required @ shares, 1e-12)
            order = self._ordered(group_values, self._pod_prices / shares[self._pods.demand])
            self.offer(self._admit("gangs by share", *order[:2]))
            yield

    def by_price(self) -> Candidate:
        """The candidate that the order of prices gives."""
        return self._admit("gangs by price", *self.price_order()[:2])

    def price_order(self) -> tuple[Int64s, Int64s, Float64s]:
        """The highest price for what it counts first; a group counts as the pods that it needs do together.

        See ``_ordered``.
        """
        groups = np.array([group.rank_price for group in self._problem.atomic_groups.all], dtype=np.float64)
        return self._ordered(groups, self._pods.rank_price)

    def _relax(self, **fineness: int) -> bool:
        """Solves the round in fractions with groups, whose prices give a bound; False: it is too large.

        Args:
            fineness: of classes and nodes, see ``relax``.
        """
        problem = self._problem
        schedulable = ~problem.unschedulable
        prices = [
            demand.prices[~needed] for demand, needed in zip(problem.demands, problem.atomic_groups.needed, strict=True)
        ]
        bundles = AtomicBundles(problem.required[schedulable].astype(np.float64), self._group_prices[schedulable])
        relaxed = relax(problem.cost_matrix, prices, bundles, **fineness)
        if relaxed is not None:
            self.relaxed.append(relaxed)
            self.fine = None if fineness else relaxed
            self.bound = max(self.bound, self.bound_by([relaxed]))
        return relaxed is not None

    def bound_by(self, solutions: Sequence[RelaxedSolution]) -> int:
        """The best bound that some prices give, of a round with or without groups."""
        return max(
            (
                lower_bound(
                    self._problem.unreserved_cost_matrix,
                    shadow_prices=relaxed.shadow_prices,
                    loads=relaxed.loads,
                    atomic_groups=self._problem.atomic_groups.certain,
                )
                for relaxed in solutions
            ),
            default=0,
        )

    def _shift(self) -> None:
        """Moves pods of the best candidate to make room for single pods that it leaves."""
        if self._problem.runs("ruin and rebuild"):
            admitted = AdmittedDemands(self._problem, self.best)
            restricted = admitted.apply(self._problem)
            search = RuinAndRebuild(restricted, admitted.restrict(self.best, restricted), 0)
            for _ in search.run("room"):
                pass  # within the first step
            if search.gain:
                self.offer(admitted.invert(search.candidate()))

    def _admit(self, method: str, groups: Int64s, demands: Int64s) -> Candidate:
        """The candidate that an order gives (``_ordered``)."""
        run = AdmissionRun(self._problem)
        run.bisect(groups, demands)
        return run.conclude(method)

    def offer(self, candidate: Candidate) -> None:
        """Takes over a candidate that is better than the best so far."""
        if key_of(self._problem, candidate) < key_of(self._problem, self.best):
            self.improved_by.add(candidate.method)
            self.best = candidate

    def _ordered(self, group_values: Float64s, pod_values: Float64s) -> tuple[Int64s, Int64s, Float64s]:
        """Entries in order: int64[E], a group, or that a pod is optional in; int64[E], a demand or -1; their values.

        Groups that go first come first; among equal values entries with few pods.

        Args:
            group_values: float64[U], pod_values: float64[P]; the highest value comes first.
        """
        groups, pods, required = self._problem.atomic_groups.all, self._pods, self._problem.required
        schedulable = np.nonzero(~self._problem.unschedulable)[0]
        goes_first = np.array([groups[group].goes_first for group in schedulable.tolist()], dtype=np.bool_)
        size = np.array([groups[group].size for group in schedulable.tolist()], dtype=np.int64)
        dominant_shares = np.array([demand.dominant_share for demand in self._problem.demands])
        entry_group = np.concatenate([schedulable, pods.group])
        entry_demand = np.concatenate([np.full(len(schedulable), -1, dtype=np.int64), pods.demand])
        values = np.concatenate([group_values[schedulable], pod_values])
        order = np.lexsort(
            (
                np.arange(len(entry_group)),
                np.concatenate([required[schedulable] @ dominant_shares, dominant_shares[pods.demand]]),
                np.concatenate([size, np.ones(len(pods.group), dtype=np.int64)]),
                -values,
                np.concatenate([~goes_first, np.ones(len(pods.group), dtype=np.bool_)]),
            )
        )
        return entry_group[order], entry_demand[order], values[order]


def complete(problem: Problem, candidate: Candidate, *, full: bool = False) -> Candidate:
    """A candidate with the groups that fit beside its placements after all.

    Args:
        full: also places single pods that fit, even where every group is admitted.
    """
    order = _rejected(problem, candidate)
    if not order and not full:
        return candidate
    run = AdmissionRun(problem, candidate)
    for demand in order:
        run.bisect(np.array([demand], dtype=np.int64), np.array([-1], dtype=np.int64))
    completed = run.conclude(candidate.method)
    if not problem.objective.has_minimums:
        return completed
    # One pod more in a domain of none or enough asks for others, whatever they cost.
    before = replace(candidate, cost=problem.cost(candidate.commits, candidate.admitted))
    return min(completed, before, key=partial(key_of, problem))


def fit_counts(problem: Problem, candidate: Candidate) -> dict[int, int]:
    """For each group that is not admitted but could be: how many of the pods that it needs fit beside the candidate."""
    run = AdmissionRun(problem, candidate)
    return {group: sum(commit.count for commit in run.fitting(group)) for group in _rejected(problem, candidate)}


def _rejected(problem: Problem, candidate: Candidate) -> list[int]:
    """Groups that are not admitted, without those that cannot be; the highest unscheduled cost first."""
    groups = problem.atomic_groups.all
    rejected = [
        group for group in np.nonzero(~candidate.admitted)[0].tolist() if not groups[group].unschedulable_reason
    ]
    return sorted(rejected, key=lambda group: (-groups[group].unscheduled_cost, group))
