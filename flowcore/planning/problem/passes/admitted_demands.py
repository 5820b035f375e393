"""The pods that may be placed after it is decided which atomic groups are, for methods that know no groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.problem.demands.atomic_groups import no_atomic_groups
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.problem import Problem

#: Sums of prices of 100,000 pods stay within int64.
_MAX_LIFT = 5 * 10**13


class AdmittedDemands(Pass):
    """Takes the pods of groups that are not admitted out of the problem.

    Pods that admitted groups need come first in their demand, at a price above all others, so that each method places
    them before anything else; and a candidate must place every one of them.
    """

    def __init__(self, problem: Problem, candidate: Candidate) -> None:
        """The groups that a candidate of the problem admits."""
        self._problem, self._candidate = problem, candidate
        #: Number in the problem of each demand that has any pods left.
        self._demand_indices: tuple[int, ...] = ()

    def apply(self, problem: Problem) -> Problem:
        """The pods without a group and the pods of admitted groups, each by itself."""
        atomic_groups, admitted = problem.atomic_groups, self._candidate.admitted
        demands = self._candidate.demands
        lift = int(min(sum(float(demand.prices.sum()) for demand in demands), _MAX_LIFT)) + 1
        kept: list[Demand] = []
        indices, must_place = [], []
        for index, demand in enumerate(demands):
            order = atomic_groups.placement_order(index, admitted)
            if len(order):
                required = atomic_groups.required(index, admitted)
                kept.append(_reordered(demand, order, required, lift))
                indices.append(index)
                must_place.append(required)
        self._demand_indices = tuple(indices)
        return problem.with_demands(tuple(kept), no_atomic_groups(kept), tuple(must_place))

    def restrict(self, candidate: Candidate, problem: Problem) -> Candidate:
        """A candidate that admits the same groups, as one of the problem that ``apply`` made."""
        new_index = {old: new for new, old in enumerate(self._demand_indices)}
        commits = [Commit(new_index[commit.demand], commit.node, commit.count) for commit in candidate.commits]
        return problem.candidate(candidate.method, commits, candidate.capacity)

    def invert(self, candidate: Candidate) -> Candidate:
        """The candidate among all demands of the problem, at the prices that they have there."""
        commits = self._in_problem(candidate.commits)
        return replace(
            self._candidate,
            method=candidate.method,
            commits=commits,
            capacity=candidate.capacity,
            cost=self._problem.cost(commits, self._candidate.admitted),
        )

    def _in_problem(self, commits: Sequence[Commit]) -> tuple[Commit, ...]:
        return tuple(Commit(self._demand_indices[commit.demand], commit.node, commit.count) for commit in commits)


def _reordered(demand: Demand, order: Int64s, required: int, lift: int) -> Demand:
    prices = demand.prices[order]
    prices[:required] += lift
    pods = demand.group.pods
    group = replace(demand.group, pods=tuple(pods[place] for place in order.tolist()))
    return replace(demand, group=group, prices=prices, worth=demand.worth[order])
