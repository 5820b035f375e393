"""Which pods make up a gang, as a part of a program in whole numbers.

A gang with more pods than it needs may be made up of any of them. A problem says which ones a group needs before it is
known where there is room: the smallest. In a program each pod of such a group is left by itself, at its own price, and
rows say that enough of them are placed or none is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup, by_size_and_price
from flowcore.planning.problem.problem import Problem
from flowcore.planning.solvers import LinearProgram

#: By group the pods that it needs, as demand and place.
ChosenMembers = Mapping[int, Sequence[tuple[int, int]]]


@dataclass(frozen=True, slots=True, eq=False)
class SinglePods:
    """Pods of a demand that are placed or left each by itself.

    Attributes:
        places: int64[P], in the demand's group.
        group: the group that is made up of some of them, and perhaps of pods of other demands; -1: none.
    """

    demand: int
    places: Int64s
    group: int = -1


def groups_with_choice(problem: Problem) -> Bools:
    """bool[U]: groups that may need other pods than the problem says."""
    return np.array(
        [
            _may_choose(problem, group) and (problem.held is None or problem.held.group != number)
            for number, group in enumerate(problem.atomic_groups.all)
        ],
        dtype=np.bool_,
    )


def members_of(problem: Problem, with_choice: Bools) -> list[SinglePods]:
    """The pods of some groups by demand; ``with_choice``: bool[U]."""
    return [
        SinglePods(demand, np.array(places, dtype=np.int64), number)
        for number in np.nonzero(with_choice)[0].tolist()
        for demand, places in problem.atomic_groups.all[number].members[0].items()
    ]


def with_member_rows(
    problem: Problem,
    program: LinearProgram,
    singles: Sequence[SinglePods],
    columns: Sequence[Int64s],
    left_out: Int64s,
) -> LinearProgram:
    """The program with rows that have enough pods of a group placed, or all left.

    Args:
        columns: for each of ``singles``, how many of its pods are left, in runs.
        left_out: int64[U], columns that are 1 where a group is left out.
    """
    entries: list[tuple[Int64s, Float64s]] = []
    upper: list[float] = []
    by_group: dict[int, list[int]] = {}
    for number, single in enumerate(singles):
        if single.group >= 0:
            by_group.setdefault(single.group, []).append(number)
    for group, numbers in by_group.items():
        most = sum(len(singles[number].places) for number in numbers)
        needed = problem.atomic_groups.all[group].size
        runs, out = np.concatenate([columns[number] for number in numbers]), left_out[group]
        entries.append((np.append(runs, out), np.append(np.ones(len(runs)), -float(needed))))
        upper.append(float(most - needed))
        for run in runs.tolist():
            entries.append((np.array([out, run]), np.array([program.variable_upper[run], -1.0])))
            upper.append(0.0)
    return program.with_rows(entries, upper) if entries else program


def chosen_members(
    problem: Problem, admitted: Bools, singles: Sequence[SinglePods], pending: Sequence[int]
) -> ChosenMembers:
    """The pods that admitted groups need, where some that the problem says are left.

    Args:
        admitted: bool[U].
        pending: for each of ``singles``, how many of its pods are left.
    """
    placed: dict[int, list[tuple[int, int]]] = {number: [] for number in np.nonzero(admitted)[0].tolist()}
    for single, left in zip(singles, pending, strict=True):
        if single.group in placed:
            # Of a demand those that the problem needs are as good as any.
            order = np.argsort(~problem.atomic_groups.needed[single.demand][single.places], kind="stable")
            places = single.places[order][: len(single.places) - left]
            placed[single.group] += [(single.demand, place) for place in places.tolist()]
    chosen: dict[int, list[tuple[int, int]]] = {}
    for number, pods in placed.items():
        size = problem.atomic_groups.all[number].size
        if sum(bool(problem.atomic_groups.needed[demand][place]) for demand, place in pods) < size:
            by_need = sorted(pods, key=lambda pod: by_size_and_price(problem.demands, frozenset(), *pod))
            chosen[number] = by_need[:size]
    return chosen


def _may_choose(problem: Problem, group: AtomicGroup) -> bool:
    """Whether it is one gang with more pods than it needs, and all that follows from who is needed stays the same.

    A group's level is that of its pods' priorities; pods of others make up no gang; and domains are chosen for the pods
    that are needed.
    """
    if group.unschedulable_reason or len(group.gangs) > 1 or group.gangs[0].foreign_pods or not group.any_domain:
        return False
    priorities = {problem.demands[demand].group.pod_class.priority for demand in group.demands}
    return len(priorities) == 1 and 0 < group.size < sum(map(len, group.members[0].values()))
