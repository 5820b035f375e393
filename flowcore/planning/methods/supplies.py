"""What goes into a flow: pods of each demand, and where its own rules and the free capacity let them go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.problem.bounds.least_cost import least_cost
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.topology.round_constraints.capacities import DomainCapacities, capacities_of, pods_by_counter


@dataclass(frozen=True, slots=True, eq=False)
class FlowSupply:
    """A demand in one flow.

    Attributes:
        index: its place among all demands.
        count: how many of its pods still go.
        room: int64[N], how many of them each node has room for.
        fit_counts: int64[N], how many each node could take by its own rules too.
        capacities: what rules about its own pods let it place; None: there are none (``capacities_of``, by ``below``).
        domains: those of the capacities that the flow is to keep.
    """

    index: int
    demand: Demand
    count: int
    room: Int64s
    fit_counts: Int64s
    capacities: Callable[[int], DomainCapacities] | None = None
    domains: DomainCapacities | None = None

    @property
    def prices(self) -> Int64s:
        """int64[count]: of its pods that still go."""
        return self.demand.prices_of_last(self.count)

    def with_cheapest_minimum(self, arc: Int64s, marginal_costs: Int64s) -> FlowSupply:
        """With as many pods in the emptiest domain of a spread constraint as its cheapest plan has there.

        Args:
            arc, marginal_costs: int64[N]; a pod on a node costs both.
        """
        skews = [spread.max_skew for spread in self.demand.constraints.spreads]
        if self.capacities is None or self.domains is None or not self.domains.rise or max(skews) < 2:
            return self
        cost = (arc + marginal_costs).astype(np.float64)
        _, below = least_cost(cost, self.room, self.prices, self.capacities)
        if not below:
            return self
        domains = self.capacities(below)
        return replace(self, domains=domains, fit_counts=np.minimum(self.room, domains.by_node))


def supplies_of(demands: Sequence[Demand], remaining: Sequence[int], capacity: Plan) -> list[FlowSupply]:
    """The supplies of demands that have pods left and room for one of them.

    Args:
        remaining: how many pods of each demand still go.
    """
    raising = pods_by_counter(
        [(demand.constraints, count) for demand, count in zip(demands, remaining, strict=True) if count]
    )

    def capacities_in(demand: Demand, room: Int64s, count: int) -> Callable[[int], DomainCapacities]:
        counts, rules = capacity.domain_counts.of, demand.constraints
        return lambda below: capacities_of(rules, counts, room, count, raising, below)

    supplies = []
    for number, (demand, count) in enumerate(zip(demands, remaining, strict=True)):
        if not count:
            continue
        room = capacity.fit_counts(demand)
        if not demand.constraints.constrained:
            supply = FlowSupply(number, demand, count, room, room)
        else:
            capacities = capacities_in(demand, room, count)
            domains = capacities(0)
            supply = FlowSupply(number, demand, count, room, np.minimum(room, domains.by_node), capacities, domains)
        if supply.fit_counts.any():
            supplies.append(supply)
    return supplies
