"""Chains of moves: where a moved pod has no place, others leave a node for the sake of its replacement.

The first of a chain goes where room is free now; each other one takes the room of one that left before it. So nobody
waits for somebody who waits for it. Rules between pods are for the filters to judge, and who has left by then they do
not know: in a chain only a pod whose place resources alone decide takes room of others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.evictions.eligibility import MoveEligibility
from flowcore.planning.evictions.state import EvictionState

#: Nodes that are tried for the replacement of one pod, sets of pods that may leave each, and looks of a round: at all
#: nodes for a pod, and at a set.
_MAX_NODES, _MAX_SETS, _MOST_LOOKS = 8, 3, 64


class Chains:
    """Decides moves; each takes a place that is free, or that others leave first."""

    def __init__(self, state: EvictionState, moves: MoveEligibility, destinations: Destinations) -> None:
        self._state, self._moves, self._destinations = state, moves, destinations
        self._looks_left = _MOST_LOOKS

    @property
    def may_look(self) -> bool:
        """Whether the round may look for more chains."""
        return self._looks_left > 0

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
        self._looks_left -= 1
        plain, allowed = self._destinations.allowed(resident)
        if not plain or self._looks_left < 0:
            return False
        may_move = self._moves.mask(priority)
        lacking = np.where(usage > 0, np.maximum(usage - np.minimum(state.free_now, state.free), 0), 0)
        for node in self._nodes(allowed, made_on, lacking, may_move):
            among = [
                other
                for other in residents.on(node)
                if may_move[other]
                and self._moves.may_move(other, priority)
                and (waves > 1 or self._destinations.has_any(other))
            ]
            for members in self._sets(among, lacking[node]):
                if self._looks_left <= 0:
                    return False
                self._looks_left -= 1
                checkpoint = state.checkpoint()
                # It takes its room first: so others may come to the node as far as there is more.
                state.reserve_replacement(resident, node, is_move=False)
                moved = self.move(members, key, priority, waves, made_on=(*made_on, node), frees=resident)
                if moved and self._has_room(node, usage):
                    return True
                state.roll_back(checkpoint)
        return False

    def _nodes(self, allowed: Bools, made_on: Sequence[int], lacking: Int64s, may_move: Bools) -> list[int]:
        """Other nodes that have the room once all that may move have left, those first that lack the least.

        Args:
            allowed: bool[N], nodes that may take the pod.
            made_on: nodes that it does not go to, its own among them.
            lacking: int64[N, R], what each lacks.
            may_move: bool[V].
        """
        residents = self._state.residents
        given = np.zeros_like(lacking)
        np.add.at(given, residents.nodes[may_move], residents.usage[may_move])
        possible = allowed & (lacking <= given).all(axis=1)
        possible[list(made_on)] = False
        nodes = np.nonzero(possible)[0]
        shares = lacking[nodes] / np.maximum(residents.usage.max(axis=0), 1)
        order: list[int] = nodes[np.argsort(shares.sum(axis=1), kind="stable")].tolist()
        return order[:_MAX_NODES]

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
            rest = [other for other in chosen if other != place]
            if (usage[rest].sum(axis=0) >= lacking).all():
                chosen = rest
        enough = bool((usage[chosen].sum(axis=0) >= lacking).all())
        return [tuple(among[place] for place in chosen)] if enough else []

    def _has_room(self, node: int, usage: Int64s) -> bool:
        """Whether a node has the room, now and in the end, for what comes; one pod of this usage, int64[R], counts."""
        room = np.minimum(self._state.free[node], self._state.free_now[node])
        return bool(((room >= 0) | (usage == 0)).all())
