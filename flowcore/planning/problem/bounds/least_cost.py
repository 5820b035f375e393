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


@dataclass(frozen=True, slots=True, eq=False)
class SharedLimit:
    """Limits of domains that pods of several demands share, or prices that rise with their number there.

    Attributes:
        demands: their places.
        standing: float64[N], what a pod on each node pays of it as the round begins; infinite where it says nothing.
        steps: what a pod pays, rising, and how many of these pods may pay it at most; no plan places more there.
        outside: how many of them may be where it says nothing.
        rises: whether it is a price.
    """

    demands: tuple[int, ...]
    standing: Float64s
    steps: tuple[tuple[int, int], ...]
    outside: int
    rises: bool = False

    @property
    def most(self) -> int:
        """No plan places more pods of these together."""
        return self.outside + sum(pods for _, pods in self.steps)

    @property
    def cheapest(self) -> int:
        """How many of these pods may pay the least of it, or nothing."""
        return self.outside + self.steps[0][1]

    def raised(self, price: int, parts: int) -> Int64s:
        """int64[N]: by how much dearer nodes are where each pod pays no less than a price.

        Args:
            parts: of a unit of cost, which the price and the result count.
        """
        raised: Int64s = np.maximum(price - self.standing * parts, 0).astype(np.int64)
        return raised

    def overcharged(self, price: int, parts: int) -> int:
        """What pods pay too much at most where each pays no less than a price; see ``raised``."""
        return sum(pods * max(0, price - own * parts) for own, pods in self.steps)

    def price_of(self, pods: int) -> tuple[int, ...]:
        """What the last of so many pods pays at least, and what one of the step before does; none: nothing."""
        before, left = 0, pods - self.outside
        for own, most in self.steps:
            left -= most
            if left <= 0:
                return tuple(sorted({before, own} - {0}))
            before = own
        return (before,) if before else ()


def shared_limits(demands: Sequence[Demand]) -> list[SharedLimit]:
    """Limits that keep some pods of several demands out, the one that keeps most out first; a demand is in one at most.

    A row across nodes and demands: anti-affinity and caps that hold for all of them and count all of them, and prices
    that rise with their number. Prices of the same pods are one row where no node is in domains of two.
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
    together: dict[tuple[int, ...], list[RisingPrice]] = {}
    for price, places in rising.items():
        together.setdefault(tuple(places), []).append(price)
    shared = [
        _limit_row(tuple(places), counter, [demands[place] for place in places])
        for counter, places in limited.items()
        if len(places) > 1
    ]
    shared += [
        _price_row(places, apart, [demands[place] for place in places])
        for places, prices in together.items()
        for apart in _apart(prices)
    ]
    lacking = [(sum(demands[place].count for place in row.demands) - row.cheapest, row) for row in shared]
    rows: list[SharedLimit] = []
    taken: set[int] = set()
    for lack, row in sorted(lacking, key=lambda entry: -entry[0]):
        if lack > 0 and taken.isdisjoint(row.demands):
            taken.update(row.demands)
            rows.append(row)
    return rows


def _apart(prices: Sequence[RisingPrice]) -> list[list[RisingPrice]]:
    """Prices, those with each other that have no node in common."""
    rows: list[list[RisingPrice]] = []
    for price in prices:
        inside = price.counter.domains.labelled
        beside = (row for row in rows if not any((each.counter.domains.labelled & inside).any() for each in row))
        row = next(beside, None)
        if row is None:
            rows.append(row := [])
        row.append(price)
    return rows


def _fits(demands: Sequence[Demand]) -> Int64s:
    """int64[N]: how many pods each node takes at most."""
    fits: Int64s = np.sum([np.minimum(each.counts, each.count) for each in demands], axis=0)
    return fits


def _price_row(places: tuple[int, ...], prices: Sequence[RisingPrice], demands: Sequence[Demand]) -> SharedLimit:
    """The row of prices that have no node in common."""
    fits, standing = _fits(demands), np.full(len(demands[0].counts), np.inf)
    steps: dict[int, int] = {}
    for price in prices:
        counter, inside = price.counter, price.counter.domains.labelled
        standing[inside] = price.next_pod(counter.initial)[counter.domains.codes[inside]]
        begun = counter.initial[:-1]
        limits = [each.constraints.limits.get(counter) for each in demands]
        ends = begun + counter.domains.totals(fits)[:-1]
        if None not in limits:
            ends = np.minimum(ends, np.maximum(begun, max(limit for limit in limits if limit is not None)))
        for start, end, cost in zip((0, *price.ends.tolist()), (*price.ends.tolist(), 2**62), price.costs, strict=True):
            units = int(np.maximum(np.minimum(ends, end) - np.maximum(begun, start), 0).sum())
            steps[int(cost)] = steps.get(int(cost), 0) + units
    rising = sorted((cost, units) for cost, units in steps.items() if units) or [(0, 0)]
    return SharedLimit(places, standing, tuple(rising), int(fits[np.isinf(standing)].sum()), rises=True)


def _limit_row(places: tuple[int, ...], counter: DomainCounter, demands: Sequence[Demand]) -> SharedLimit:
    """The row of a limit."""
    fits, inside = _fits(demands), counter.domains.labelled
    limit = max(each.constraints.limits[counter] for each in demands)
    most = np.minimum(counter.domains.totals(fits), remaining(limit, counter.initial))
    standing = np.where(inside, 0.0, np.inf)
    # In no domain nothing is counted.
    return SharedLimit(places, standing, ((0, int(most[:-1].sum())),), int(fits[~inside].sum()))
