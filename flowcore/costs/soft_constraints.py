"""Preferences between pods of a round: preferred affinity and anti-affinity, ScheduleAnyway, interference.

A class is priced once, as its round begins, by the pods that run. As pods of the round are placed, its preferences are
priced again by the same formulas (costs/preferences.py), with those pods among the running ones. So its pods are placed
one after the other, as kube-scheduler would; only the greedy method does that. In the cost of a plan each pod pays for
its preferences with all other pods of the plan among the running ones: their order does not matter.

Penalties between kinds of workload (costs/arcs.py) are not scaled, and concern a pod's own node alone. In the
cost of a plan each pod pays what it suffers. A pod that is placed next pays that and what others suffer from it.

Required affinity of pods of the round, which attracts others with a weight of 1 in kube-scheduler, is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.model import Float64s
from flowcore.costs.preferences import affinity_cost, spread_cost
from flowcore.costs.spread_nodes import AlikeNodes, DecidingNodes
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.round_constraints.constraints import SoftConstraints
from flowcore.rules.topology.round_constraints.domain_counts import DomainCounts
from flowcore.rules.topology.soft_affinity import affinity_weights
from flowcore.rules.topology.soft_spread import SpreadScore, spread_score


@dataclass(frozen=True, slots=True, eq=False)
class SpreadTurns:
    """Nodes for pods that come one by one, and what spread adds to their costs.

    Attributes:
        alike_nodes: K of the nodes.
        weight: of spread.
    """

    alike_nodes: AlikeNodes
    weight: int

    def cost(self) -> Int64s:
        """int64[G]: what spread costs now for a node of each kind."""
        return self.weight * self.alike_nodes.cost()


class SoftConstraintCosts:
    """Costs of the preferences of one class, updated as the round places pods."""

    def __init__(
        self,
        pod_class: PodClass,
        signature: PodSignature,
        soft_constraints: SoftConstraints,
        passing: Bools,
        cost: CostPolicy,
        snapshot: Snapshot,
    ) -> None:
        """Pods of a class; bool[N], nodes that pass every filter as the round begins."""
        self._soft_constraints, self._passing = soft_constraints, passing
        self._preferences, self._weights = cost.preferences, cost.weights
        self._compared = tuple(dict.fromkeys(soft_constraints.compared))
        table, pod_index = snapshot.table, snapshot.pod_index
        affinity = affinity_weights(signature, pod_index, table) if soft_constraints.affinity_weights else None
        self._affinity: Int64s = np.zeros(len(table.nodes), dtype=np.int64) if affinity is None else affinity
        self._spread = (
            spread_score(pod_class, signature, pod_index, table, passing) if soft_constraints.spread_counters else None
        )
        #: int64[N]: the part of the arcs that these preferences are.
        self.initial_cost = self._cost(self._affinity, self._spread)
        self._deciding = DecidingNodes(soft_constraints.spread_counters, passing)

    @property
    def only_spreads(self) -> bool:
        """Whether spread is all that it prefers."""
        return self._spread is not None and len(self._soft_constraints.reads) == len(
            self._soft_constraints.spread_counters
        )

    def turns(
        self, counts: DomainCounts, increments: Iterable[DomainCounter], count: int, cost: Float64s
    ) -> SpreadTurns:
        """For pods that come one by one, of a class that only spreads: nodes that are enough, and their prices.

        Args:
            counts: all pods of the round so far.
            increments: the counters that a pod of the class raises.
            count: how many come at most.
            cost: float64[N], of each node without what spread adds, infinite where there is no room.
        """
        assert self._spread is not None  # noqa: S101 - see only_spreads
        nodes = self._deciding.of(counts, count + 1, cost)
        return SpreadTurns(
            self._alike(nodes, self._spread, set(increments), counts),
            self._weights.spread,
        )

    def _alike(
        self, nodes: Int64s, spread: SpreadScore, raised: Collection[DomainCounter], counts: DomainCounts
    ) -> AlikeNodes:
        return AlikeNodes(nodes, spread, self._passing, self._soft_constraints.spread_counters, raised, counts)

    def added_cost(self, counts: DomainCounts) -> Int64s:
        """int64[N]: how much dearer the pods of the round make each node for the next pod; below zero: cheaper."""
        cost = self._added_cost({counter: counts.added(counter) for counter in self._compared})
        for counter, price in self._soft_constraints.penalties:
            cost += price * counts.added(counter)
        for rising in self._soft_constraints.rising:
            cost += rising.added(counts.of(rising.counter))
        return cost

    def added_by_others(self, counts: DomainCounts, increments: Iterable[DomainCounter], nodes: Int64s) -> Int64s:
        """int64[K]: what a placed pod of the class pays on each of these nodes for all other pods of the round.

        What rises with the number of pods in a domain is left out (planning/problem/objective.py).

        Args:
            counts: all pods of the round.
            increments: the counters that the pod itself raises.
        """
        raised = set(increments)
        prices = np.zeros(len(nodes), dtype=np.int64)
        for counter, price in self._soft_constraints.suffered:
            prices += price * (counts.added(counter)[nodes] - (counter in raised))
        if not self._compared:
            return prices
        if self._spread is not None and not self._soft_constraints.affinity_weights:
            return prices + self._spread_by_others(self._spread, counts, raised, nodes)
        own = [counter for counter in self._compared if counter in raised]
        added = {counter: counts.added(counter) for counter in self._compared}
        # Pods that count in the same domains pay the same way.
        domains = np.array(
            [np.where(each.counted_nodes[nodes], each.domains.codes[nodes], -1) for each in own], dtype=np.int64
        ).reshape(len(own), len(nodes))
        places, member = np.unique(domains, axis=1, return_inverse=True)
        for number, place in enumerate(places.T.tolist()):
            less = {each: added[each] - (each.domains.codes == domain) for each, domain in zip(own, place, strict=True)}
            members = member.ravel() == number
            prices[members] += self._added_cost({**added, **less})[nodes[members]]
        return prices

    def _spread_by_others(
        self, spread: SpreadScore, counts: DomainCounts, raised: Collection[DomainCounter], nodes: Int64s
    ) -> Int64s:
        """The same for the spread of a class without affinity: nodes that decide are looked at, and not all."""
        deciding = self._deciding.with_nodes(counts, nodes)
        alike = self._alike(deciding, spread, raised, counts)
        kinds = alike.kinds[np.searchsorted(deciding, nodes)]
        costs = np.zeros(int(kinds.max(initial=0)) + 1, dtype=np.int64)
        for kind in np.nonzero(np.bincount(kinds))[0].tolist():
            costs[kind] = alike.cost_without(kind)
        cost = costs[kinds]
        added: Int64s = self._weights.spread * cost - self.initial_cost[nodes]
        return added

    def saved_without(self, counts: DomainCounts, increments: Iterable[DomainCounter], nodes: Int64s) -> Int64s:
        """int64[K]: what a placed pod of the class pays on each of these nodes, and what others suffer from it.

        Args:
            counts, increments: as for ``added_by_others``.
        """
        raised = set(increments)
        saved = self.added_by_others(counts, raised, nodes)
        for counter, price in self._soft_constraints.inflicted:
            saved = saved + price * (counts.added(counter)[nodes] - (counter in raised))
        for rising in self._soft_constraints.rising:
            saved = saved + rising.added(counts.of(rising.counter) - (rising.counter in raised))[nodes]
        return saved

    def _added_cost(self, added: Mapping[DomainCounter, Int64s]) -> Int64s:
        affinity = self._affinity.copy()
        for counter, weight in self._soft_constraints.affinity_weights:
            affinity += weight * added[counter]
        spread = self._spread
        if spread is not None:
            spread = spread.with_added([added[counter] for counter in self._soft_constraints.spread_counters])
        return self._cost(affinity, spread) - self.initial_cost

    def _cost(self, affinity: Int64s, spread: SpreadScore | None) -> Int64s:
        cost = np.zeros(len(affinity), dtype=np.int64)
        if not self._passing.any():
            return cost
        if self._soft_constraints.affinity_weights and self._weights.pod_affinity:
            cost += self._weights.pod_affinity * affinity_cost(affinity, self._passing, self._preferences)
        if spread is not None and self._weights.spread:
            cost += self._weights.spread * spread_cost(spread, self._passing)
        return cost
