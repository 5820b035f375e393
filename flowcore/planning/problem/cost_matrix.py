"""Where all demands of a round stand as it begins: how many pods each node has room for, at which cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.free_capacity import FreeCapacity


class CostMatrix:
    """Demands and nodes as matrices. Nothing here changes while a round is planned.

    Many rounds need single rows only, so the matrices are made when they are first asked for.

    Attributes:
        demands: C demands.
        capacity: the room that the round begins with.
    """

    def __init__(self, demands: Sequence[Demand], capacity: FreeCapacity) -> None:
        """``capacity`` must not be changed any more."""
        self.demands, self.capacity = demands, capacity

    @cached_property
    def counts(self) -> Int64s:
        """int64[C, N]: how many pods of each demand each node has room for, alone; rules between pods left aside."""
        return np.array([demand.counts for demand in self.demands]).reshape(-1, len(self.capacity.free))

    @cached_property
    def spare(self) -> Int64s:
        """int64[N, R]: what pods of the round can take of what is free, whatever the plan; some of it fits no pod."""
        most = np.zeros_like(self.capacity.free)
        for demand in self.demands:
            pods = np.minimum(demand.counts, demand.count)
            for resource in np.nonzero(demand.requests)[0].tolist():
                most[:, resource] += pods * int(demand.requests[resource])
        spare: Int64s = np.minimum(np.maximum(self.capacity.free, 0), most)
        return spare

    @cached_property
    def first_pod_cost(self) -> Float64s:
        """float64[C, N]: what a first pod would pay there, infinite where it does not fit."""
        rows = [self.first_pod_cost_of(demand) for demand in range(len(self.demands))]
        return np.array(rows).reshape(-1, len(self.capacity.free))

    def first_pod_cost_of(self, index: int) -> Float64s:
        """float64[N]: the same for one demand."""
        demand = self.demands[index]
        costs: Float64s = np.where(demand.counts > 0, demand.first_cost, np.inf)
        return costs

    @cached_property
    def placeable(self) -> Bools:
        """bool[C]: demands that some node has room for."""
        return np.array([demand.counts.any() for demand in self.demands], dtype=np.bool_)
