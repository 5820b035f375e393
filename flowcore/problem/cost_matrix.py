"""Where all demands of a round stand as it begins: how many pods each node has room for, at which cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowcore.cluster.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.problem.demands import Demand
from flowcore.problem.free_capacity import FreeCapacity


@dataclass(frozen=True, eq=False)
class CostMatrix:
    """Demands and nodes as matrices. Nothing here changes while a round is planned.

    Attributes:
        counts: int64[C, N], how many pods of each demand each node has room for, alone; rules between pods left aside.
        first_pod_cost: float64[C, N], what a first pod would pay there, infinite where it does not fit.
        capacity: when the round begins.
    """

    demands: Sequence[Demand]
    counts: Int64s
    first_pod_cost: Float64s
    capacity: FreeCapacity

    @classmethod
    def of(cls, demands: Sequence[Demand], capacity: FreeCapacity) -> CostMatrix:
        """For the room that the round begins with; it must not be changed any more."""
        nodes = len(capacity.free)
        counts = np.zeros((len(demands), nodes), dtype=np.int64)
        first_pod_cost = np.full((len(demands), nodes), np.inf)
        for at, demand in enumerate(demands):
            counts[at] = demand.counts
            np.copyto(first_pod_cost[at], demand.arc + demand.first_increase, where=demand.counts > 0)
        return cls(demands, counts, first_pod_cost, capacity)

    @cached_property
    def spare(self) -> Int64s:
        """int64[N, R]: what pods of the round can take of what is free, whatever the plan; some of it fits no pod."""
        most = np.zeros_like(self.capacity.free)
        for demand in self.demands:
            pods = np.minimum(demand.counts, demand.count)
            for resource in np.nonzero(demand.requests)[0].tolist():
                most[:, resource] += pods * int(demand.requests[resource])
        found: Int64s = np.minimum(np.maximum(self.capacity.free, 0), most)
        return found

    @property
    def placeable(self) -> Bools:
        """bool[C]: demands that some node has room for."""
        return np.asarray(self.counts.max(axis=1, initial=0) > 0, dtype=np.bool_)
