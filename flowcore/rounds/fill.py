"""All pods of a class at once, one class after the other: what one-by-one scheduling would do, over arrays.

A class's pods go to its cheapest slots, as many as it has pods; since slots of a node rise in cost, that is what
placing them one after the other gives. So the work follows classes and their pods' nodes, not pods times nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Int64s
from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand
from flowcore.rounds.field import Field
from flowcore.rounds.room import Room


def plan_by_filling(
    field: Field, order: Iterable[tuple[int, int]], room: Room, tolls: Float64s | None = None
) -> list[Commit]:
    """Commits into ``room`` one class after the other.

    Args:
        field: the demands, and where they stood when the round began.
        order: demand and how many of its pods, in turn; a demand may come several times.
        tolls: float64[N, R], what a unit of each resource of a node is worth to others: a class prefers nodes where
            what it takes is worth little. None: nothing.
    """
    commits: list[Commit] = []
    standings: dict[int, _Standing] = {}
    for at, count in order:
        if not count:
            continue
        standing = standings.get(at)
        if standing is None:
            standing = standings[at] = _Standing(field, at, room, tolls)
        nodes, pods = standing.choose(count)
        if len(nodes):
            room.take_many(field.demands[at], nodes, pods)
            commits.extend(Commit(at, node, n) for node, n in zip(nodes.tolist(), pods.tolist(), strict=True))
    return commits


class _Standing:
    """The nodes that take a demand's pods: how many now, and what the next one costs there.

    Only nodes that changed since the demand's last turn are looked at again.
    """

    def __init__(self, field: Field, at: int, room: Room, tolls: Float64s | None) -> None:
        self._demand: Demand = field.demands[at]
        self._room = room
        self._asked = self._demand.wanted > 0
        self._toll: Float64s | None = None
        self._nodes = np.nonzero(field.counts[at])[0]
        self._most = field.counts[at][self._nodes]
        self._next = field.opening[at][self._nodes]
        if tolls is not None:
            self._toll = tolls[:, self._asked] @ self._demand.wanted[self._asked]
            self._next = self._next + self._toll[self._nodes]
        self._seen = 0

    def choose(self, count: int) -> tuple[Int64s, Int64s]:
        """Nodes and how many pods each gets: ``count`` pods, or as many as there is room for."""
        self._look_again()
        nodes, most = self._nodes, self._most
        if len(nodes) > count:
            # With rising slots a class needs no more nodes than it has pods: the cheapest ones.
            near = (
                np.sort(np.argpartition(self._next, count - 1)[:count])
                if count > 1
                else self._next.argmin(keepdims=True)
            )
            nodes, most = nodes[near], most[near]
        most = np.minimum(most, count)
        if int(most.sum()) <= count:
            return nodes, most
        return self._cheapest_slots(nodes, most, count)

    def _look_again(self) -> None:
        changed = self._room.changed_since(self._seen)
        self._seen = self._room.changes
        if changed is None:
            return
        rows = np.nonzero(changed[self._nodes])[0]
        if not len(rows):
            return
        nodes = self._nodes[rows]
        most = self._room.counts_at(self._demand, nodes)
        self._most[rows] = most
        self._next[rows] = self._arc(nodes) + self._slots(nodes, np.zeros(1, dtype=np.int64))[:, 0]
        if not most.all():
            alive = self._most > 0
            self._nodes, self._most, self._next = self._nodes[alive], self._most[alive], self._next[alive]

    def _arc(self, nodes: Int64s) -> Float64s:
        arc: Float64s = self._demand.arc[nodes].astype(np.float64)
        return arc if self._toll is None else arc + self._toll[nodes]

    def _slots(self, nodes: Int64s, levels: Int64s) -> Int64s:
        demand = self._demand
        size = np.broadcast_to(demand.size, (len(nodes), len(demand.size)))
        return demand.model.slot_costs(self._room.load_at(nodes), size, levels, demand.policy.weights)

    def _cheapest_slots(self, nodes: Int64s, most: Int64s, count: int) -> tuple[Int64s, Int64s]:
        arc, deepest = self._arc(nodes)[:, np.newaxis], int(most.max())
        deep = 2 * -(-count // len(nodes)) + 2
        while True:
            deep = min(deep, deepest)
            levels = np.arange(deep, dtype=np.int64)
            cost = np.where(levels < most[:, np.newaxis], arc + self._slots(nodes, levels), np.inf)
            if int(np.minimum(most, deep).sum()) >= count:
                limit = np.partition(cost, count - 1, axis=None)[count - 1]
                below = cost < limit
                # Deeper slots that were not looked at cost no less than the last that was.
                if deep == deepest or not (below[:, -1] & (most > deep)).any():
                    break
            deep *= 2
        given = below.sum(axis=1)
        short = count - int(given.sum())
        if short:
            # Slots at the limit itself, in the order of the nodes.
            ties = (cost == limit).sum(axis=1)
            given += np.clip(short - (np.cumsum(ties) - ties), 0, ties)
        used = given > 0
        return nodes[used], given[used].astype(np.int64)
