"""Levels: pods of a higher priority come first, whatever the sum of the costs says.

The cost of a plan is one sum, and in it two pods of a low priority may be dearer to leave than one of a high priority.
So plans are compared level by level, the highest first: by how many pods wait, then the next level, and by the whole
cost at last. A pod counts once for each time that it is as dear to leave as the cheapest of its level: else age and
shares would mean nothing beside numbers, or a second of age more than all the levels below. What prices have because of
priorities is left out there: it makes up for the age of lower pods, and beside that of days minutes would be nothing.
Searches know sums only: for them there is a problem with prices that rise steeply by level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.wishes import wish_nodes
from flowcore.planning.plan_key import AtLevel, PlanKey
from flowcore.planning.problem.demands.atomic_groups import AtomicGroups
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import placed_counts
from flowcore.planning.problem.problem import Problem

#: How many times dearer to leave a mean pod of a level is at most than one of the level below.
_MOST, _LEAST = 64.0, 2.0
#: Prices that are made steeper stay below this: sums over 100,000 pods are within int64.
_LIMIT = 1e13
#: What follows from the prices of demands, and is computed anew where they change.
_OF_PRICES = ("objective", "cost_matrix", "unreserved_cost_matrix", "queue", "by_size")


class AssignLevels(Pass):
    """Says on which level the pods of each demand are, and what each of them counts for there."""

    def apply(self, problem: Problem) -> Problem:
        """The same pods. Plans are compared by levels where several have pods that could be placed."""
        levels = _levels_of(problem).tolist()
        units = dict.fromkeys(levels, 2**62)
        for demand, level in zip(problem.demands, levels, strict=True):
            if not demand.waits:
                units[level] = min(units[level], int(demand.prices_in_priority.min(initial=2**62)))
        # What waits for a cheaper node counts in the cost only.
        demands = tuple(
            replace(demand, level=level, worth=demand.prices_in_priority // units[level] * (not demand.waits))
            for demand, level in zip(problem.demands, levels, strict=True)
        )
        assigned = _with(problem, demands)
        assigned.by_levels = len({each.level for each in demands if each.counts.any() and not each.waits}) > 1
        return assigned


def _levels_of(problem: Problem) -> Int64s:
    """int64[C]: the level of each demand: twice its priority, and one more if its wish can be met (costs/wishes.py).

    So of pods of one priority those come first that others nominated: no other one takes their room.

    Pods that a group needs have the lowest priority among these; where groups share a demand, the highest of these
    counts. Pods whose policy lets age cross priorities are on the level of the highest priority of which no pod is as
    dear to leave for its size.
    """
    demands = problem.demands
    levels = np.array([demand.group.pod_class.priority for demand in demands], dtype=np.int64)
    priorities = levels.copy()
    dearest = np.array([int(demand.prices.max(initial=0)) / demand.weight for demand in demands])
    for number, demand in enumerate(demands):
        if demand.policy.unscheduled.aging_crosses_priorities:
            for priority in sorted(set(priorities[priorities > priorities[number]].tolist())):
                if dearest[number] > dearest[priorities == priority].max():
                    levels[number] = priority
    levels = 2 * levels + np.array([demand.has_wish(problem.snapshot) for demand in demands], dtype=np.int64)
    own, of_groups = levels.copy(), dict[int, int]()
    for group in problem.atomic_groups.all:
        needed = list(group.required)
        for number in needed:
            of_groups[number] = max(of_groups.get(number, -(2**33)), int(own[needed].min()))
    for number, level in of_groups.items():
        # Pods of other groups, or of none, may be alike: no group takes a level from them.
        if bool(problem.atomic_groups.needed[number].all()):
            levels[number] = level
    return levels


def key_of(problem: Problem, candidate: Candidate) -> PlanKey:
    """What candidates of a problem are compared by; if no levels are, one sum says what waits."""
    groups = zip(problem.atomic_groups.all, candidate.admitted.tolist(), strict=True)
    first = sum(group.unscheduled_cost for group, admitted in groups if group.goes_first and not admitted)
    missing = sum(problem.missing_pods(candidate.commits)) if any(problem.must_place) else 0
    return PlanKey(first + missing, _at_levels(problem, candidate) if problem.by_levels else (), cost=candidate.cost)


def _at_levels(problem: Problem, candidate: Candidate) -> tuple[AtLevel, ...]:
    """What a candidate leaves at each level, the highest first; what a minimum lacks is more than all pods there."""
    waiting = dict.fromkeys(sorted({demand.level for demand in problem.demands}, reverse=True), 0)
    strays = waiting.copy()
    for demand, places in zip(problem.demands, waiting_places(problem, candidate), strict=True):
        waiting[demand.level] += int(demand.worth[places].sum())
    for level, count in _strays(problem, candidate).items():
        strays[level] += count
    for minimum, lacking in problem.objective.lacking(candidate.commits):
        policies = {each.policy.name for each in problem.demands if minimum in each.constraints.rising}
        level = max(demand.level for demand in problem.demands if demand.policy.name in policies)
        most = sum(int(demand.worth.sum()) for demand in problem.demands if demand.level == level)
        waiting[level] += int(lacking.sum()) * (1 + most)
    return tuple(map(AtLevel, waiting.values(), strays.values()))


def _strays(problem: Problem, candidate: Candidate) -> Mapping[int, int]:
    """By level how many pods a candidate places on another node than they wish for, though that had room."""
    preferring = {number: demand for number, demand in enumerate(problem.demands) if demand.has_wish(problem.snapshot)}
    nodes, strays = problem.snapshot.table.nodes, Counter[int]()
    for commit in candidate.commits if preferring else ():
        demand = preferring.get(commit.demand)
        if demand is not None and nodes[commit.node].name != demand.group.pod_class.wish:
            strays[demand.level] += commit.count
    return strays


def waiting_places(problem: Problem, candidate: Candidate) -> list[Int64s]:
    """For each demand int64[pods], the places in its group of the pods that a candidate leaves."""
    placed, waiting = placed_counts(candidate.commits, len(problem.demands)), []
    for number, (demand, count) in enumerate(zip(problem.demands, placed, strict=True)):
        left = np.ones(demand.count, dtype=np.bool_)
        left[problem.atomic_groups.placement_order(number, candidate.admitted)[:count]] = False
        waiting.append(np.nonzero(left)[0])
    return waiting


def compete(problem: Problem, candidate: Candidate) -> bool:
    """Whether levels compete: some pods that could be placed wait, or are not on the node of their wish."""
    waiting = waiting_places(problem, candidate)
    return bool(_strays(problem, candidate)) or any(
        len(waiting[number]) and not problem.demands[number].waits
        for number in np.nonzero(problem.cost_matrix.placeable)[0].tolist()
    )


def with_steep_prices(problem: Problem) -> Problem:
    """The same problem with prices that rise steeply by level, but for what counts in no level."""
    strict = [demand for demand in problem.demands if not demand.waits]
    factors, units = _factors(strict), dict.fromkeys((demand.level for demand in strict), 2**62)
    for demand in strict:
        units[demand.level] = max(1, min(units[demand.level], int(demand.prices.min(initial=2**62))))

    least = min(units.values(), default=1)

    # What pods of a level cost beyond whole counts decides among them: it is less than any pod of the lowest level.
    def steep(demand: Demand) -> Demand:
        unit = units[demand.level]
        rest = demand.prices % unit
        prices = ((demand.prices - rest) * factors[demand.level] + rest * (least / unit)).astype(np.int64)
        if not demand.has_wish(problem.snapshot):
            return replace(demand, prices=prices)
        # Another node than that of its wish costs half of what leaving a pod does: still less than that.
        others = ~wish_nodes(demand.group.pod_class, problem.snapshot.table)
        return replace(demand, prices=prices, arc=demand.arc + others * (int(prices.min()) // 2))

    demands = tuple(demand if demand.waits else steep(demand) for demand in problem.demands)
    groups = tuple(
        replace(
            group,
            unscheduled_cost=sum(
                int(demands[number].prices[problem.atomic_groups.needed[number] & (of == place)].sum())
                for number, of in ((number, problem.atomic_groups.group_of[number]) for number in group.required)
            ),
        )
        for place, group in enumerate(problem.atomic_groups.all)
    )
    steeper = _with(problem, demands)
    steeper.atomic_groups = AtomicGroups(groups, problem.atomic_groups.group_of, problem.atomic_groups.needed)
    return steeper


def _with(problem: Problem, demands: tuple[Demand, ...]) -> Problem:
    """The same problem with what levels change of its demands."""
    changed = copy(problem)
    for name in _OF_PRICES:
        changed.__dict__.pop(name, None)
    changed.demands = demands
    return changed


def _factors(demands: Sequence[Demand]) -> dict[int, float]:
    """By level: what prices are multiplied with.

    One pod takes the room of as many lower ones as it is larger; that many together are cheaper to leave.
    """
    order = sorted({demand.level for demand in demands})
    sizes = [demand.dominant_share for demand in demands if demand.dominant_share > 0]
    wanted = 2 * max(sizes, default=1.0) / max(min(sizes, default=1.0), 1e-9)
    dearest = max((float(demand.prices.max(initial=1)) for demand in demands), default=1.0)
    most = max(_LIMIT / max(dearest, 1.0), 1.0) ** (1 / max(1, len(order) - 1))
    steepness = min(max(_LEAST, min(wanted, _MOST)), most)
    return {level: steepness**place for place, level in enumerate(order)}


def as_candidate_of(problem: Problem, candidate: Candidate) -> Candidate:
    """A candidate of a problem with the same pods at other prices, at the prices of this problem."""
    demands = tuple(
        own if own.counts is planned.counts else replace(own, allowed=planned.allowed, counts=planned.counts)
        for own, planned in zip(problem.demands, candidate.demands, strict=True)
    )
    if all(kept is own for kept, own in zip(demands, problem.demands, strict=True)):
        demands = problem.demands
    return replace(candidate, demands=demands, cost=problem.cost(candidate.commits, candidate.admitted))
