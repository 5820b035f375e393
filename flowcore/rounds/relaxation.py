"""The round as a linear program: what is worth its room, and what a unit of room is worth.

A flow in which each class consumes several resources is a generalised flow (seeds: arcs with gain); as a linear program
over classes and groups of nodes it is small. A group is nodes that the same classes may use; its resources count as
one pool, so the program is a relaxation. Its duals are tolls: the worth of a unit of each resource.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Bools, Int64s
from flowcore.rounds.field import Field
from flowcore.rounds.placing import Bundles, Pairs, merged, placing_program
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
        bundles: float64[U], which share of each bundle does.
    """

    tolls: Float64s
    placed: Float64s
    bundles: Float64s


def guide(field: Field, prices: Sequence[Int64s] | None = None, bundles: Bundles | None = None) -> Guide | None:
    """Solves the linear program; None where it is too large or the solver failed.

    Args:
        prices: of the pods of each demand that are in no bundle; None: of all.
        bundles: pods that are left only together.
    """
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
    runs = [
        merged(each, _STEPS) for each in ([demand.prices for demand in field.demands] if prices is None else prices)
    ]
    if bundles is not None:
        # Where room runs out just as counts do, its price is to be on the room.
        most *= 1.001
    pairs = Pairs(who, where, cost[who, where], most[who, where])
    solution = solve_relaxed(placing_program(pairs, wanted, pools / scale, runs, bundles))
    if solution is None:
        return None
    # Rows: a class each, then a resource of a group each; a resource that runs short has a negative dual.
    worth = np.maximum(-solution.duals[classes:], 0.0).reshape(groups, resources) / scale
    tolls = np.zeros(free.shape)
    tolls[usable] = worth[group[usable]]
    placed = np.zeros(classes)
    np.add.at(placed, who, solution.values[: len(who)])
    out = solution.values[len(solution.values) - len(bundles.prices) :] if bundles is not None else np.zeros(0)
    return Guide(tolls, placed, 1.0 - out)


def least_tolls(field: Field, tolls: Float64s) -> list[float]:
    """What each demand's pod pays in tolls where it pays the least."""
    return [
        float((tolls[counts > 0] @ demand.wanted).min(initial=np.inf))
        for demand, counts in zip(field.demands, field.counts, strict=True)
    ]


def _groups(allowed: Bools, usable: Bools) -> tuple[Int64s, int]:
    """int64[N], group of each usable node: those that the same demands may use; how many groups there are."""
    group = np.full(allowed.shape[1], -1, dtype=np.int64)
    if not usable.any():
        return group, 0
    packed = np.ascontiguousarray(np.packbits(allowed[:, usable], axis=0).T)
    _, found = np.unique(packed.view([("", np.void, packed.shape[1])]).ravel(), return_inverse=True)
    group[usable] = found
    return group, int(found.max()) + 1
