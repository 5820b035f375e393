"""The domains of a topology: nodes that have the same value of a label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable


@dataclass(frozen=True, eq=False)
class Domains:
    """The D domains of a topology.

    Attributes:
        codes: int64[N], each node's domain; D for nodes without the label.
        labelled: bool[N], nodes that are in a domain.
        count: D.
    """

    codes: Int64s
    labelled: Bools
    count: int

    @classmethod
    def of(cls, key: str, table: NodeTable) -> Domains:
        """The domains of a label, numbered by the first node of each.

        Equal nodes give equal numbers, whatever the table has been through: ties in a plan are broken by them.
        """
        values = table.column(key).codes
        labelled = values >= 0
        _, first, inverse = np.unique(values[labelled], return_index=True, return_inverse=True)
        codes = np.full(len(values), len(first), dtype=np.int64)
        codes[labelled] = np.argsort(np.argsort(first))[inverse]
        return cls(codes, labelled, len(first))

    @classmethod
    def unordered(cls, key: str, table: NodeTable) -> Domains:
        """The domains of a label, numbered as the table numbers its values; some may have no node.

        For verdicts and scores, which do not depend on the numbers. Cheaper than ``of``.
        """
        column = table.column(key)
        return cls(column.domain_codes, column.labelled, len(column.values))

    @classmethod
    def whole(cls, table: NodeTable) -> Domains:
        """All nodes in one domain."""
        count = len(table.nodes)
        return cls(np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.bool_), 1)

    @classmethod
    def single_nodes(cls, table: NodeTable) -> Domains:
        """Each node a domain of its own."""
        count = len(table.nodes)
        return cls(np.arange(count, dtype=np.int64), np.ones(count, dtype=np.bool_), count)

    def within(self, nodes: Bools) -> Domains:
        """The same domains with these nodes only, bool[N]; others are in none."""
        inside = nodes & self.labelled
        return Domains(np.where(inside, self.codes, self.count), inside, self.count)

    @cached_property
    def are_single_nodes(self) -> bool:
        """Whether no domain has two nodes."""
        return int(np.bincount(self.codes, minlength=self.count + 1)[: self.count].max(initial=0)) <= 1

    @cached_property
    def first_nodes(self) -> Int64s:
        """int64[D]: the first node of each domain that has one."""
        first = np.zeros(self.count, dtype=np.int64)
        nodes = np.nonzero(self.labelled)[0][::-1]
        first[self.codes[nodes]] = nodes
        return first

    @cached_property
    def _by_domain(self) -> tuple[Int64s, Int64s]:
        """int64[N], the nodes by domain; int64[D + 2], where each domain begins in it."""
        ordered = np.argsort(self.codes, kind="stable")
        return ordered, np.searchsorted(self.codes[ordered], np.arange(self.count + 2))

    def nodes(self, domain: int) -> Int64s:
        """Nodes of one domain; of number D: nodes without the label."""
        ordered, starts = self._by_domain
        return ordered[starts[domain] : starts[domain + 1]]

    def totals(self, amounts: Int64s) -> Int64s:
        """int64[D + 1]: sums of int64[N] amounts over the nodes of each domain; the last entry: without the label."""
        return np.bincount(self.codes, amounts, self.count + 1).astype(np.int64)
