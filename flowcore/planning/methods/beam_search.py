"""Beam search for small rounds: pod after pod is tried on every node, and the most promising partial plans go on.

Every placement asks every rule, so pods with rules, host ports and gangs are decided like all others. Of plans that
place the same pods on the same nodes one goes on. A plan is the better the fewer pods of high levels it leaves, then
the less the free room is scattered (Lowerre 1976 for the search; Garey and Johnson's best fit for what is promising).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.methods.admission import complete
from flowcore.planning.problem.levels import level_costs, level_units
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.commits import Commit
from flowcore.planning.problem.placements.free_capacity import FreeCapacity
from flowcore.planning.problem.problem import Problem

#: Pods that fit some node, and nodes that any of them fits on. With more the search sees too little of what there is.
MOST_PODS, MOST_NODES = 16, 8
#: Placements that are tried for each order of the pods: about a quarter of a second.
_TRIES = 4_000


@dataclass(frozen=True, slots=True)
class _Item:
    """A pod to be decided.

    Attributes:
        group: the atomic group that it is in; -1: none.
        needed: whether the group needs it.
        opens: whether it is the first pod that its group needs: with it the group is admitted or not.
        count: what it counts for in its level, if it waits.
    """

    demand: int
    level: int
    group: int
    needed: bool
    opens: bool
    count: int


@dataclass(frozen=True, slots=True)
class _State:
    """A partial plan.

    Attributes:
        waits: what waiting pods count for, by level from the highest.
        scattered: how scattered the free room is.
        commits: a pod each.
    """

    waits: tuple[int, ...]
    scattered: float
    capacity: FreeCapacity
    commits: tuple[Commit, ...]
    admitted: frozenset[int]


def is_small(problem: Problem) -> bool:
    """Whether a problem is small enough, and no gang has a topology domain to choose."""
    placeable = np.nonzero(problem.cost_matrix.placeable)[0].tolist()
    pods = sum(problem.demands[number].count for number in placeable)
    nodes = np.zeros(len(problem.start.free), dtype=np.bool_)
    for number in placeable:
        nodes |= problem.demands[number].counts > 0
    any_domain = all(group.any_domain for group in problem.atomic_groups.all)
    return 1 < pods <= MOST_PODS and int(nodes.sum()) <= MOST_NODES and any_domain


def search_beam(problem: Problem, known: Candidate, levels: Int64s) -> Candidate:
    """The known candidate, or one that leaves less by levels, or costs less.

    Args:
        levels: int64[C], of each demand.
    """
    best = known
    items = _items(problem, levels)
    orders = (
        sorted(items, key=lambda item: (-item[0].level, *item[1:])),
        sorted(items, key=lambda item: (-item[0].level, -item[2], item[1], *item[3:])),
    )
    for order in orders:
        candidate = _Beam(problem, [item[0] for item in order], levels).result()
        if candidate is not None:
            best = min(best, candidate, key=lambda each: level_costs(problem, each, levels))
    return best


def _items(problem: Problem, levels: Int64s) -> list[tuple[_Item, bool, float, int, int]]:
    """Pods with what orders them: those with rules first, large ones first; the pods of a group stay together."""
    units, groups = level_units(problem, levels), problem.atomic_groups
    opened: set[int] = set()
    hopeless = {
        number
        for number, group in enumerate(groups.all)
        if group.unschedulable_reason or not all(problem.demands[each].counts.any() for each in group.required)
    }
    items: list[tuple[_Item, bool, float, int, int]] = []
    for number in problem.by_size:
        demand = problem.demands[number]
        if not demand.counts.any():
            continue
        free = not (demand.is_placed_alone or demand.group.pod_class.host_ports)
        order = sorted(range(demand.count), key=lambda place: not groups.needed[number][place])
        for place in order:
            group, needed = int(groups.group_of[number][place]), bool(groups.needed[number][place])
            if group in hopeless:
                continue
            opens = needed and group not in opened
            opened |= {group} if needed else set()
            count = 0 if demand.waits else int(demand.prices_in_priority[place]) // units[int(levels[number])]
            item = _Item(number, int(levels[number]), group, needed, opens, count)
            items.append((item, free, -demand.dominant_share, number, len(items)))
    return _with_groups_together(items)


def _with_groups_together(
    items: Sequence[tuple[_Item, bool, float, int, int]],
) -> list[tuple[_Item, bool, float, int, int]]:
    """The same pods, those of a group with the keys of the pod that opens it, the needed ones first."""
    opening = {item.group: (free, size, number) for item, free, size, number, _ in items if item.opens}
    together = []
    for item, free, size, number, place in items:
        key = opening.get(item.group, (free, size, number)) if item.group >= 0 else (free, size, number)
        together.append((item, *key, place if item.needed or item.group < 0 else place + len(items)))
    return together


class _Beam:
    """One search, for one order of the pods."""

    def __init__(self, problem: Problem, items: Sequence[_Item], levels: Int64s) -> None:
        self._problem, self._items = problem, items
        self._places = {level: place for place, level in enumerate(sorted(set(levels.tolist()), reverse=True))}
        self._room = np.maximum(problem.start.free.max(axis=0), 1).astype(np.float64)
        usable = [np.nonzero(demand.counts)[0].tolist() for demand in problem.demands]
        self._nodes = usable
        self._width = max(4, _TRIES // max(1, sum(len(usable[item.demand]) for item in items)))

    def result(self) -> Candidate | None:
        """The best plan that was found; None: none is left, since the room of gangs that had begun did not suffice."""
        problem = self._problem
        states = [_State((0,) * len(self._places), 0.0, problem.start.copy(), (), frozenset())]
        for item in self._items:
            following: dict[object, _State] = {}
            for state in states:
                for continuation in self._continuations(state, item):
                    key = (frozenset(_pairs(continuation.commits).items()), continuation.admitted)
                    known = following.get(key)
                    if known is None or continuation.waits < known.waits:
                        following[key] = continuation
            states = self._kept(following.values())
        if not states:
            return None
        best = states[0]
        admitted = np.zeros(len(problem.atomic_groups.all), dtype=np.bool_)
        admitted[list(best.admitted)] = True
        commits = [Commit(demand, node, count) for (demand, node), count in _pairs(best.commits).items()]
        if any(problem.demands[commit.demand].is_placed_alone for commit in commits):
            commits = list(best.commits)
        return complete(problem, problem.candidate("beam", commits, best.capacity, admitted), full=True)

    def _kept(self, states: Iterable[_State]) -> list[_State]:
        """Half of the beam for those that leave least, a quarter for the next: who leaves one early may place more."""
        by_waits: dict[tuple[int, ...], list[_State]] = {}
        for state in states:
            by_waits.setdefault(state.waits, []).append(state)
        chosen: list[_State] = []
        for waits in sorted(by_waits):
            equal = sorted(by_waits[waits], key=lambda state: state.scattered)
            chosen += equal[: max(1, (self._width - len(chosen)) // 2)]
            if len(chosen) >= self._width:
                break
        return chosen

    def _continuations(self, state: _State, item: _Item) -> list[_State]:
        if item.group >= 0 and item.group not in state.admitted and not item.opens:
            return [self._waiting(state, item)]
        continuations = [] if item.needed and not item.opens else [self._waiting(state, item)]
        demand = self._problem.demands[item.demand]
        for node in self._nodes[item.demand]:
            if state.capacity.max_pods_at(demand, node, 1):
                capacity = state.capacity.copy()
                capacity.place(demand, node, 1)
                admitted = state.admitted | {item.group} if item.opens else state.admitted
                continuations.append(
                    _State(
                        state.waits,
                        self._scattered(capacity),
                        capacity,
                        (*state.commits, Commit(item.demand, node, 1)),
                        admitted,
                    )
                )
        return continuations

    def _waiting(self, state: _State, item: _Item) -> _State:
        waits = list(state.waits)
        waits[self._places[item.level]] += item.count
        return _State(tuple(waits), state.scattered, state.capacity, state.commits, state.admitted)

    def _scattered(self, capacity: FreeCapacity) -> float:
        """Less where few nodes have much room than where many have some."""
        shares = np.maximum(capacity.free, 0) / self._room
        return -float((shares * shares).sum())


def _pairs(commits: Sequence[Commit]) -> Counter[tuple[int, int]]:
    """How many pods of each demand are on each node; commits are of a pod each."""
    return Counter((commit.demand, commit.node) for commit in commits)
