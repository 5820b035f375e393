"""Where all demands of a round stand as it begins: how many pods each node has room for, at which cost."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.problem.bounds.least_arc import least_arc
from flowcore.planning.problem.bounds.least_cost import SharedLimit, shared_limits
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.demands.equal_arrays import EqualArrays
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.topology.round_constraints.capacities import DomainCapacities, capacities_of, pods_by_counter

#: How many pods each node takes.
FitCounts = Int64s | NDArray[np.int32]


class CostMatrix:
    """Demands and nodes as matrices. Nothing here changes while a round is planned.

    Many rounds need single rows only, so the matrices are made when they are first asked for.

    Attributes:
        demands: C demands.
        capacity: the room that the round begins with.
    """

    def __init__(self, demands: Sequence[Demand], capacity: Plan) -> None:
        """``capacity`` must not be changed any more."""
        self.demands, self.capacity = demands, capacity

    @cached_property
    def counts(self) -> Int64s:
        """int64[C, N]: how many pods of each demand each node has room for, alone; rules between pods left aside."""
        return np.array([demand.counts for demand in self.demands]).reshape(-1, len(self.capacity.free))

    @cached_property
    def capacities(self) -> list[DomainCapacities | None]:
        """What the rules of each demand about its own pods let it place as the round begins; None: it has no rules."""
        raising = pods_by_counter([(demand.constraints, demand.count) for demand in self.demands])

        def of(demand: Demand) -> DomainCapacities | None:
            rules = demand.constraints
            if not rules.constrained:
                return None
            return capacities_of(rules, lambda counter: counter.initial, demand.counts, demand.count, raising)

        return [of(demand) for demand in self.demands]

    @cached_property
    def shared_limits(self) -> list[SharedLimit]:
        """Limits and rising prices that pods of several demands share, those that bounds count."""
        return shared_limits(self.demands)

    @cached_property
    def least_arcs(self) -> list[Int64s]:
        """Of each demand, see ``least_arc``; equal ones are one array."""
        equal = EqualArrays()
        return [equal.first(least_arc(demand, self.capacity.before)) for demand in self.demands]

    @cached_property
    def kinds(self) -> list[int]:
        """int[C]: the first demand whose pods take and pay the same on each node, but for what they prefer of others.

        Rules between pods are no part of it.
        """
        first: dict[Hashable, int] = {}
        return [
            first.setdefault(
                (demand.group.pod_class, demand.potential, demand.size.tobytes(), id(demand.counts), id(arc)), number
            )
            for number, (demand, arc) in enumerate(zip(self.demands, self.least_arcs, strict=True))
        ]

    @cached_property
    def most(self) -> list[Int64s]:
        """Of each demand int64[N]: how many of its pods a node gets at most, by its room and its own rules."""
        return [
            np.minimum(demand.counts if domains is None else np.minimum(demand.counts, domains.by_node), demand.count)
            for demand, domains in zip(self.demands, self.capacities, strict=True)
        ]

    @cached_property
    def spare(self) -> Int64s:
        """int64[N, R]: what pods of the round can take of what is free, whatever the plan; some of it fits no pod."""
        return spare_room(
            [demand.requests for demand in self.demands],
            [demand.count for demand in self.demands],
            self.most,
            np.maximum(self.capacity.free, 0),
        )

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


def spare_room(requests: Iterable[Int64s], pods: Iterable[int], counts: Iterable[FitCounts], free: Int64s) -> Int64s:
    """int64[N, R]: what pods can take of what is free, whatever the plan.

    Args:
        requests: of each class int64[R], of a pod; pods: how many.
        counts: of each class [N], how many of its pods each node takes, if no others come.
        free: int64[N, R], none negative.
    """
    spare = np.zeros_like(free)
    for request, pods_of, count in zip(requests, pods, counts, strict=True):
        taken = np.minimum(count, pods_of).astype(np.int64, copy=False)
        for resource in np.nonzero(request)[0].tolist():
            # Amounts may be near 2^63: so far, and then at most what is left.
            column = spare[:, resource]
            column += np.minimum(taken * int(request[resource]), free[:, resource] - column)
    return spare
