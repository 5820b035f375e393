"""What pods cost by how many of them are in a domain: the arcs of a policy's network that ask for units or limit them.

An arc whose units cost more and more has a price that rises. One with a minimum is priced the same way while a plan is
sought: a unit that it lacks costs more than all else. So one method of placing pods knows both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.model.inter_pod_constraints import MinPerDomain
from flowcore.model.networks import Segment
from flowcore.rules.topology.counters import DomainCounter

#: What a pod costs that a minimum lacks: more than what 100,000 pods cost at prices that rise steeply by level.
LACK = 2**44
#: More lacking ones cost no more: sums stay within int64.
MOST_LACKING = 2**16


@dataclass(frozen=True, slots=True, eq=False)
class RisingPrice:
    """A price that rises with the pods that a counter counts. Each pod pays it beside those that came before it.

    Attributes:
        ends: int64[S - 1], rising: where the price rises next.
        costs: int64[S], rising: what a pod costs before the first end, between two, and beyond the last.
    """

    counter: DomainCounter
    ends: Int64s
    costs: Int64s

    @classmethod
    def of(cls, counter: DomainCounter, segments: Sequence[Segment]) -> RisingPrice:
        """The price of an arc."""
        ends = np.array([each.up_to for each in segments if each.up_to is not None], dtype=np.int64)
        return cls(counter, ends, np.array([each.cost for each in segments], dtype=np.int64))

    @property
    def highest(self) -> int:
        """By how much the price rises at most."""
        return int(self.costs[-1] - self.costs[0])

    @property
    def rises(self) -> bool:
        """Whether it never falls."""
        return bool((np.diff(self.costs) >= 0).all())

    @property
    def in_arcs(self) -> Int64s:
        """int64[D + 1]: what arcs have of it: what one more pod costs as the round begins."""
        return self.next_pod(self.counter.initial)

    def next_pod(self, counts: Int64s) -> Int64s:
        """int64[...]: what one more pod costs in domains with so many."""
        return self.costs[np.searchsorted(self.ends, counts, side="right")]

    def of_all(self, counts: Int64s) -> Int64s:
        """int64[...]: what all pods of domains with so many cost together."""
        starts = np.append(0, self.ends)
        within = np.minimum(counts[..., np.newaxis], np.append(self.ends, np.iinfo(np.int64).max)) - starts
        total: Int64s = np.maximum(within, 0) @ self.costs
        return total

    def beside_arcs(self, domains: Int64s, counts: Int64s) -> Int64s:
        """int64[...]: what all pods cost beside what their arcs have, in some domains with so many pods."""
        begun = self.counter.initial[domains]
        return self.of_all(counts) - self.of_all(begun) - self.in_arcs[domains] * (counts - begun)

    def by_node(self, counts: Int64s) -> Int64s:
        """int64[N]: the same for each node, by int64[D + 1] pods in the domains; 0 for nodes in no domain."""
        return self._at_nodes(self.next_pod(counts))

    def added(self, counts: Int64s) -> Int64s:
        """int64[N]: by how much dearer a node is for one more pod than its arcs say."""
        return self._at_nodes(self.next_pod(counts) - self.in_arcs)

    def until_next(self, counts: Int64s) -> int:
        """How many pods may come to any domain before it is dearer."""
        rising = counts[:-1, np.newaxis] < self.ends
        return int(np.where(rising, self.ends - counts[:-1, np.newaxis], 2**31).min(initial=2**31))

    def _at_nodes(self, prices: Int64s) -> Int64s:
        prices[-1] = 0
        return prices[self.counter.domains.codes]


@dataclass(frozen=True, slots=True, eq=False)
class Minimum(RisingPrice):
    """An arc that must have units: while it lacks some, a pod earns what a lacking one costs.

    Costs of plans that lack nothing have nothing of it.

    Attributes:
        rule: how many pods it asks for, and where.
        wanted: bool[D + 1], domains that have nodes.
    """

    rule: MinPerDomain
    wanted: Bools

    @classmethod
    def at_least(cls, counter: DomainCounter, rule: MinPerDomain) -> Minimum:
        """The price of a rule. Where none are enough too, only a pod that is there asks for others."""
        begin = ([1], [0]) if rule.or_none else ([], [])
        ends, costs = np.array([*begin[0], rule.min_pods]), np.array([*begin[1], -LACK, 0])
        wanted = np.bincount(counter.domains.codes, minlength=counter.domains.count + 1) > 0
        wanted[-1] = False
        return cls(counter, ends.astype(np.int64), costs.astype(np.int64), rule, wanted)

    @property
    def highest(self) -> int:
        """Costs of plans have nothing of it."""
        return 0

    @property
    def in_arcs(self) -> Int64s:
        """int64[D + 1]: nothing."""
        return np.zeros_like(self.counter.initial)

    def added(self, counts: Int64s) -> Int64s:
        """int64[N]: what one more pod earns, below zero; where none are enough the first one earns nothing."""
        price = self.next_pod(counts)
        return self._at_nodes(np.where(counts > self.counter.initial, price, 0) if self.rule.or_none else price)

    def beside_arcs(self, domains: Int64s, counts: Int64s) -> Int64s:
        """int64[...]: what the pods cost that some domains with so many pods lack."""
        return LACK * np.minimum(
            self._lacking(counts, self.counter.initial[domains], self.wanted[domains]), MOST_LACKING
        )

    def may_begin(self, counts: Int64s, coming: Int64s) -> Bools:
        """bool[D + 1]: where a pod may go without others being needed that do not come.

        Args:
            counts, coming: int64[D + 1], pods that are there, and that would come after each other.
        """
        begun: Bools = (counts > self.counter.initial) | (counts + coming >= self.rule.min_pods)
        begun[-1] = True
        return begun

    def lacking(self, counts: Int64s) -> Int64s:
        """int64[D]: how many pods domains lack that have so many, int64[D + 1]."""
        return self._lacking(counts[:-1], self.counter.initial[:-1], self.wanted[:-1])

    def _lacking(self, counts: Int64s, begun: Int64s, wanted: Bools) -> Int64s:
        lacking = np.where(wanted, np.maximum(self.rule.min_pods - counts, 0), 0)
        return np.where(counts > begun, lacking, 0) if self.rule.or_none else lacking
