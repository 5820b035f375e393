"""The round as a linear program: how many pods of each demand to place, and the shadow price of each resource.

A flow in which each demand consumes several resources is a generalised flow (seeds: arcs with gain). As a linear
program over demands and groups of nodes it is small. A group is nodes that the same demands may use. Its resources
count as one pool, so the program is a relaxation. Its duals are the shadow prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.methods.assignment_program import AtomicBundles, Pairs, assignment_program, price_runs
from flowcore.problem.cost_matrix import CostMatrix
from flowcore.solve import solve_lp

#: Runs that the prices of a demand are merged into; the bound uses each pod's own price.
_STEPS = 4
#: A program with more columns takes longer than it helps.
_MOST_COLUMNS = 30_000


@dataclass(frozen=True, slots=True, eq=False)
class RelaxedSolution:
    """The optimum of the linear program.

    Attributes:
        shadow_prices: float64[N, R], of a unit of each resource on each node.
        placed: float64[C], how many pods of each demand it places.
        bundles: float64[U], which share of each bundle it places.
    """

    shadow_prices: Float64s
    placed: Float64s
    bundles: Float64s


def relax(
    cost_matrix: CostMatrix, prices: Sequence[Int64s] | None = None, bundles: AtomicBundles | None = None
) -> RelaxedSolution | None:
    """Solves the linear program; None where it is too large or the solver failed.

    Args:
        prices: of the pods of each demand that are in no bundle; None: of all.
        bundles: pods that are placed or left pending together.
    """
    usable = np.asarray((cost_matrix.counts > 0).any(axis=0), dtype=np.bool_)
    group, groups = _groups(np.array([demand.allowed for demand in cost_matrix.demands]), usable)
    free = np.maximum(cost_matrix.capacity.free, 0).astype(np.float64)
    classes, resources = len(cost_matrix.demands), free.shape[1]
    if classes * groups > _MOST_COLUMNS or not groups:
        return None
    pools = np.zeros((groups, resources))
    np.add.at(pools, group[usable], free[usable])
    cost = np.full((classes, groups), np.inf)
    most = np.zeros((classes, groups))
    nodes_by_group = np.nonzero(usable)[0][np.argsort(group[usable], kind="stable")]
    starts = np.searchsorted(group[nodes_by_group], np.arange(groups))
    for at in range(classes):
        cost[at] = np.minimum.reduceat(cost_matrix.first_pod_cost[at, nodes_by_group], starts)
        most[at] = np.add.reduceat(cost_matrix.counts[at, nodes_by_group], starts)
    # Amounts are scaled to the pools: bytes and GPUs side by side are hard on a solver.
    scale = np.maximum(pools.max(axis=0), 1.0)
    requests = np.array([demand.requests for demand in cost_matrix.demands], dtype=np.float64) / scale
    who, where = np.nonzero(most > 0)
    runs = [
        price_runs(each, _STEPS)
        for each in ([demand.prices for demand in cost_matrix.demands] if prices is None else prices)
    ]
    if bundles is not None:
        # If capacity and counts run out together, the dual should be on the capacity.
        most *= 1.001
    pairs = Pairs(who, where, cost[who, where], most[who, where])
    solution = solve_lp(assignment_program(pairs, requests, pools / scale, runs, bundles))
    if solution is None:
        return None
    # Rows: classes, then the resources of each group; a resource that is short has a negative dual.
    duals = np.maximum(-solution.duals[classes:], 0.0).reshape(groups, resources) / scale
    shadow_prices = np.zeros(free.shape)
    shadow_prices[usable] = duals[group[usable]]
    placed = np.zeros(classes)
    np.add.at(placed, who, solution.values[: len(who)])
    out = solution.values[len(solution.values) - len(bundles.prices) :] if bundles is not None else np.zeros(0)
    return RelaxedSolution(shadow_prices, placed, 1.0 - out)


def min_shadow_costs(cost_matrix: CostMatrix, shadow_prices: Float64s) -> list[float]:
    """What a pod of each demand pays in shadow prices on the node where it pays least."""
    return [
        float((shadow_prices[counts > 0] @ demand.requests).min(initial=np.inf))
        for demand, counts in zip(cost_matrix.demands, cost_matrix.counts, strict=True)
    ]


def _groups(allowed: Bools, usable: Bools) -> tuple[Int64s, int]:
    """int64[N], group of each usable node, -1 for others; and the number of groups."""
    group = np.full(allowed.shape[1], -1, dtype=np.int64)
    if not usable.any():
        return group, 0
    packed = np.ascontiguousarray(np.packbits(allowed[:, usable], axis=0).T)
    _, found = np.unique(packed.view([("", np.void, packed.shape[1])]).ravel(), return_inverse=True)
    group[usable] = found
    return group, int(found.max()) + 1
