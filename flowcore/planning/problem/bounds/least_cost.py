"""What the pods of a demand cost at least, if its own rules are capacities of domains.

Nodes have a cost for each pod. Domains are inside each other or apart, so taking the cheapest place that no full domain
is around gives the cheapest plan for every number of pods (a matroid), and its costs rise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.problem.demands.demands import Demand
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import remaining
from flowcore.rules.topology.round_constraints.capacities import DomainCapacities
from flowcore.rules.topology.round_constraints.rising_price import Minimum, RisingPrice

_Number = TypeVar("_Number", bound=np.generic)

#: How many numbers of pods in the emptiest domain of a spread constraint are looked at one by one.
_MOST_MINIMUMS = 16


def least_cost(
    cost: Float64s | Int64s, fit_counts: Int64s, prices: Int64s, capacities: Callable[[int], DomainCapacities]
) -> tuple[float, int]:
    """The cost of the cheapest plan of a demand, or less; and how many pods below ``rise`` its emptiest domain gets.

    Args:
        cost: of a pod on each node, [N]; of whole numbers the result is one too.
        fit_counts: int64[N], how many pods each node has room for.
        prices: int64[pods], falling, of pods that stay out.
        capacities: of its rules, for plans in which the emptiest domain gets this number of pods less.
    """
    domains, cheapest_first = capacities(0), np.argsort(cost, kind="stable")
    best, best_below = np.inf, 0
    for below in range(domains.rise + 1):
        cost_below = _cheapest_plan(cost, cheapest_first, fit_counts, prices, domains, domains.minimums)
        if cost_below < best:
            best, best_below = cost_below, below
        if below == domains.rise:
            break
        # All plans in which it gets still less keep these capacities.
        domains = capacities(below + 1)
        rest = _cheapest_plan(cost, cheapest_first, fit_counts, prices, domains, np.zeros_like(domains.minimums))
        if rest >= best or below + 1 == _MOST_MINIMUMS:
            return min(best, rest), best_below
    return best, best_below


def cheapest_places(cost: NDArray[_Number], fit_counts: Int64s, pods: int) -> NDArray[_Number]:
    """What the cheapest places for so many pods cost, rising.

    Args:
        cost: of a pod on each node, or in each pool of nodes, whole numbers of any size.
        fit_counts: int64[N], how many pods each has room for.
    """
    nodes = np.nonzero(fit_counts > 0)[0]
    if len(nodes) > pods:
        nodes = nodes[np.argpartition(cost[nodes], pods - 1)[:pods]]
    nodes = nodes[np.argsort(cost[nodes], kind="stable")]
    return np.repeat(cost[nodes], np.minimum(fit_counts[nodes], pods))[:pods]


def plan_cost(places: Int64s, prices: Int64s) -> float:
    """``least_cost`` of a demand without rules: the dearest pods to leave take the cheapest places."""
    places = places[: len(prices)]
    return _sum(np.minimum(prices[: len(places)], places)) + _sum(prices[len(places) :])


def _cheapest_plan(
    cost: Float64s | Int64s,
    cheapest_first: Int64s,
    fit_counts: Int64s,
    prices: Int64s,
    domains: DomainCapacities,
    minimums: Int64s,
) -> float:
    """Its cost; infinite if domains cannot get their minimums."""
    pods = len(prices)
    most = np.minimum(np.minimum(fit_counts, domains.by_node), pods)
    nodes = cheapest_first[most[cheapest_first] > 0]
    taken, domain = most[nodes], domains.domain_of[nodes]
    parents, depths = np.append(domains.parents, -1), np.append(domains.depths, 0)
    needed = np.zeros_like(taken)
    for depth in range(int(depths.max()), 0, -1):
        # From the inside out: a place that a full outer domain refuses takes nothing from an inner one that counts.
        here = depths[domain] == depth
        taken[here] = _within(taken[here], domain[here], domains.capacities)
        if depth == 1 and minimums.any():
            needed[here] = _within(taken[here], domain[here], minimums)
        domain[here] = parents[domain[here]]
    forced = int(minimums.sum())
    if int(needed.sum()) < forced or pods < forced:
        return float(np.inf)
    places = np.repeat(cost[nodes], taken - needed)[: pods - forced]
    left = prices[forced:]
    optional = _sum(np.minimum(left[: len(places)], places)) + _sum(left[len(places) :])
    return _sum(cost[nodes] * needed) + optional


def _sum(values: Float64s | Int64s) -> float:
    """Whole numbers stay whole."""
    total: float = values.sum()
    return total


def _within(taken: Int64s, domain: Int64s, most: Int64s) -> Int64s:
    """The first of each domain's pods, as many as it takes."""
    order = np.argsort(domain, kind="stable")
    ordered = taken[order]
    before = np.cumsum(ordered) - ordered
    first = np.diff(domain[order], prepend=-1) != 0
    before -= np.maximum.accumulate(np.where(first, before, 0))
    shares = np.empty_like(taken)
    shares[order] = np.clip(most[domain[order]] - before, 0, ordered)
    return shares


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """Limits of domains that pods of several demands share, or prices that rise with their number there.

    Attributes:
        demands: their places.
        steps: by how much more a pod pays, rising, and how many of these pods may pay it at most; no plan places more.
    """

    demands: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]

    @property
    def most(self) -> int:
        """No plan places more pods of these together."""
        return sum(pods for _, pods in self.steps)

    def overcharged(self, price: int) -> int:
        """What a price for each pod may overcharge, where each of them pays the least that is left."""
        return sum(pods * max(0, price - rise) for rise, pods in self.steps)

    def rises_at(self, pods: int) -> tuple[int, ...]:
        """What the last of so many pods pays more at least, and what one of the step before does; none: nothing."""
        before = 0
        for rise, most in self.steps:
            pods -= most
            if pods <= 0:
                return tuple(sorted({before, rise} - {0}))
            before = rise
        return (before,) if before else ()


def shared_limits(demands: Sequence[Demand]) -> list[SharedLimit]:
    """Limits that keep some pods of several demands out, the one that keeps most out first; a demand is in one at most.

    A row across nodes and demands: anti-affinity and caps that hold for all of them and count all of them, and prices
    that rise with their number.
    """
    limited: dict[DomainCounter, list[int]] = {}
    rising: dict[RisingPrice, list[int]] = {}
    for place, demand in enumerate(demands):
        for counter in demand.constraints.limits:
            if counter in demand.constraints.increments:
                limited.setdefault(counter, []).append(place)
        for price in demand.constraints.rising:
            if not isinstance(price, Minimum):  # what it asks for is left out
                rising.setdefault(price, []).append(place)
    shared = [
        SharedLimit(tuple(places), ((0, _most_together(counter, [demands[place] for place in places])),))
        for counter, places in limited.items()
        if len(places) > 1
    ]
    shared += [
        SharedLimit(tuple(places), _steps(price, [demands[place] for place in places]))
        for price, places in rising.items()
    ]
    lacking = [(sum(demands[place].count for place in row.demands) - row.steps[0][1], row) for row in shared]
    rows: list[SharedLimit] = []
    taken: set[int] = set()
    for lack, row in sorted(lacking, key=lambda entry: -entry[0]):
        if lack > 0 and taken.isdisjoint(row.demands):
            taken.update(row.demands)
            rows.append(row)
    return rows


def _steps(price: RisingPrice, demands: Sequence[Demand]) -> tuple[tuple[int, int], ...]:
    """By how much more than as the round begins pods pay, and for how many of them there is room at most."""
    counter = price.counter
    inside = counter.domains.totals(np.sum([np.minimum(each.counts, each.count) for each in demands], axis=0))
    begun = counter.initial[:-1]
    limits = [each.constraints.limits.get(counter) for each in demands]
    most = None if None in limits else max(limit for limit in limits if limit is not None)
    ends = begun + inside[:-1] if most is None else np.minimum(begun + inside[:-1], np.maximum(begun, most))
    steps: dict[int, int] = {0: int(inside[-1])}  # in no domain: nothing is counted
    for start, end, cost in zip((0, *price.ends.tolist()), (*price.ends.tolist(), 2**62), price.costs, strict=True):
        units = np.maximum(np.minimum(ends, end) - np.maximum(begun, start), 0)
        rises = cost - price.next_pod(begun)
        for rise in np.unique(rises[units > 0]).tolist():
            steps[rise] = steps.get(rise, 0) + int(units[rises == rise].sum())
    return tuple(sorted(steps.items()))


def _most_together(counter: DomainCounter, demands: Sequence[Demand]) -> int:
    limit = max(demand.constraints.limits[counter] for demand in demands)
    fits = np.sum([np.minimum(demand.counts, demand.count) for demand in demands], axis=0)
    inside = counter.domains.totals(fits)
    most = np.minimum(inside, remaining(limit, counter.initial))
    most[-1] = inside[-1]  # in no domain: nothing is counted
    return int(most.sum())
