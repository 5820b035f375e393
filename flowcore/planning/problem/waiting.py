"""Pods that wait for as long as that costs less than every node that has room (``unscheduled.waitForCheaperNode``).

A plan is settled if no such pod, and no group with such pods, costs more on its nodes than left pending, all others
being where they are, and no domain has fewer pods than are worth anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.soft_constraints import SoftConstraintCosts
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.levels import key_of
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit, pods_by_node
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem

#: How often pods that have become too dear are taken out and their room is filled again. Once or twice does, mostly.
MOST_REFILLS = 8
#: Price of pods that must be placed, whatever that costs.
_MUST = 2**62

#: Of demands whose pods may wait: int64[P], prices of leaving their next pods, in the order in which they are placed;
#: falling.
WaitPrices = Mapping[int, Int64s]


def waiting_demands(problem: Problem) -> list[int]:
    """Demands whose pods wait for as long as that costs less than every node that has room."""
    return [index for index, demand in enumerate(problem.demands) if demand.waits]


def lacking(problem: Problem, index: int, placed: int) -> int:
    """How many more pods of a demand a plan should place beside the ``placed`` ones: all, but for pods that wait."""
    demand = problem.demands[index]
    if not demand.waits:
        return demand.count - placed
    cheapest = problem.cost_matrix.first_pod_cost_of(index).min(initial=np.inf)
    return max(0, int((demand.prices > cheapest).sum()) - placed)


def wait_prices(problem: Problem, placed: Sequence[int], admitted: Bools) -> WaitPrices:
    """Prices of the pods that come after those that are placed.

    Args:
        placed: how many pods of each demand are placed.
        admitted: bool[U], groups that are placed.
    """
    waiting_prices = {}
    for index in waiting_demands(problem):
        prices = problem.demands[index].prices[problem.atomic_groups.placement_order(index, admitted)].copy()
        prices[: max(problem.must_place[index], problem.atomic_groups.required(index, admitted))] = _MUST
        waiting_prices[index] = prices[placed[index] :]
    return waiting_prices


def may_wait(problem: Problem, group: int) -> bool:
    """Whether an atomic group is left pending for as long as that costs less than its nodes."""
    atomic_group = problem.atomic_groups.all[group]
    return not atomic_group.goes_first and any(problem.demands[demand].waits for demand in atomic_group.required)


def added_cost(demands: Sequence[Demand], commits: Sequence[Commit], before: Plan, after: Plan) -> int:
    """What commits cost beside what was there before; what pods prefer among each other left aside."""
    cost = sum(int(demands[commit.demand].arc[commit.node]) * commit.count for commit in commits)
    nodes = np.unique(np.array([commit.node for commit in commits], dtype=np.int64))
    for potential in {demands[commit.demand].potential for commit in commits}:
        values = [potential.values(each.load_at(nodes, potential)) for each in (after, before)]
        cost += int((values[0] - values[1]).sum())
    return cost


class Savings:
    """What leaving out placed pods saves, one after the other."""

    def __init__(self, problem: Problem, commits: Sequence[Commit], capacity: Plan) -> None:
        """Begins with a plan and what it leaves free."""
        self._problem, self._capacity = problem, capacity.copy()
        self._soft: dict[int, SoftConstraintCosts | None] = {}
        #: Of each demand: its nodes and the pods there.
        self.placed = pods_by_node(commits)

    def dearest(self, demand: int) -> tuple[int, int]:
        """By how much the cost of the placed pods falls at most if a pod of a demand is left out, and its node."""
        nodes = np.array(sorted(self.placed[demand]), dtype=np.int64)
        saved = self.by_node(demand, nodes)
        best = int(saved.argmax())
        return int(saved[best]), int(nodes[best])

    def by_node(self, index: int, nodes: Int64s) -> Int64s:
        """int64[len(nodes)]: the same for each node that has a pod of the demand."""
        demand = self._problem.demands[index]
        load = self._capacity.load_at(nodes, demand.potential)
        without = self._capacity.load_at(nodes, demand.potential).less(demand.size)
        saved = demand.arc[nodes] + demand.potential.values(load) - demand.potential.values(without)
        if index not in self._soft:
            self._soft[index] = demand.soft_costs(self._capacity.before)
        soft = self._soft[index]
        if soft is not None:
            saved = saved + soft.saved_without(self._capacity.domain_counts, demand.constraints.increments, nodes)
        return saved

    def most_of(self, group: AtomicGroup) -> int:
        """The most that leaving out the pods that a group needs can save: each later pod of a node saves no more."""
        most = 0
        for demand, count in group.required.items():
            nodes = np.array(sorted(self.placed.get(demand, ())), dtype=np.int64)
            pods = np.array([self.placed[demand][node] for node in nodes.tolist()], dtype=np.int64)
            saved = np.sort(np.repeat(self.by_node(demand, nodes), pods))[::-1]
            most += int(saved[:count].sum())
        return most

    def leave_out(self, demand: int, node: int) -> None:
        """A pod of a demand is not on this node any more."""
        pods = self.placed[demand]
        pods[node] -= 1
        if not pods[node]:
            del pods[node]
        single = np.array([1], dtype=np.int64)
        self._capacity.release(self._problem.demands[demand], np.array([node], dtype=np.int64), single)

    def commits(self, before: Sequence[Commit]) -> list[Commit]:
        """The commits of the plan, in their order, without the pods that are left out."""
        remaining = {demand: dict(pods) for demand, pods in self.placed.items()}
        kept = []
        for commit in before:
            pods_left = remaining[commit.demand]
            count = min(commit.count, pods_left.get(commit.node, 0))
            if count:
                pods_left[commit.node] -= count
                kept.append(Commit(commit.demand, commit.node, count))
        return kept


def settled(
    problem: Problem, commits: Sequence[Commit], capacity: Plan, admitted: Bools
) -> tuple[list[Commit], Plan] | None:
    """Commits without the pods whose node costs more than waiting, and what they leave free; None: there are none."""
    if not waiting_demands(problem):
        return None
    savings = Savings(problem, commits, capacity)
    prices = wait_prices(problem, [0] * len(problem.demands), admitted)
    counts = {demand: sum(savings.placed.get(demand, {}).values()) for demand in prices}
    dear, again = False, True
    while again:
        again = False
        for demand, price in prices.items():
            while counts[demand]:
                saved, node = savings.dearest(demand)
                if saved <= price[counts[demand] - 1]:
                    break
                savings.leave_out(demand, node)
                counts[demand] -= 1
                dear = again = True
    return replay(problem, savings.commits(commits)) if dear else None


def without_dear_groups(problem: Problem, candidate: Candidate) -> Candidate:
    """A candidate without the groups that cost more than waiting; the room that they leave is not filled again."""
    waiting = [number for number in np.nonzero(candidate.admitted)[0].tolist() if may_wait(problem, number)]
    again = bool(waiting)
    while again:
        again = False
        savings = Savings(problem, candidate.commits, candidate.capacity)
        for number in waiting:
            if candidate.admitted[number] and savings.most_of(problem.atomic_groups.all[number]) > _value(
                problem, number
            ):
                cheaper = _without(problem, candidate, number)
                if key_of(problem, cheaper) < key_of(problem, candidate):
                    candidate, again = cheaper, True
                    break
    return candidate


def _value(problem: Problem, group: int) -> int:
    return problem.atomic_groups.all[group].unscheduled_cost


def _without(problem: Problem, candidate: Candidate, group: int) -> Candidate:
    """A candidate without the pods of a group, on the nodes where they cost most."""
    admitted = candidate.admitted.copy()
    admitted[group] = False
    savings = Savings(problem, candidate.commits, candidate.capacity)
    for demand in problem.atomic_groups.all[group].demands & savings.placed.keys():
        placed = sum(savings.placed[demand].values())
        needed = problem.atomic_groups.all[group].required.get(demand, 0)
        most = len(problem.atomic_groups.placement_order(demand, admitted))
        for _ in range(placed - min(placed - needed, most)):
            savings.leave_out(demand, savings.dearest(demand)[1])
    commits, capacity = replay(problem, savings.commits(candidate.commits))
    without = problem.candidate(candidate.method, commits, capacity, admitted)
    return replace(without, demands=candidate.demands, decided=candidate.decided, held=candidate.held)


def without_partial(problem: Problem, candidate: Candidate) -> Candidate:
    """A candidate without groups, without pods in domains that have none or enough, and have too few."""
    while True:
        short = [each for each in problem.objective.lacking(candidate.commits) if each[0].rule.or_none]
        if not short:
            return candidate
        minimum, lacks = short[0]
        domains, counter = np.append(lacks > 0, [False])[minimum.counter.domains.codes], minimum.counter
        kept = [
            commit
            for commit in candidate.commits
            if not domains[commit.node] or counter not in problem.demands[commit.demand].constraints.increments
        ]
        candidate = problem.candidate(candidate.method, *replay(problem, kept))


def replay(problem: Problem, commits: Sequence[Commit]) -> tuple[list[Commit], Plan]:
    """Commits from the start, without those whose rules needed pods that are not placed any more."""
    capacity, replayed = problem.start.copy(), []
    for commit in commits:
        taken = capacity.place(problem.demands[commit.demand], commit.node, commit.count)
        if taken:
            replayed.append(Commit(commit.demand, commit.node, taken))
    return replayed, capacity
