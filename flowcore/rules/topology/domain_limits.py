"""Limits of pods in a domain: policies' constraints. Anti-affinity is the limit 0 on the pods that it matches.

A domain takes one more pod where::

    pods in the domain + 1 if the limit counts the pod itself <= the limit
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import overload

import numpy as np

from flowcore.cluster.arrays.node_matching import any_matches
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.model.inter_pod_constraints import EACH_NODE, CountPrice, MaxPerDomain, MinPerDomain
from flowcore.model.pod_index import ConstraintMatch, PodIndex, PodSignature
from flowcore.model.selectors import Labels
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domains import Domains

#: More pods than any node takes.
UNLIMITED = 2**31


@overload
def remaining(max_pods: int, pods: int) -> int: ...
@overload
def remaining(max_pods: int, pods: Int64s) -> Int64s: ...
def remaining(max_pods: int, pods: int | Int64s) -> int | Int64s:
    """How many more counted pods a domain takes under a limit, by its counted pods; of one domain or of each."""
    return np.maximum(max_pods - pods, 0)


@overload
def within_limit(pods: int, self_match: int, max_pods: int) -> bool: ...
@overload
def within_limit(pods: Int64s, self_match: int, max_pods: int) -> Bools: ...
def within_limit(pods: int | Int64s, self_match: int, max_pods: int) -> bool | Bools:
    """Whether a domain takes one more pod; of one domain or of each.

    Args:
        pods: counted pods in the domain.
        self_match: 1 where the limit counts the pod itself.
    """
    return pods + self_match <= max_pods


@dataclass(frozen=True, slots=True, eq=False)
class Cap:
    """A limit as it holds for pods of one signature.

    Attributes:
        self_match: 1 where the limit counts the pod itself.
        is_partial: whether it says nothing of nodes in no domain; else these take no such pod.
    """

    counter: DomainCounter
    max_per_domain: int
    self_match: int
    is_partial: bool = False

    @property
    def blocks(self) -> bool:
        """Whether any counted pod blocks its domain for the pods that have the limit."""
        return not (self.max_per_domain or self.self_match)

    def allows(self, pods: int) -> bool:
        """Whether a domain with this number of counted pods takes the pod."""
        return within_limit(pods, self.self_match, self.max_per_domain)

    def allowed_domains(self, counts: Int64s) -> Bools:
        """bool[D + 1]: domains that take the pod, by their counted pods, and whether nodes in no domain do."""
        allowed = within_limit(counts, self.self_match, self.max_per_domain)
        allowed[-1] = self.is_partial
        return allowed

    def remaining(self, counts: Int64s) -> Int64s:
        """int64[D + 1]: how many pods that have the limit each domain takes in a row, and nodes in no domain do."""
        if not self.self_match:
            return np.where(self.allowed_domains(counts), UNLIMITED, 0)
        most = remaining(self.max_per_domain, counts)
        most[-1] = UNLIMITED if self.is_partial else 0
        return most


#: Rules that count pods of a description in domains.
Counting = MaxPerDomain | CountPrice | MinPerDomain


def limit_match(limit: Counting) -> ConstraintMatch:
    """The pods that such a rule counts."""
    return ConstraintMatch(limit.selectors, limit.namespaces)


def domains_of_limit(limit: Counting, table: NodeTable) -> Domains:
    """The domains in which a limit counts, with numbers of the table."""
    key = limit.topology_key
    if key == EACH_NODE:
        domains = Domains.single_nodes(table)
    else:
        domains = Domains.unordered(key, table) if key else Domains.whole(table)
    return domains.within(any_matches(limit.nodes, table)) if limit.nodes else domains


def limit_counter(
    limit: Counting, pod_index: PodIndex, table: NodeTable, domains: Domains | None = None
) -> DomainCounter:
    """The counter of a limit: of the pods that it matches and that run, and of those that it has beside them.

    Args:
        domains: its own; None: numbered as the table numbers them.
    """
    inside = domains_of_limit(limit, table) if domains is None else domains
    counter = DomainCounter.of(pod_index.matching_pods(limit_match(limit)), inside, None, table)
    for name, pods in limit.beside:
        node = table.index.get(name, -1)
        if node >= 0 and counter.counted_nodes[node]:
            counter.initial[inside.codes[node]] += pods
    return counter


def counts_itself(limit: MaxPerDomain, signature: PodSignature, namespaces: Mapping[str, Labels]) -> bool:
    """Whether a limit counts the pod that has it."""
    return limit_match(limit).includes(signature, namespaces)
