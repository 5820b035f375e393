"""A bound from prices of classes: each pod pays that of its class or that of leaving, and each node gives back what its
best filling is worth beyond its cost.

Prices of room overcharge each node for what no whole pod can use of it. Here every node takes the better of two: all
its room at the prices of room, or its best filling by whole pods (``whole_fillings``). Any prices are valid, so a few
steps along the subgradient (Held, Wolfe, Crowder, Validation of Subgradient Optimization, Mathematical Programming 6,
1974) look for better ones: the price of a class rises where nodes would take fewer pods of it than there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.problem.bounds.least_cost import Scale, price_of_class
from flowcore.planning.problem.bounds.whole_fillings import fill_nodes
from flowcore.planning.problem.demands.demands import Demand

#: Pairs of class and node that are looked at in all steps together, and how many steps there are at most.
_MOST_PAIRS, _MOST_STEPS = 2_000_000, 12
#: The first step goes so far of the way that would close the gap; after steps without a gain half as far.
_FIRST_STEP, _LEAST_STEP = 0.5, 0.02
#: Pods are measured by the prices of room, and by so much of its worth as if all resources were equally short.
_EVEN = 0.2
#: Sums of floats are off by less than this part of them.
_FLOAT_ERROR = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class NodeOffers:
    """What prices of room make of nodes.

    Attributes:
        costs: float64[C, N], what a pod of each class pays at least: arc, slope of the potential and its usage.
        most: of each class int64[N], how many of its pods a node gets at most.
        shadow_prices: float64[N, R], not negative.
        spare: int64[N, R], what pods can take, whatever the plan.
        constants: float64[N], what potentials rise at least beyond what pods pay for them; none positive.
    """

    costs: Float64s
    most: Sequence[Int64s]
    shadow_prices: Float64s
    spare: Int64s
    constants: Float64s


def bound_by_class_prices(
    offers: NodeOffers,
    demands: Sequence[Demand],
    priced: Bools,
    scale: Scale,
    others_pay: Callable[[Sequence[int]], int],
    known_cost: int,
) -> int:
    """A cost that no plan goes below, in parts of the scale.

    Args:
        priced: bool[C], classes that get prices: nothing but ``most`` limits how many of their pods nodes get.
        others_pay: what all other pods pay, and groups beyond their pods, where the pods of each class pay so much.
        known_cost: of a plan; how far prices move follows from it.
    """
    dual = _Dual(offers, demands, priced, scale)
    steps = min(_MOST_STEPS, max(1, _MOST_PAIRS // max(1, offers.costs.size)))
    prices = dual.first_prices()
    best, step, best_prices, best_missing = 0, _FIRST_STEP, prices, np.zeros(len(prices))
    for number in range(steps):
        paid, given, missing = dual.at(prices)
        bound = sum(int(np.minimum(own, each).sum()) for own, each in zip(dual.own_prices, paid, strict=True))
        of_classes = np.zeros(len(demands), dtype=np.int64)
        of_classes[dual.classes] = paid
        bound += others_pay(of_classes.tolist()) - given
        if bound > best or not number:
            best, best_prices, best_missing = bound, prices, missing
        else:
            step /= 2
        gap = known_cost - best / scale.parts
        if gap <= 0 or step < _LEAST_STEP:
            break
        prices = dual.moved(best_prices, best_missing, step * gap)
    return best


class _Dual:
    """The bound as a function of the prices of K classes.

    Attributes:
        classes: int64[K].
        own_prices: of each, int64[pods], what its pods pay if they leave, in parts.
    """

    def __init__(self, offers: NodeOffers, demands: Sequence[Demand], priced: Bools, scale: Scale) -> None:
        self.classes = np.nonzero(priced)[0]
        self._demands = [demands[index] for index in self.classes.tolist()]
        self.own_prices = [demand.prices * scale.parts for demand in self._demands]
        self._highest = np.array([float(demand.prices[0]) for demand in self._demands])
        self._pods = np.array([float(demand.count) for demand in self._demands])
        self._offers, self._scale, self._priced = offers, scale, priced
        self._counts = np.array(offers.most)
        self._requests = np.array([demand.requests for demand in demands], dtype=np.int64)
        room = (offers.shadow_prices * offers.spare).sum(axis=1)
        self._room_worth = room
        #: int64[M], nodes where room has a price, and what it is worth there.
        self._nodes = nodes = np.nonzero(room > 0)[0]
        usage = np.zeros((len(demands), len(nodes)))
        for resource in np.nonzero(offers.shadow_prices.any(axis=0))[0].tolist():
            asked = self._requests[:, resource].astype(np.float64)
            usage += np.multiply.outer(asked, offers.shadow_prices[nodes, resource])
        self._usage = usage
        self._spare = offers.spare[nodes]
        part = room[nodes, np.newaxis] / np.maximum(self._spare, 1) / self._spare.shape[1]
        self._measure = offers.shadow_prices[nodes] + _EVEN * part

    def first_prices(self) -> Float64s:
        """float64[K]: what the dearest placed pod of each class pays in its cheapest plan by itself."""
        return np.array(
            [
                price_of_class(self._offers.costs[index], self._counts[index], demand.prices)
                for index, demand in zip(self.classes.tolist(), self._demands, strict=True)
            ]
        )

    def at(self, prices: Float64s) -> tuple[Int64s, int, Float64s]:
        """int64[K] prices and what all nodes give back, both in parts; float64[K], pods that pay and get no place."""
        gain = prices[:, np.newaxis] - self._offers.costs[self.classes]
        counts = self._counts[self.classes]
        taken = np.where(gain > 0, counts, 0).astype(np.float64)
        given = self._room_worth + (taken * gain).sum(axis=0) * (1 + _FLOAT_ERROR)
        worth = self._usage.copy()
        worth[self.classes] += gain[:, self._nodes]
        filled = fill_nodes(worth, self._requests, self._spare, self._counts[:, self._nodes], self._measure)
        whole = filled.worth < given[self._nodes]
        nodes = self._nodes[whole]
        given[nodes] = filled.worth[whole]
        taken[:, nodes] = filled.pods[self.classes][:, whole]
        given -= self._offers.constants
        of_classes = self._scale.down(prices)
        paying = [int((own > price).sum()) for own, price in zip(self.own_prices, of_classes, strict=True)]
        return of_classes, int(self._scale.up(given[given > 0]).sum()), np.array(paying) - taken.sum(axis=1)

    def moved(self, prices: Float64s, missing: Float64s, rise: float) -> Float64s:
        """float64[K]: prices along the subgradient, as far as would raise the bound by so much if it were straight."""
        weight = np.maximum(prices, 1.0) / self._pods
        steep = float((missing * missing * weight).sum())
        if steep <= 0:
            return prices
        moved: Float64s = np.clip(prices + rise / steep * weight * missing, 0.0, self._highest)
        return moved
