"""All pods of a class at once, one class after the other: what one-by-one scheduling would do, over arrays.

A class's pods go to its cheapest slots, as many as it has pods; since slots of a node rise in cost, that is what
placing them one after the other gives. So the work follows classes and their pods' nodes, not pods times nodes.
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
    """Which of the nodes that fit a class gets."""

    CHEAPEST = "cheapest"  #: by the policy's cost model
    FULLEST = "fullest"  #: least room left, for packing


def plan_by_filling(
    demands: Sequence[Demand],
    order: Iterable[tuple[int, int]],
    room: Room,
    taste: Taste = Taste.CHEAPEST,
    tolls: Float64s | None = None,
) -> list[Commit]:
    """Commits into ``room`` one class after the other.

    Args:
        order: demand and how many of its pods, in turn.
        tolls: float64[N, R], what a unit of each resource of a node is worth to others: a class prefers nodes where
            what it takes is worth little. None: nothing.
    """
    commits: list[Commit] = []
    for at, count in order:
        if not count:
            continue
        demand = demands[at]
        nodes, pods = _choose(demand, count, room, taste, tolls)
        if len(nodes):
            room.take_many(demand, nodes, pods)
            commits.extend(Commit(at, node, n) for node, n in zip(nodes.tolist(), pods.tolist(), strict=True))
    return commits


def _choose(demand: Demand, count: int, room: Room, taste: Taste, tolls: Float64s | None) -> tuple[Int64s, Int64s]:
    """Nodes and how many pods each gets: ``count`` pods, or as many as there is room for."""
    most = room.counts(demand)
    nodes = np.nonzero(most)[0]
    most = np.minimum(most[nodes], count)
    if int(most.sum()) <= count:
        return nodes, most
    asked = demand.wanted > 0
    toll: Float64s = np.zeros(len(nodes)) if tolls is None else tolls[np.ix_(nodes, asked)] @ demand.wanted[asked]
    if taste is Taste.FULLEST:
        left = room.free[np.ix_(nodes, asked)] - demand.wanted[asked]
        emptiness = (left / np.maximum(demand.wanted[asked], 1)).sum(axis=1)
        turn = np.lexsort((emptiness, np.rint(toll)))
        given = np.clip(count - (np.cumsum(most[turn]) - most[turn]), 0, most[turn])
        used = given > 0
        return nodes[turn[used]], given[used]
    return _cheapest_slots(demand, count, room, nodes, most, toll)


def _cheapest_slots(
    demand: Demand, count: int, room: Room, nodes: Int64s, most: Int64s, toll: Float64s
) -> tuple[Int64s, Int64s]:
    model, weights, load = demand.model, demand.policy.weights, room.load()

    def slots(at: Int64s, levels: Int64s) -> Int64s:
        there = load.at(at)
        size = np.broadcast_to(demand.size, (len(at), 2))
        return model.slot_costs(there, size, levels, weights)

    arc = demand.arc[nodes] + toll
    if len(nodes) > count:
        # With rising slots a class needs no more nodes than it has pods: the cheapest ones.
        first = arc + slots(nodes, np.zeros(1, dtype=np.int64))[:, 0]
        near = np.argpartition(first, count - 1)[:count]
        near.sort()
        nodes, most, arc = nodes[near], most[near], arc[near]
        if int(most.sum()) <= count:
            return nodes, most
    deep = 2 * -(-count // len(nodes)) + 2
    while True:
        deep = min(deep, int(most.max()))
        levels = np.arange(deep, dtype=np.int64)
        cost = np.where(levels < most[:, np.newaxis], arc[:, np.newaxis] + slots(nodes, levels), np.inf)
        if int(np.minimum(most, deep).sum()) >= count:
            limit = np.partition(cost, count - 1, axis=None)[count - 1]
            below = cost < limit
            # Deeper slots that were not looked at cost no less than the last that was.
            if deep == int(most.max()) or not (below[:, -1] & (most > deep)).any():
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
