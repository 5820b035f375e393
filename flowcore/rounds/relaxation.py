"""The round as a linear program: what is worth its room, what a unit of room is worth, and what no plan can beat.

A flow in which each class consumes several resources is a generalised flow (seeds: arcs with gain); as a linear program
over classes and groups of nodes it is small. A group is nodes that the same classes may use; its resources count as
one pool, so the program is a relaxation. Its duals are tolls: the worth of a unit of each resource.

From any tolls a bound follows that holds whatever solver they came from (Lagrangian relaxation): ``lower_bound``
computes it from the demands and the room alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.costs.model import Float64s, Load
from flowcore.model.snapshot import Bools, Int64s
from flowcore.rounds.demands import Demand
from flowcore.rounds.room import Room
from flowcore.solve import LinearProgram, solve_relaxed

#: Prices of a class are merged into so many steps for the program; the bound uses each pod's own.
_STEPS = 4
#: A program with more columns than this takes longer than it helps.
_MOST_COLUMNS = 30_000
#: Slots of a node that the bound looks at in one go.
_DEPTH = 32


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """Demands and nodes as matrices, when the round begins.

    Attributes:
        counts: int64[C, N], how many pods of each demand each node takes, alone.
        first: float64[C, N], the least that a pod of the demand can ever pay there, infinite where it does not fit.
        free: float64[N, R], what is free, at least 0.
        floors: int64[N], the part of ``first`` that is the node's.
        smallest, largest: float64[N, 2], bounds on what a pod that fits there counts for.
        most: int64[N], how many pods a node can take at all.
    """

    demands: Sequence[Demand]
    load: Load
    counts: Int64s
    first: Float64s
    free: Float64s
    floors: Int64s
    smallest: Float64s
    largest: Float64s
    most: Int64s

    @classmethod
    def of(cls, demands: Sequence[Demand], room: Room) -> Field:
        """For the room as it is. Needs at least one demand."""
        nodes, resources = room.free.shape
        load = room.load()
        counts = np.zeros((len(demands), nodes), dtype=np.int64)
        smallest, largest = np.full((nodes, 2), np.inf), np.zeros((nodes, 2))
        wanted = np.full((nodes, resources), 2**62, dtype=np.int64)
        for at, demand in enumerate(demands):
            counts[at] = room.counts(demand)
            fits = (counts[at] > 0)[:, np.newaxis]
            np.minimum(smallest, demand.size, out=smallest, where=fits)
            np.maximum(largest, demand.size, out=largest, where=fits)
            np.minimum(wanted, demand.wanted, out=wanted, where=fits)
        smallest = np.minimum(smallest, largest)  # nodes that nothing fits on
        free = np.maximum(room.free, 0)
        most = np.where(wanted > 0, free // np.maximum(wanted, 1), 2**31).min(axis=1)
        floors = _floors(demands, load, smallest, largest, np.zeros(1, dtype=np.int64))[:, 0]
        first = np.where(counts > 0, np.array([demand.arc for demand in demands]) + floors, np.inf)
        return cls(demands, load, counts, first, free.astype(np.float64), floors, smallest, largest, most)


@dataclass(frozen=True, slots=True, eq=False)
class Guide:
    """What the linear program says.

    Attributes:
        tolls: float64[N, R], worth of a unit of each resource on each node.
        placed: float64[C], how many pods of each demand have room.
    """

    tolls: Float64s
    placed: Float64s


def guide(field: Field) -> Guide | None:
    """Solves the linear program; None where it is too large or the solver failed."""
    usable = (field.counts > 0).any(axis=0)
    group, groups = _groups(field.counts > 0, usable)
    classes, resources = len(field.demands), field.free.shape[1]
    if classes * groups > _MOST_COLUMNS or not groups:
        return None
    pools = np.zeros((groups, resources))
    np.add.at(pools, group[usable], field.free[usable])
    cost = np.full((classes, groups), np.inf)
    most = np.zeros((classes, groups))
    turn = np.nonzero(usable)[0][np.argsort(group[usable], kind="stable")]
    starts = np.searchsorted(group[turn], np.arange(groups))
    for at in range(classes):
        cost[at] = np.minimum.reduceat(field.first[at, turn], starts)
        most[at] = np.add.reduceat(field.counts[at, turn], starts)
    program, pairs, scale = _program(field.demands, cost, most, pools)
    solution = solve_relaxed(program)
    if solution is None:
        return None
    # Rows: a class each, then a resource of a group each; a resource that runs short has a negative dual.
    worth = np.maximum(-solution.duals[classes:], 0.0).reshape(groups, resources) / scale
    tolls = np.zeros(field.free.shape)
    tolls[usable] = worth[group[usable]]
    placed = np.zeros(classes)
    np.add.at(placed, pairs[0], solution.values[: len(pairs[0])])
    return Guide(tolls, placed)


def lower_bound(field: Field, tolls: Float64s | None = None, worth: Int64s | None = None) -> int:
    """A cost that no plan of the round goes below, whatever is passed.

    Each pod pays at least the cheaper of its price and of its cheapest node, where a node costs its arc, its worth and
    tolls on what is taken. What that overcharges is at most the tolls on everything that is free, and the worth of each
    slot less the least that a pod can pay for it.

    Args:
        tolls: float64[N, R], not negative; none if not given.
        worth: int64[N], what a slot of each node is taken to cost; the least possible if not given.
    """
    slots = field.floors if worth is None else np.maximum(worth, field.floors)
    extra = (slots - field.floors).astype(np.float64)
    total = 0.0
    for at, demand in enumerate(field.demands):
        cost = field.first[at] + extra
        if tolls is not None:
            asked = demand.wanted > 0
            cost = cost + tolls[:, asked] @ demand.wanted[asked]
        total += float(np.minimum(demand.prices, cost.min(initial=np.inf)).sum())
    over = 0.0 if tolls is None else float((tolls * field.free).sum())
    over += _overcharged(field, slots)
    # Sums of floats are off by less than one in 10^12 of what was added up.
    return int(np.floor(total - over - 1e-11 * (abs(total) + over) + 1e-6))


def _overcharged(field: Field, slots: Int64s) -> float:
    """The worth of all slots less what pods pay for them at least, where that is positive."""
    dear = np.nonzero((slots > field.floors) & (field.most > 0))[0]
    if not len(dear):
        return 0.0
    pods = sum(demand.count for demand in field.demands)
    most = np.minimum(field.most[dear], pods)
    over, depth = 0.0, 0
    while len(dear):
        levels = np.arange(depth, depth + _DEPTH, dtype=np.int64)
        floors = _floors(field.demands, field.load.at(dear), field.smallest[dear], field.largest[dear], levels)
        gain = np.where(levels < most[:, np.newaxis], np.maximum(slots[dear, np.newaxis] - floors, 0), 0)
        over += float(gain.sum())
        depth += _DEPTH
        going = most > depth
        dear, most = dear[going], most[going]
    return over


def _floors(demands: Sequence[Demand], load: Load, smallest: Float64s, largest: Float64s, levels: Int64s) -> Int64s:
    """int64[N, K]: the least that any pod of these demands pays for slots, by the models of all policies in play."""
    pricing = {(demand.model.name, demand.policy.weights): demand for demand in demands}
    found = [
        demand.model.slot_floors(load, smallest, largest, levels, demand.policy.weights)
        for demand in pricing.values()
    ]
    return np.minimum.reduce(found)


def _groups(fits: Bools, usable: Bools) -> tuple[Int64s, int]:
    """int64[N], group of each usable node: those that the same demands fit on; how many groups there are."""
    group = np.full(fits.shape[1], -1, dtype=np.int64)
    if not usable.any():
        return group, 0
    packed = np.ascontiguousarray(np.packbits(fits[:, usable], axis=0).T)
    _, found = np.unique(packed.view([("", np.void, packed.shape[1])]).ravel(), return_inverse=True)
    group[usable] = found
    return group, int(found.max()) + 1


def _program(
    demands: Sequence[Demand], cost: Float64s, most: Float64s, pools: Float64s
) -> tuple[LinearProgram, tuple[Int64s, Int64s], Float64s]:
    """Columns: pods of a class in a group, then pods of a class left at a price. Amounts are scaled to the pools."""
    classes = len(demands)
    groups, resources = pools.shape
    scale = np.maximum(pools.max(axis=0), 1.0)
    wanted = np.array([demand.wanted for demand in demands], dtype=np.float64) / scale
    who, where = np.nonzero(most > 0)
    steps = [np.array_split(demand.prices.astype(np.float64), min(_STEPS, demand.count)) for demand in demands]
    owner = np.repeat(np.arange(classes), [len(each) for each in steps])
    price = np.array([part.mean() for each in steps for part in each])
    width = np.array([len(part) for each in steps for part in each], dtype=np.float64)
    pairs = len(who)
    pair, resource = np.nonzero(wanted[who] > 0)
    rows = np.concatenate([who, owner, classes + where[pair] * resources + resource])
    columns = np.concatenate([np.arange(pairs), pairs + np.arange(len(owner)), pair])
    coefficients = np.concatenate([np.ones(pairs + len(owner)), wanted[who[pair], resource]])
    supply = np.array([demand.count for demand in demands], dtype=np.float64)
    return (
        LinearProgram(
            costs=np.concatenate([cost[who, where], price]),
            most=np.concatenate([most[who, where], width]),
            lower=np.concatenate([supply, np.full(groups * resources, -np.inf)]),
            upper=np.concatenate([supply, (pools / scale).ravel()]),
            rows=rows,
            columns=columns,
            coefficients=coefficients,
        ),
        (who, where),
        scale,
    )
