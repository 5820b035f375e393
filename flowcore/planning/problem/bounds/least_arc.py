"""The part of an arc's cost that no plan changes."""

from __future__ import annotations

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.planning.problem.demands.demands import Demand


def least_arc(demand: Demand, snapshot: Snapshot) -> Int64s:
    """int64[N]: the arc without what the class prefers among pods that run and those of the round."""
    soft_costs = demand.soft_costs(snapshot)
    return demand.arc if soft_costs is None else demand.arc - soft_costs.initial_cost
