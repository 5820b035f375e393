"""One pod after the other, as kube-scheduler does it, but over arrays.

It finishes what flows leave over, is the floor that no round may fall below, and shows in the demo what a
scheduler that commits early does. Classes are rescored only on the nodes that changed since their last turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Int64s
from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand
from flowcore.rounds.room import Room


class Taste(Enum):
    """Which of the nodes that fit a pod gets."""

    CHEAPEST = "cheapest"  #: by the policy's cost model
    FULLEST = "fullest"  #: least room left, for packing


class _Scores:
    """One class's scores over all nodes, infinite where it does not fit."""

    def __init__(self, demand: Demand, room: Room, taste: Taste, seen: int) -> None:
        self._demand, self._room, self._taste = demand, room, taste
        self._seen = seen
        everywhere = np.arange(len(room.free), dtype=np.int64)
        self._values = np.where(room.counts(demand) > 0, self._of(everywhere), np.inf)

    def _of(self, at: Int64s) -> Float64s:
        demand, room = self._demand, self._room
        if self._taste is Taste.FULLEST:
            asked = demand.wanted > 0
            left = room.free[np.ix_(at, asked)] - demand.wanted[asked]
            result: Float64s = (left / np.maximum(demand.wanted[asked], 1)).sum(axis=1)
            return result
        size = np.broadcast_to(demand.size, (len(at), len(demand.size)))
        slot = demand.model.slot_costs(room.load(at), size, np.zeros(1, dtype=np.int64), demand.policy.weights)
        return (demand.arc[at] + slot[:, 0]).astype(np.float64)

    def best(self, changed: Sequence[int]) -> int | None:
        """The node to take, None where none fits; ``changed`` lists all nodes taken so far, in order."""
        stale = sorted(set(changed[self._seen :]))
        self._seen = len(changed)
        if stale:
            at = np.array(stale, dtype=np.int64)
            self._values[at] = np.where(self._room.fits_at(self._demand, at), self._of(at), np.inf)
        if not len(self._values):
            return None
        node = int(self._values.argmin())
        return node if np.isfinite(self._values[node]) else None


def plan_one_by_one(
    demands: Sequence[Demand], order: Iterable[int], room: Room, taste: Taste = Taste.CHEAPEST
) -> list[Commit]:
    """Commits into ``room`` one pod at a time.

    Args:
        order: the demand of each pod in turn. A class that found no node once is skipped from then on: room only
            shrinks.
    """
    commits: list[Commit] = []
    changed: list[int] = []
    scores: dict[int, _Scores] = {}
    hopeless: set[int] = set()
    for at in order:
        if at in hopeless:
            continue
        if at not in scores:
            scores[at] = _Scores(demands[at], room, taste, seen=len(changed))
        node = scores[at].best(changed)
        if node is None or not room.take(demands[at], node, 1):
            hopeless.add(at)
            continue
        commits.append(Commit(at, node, 1))
        changed.append(node)
    return commits
