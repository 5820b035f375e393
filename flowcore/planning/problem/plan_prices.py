"""What the pods of a plan cost once others have left: the prices of placements count what leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot, non_zero_requests
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.commits import Commit
from flowcore.planning.problem.placements.free_capacity import FreeCapacity


def plan_prices(after: Snapshot, demands: Mapping[int, Demand], placed: Sequence[tuple[int, int]]) -> Int64s:
    """int64[P]: what each pod adds to the cost of its node, in the order in which they come.

    Args:
        after: the cluster with all of these pods, and without those that leave for them.
        demands: by number, with what each node costs.
        placed: number of the demand and node of each pod.
    """
    numbers = {number: place for place, number in enumerate(demands)}
    used, assumed = after.used.copy(), after.non_zero_requested.copy()
    names, removed = [node.name for node in after.table.nodes], []
    for number, node in placed:
        demand = demands[number]
        used[node] -= demand.requests
        assumed[node] = np.maximum(assumed[node] - non_zero_requests(demand.group.pod_class.requests), 0)
        removed.append((names[node], demand.group.signature))
    before = after.with_usage(used, assumed, after.ports, after.pod_index.with_changes((), removed))
    objective = Objective(tuple(demands.values()), FreeCapacity(before))
    return objective.pod_prices([Commit(numbers[number], node, 1) for number, node in placed])
