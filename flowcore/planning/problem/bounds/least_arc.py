"""The part of an arc's cost that no plan changes."""

from __future__ import annotations

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.planning.problem.demands.demands import Demand


def least_arc(demand: Demand, snapshot: Snapshot) -> Int64s:
    """int64[N]: the arc without what other pods of the round may make cheaper.

    That is what the class prefers among pods that run and those of the round, and what its claims get: where others
    take devices of one request, or the smallest volume, what is left may be better in sum.
    """
    soft_costs = demand.soft_costs(snapshot)
    arc = demand.arc if soft_costs is None else demand.arc - soft_costs.initial_cost
    for part in demand.claims.parts:
        arc = arc - part.begun
    return arc
