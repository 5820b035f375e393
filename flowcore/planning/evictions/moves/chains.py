"""Chains of moves: where a moved pod has no place, others leave a node for the sake of its replacement.

The first of a chain goes where room is free now; each other one takes the room of one that left before it. So nobody
waits for somebody who waits for it. Rules between pods are for the filters to judge, and who has left by then they do
not know: in a chain only a pod whose place resources alone decide takes room of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.evictions.eligibility import MoveEligibility
from flowcore.planning.evictions.state import EvictionState

#: Nodes that are tried for the replacement of one pod, and sets of pods that may leave each.
_MAX_NODES, _MAX_SETS = 8, 3
#: Looks, at all nodes for a pod or at a set: of a round, and for one waiting pod.
_MOST_LOOKS, _MOST_FOR_ONE = 64, 16


class Chains:
    """Decides moves; each takes a place that is free, or that others leave first."""

    def __init__(self, state: EvictionState, moves: MoveEligibility, destinations: Destinations) -> None:
        self._state, self._moves, self._destinations = state, moves, destinations
        #: By namespace of the waiting pods.
        self._looks: Counter[str] = Counter()
        self._namespace, self._looks_left = "", 0
        #: By priority, int64[N, R]: what those of each node ask for that may move if nobody leaves.
        self._movable: dict[int, Int64s] = {}

    def begin(self, key: str) -> None:
        """A waiting pod is next. It has a share of the looks, so that one that nothing helps leaves some for others.

        A namespace has half of those that others have not had, as of the moves of an hour; a pod half of what is left.
        """
        self._namespace = key.partition("/")[0]
        own = self._looks[self._namespace]
        left = (_MOST_LOOKS - self._looks.total() + own) // 2 - own
        self._looks_left = min(_MOST_FOR_ONE, left // 2)

    @property
    def may_look(self) -> bool:
        """Whether there may be more looks for the waiting pod."""
        return self._looks_left > 0

    def look(self) -> None:
        """Counts a look for the waiting pod."""
        self._looks_left -= 1
        self._looks[self._namespace] += 1

    def move(
        self, members: Sequence[int], key: str, priority: int, waves: int, *, made_on: Sequence[int], frees: int = -1
    ) -> bool:
        """Decides moves one by one, so that each counts for the limits of the next. Returns whether all have a place.

        Args:
            key: of the waiting pod that they leave for.
            priority: of that pod, which none of them is above.
            waves: how many may leave one after the other, this one included.
            made_on: nodes that room is made on, and taken already by those that it is made for.
            frees: resident whose replacement takes their room; -1: the waiting pod does.
        """
        usage = self._state.residents.usage
        for resident in sorted(members, key=lambda resident: -int(usage[resident].max())):
            if not self._moves.may_move(resident, priority):
                return False
            self._state.let_leave(resident, self._moves.kind, [key], frees=frees)
            self._state.count_move(resident)
            node = self._destinations.find(resident)
            if node >= 0:
                self._state.reserve_replacement(resident, node, is_move=False)  # it counts already
            elif waves == 1 or not self._make_place(resident, key, priority, waves - 1, made_on):
                return False
        return True

    def _make_place(self, resident: int, key: str, priority: int, waves: int, made_on: Sequence[int]) -> bool:
        """Moves others off a node for the replacement of a pod that leaves, which goes there. Returns whether it does.

        Args:
            waves: how many others may leave one after the other.
            made_on: see ``move``; here nobody else leaves these nodes.
        """
        state, residents = self._state, self._state.residents
        usage = residents.usage[resident]
        plain, allowed = self._destinations.allowed(resident)
        if not plain or not self.may_look:
            return False
        self.look()
        lacking = np.where(usage > 0, np.maximum(usage - np.minimum(state.free_now, state.free), 0), 0)
        for node in self._nodes(allowed, made_on, lacking, priority):
            among = [
                mover
                for mover in residents.on(node)
                if self._moves.may_move(mover, priority) and (waves > 1 or self._destinations.has_any(mover))
            ]
            for members in self._sets(among, lacking[node]):
                if not self.may_look:
                    return False
                self.look()
                checkpoint = state.checkpoint()
                # It takes its room first: so others may come to the node as far as there is more.
                state.reserve_replacement(resident, node, is_move=False)
                moved = self.move(members, key, priority, waves, made_on=(*made_on, node), frees=resident)
                if moved and self._fits(node, usage):
                    return True
                state.roll_back(checkpoint)
        return False

    def _nodes(self, allowed: Bools, made_on: Sequence[int], lacking: Int64s, priority: int) -> list[int]:
        """Other nodes that have the room once all that may move have left, those first that lack the least.

        Args:
            allowed: bool[N], nodes that may take the pod.
            made_on: nodes that it does not go to, its own among them.
            lacking: int64[N, R], what each lacks.
            priority: of the waiting pod.
        """
        possible = allowed & (lacking <= self._given(priority)).all(axis=1)
        possible[list(made_on)] = False
        nodes = np.nonzero(possible)[0]
        shares = lacking[nodes] / self._largest
        order: list[int] = nodes[np.argsort(shares.sum(axis=1), kind="stable")].tolist()
        return order[:_MAX_NODES]

    @cached_property
    def _largest(self) -> Int64s:
        """int64[R]: the most that a resident asks for."""
        largest: Int64s = np.maximum(self._state.residents.usage.max(axis=0), 1)
        return largest

    def _given(self, priority: int) -> Int64s:
        """int64[N, R]: what those of each node give back that may still move for a pod of a priority."""
        residents, leaving = self._state.residents, list(self._state.leaving)
        if priority not in self._movable:
            may_move = self._moves.mask(priority)
            may_move[leaving] = True
            movable = np.zeros_like(self._state.free)
            np.add.at(movable, residents.nodes[may_move], residents.usage[may_move])
            self._movable[priority] = movable
        given: Int64s = self._movable[priority].copy()
        np.subtract.at(given, residents.nodes[leaving], residents.usage[leaving])
        return given

    def _sets(self, among: Sequence[int], lacking: Int64s) -> list[tuple[int, ...]]:
        """A few sets of residents of a node that together hold what it lacks, int64[R]: single ones if any does."""
        usage = self._state.residents.usage[list(among)]
        size = (usage / np.maximum(usage.max(axis=0, initial=0), 1)).sum(axis=1)
        largest_first = np.argsort(-size, kind="stable").tolist()
        alone: list[tuple[int, ...]] = [
            (among[place],) for place in reversed(largest_first) if (usage[place] >= lacking).all()
        ]
        if alone:
            return alone[:_MAX_SETS]
        chosen = list(largest_first)
        for place in reversed(largest_first):
            rest = [kept for kept in chosen if kept != place]
            if (usage[rest].sum(axis=0) >= lacking).all():
                chosen = rest
        enough = bool((usage[chosen].sum(axis=0) >= lacking).all())
        return [tuple(among[place] for place in chosen)] if enough else []

    def _fits(self, node: int, usage: Int64s) -> bool:
        """Whether a node has the room, now and in the end, for what comes; one pod of this usage, int64[R], counts."""
        room = np.minimum(self._state.free[node], self._state.free_now[node])
        return bool(((room >= 0) | (usage == 0)).all())
