"""What pods cost by how many of them are in a domain: the arcs of a policy's network whose units cost more and more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.model.networks import Segment
from flowcore.rules.topology.counters import DomainCounter


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

    def next_pod(self, counts: Int64s) -> Int64s:
        """int64[...]: what one more pod costs in domains with so many."""
        return self.costs[np.searchsorted(self.ends, counts, side="right")]

    def of_all(self, counts: Int64s) -> Int64s:
        """int64[...]: what all pods of domains with so many cost together."""
        starts = np.append(0, self.ends)
        within = np.minimum(counts[..., np.newaxis], np.append(self.ends, np.iinfo(np.int64).max)) - starts
        total: Int64s = np.maximum(within, 0) @ self.costs
        return total

    def by_node(self, counts: Int64s) -> Int64s:
        """int64[N]: the same for each node, by int64[D + 1] pods in the domains; 0 for nodes in no domain."""
        price = self.next_pod(counts)
        price[-1] = 0
        return price[self.counter.domains.codes]

    def added(self, counts: Int64s) -> Int64s:
        """int64[N]: by how much dearer a node is for one more pod than as the round begins."""
        return self.by_node(counts) - self.by_node(self.counter.initial)

    def until_next(self, counts: Int64s) -> int:
        """How many pods may come to any domain before it is dearer."""
        rising = counts[:-1, np.newaxis] < self.ends
        return int(np.where(rising, self.ends - counts[:-1, np.newaxis], 2**31).min(initial=2**31))
