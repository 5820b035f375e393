"""Node potentials of an optimal flow, and the proof by them that it is optimal.

OR-Tools does not hand out potentials, so they are computed here: the shortest distance to the sink in the residual
network (Ahuja, Magnanti, Orlin, Network Flows, theorem 9.3: a flow is of least cost exactly if potentials exist for
which no residual arc has a negative reduced cost). Nothing in this module trusts the solver.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.solvers.slots import FlowNetwork

#: No path to the sink. Far from overflow when costs are added to it.
UNREACHABLE = 2**61


def potentials(network: FlowNetwork, flows: Int64s) -> Int64s | None:
    """int64[V]: residual distance of each network node to the sink; None where the flow is not of least cost.

    Vectorised Bellman-Ford: all arcs are relaxed at once, a handful of sweeps. A cycle of negative cost,
    which only a flow that is not optimal has, never settles and is reported after V sweeps.
    """
    forward, backward = flows < network.capacities, flows > 0
    tails = np.concatenate([network.tails[forward], network.heads[backward]])
    heads = np.concatenate([network.heads[forward], network.tails[backward]])
    costs = np.concatenate([network.costs[forward], -network.costs[backward]])
    order = np.argsort(tails, kind="stable")
    tails, heads, costs = tails[order], heads[order], costs[order]
    starts = np.nonzero(np.concatenate([[True], tails[1:] != tails[:-1]]))[0] if len(tails) else tails
    owners = tails[starts]
    distance = np.full(len(network.supplies), UNREACHABLE, dtype=np.int64)
    distance[-1] = 0
    for _ in range(len(distance) + 1):
        through = np.where(distance[heads] < UNREACHABLE, distance[heads] + costs, UNREACHABLE)
        best = np.minimum.reduceat(through, starts) if len(starts) else through
        better = best < distance[owners]
        if not better.any():
            return distance
        distance[owners[better]] = best[better]
    return None
