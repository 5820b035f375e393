"""Prices of resources on single nodes: the dual of the round in fractions with all nodes told apart, smoothed.

Pods of a class have one price, resources of a node have theirs. A pod is worth on a node what its class's price leaves
beyond the node's cost and what it takes at the node's prices. Were pods all or nothing by that, small changes of prices
would move all of them; so nodes take a share of the pods that fit, ``1 / (1 + exp(-worth / temperature))``. By turns
prices of classes rise or fall until as many pods are placed as want a node, and prices of each node until it gives no
more than its room: block coordinate ascent of a concave function, by Newton's steps, at falling temperatures (the
smoothed dual of a linear program; Bertsekas, Nonlinear Programming, section 6.3). The work is one pass over pairs of
class and node for each step, and only pairs that are nearly worth it count.

Answers are approximate, and what is proved from them is proved elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.assignment_program import price_runs
from flowcore.planning.problem.cost_matrix import CostMatrix

#: Temperatures, as parts of the dearest pod's price, and how many steps there are at each.
_TEMPERATURES, _STEPS = (0.08, 0.04, 0.02, 0.01), 3
#: Pairs that are worth less than this part of the dearest pod's price, below zero, are left out.
_HOPELESS = 0.15
#: No step changes a price by more than so many temperatures.
_LONGEST = 3.0
#: Runs that prices of leaving are merged into.
_RUNS = 4
#: Exponents stay within these; nothing that is divided by is smaller.
_MOST_EXPONENT, _TINY = 30.0, 1e-12
#: Part of the largest curvature of a node that each of its curvatures is at least.
_RIDGE = 1e-3


def prices_of_nodes(
    cost_matrix: CostMatrix, leaving: Sequence[Int64s], shadow_prices: Float64s, class_prices: Float64s
) -> Float64s:
    """float64[N, R]: better prices of resources, from approximate ones.

    Args:
        leaving: of each demand int64[pods], what leaving them costs, falling.
        shadow_prices: float64[N, R]; nodes without a price keep none.
        class_prices: float64[C], what one pod more of each demand costs.
    """
    requests = np.array([demand.requests for demand in cost_matrix.demands], dtype=np.float64)
    resources = np.nonzero((requests > 0).any(axis=0) & shadow_prices.any(axis=0))[0]
    nodes = np.nonzero(shadow_prices.any(axis=1))[0]
    dearest = max(float(prices.max(initial=0)) for prices in leaving)
    if not len(nodes) or dearest <= 0:
        return shadow_prices
    unit = requests[:, resources].mean(axis=0)
    start = np.ix_(nodes, resources)
    dual = _SmoothedDual(
        _Pairs.of(cost_matrix, nodes, requests[:, resources] / unit, shadow_prices[start] * unit, class_prices, dearest),
        _Wanted.of(leaving),
        cost_matrix.spare[start] / unit,
        shadow_prices[start] * unit,
        class_prices,
    )
    for temperature in _TEMPERATURES:
        for _ in range(_STEPS):
            dual.step(temperature * dearest)
    better = shadow_prices.copy()
    better[start] = dual.prices / unit
    return better


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Pairs of a node and a demand, node by node.

    Attributes:
        nodes, demands: int64[P]; places.
        first: int64[M], first pair of each node with any; filled: of these nodes.
        most: float64[P], pods that fit; cost: float64[P], what one pays beside the prices.
        requests: float64[K, P].
    """

    nodes: Int64s
    demands: Int64s
    first: Int64s
    filled: Int64s
    most: Float64s
    cost: Float64s
    requests: Float64s

    @classmethod
    def of(
        cls,
        cost_matrix: CostMatrix,
        nodes: Int64s,
        requests: Float64s,
        prices: Float64s,
        class_prices: Float64s,
        dearest: float,
    ) -> _Pairs:
        """Args: nodes int64[M], requests float64[C, K], prices float64[M, K], class_prices float64[C]."""
        places, of, most, costs = [], [], [], []
        for index, demand in enumerate(cost_matrix.demands):
            fit, cost = cost_matrix.most[index][nodes], demand.first_cost[nodes]
            worth = class_prices[index] - cost - prices @ requests[index]
            here = np.nonzero((fit > 0) & (worth > -_HOPELESS * dearest))[0]
            places.append(here)
            of.append(np.full(len(here), index))
            most.append(fit[here])
            costs.append(cost[here])
        place, demand_of = np.concatenate(places), np.concatenate(of)
        order = np.argsort(place, kind="stable")
        place, demand_of = place[order], demand_of[order]
        filled, first = np.unique(place, return_index=True)
        return cls(
            place,
            demand_of,
            first,
            filled,
            np.concatenate(most)[order].astype(np.float64),
            np.concatenate(costs)[order].astype(np.float64),
            np.ascontiguousarray(requests[demand_of].T),
        )

    def by_node(self, values: Float64s, nodes: int) -> Float64s:
        """float64[M]: sums over the pairs of each node."""
        sums = np.zeros(nodes)
        if len(self.first):
            sums[self.filled] = np.add.reduceat(values, self.first)
        return sums


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """How many pods of each demand want a node at a price: those that cost more to leave.

    Attributes:
        pods, prices: float64[C, J], runs of pods.
    """

    pods: Float64s
    prices: Float64s

    @classmethod
    def of(cls, leaving: Sequence[Int64s]) -> _Wanted:
        pods, prices = np.zeros((len(leaving), _RUNS)), np.zeros((len(leaving), _RUNS))
        for index, each in enumerate(leaving):
            for place, run in enumerate(price_runs(each, _RUNS)):
                pods[index, place], prices[index, place] = len(run), run.mean()
        return cls(pods, prices)

    def at(self, class_prices: Float64s, temperature: float) -> tuple[Float64s, Float64s]:
        """float64[C] each: pods, and by how many fewer for each unit of the price."""
        share = _share((self.prices - class_prices[:, np.newaxis]) / temperature)
        pods = self.pods * share
        return pods.sum(axis=1), (pods * (1 - share)).sum(axis=1) / temperature


class _SmoothedDual:
    """Prices that change.

    Attributes:
        prices: float64[M, K], of resources on nodes; class_prices: float64[C].
    """

    def __init__(
        self, pairs: _Pairs, wanted: _Wanted, spare: Float64s, prices: Float64s, class_prices: Float64s
    ) -> None:
        self._pairs, self._wanted, self._spare = pairs, wanted, spare
        self.prices, self.class_prices = prices, class_prices.astype(np.float64)

    def step(self, temperature: float) -> None:
        """Prices of classes, then prices of nodes."""
        pairs = self._pairs
        cost = pairs.cost.copy()
        for resource, requests in enumerate(pairs.requests):
            cost += self.prices[pairs.nodes, resource] * requests
        longest = _LONGEST * temperature
        # Prices of classes are cheap to move, and the first step may have been too long.
        for _ in range(2):
            share, placed = self._placed(cost, temperature)
            wanted, fewer = self._wanted.at(self.class_prices, temperature)
            more = np.bincount(pairs.demands, placed * (1 - share), len(self.class_prices)) / temperature
            lacking = wanted - np.bincount(pairs.demands, placed, len(self.class_prices))
            self.class_prices += np.clip(lacking / (fewer + more + _TINY), -longest, longest)
        share, placed = self._placed(cost, temperature)
        self._move_nodes(placed, placed * (1 - share) / temperature, longest)

    def _placed(self, cost: Float64s, temperature: float) -> tuple[Float64s, Float64s]:
        """float64[P] each: the share of what fits that nodes take of each pair, and the pods."""
        share = _share((self.class_prices[self._pairs.demands] - cost) / temperature)
        return share, self._pairs.most * share

    def _move_nodes(self, placed: Float64s, fewer: Float64s, longest: float) -> None:
        """A Newton step of the prices of each node.

        Args:
            placed: float64[P], pods; fewer: float64[P], by how many fewer for each unit of what they pay.
        """
        requests, (nodes, resources) = self._pairs.requests, self.prices.shape
        over = np.empty((nodes, resources))
        bends = np.empty((nodes, resources, resources))
        for one in range(resources):
            over[:, one] = self._pairs.by_node(placed * requests[one], nodes) - self._spare[:, one]
            for other in range(one, resources):
                bent = self._pairs.by_node(fewer * requests[one] * requests[other], nodes)
                bends[:, one, other] = bends[:, other, one] = bent
        idle = (self.prices <= 0) & (over <= 0)
        bends[idle[:, :, np.newaxis] | idle[:, np.newaxis, :]] = 0.0
        diagonal = np.arange(resources)
        bends[:, diagonal, diagonal] += _RIDGE * bends[:, diagonal, diagonal].max(axis=1, keepdims=True) + _TINY
        steps = np.linalg.solve(bends, np.where(idle, 0.0, over)[:, :, np.newaxis])[:, :, 0]
        self.prices = np.maximum(self.prices + np.clip(steps, -longest, longest), 0.0)


def _share(exponent: Float64s) -> Float64s:
    share: Float64s = 1 / (1 + np.exp(-np.clip(exponent, -_MOST_EXPONENT, _MOST_EXPONENT)))
    return share
