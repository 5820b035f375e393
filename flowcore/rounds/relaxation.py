"""The round as a linear program: what is worth its room, and what a unit of room is worth.

A flow in which each class consumes several resources is a generalised flow (seeds: arcs with gain); as a linear program
over classes and groups of nodes it is small. A group is nodes that the same classes may use; its resources count as
one pool, so the program is a relaxation. Its duals are tolls: the worth of a unit of each resource.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Bools, Int64s
from flowcore.rounds.field import Field
from flowcore.rounds.placing import Pairs, merged, placing_program
from flowcore.solve import solve_relaxed

#: Runs that a class's prices are merged into for the program; the bound uses each pod's own.
_STEPS = 4
#: A program with more columns than this takes longer than it helps.
_MOST_COLUMNS = 30_000


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
    usable = np.asarray((field.counts > 0).any(axis=0), dtype=np.bool_)
    group, groups = _groups(np.array([demand.allowed for demand in field.demands]), usable)
    free = np.maximum(field.room.free, 0).astype(np.float64)
    classes, resources = len(field.demands), free.shape[1]
    if classes * groups > _MOST_COLUMNS or not groups:
        return None
    pools = np.zeros((groups, resources))
    np.add.at(pools, group[usable], free[usable])
    cost = np.full((classes, groups), np.inf)
    most = np.zeros((classes, groups))
    turn = np.nonzero(usable)[0][np.argsort(group[usable], kind="stable")]
    starts = np.searchsorted(group[turn], np.arange(groups))
    for at in range(classes):
        cost[at] = np.minimum.reduceat(field.opening[at, turn], starts)
        most[at] = np.add.reduceat(field.counts[at, turn], starts)
    # Amounts are scaled to the pools: bytes and GPUs side by side are hard on a solver.
    scale = np.maximum(pools.max(axis=0), 1.0)
    wanted = np.array([demand.wanted for demand in field.demands], dtype=np.float64) / scale
    who, where = np.nonzero(most > 0)
    prices = [merged(demand.prices, _STEPS) for demand in field.demands]
    pairs = Pairs(who, where, cost[who, where], most[who, where])
    solution = solve_relaxed(placing_program(pairs, wanted, pools / scale, prices))
    if solution is None:
        return None
    # Rows: a class each, then a resource of a group each; a resource that runs short has a negative dual.
    worth = np.maximum(-solution.duals[classes:], 0.0).reshape(groups, resources) / scale
    tolls = np.zeros(free.shape)
    tolls[usable] = worth[group[usable]]
    placed = np.zeros(classes)
    np.add.at(placed, who, solution.values[: len(who)])
    return Guide(tolls, placed)


def _groups(allowed: Bools, usable: Bools) -> tuple[Int64s, int]:
    """int64[N], group of each usable node: those that the same demands may use; how many groups there are."""
    group = np.full(allowed.shape[1], -1, dtype=np.int64)
    if not usable.any():
        return group, 0
    packed = np.ascontiguousarray(np.packbits(allowed[:, usable], axis=0).T)
    _, found = np.unique(packed.view([("", np.void, packed.shape[1])]).ravel(), return_inverse=True)
    group[usable] = found
    return group, int(found.max()) + 1
