"""Pods in each domain of a topology, as one rule counts them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.model.matching_pods import MatchingPods
from flowcore.rules.topology.domains import Domains


@dataclass(frozen=True, slots=True, eq=False)
class DomainCounter:
    """Pods of some description in each of the D domains of a topology.

    Attributes:
        counted_nodes: bool[N], nodes whose pods count, all of them in a domain.
        initial: int64[D + 1], pods that run as the round begins; the last entry, for nodes in no domain, stays zero.
    """

    domains: Domains
    counted_nodes: Bools
    initial: Int64s

    @classmethod
    def of(
        cls, matching_pods: MatchingPods | None, domains: Domains, counted_nodes: Bools | None, table: NodeTable
    ) -> DomainCounter:
        """A counter of running pods.

        Args:
            matching_pods: the running pods that it counts; None: none of them, only pods of the round.
            counted_nodes: bool[N]; None: all nodes that are in a domain.
        """
        counted_nodes = domains.labelled if counted_nodes is None else counted_nodes & domains.labelled
        initial: Int64s = np.zeros(domains.count + 1, dtype=np.int64)
        if matching_pods is not None:
            positions, pods = matching_pods.to_arrays(table.index)
            counted = counted_nodes[positions]
            np.add.at(initial, domains.codes[positions[counted]], pods[counted])
        return cls(domains, counted_nodes, initial)

    @property
    def initial_by_node(self) -> Int64s:
        """int64[N]: pods in each node's domain as the round begins; 0 for nodes in no domain."""
        return self.initial[self.domains.codes]
