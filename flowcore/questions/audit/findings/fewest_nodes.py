"""How few nodes hold the pods that run: prices of room that say how many nodes no plan empties.

They are the duals of a linear program that has as few nodes in use as it can, nodes and pods in parts. In a pool of
nodes the pods of all kinds take no more than the nodes in use offer: the bound in fractions of packing vectors into
bins of several shapes. What the program says is worth something only through the bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.methods.left_prices import merged_classes, pools_of
from flowcore.planning.problem.bounds.least_left import PooledRoom
from flowcore.planning.solvers.linear import Float64s, LinearProgram, solve_lp
from flowcore.questions.audit.counted_room import CountedRoom, RoomPrices
from flowcore.questions.audit.finding import PARTS

#: Kinds of pods times pools of nodes: with more, kinds of about the same size are one.
_MOST_PAIRS = 6_000
#: A pod that is left counts for so many nodes: kinds that are one may ask for more than there is.
_LEFT = 10.0


@dataclass(frozen=True, eq=False)
class FewestNodes:
    """What the program says.

    Attributes:
        in_use: float64[S], how many nodes of each pool of the prices are in use.
    """

    prices: RoomPrices
    in_use: Float64s


def fewest_nodes(room: CountedRoom, may_be_empty: Bools) -> FewestNodes | None:
    """Solves the program; None: nobody needs a node, or the solver found nothing.

    Args:
        may_be_empty: bool[N], nodes without pods that stay; others are in use whatever the plan.
    """
    if not room.staying:
        return None
    pools = _pools(room, may_be_empty)
    inside, count = pools >= 0, int(pools.max()) + 1
    nodes = np.bincount(pools[inside], minlength=count).astype(np.float64)
    free = np.bincount(pools[inside], may_be_empty[inside], count) > 0
    offered = np.array([np.bincount(pools[inside], column[inside], count) for column in room.room.T]).T
    requests, pods, most = _kinds(room, pools, offered)
    kind, pool = np.nonzero(most)
    pairs, first = np.arange(len(kind)), len(kind) + count
    # A row for each kind, then one for each pool and resource, in parts of what one node of the pool offers.
    rows, columns = [kind, np.arange(len(pods))], [pairs, first + np.arange(len(pods))]
    coefficients = [np.ones(len(kind)), np.ones(len(pods))]
    resources = len(room.resources)
    for resource in range(resources):
        asking = np.nonzero(requests[kind, resource])[0]
        rows.append(len(pods) + pool[asking] * resources + resource)
        columns.append(asking)
        coefficients.append(
            requests[kind[asking], resource] * (nodes / np.maximum(offered[:, resource], 1))[pool[asking]]
        )
        rows.append(len(pods) + np.nonzero(free)[0] * resources + resource)
        columns.append(len(kind) + np.nonzero(free)[0])
        coefficients.append(np.full(int(free.sum()), -1.0))
    upper = np.repeat(np.where(free, 0.0, nodes), resources)
    solution = solve_lp(
        LinearProgram(
            costs=np.concatenate([np.zeros(len(kind)), free, np.full(len(pods), _LEFT)]),
            variable_upper=np.concatenate([most[kind, pool], nodes, pods]),
            row_lower=np.concatenate([pods, np.full(len(upper), -np.inf)]),
            row_upper=np.concatenate([np.full(len(pods), np.inf), upper]),
            rows=np.concatenate(rows),
            columns=np.concatenate(columns),
            coefficients=np.concatenate(coefficients),
        )
    )
    if solution is None:
        return None
    duals = np.maximum(-solution.duals[len(pods) :].reshape(count, resources), 0.0)
    prices = duals * PARTS * nodes[:, np.newaxis] / np.maximum(offered, 1)
    in_use = np.where(free, solution.values[len(kind) : first], nodes)
    return FewestNodes(RoomPrices(pools, [[round(price) for price in row] for row in prices.tolist()]), in_use)


def _kinds(room: CountedRoom, pools: Int64s, offered: Float64s) -> tuple[Float64s, Float64s, Float64s]:
    """float64[K, R] requests and float64[K] number of each kind of pods, float64[K, S] how many of them pools take."""
    kinds, inside, count = room.staying, pools >= 0, len(offered)
    requests = np.array([kind.requests for kind in kinds], dtype=np.int64)
    pods = np.array([kind.pods for kind in kinds], dtype=np.int64)
    most = np.array([np.bincount(pools[inside], kind.most[inside], count) for kind in kinds], dtype=np.int64)
    numbers = np.arange(len(kinds), dtype=np.int64)
    if most.size > _MOST_PAIRS:
        numbers = merged_classes(PooledRoom(requests, pods, most, offered), numbers, np.ones_like(pods))
    member = np.zeros((int(numbers.max()) + 1, len(kinds)))
    member[numbers, np.arange(len(kinds))] = pods
    merged = member.sum(axis=1)
    taken = np.minimum((member > 0).astype(np.float64) @ most, merged[:, np.newaxis])
    return member @ requests / merged[:, np.newaxis], merged, taken


def _pools(room: CountedRoom, may_be_empty: Bools) -> Int64s:
    """int64[N]: pools of alike nodes, which all may be empty, or none of them; -1: no pod fits."""
    alike = pools_of([kind.most for kind in room.staying], room.room)
    inside, pools = alike >= 0, np.full(len(alike), -1, dtype=np.int64)
    _, numbers = np.unique(2 * alike[inside] + may_be_empty[inside], return_inverse=True)
    pools[inside] = numbers
    return pools
