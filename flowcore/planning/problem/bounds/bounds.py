"""What no plan of a round can beat, computed by our own code from the demands and the room alone.

A Lagrangian relaxation (Ahuja, Magnanti, Orlin, Network Flows, chapter 16): from any prices for nodes and resources,
whichever solver they came from, a lower bound follows. Good prices make it tight, bad ones only weak.

Prices are floats. What pods pay by them is rounded down, what nodes give back is rounded up, and the sums are whole
numbers. Costs are whole too, so no plan costs less than the bound rounded up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.costs.potential import NodePotential
from flowcore.planning.problem.bounds.least_cost import (
    SharedLimit,
    cheapest_places,
    least_cost,
    plan_cost,
)
from flowcore.planning.problem.bounds.leaving_limits import most_saved, whole_sum
from flowcore.planning.problem.bounds.resident_room import ResidentRoom
from flowcore.planning.problem.bounds.tangents import Mixture, Tangents, is_one_size
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.round_constraints.capacities import DomainCapacities, capacities_of, pods_by_counter

#: Parts of a unit of cost that sums count, as a power of two; fewer where sums would not fit 63 bits.
_FINENESS, _BITS = 20, 61
#: A price is off by less than this part of it; not at all if it is whole and below this number.
_FLOAT_ERROR, _EXACT = 1e-12, 1e9


def first_bound(cost_matrix: CostMatrix, atomic_groups: Sequence[AtomicGroup] = ()) -> int:
    """A cost that no plan goes below: each pod pays as if it were alone in the round, or its price.

    Potentials are convex, so pods of one size that share a node pay no less together; but for rounding, at most 1 a pod
    of them. Pods of several sizes may: where one of them fills cpu, memory costs the others less. What these pay at
    least are the slopes of the potential as the round begins.

    Args:
        atomic_groups: see ``lower_bound``.
    """
    demands = cost_matrix.demands
    increases: dict[int, Int64s] = {}
    rounding = 0
    for potential, alike in _alike(demands).items():
        if is_one_size(alike):
            increases.update((id(demand), demand.first_increase) for demand in alike)
            pods = sum(demand.count for demand in alike)
            rounding += pods if pods > 1 else 0
        else:
            tangents = Tangents.of(cost_matrix, potential, alike, None, None)
            for demand in alike:
                paid_at_least = np.minimum(tangents.paid_by(demand) * (1 - _FLOAT_ERROR), 2.0**_BITS)
                increases[id(demand)] = np.floor(paid_at_least).astype(np.int64)
    total = 0
    paid: list[int] = []
    cheapest: dict[int, int] = {}
    for demand, arc, kind in zip(demands, cost_matrix.least_arcs, cost_matrix.kinds, strict=True):
        if kind not in cheapest:
            first_cost = arc + increases[id(demand)]
            cheapest[kind] = int(np.where(demand.counts > 0, first_cost, 2**62).min(initial=2**62))
        paid.append(cheapest[kind])
        total += int(np.minimum(demand.prices, cheapest[kind]).sum())
    total += sum(_atomic_group_surcharge(unit, demands, paid, 1) for unit in atomic_groups)
    return max(0, total - rounding)


def clearing_costs(cost_matrix: CostMatrix, planned: Plan) -> Int64s | None:
    """int64[N]: what a pod pays beyond a first one if each pays what the dearest pod of a plan does.

    If all pods count for the same, and may go to the same nodes at the same cost, these prices prove that a plan which
    takes the cheapest places is the cheapest. None: pods differ in what they count for, or nothing is placed.

    Args:
        planned: what the plan leaves free.
    """
    demands = [demand for demand in cost_matrix.demands if demand.is_priced]
    if not demands or not is_one_size(cost_matrix.demands) or len({demand.potential for demand in demands}) > 1:
        return None
    first, potential = demands[0], demands[0].potential
    load = planned.load_of(potential)
    nodes = np.nonzero(load.pods > cost_matrix.capacity.load(potential.utilisation).pods)[0]
    if not len(nodes):
        return None
    last = potential.increase(load.at(nodes, -first.size, -1), first.size)
    arc = np.min([demand.arc for demand in demands], axis=0)
    dearest = int((arc[nodes] + last).max())
    clearing: Int64s = np.maximum(dearest - arc - first.first_increase, 0)
    return clearing


def lower_bound(
    cost_matrix: CostMatrix,
    *,
    shadow_prices: Float64s | None = None,
    marginal_costs: Int64s | None = None,
    loads: Mapping[NodePotential, Mixture | None] | None = None,
    atomic_groups: Sequence[AtomicGroup] = (),
    residents: ResidentRoom | None = None,
) -> int:
    """A cost that no plan of the round goes below, whatever is passed.

    The pods of a demand pay at least as in their cheapest plan, as if no other pods were placed, where a node costs its
    arc, its slopes and shadow prices of what is taken. Rules about own pods are capacities of domains there. What that
    overcharges is at most the shadow prices of everything that is free, and the constants of the tangents. What pods
    prefer among each other is counted as the least that it can be: nothing.

    Args:
        shadow_prices: float64[N, R], not negative; none if not given.
        marginal_costs: int64[N], what a pod on each node is taken to cost beyond the first one there; read where pods
            count for the same.
        loads: how full nodes are expected to be for pods of each potential; read where pods differ in size.
        atomic_groups: pods that are placed together or not at all; without them the bound holds too, and is weaker.
        residents: pods on nodes that may leave or move, where the demands are those of ``demands_beside``; None: none.
            Then pods pay the least increase of potentials, and ``loads`` and ``marginal_costs`` are not read.
    """
    demands = cost_matrix.demands
    tangents = (
        {
            potential: Tangents.of(cost_matrix, potential, alike, marginal_costs, (loads or {}).get(potential))
            for potential, alike in _alike(demands).items()
        }
        if residents is None
        else {}
    )
    scale = Scale.of(sum(int(demand.prices.sum()) + demand.count for demand in demands))
    priced: list[tuple[int, Float64s]] = []
    if shadow_prices is not None:
        priced = [(resource, column) for resource, column in enumerate(shadow_prices.T) if column.any()]
    paid: list[int] = []
    total, as_groups = 0, 0
    raising = pods_by_counter([(demand.constraints, demand.count) for demand in demands])
    grouped = {demand for unit in atomic_groups for demand in unit.demands}
    # Who leaves takes what rises back.
    rows = [row for row in cost_matrix.shared_limits if residents is None or not row.rises]
    in_rows = {number for row in rows for number in row.demands}
    shared: dict[int, _Priced] = {}
    known: dict[int, _Paid] = {}
    most = Counter[int]()
    for demand, kind in zip(demands, cost_matrix.kinds, strict=True):
        most[kind] = max(most[kind], demand.count)
    for index, (demand, kind) in enumerate(zip(demands, cost_matrix.kinds, strict=True)):
        if kind not in known:
            increase = (
                residents.least_increase(demand)
                if residents is not None
                else tangents[demand.potential].paid_by(demand)
            )
            cost = cost_matrix.least_arcs[index] + increase
            for resource, price in priced:
                if demand.requests[resource]:
                    cost += price * float(demand.requests[resource])
            known[kind] = _Paid(scale.down(cost), demand.counts, most[kind])
        costs, prices = known[kind], demand.prices * scale.parts
        paid.append(min(costs.cheapest, int(prices[0]) + scale.parts))
        least = _least_of(demand, costs, prices, raising)
        total += least
        if index in in_rows:
            shared[index] = _Priced(demand, costs, prices, least)
        as_groups += int(np.minimum(prices, paid[index]).sum()) if index in grouped else least
    total += sum(_gained_by(row, shared, raising, scale.parts) for row in rows)
    # Each pod's own price bounds what groups cost beyond it; capacities of domains and nodes do so in another way.
    surcharge = sum(_atomic_group_surcharge(unit, demands, paid, scale.parts) for unit in atomic_groups)
    total = max(total, as_groups + surcharge)
    for tangent in tangents.values():
        total += whole_sum(scale.down(tangent.constants[tangent.constants < 0]))
    if priced:
        spare = cost_matrix.spare if residents is None else residents.spare(cost_matrix)
        given = np.sum([price * spare[:, resource] for resource, price in priced], axis=0)
        total += whole_sum(scale.down(-given[given > 0]))
    if shadow_prices is not None and residents is not None:
        total -= most_saved(-scale.down(-residents.saved_by_leaving(shadow_prices)), residents.limits)
    return max(0, -(-total // scale.parts))


@dataclass(frozen=True, slots=True)
class Scale:
    """Costs as whole numbers of ``1 / parts`` of a unit; ``most`` is above all of them."""

    parts: int
    most: int

    @classmethod
    def of(cls, highest: int) -> Scale:
        """As fine as sums of costs up to the highest allow."""
        return cls(2 ** max(0, min(_FINENESS, _BITS - highest.bit_length())), 2**_BITS)

    def down(self, values: Float64s) -> Int64s:
        """Rounded down, and by as much as floats may be off; whole numbers stay as they are."""
        exact = np.clip(values * self.parts, -float(self.most), float(self.most))
        whole = (values == np.rint(values)) & (np.abs(values) < _EXACT)
        floors: Int64s = np.where(whole, exact, np.floor(exact - np.abs(exact) * _FLOAT_ERROR) - 1).astype(np.int64)
        return floors


@dataclass(frozen=True, eq=False)
class _Paid:
    """What a pod of a kind pays at least on each node.

    Attributes:
        cost: int64[N].
        counts: int64[N], how many of the pods each node has room for.
        most: pods of a demand of the kind at most.
    """

    cost: Int64s
    counts: Int64s
    most: int

    @cached_property
    def cheapest(self) -> int:
        """What a pod pays on the cheapest node with room."""
        return int(self.cost[self.counts > 0].min(initial=2**_BITS))

    @cached_property
    def places(self) -> Int64s:
        """int64[most] or fewer, rising: what the cheapest places cost."""
        return cheapest_places(self.cost, self.counts, self.most)


def _least_of(demand: Demand, paid: _Paid, prices: Int64s, raising: Mapping[DomainCounter, int]) -> int:
    """What all pods of a demand pay at least, where its own rules bind them.

    Args:
        prices: int64[pods], what a pod pays if it stays out.
        raising: see ``pods_by_counter``.
    """
    constraints, pods = demand.constraints, demand.count
    if not constraints.constrained:
        return int(plan_cost(paid.places, prices))

    def capacities(below: int) -> DomainCapacities:
        return capacities_of(constraints, lambda counter: counter.initial, demand.counts, pods, raising, below)

    # No pod pays more than a unit beyond what it does by staying out: sums do not overflow.
    cost = np.minimum(paid.cost, int(prices[0]) + 2**_FINENESS)
    return int(least_cost(cost, demand.counts, prices, capacities)[0])


@dataclass(frozen=True, slots=True, eq=False)
class _Priced:
    """A demand of a row, with the arguments of ``_least_of`` and its result."""

    demand: Demand
    paid: _Paid
    prices: Int64s
    least: int


def _gained_by(
    row: SharedLimit, priced: Mapping[int, _Priced], raising: Mapping[DomainCounter, int], parts: int
) -> int:
    """How much more the pods of a row pay at least than by themselves: each that is placed pays its price, or more.

    What that overcharges is given back, for as many as may pay less. Any price is valid. These are what the first pod
    that does not come would save, if all nodes cost as much as the cheapest, and what the last pods pay where prices
    rise.

    Args:
        parts: of a unit of cost, which the result counts.
    """
    members = [priced[number] for number in row.demands]
    saved = np.concatenate([each.prices - each.paid.cheapest for each in members])
    prices = [price * parts for price in row.price_of(int((saved > 0).sum()))]
    if row.most < len(saved):
        prices.append(int(np.sort(saved)[::-1][row.most]))
    before, gained = sum(each.least for each in members), 0
    for price in prices:
        if price > 0:
            raised = row.raised(price, parts)
            dearer = [(each, replace(each.paid, cost=each.paid.cost + raised)) for each in members]
            paid = sum(_least_of(each.demand, costs, each.prices, raising) for each, costs in dearer)
            gained = max(gained, paid - row.overcharged(price, parts) - before)
    return gained


def _alike(demands: Sequence[Demand]) -> dict[NodePotential, list[Demand]]:
    by_potential: dict[NodePotential, list[Demand]] = {}
    for demand in demands:
        by_potential.setdefault(demand.potential, []).append(demand)
    return by_potential


def _atomic_group_surcharge(
    atomic_group: AtomicGroup, demands: Sequence[Demand], paid: Sequence[int], parts: int
) -> int:
    """What a unit's pods pay at least beyond what each would by itself: all are left, or enough of each gang placed.

    Args:
        paid: what a placed pod of each demand pays at least.
        parts: of a unit of cost, which that and the result count.
    """

    def price(index: int, place: int) -> int:
        return int(demands[index].prices[place]) * parts

    places = {
        (index, place) for members in atomic_group.members for index, indices in members.items() for place in indices
    }
    alone = sum(min(price(index, place), paid[index]) for index, place in places)
    unplaced_cost = sum(price(index, place) for index, place in places)
    if atomic_group.unschedulable_reason:
        return unplaced_cost - alone
    forced = 0
    for gang, members in zip(atomic_group.gangs, atomic_group.members, strict=True):
        dearer = sorted(
            max(paid[index] - price(index, place), 0) for index, indices in members.items() for place in indices
        )
        # Pods that several gangs share are forced once: of gangs the one that forces most counts.
        forced = max(forced, sum(dearer[: max(0, gang.min_placed)]))
    return min(unplaced_cost - alone, forced)
