"""Whether some gangs fit together as a round begins, with the domains that they must keep to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property

import numpy as np

from flowcore.costs.shares.queue_admission import within_limits
from flowcore.model.gangs import Gang
from flowcore.planning.methods.admission_run import AdmissionRun
from flowcore.planning.methods.greedy import greedy
from flowcore.planning.problem.demands.atomic_groups import (
    AtomicGroup,
    AtomicGroups,
    atomic_group_of,
    no_atomic_groups,
    pods_by_gang,
)
from flowcore.planning.problem.passes import RestrictToGangDomains
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import may_wait
from flowcore.rules.filters.node_resources_fit import count_fitting


class Trial:
    """Places gangs by themselves, beside what runs. Nothing of it is kept."""

    def __init__(self, problem: Problem, unions: Mapping[str, Sequence[str]]) -> None:
        """For one round.

        Args:
            unions: for each gang the gangs over several gangs that its pods are in, too.
        """
        self._problem, self._unions = RestrictToGangDomains().apply(problem), unions
        self._within_limits = within_limits(problem.snapshot)
        self._members = pods_by_gang(self._problem.demands)
        self._most_known: dict[int, int] = {}
        self._within = _gangs_within(self._members, self._problem)
        self._none = no_atomic_groups(self._problem.demands)
        # Each trial is a copy of the problem; these are the same for all.
        _ = self._problem.cost_matrix, self._problem.objective, self._problem.by_size, self._problem.not_packable

    def size(self, name: str) -> tuple[float, ...]:
        """What a gang needs, to be compared.

        Whether it is more than empty nodes have, whether it has yet to begin, its share of a node, its number of pods.
        """
        gang, demands = self._gang(name), self._problem.demands
        group, _ = self._group((name,))
        share = sum(demands[index].dominant_share * count for index, count in group.required.items())
        too_large = any(self._most(index) < count for index, count in group.required.items())
        return float(too_large), float(not gang.partially_placed), share, float(group.size)

    def _most(self, index: int) -> int:
        """How many pods of a demand have room once all nodes are empty."""
        if index not in self._most_known:
            demand, empty = self._problem.demands[index], np.maximum(self._problem.snapshot.allocatable, 0)
            self._most_known[index] = int(count_fitting(demand.requests, empty)[demand.allowed].sum())
        return self._most_known[index]

    def namespace(self, name: str) -> str:
        """Of the pods of a gang; "": none of them is planned."""
        pods = (self._problem.demands[index].group.pods[place] for index, place in self._members.get(name, ()))
        return next((pod.signature.namespace for pod in pods), "")

    def price(self, name: str) -> int:
        """What it costs to leave all pods of a gang."""
        return sum(int(self._problem.demands[index].prices[place]) for index, place in self._members.get(name, ()))

    def may_fit(self, name: str) -> bool:
        """Whether each demand by itself has room for what a gang needs; this costs next to nothing."""
        group, _ = self._group((name,))
        rooms = ((count, self._problem.demands[index].counts) for index, count in group.required.items())
        return not group.unschedulable_reason and all(int(counts.sum()) >= count for count, counts in rooms)

    def fits(self, names: tuple[str, ...]) -> bool:
        """Whether all pods that some gangs need are really placed, and nothing else keeps them waiting.

        Limits of queues may, and a policy by which they rather wait for cheaper nodes.
        """
        (group, needed), problem = self._group(names), copy(self._problem)
        problem.atomic_groups = AtomicGroups((group,), self._none.group_of, self._none.needed)
        pods = [problem.demands[index].group.pods[place] for index, places in needed.items() for place in places]
        if group.unschedulable_reason or not self._within_limits(pods):
            return False
        cost = AdmissionRun(problem).cost_to_place(0)
        return cost is not None and (cost < group.unscheduled_cost or not may_wait(problem, 0))

    @cached_property
    def is_calm(self) -> bool:
        """Whether there is room for all pods of the round, so that nobody is in another's way.

        Where pods wait for cheaper nodes, fewer groups may cost less than all of them.
        """
        problem = self._problem
        if any(demand.waits for demand in problem.demands) or not self._within_limits(problem.snapshot.pending):
            return False
        counts = [demand.count for demand in problem.demands]
        if any(int(demand.counts.sum()) < demand.count for demand in problem.demands):
            return False
        commits = greedy(problem.cost_matrix, [(each, counts[each]) for each in problem.by_size], problem.start.copy())
        return sum(commit.count for commit in commits) == sum(counts)

    def _gang(self, name: str) -> Gang:
        return self._problem.snapshot.gangs[name]

    def _group(self, names: Sequence[str]) -> tuple[AtomicGroup, Mapping[int, Sequence[int]]]:
        """The gangs as one group, with the gangs over several of them, which have pods of the gangs only.

        And the places of the pods that it needs, by demand.
        """
        unions: dict[str, list[tuple[int, int]]] = {}
        for name in names:
            for union in self._unions.get(name, ()):
                unions.setdefault(union, []).extend(self._members.get(name, ()))
        parts = (part for name in names for part in (name, *self._within.get(name, ())))
        members = unions | {name: self._members.get(name, []) for name in parts}
        gangs = [self._gang(name) for name in members]
        return atomic_group_of(gangs, list(members.values()), self._problem.demands)


def _gangs_within(members: Mapping[str, Sequence[tuple[int, int]]], problem: Problem) -> dict[str, list[str]]:
    """Gang -> others of which all pods are its own: its slices, but for those that come after it, and shared claims."""
    within: dict[str, list[str]] = {}
    places = {name: frozenset(of_gang) for name, of_gang in members.items() if name in problem.snapshot.gangs}
    for name, own in places.items():
        number, place = members[name][0]
        for around in problem.demands[number].group.pods[place].gangs:
            if around != name and own <= places.get(around, frozenset()):
                within.setdefault(around, []).append(name)
    return within
