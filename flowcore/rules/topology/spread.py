"""Topology spread constraints: each domain should have about the same number of pods that a selector selects.

Source: kube-scheduler plugins/podtopologyspread/filtering.go and common.go. A domain takes one more pod where::

    pods in the domain + 1 if the constraint counts the pod itself - pods in the emptiest domain <= maxSkew
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from flowcore.cluster.arrays.node_matching import affinity_matches, tolerated
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.model.inter_pod_constraints import SpreadConstraint
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import UNLIMITED

#: The emptiest of no domains at all, as in kube-scheduler (math.MaxInt32).
_NO_DOMAIN = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """A DoNotSchedule constraint as it holds for pods of one class and signature.

    Attributes:
        self_match: 1 where the selector selects the pod itself.
        eligible_domains: int64[K], the domains that count.
        fixed_minimum: pods in the emptiest domain by definition; None: what the counter says.
    """

    counter: DomainCounter
    max_skew: int
    self_match: int
    eligible_domains: Int64s
    fixed_minimum: int | None

    @classmethod
    def of(cls, constraint: SpreadConstraint, signature: PodSignature, counter: DomainCounter) -> Spread:
        """The constraint over a counter of the nodes that it counts (``CountedNodes``)."""
        eligible_domains = np.flatnonzero(np.bincount(counter.domains.codes[counter.counted_nodes]))
        fixed_minimum = None if len(eligible_domains) else _NO_DOMAIN
        if len(eligible_domains) < constraint.min_domains:
            fixed_minimum = 0
        self_match = int(selects_itself(constraint, signature))
        return cls(counter, constraint.max_skew, self_match, eligible_domains, fixed_minimum)

    def global_minimum(self, counts: Int64s) -> int:
        """Pods in the emptiest domain.

        Args:
            counts: int64[D + 1], pods in each domain.
        """
        if self.fixed_minimum is not None:
            return self.fixed_minimum
        everywhere = len(self.eligible_domains) == len(counts) - 1
        return int((counts[:-1] if everywhere else counts[self.eligible_domains]).min())

    @overload
    def remaining(self, pods: int, minimum: int) -> int: ...
    @overload
    def remaining(self, pods: Int64s, minimum: int | Int64s) -> Int64s: ...
    def remaining(self, pods: int | Int64s, minimum: int | Int64s) -> int | Int64s:
        """How many more counted pods each domain takes; below zero: it has too many.

        Args:
            pods: counted pods in the domain, or int64[D + 1] in each domain.
            minimum: pods in the emptiest domain.
        """
        return minimum + self.max_skew - pods

    def allows(self, pods: int, minimum: int) -> bool:
        """Whether a domain with this number of counted pods takes the pod."""
        return self.self_match <= self.remaining(pods, minimum)

    def allowed_domains(self, counts: Int64s, minimum: int) -> Bools:
        """bool[D + 1]: domains that take the pod, by their counted pods; nodes without the label never do."""
        allowed: Bools = self.self_match <= self.remaining(counts, minimum)
        allowed[-1] = False
        return allowed

    def max_pods(self, counts: Int64s) -> Int64s:
        """int64[D + 1]: how many counted pods each domain takes in a row; it may itself be the emptiest one."""
        others = np.full(len(counts), self.global_minimum(counts), dtype=np.int64)
        if self.fixed_minimum is None:
            # The emptiest of the other domains: the emptiest of all, but for a domain that is alone in being so.
            eligible = counts[self.eligible_domains]
            emptiest = int(eligible.argmin())
            rest = np.delete(eligible, emptiest)
            others[self.eligible_domains[emptiest]] = int(rest.min()) if len(rest) else UNLIMITED
        return np.maximum(self.remaining(counts, others), 0)


def selects_itself(constraint: SpreadConstraint, signature: PodSignature) -> bool:
    """Whether the constraint counts the pod that has it."""
    return constraint.selector is not None and constraint.selector.matches(signature.labels)


def needed_labels(constraints: Sequence[SpreadConstraint]) -> tuple[str, ...]:
    """Labels without which a node counts for none of a pod's constraints."""
    return tuple(dict.fromkeys(each.topology_key for each in constraints if each.needs_all_labels))


class CountedNodes:
    """bool[N] for each constraint of a pod: nodes whose pods and domains count for it.

    Nodes that lack the label of any of the constraints count for none of them, unless that is a default of the system.
    """

    def __init__(self, constraints: Sequence[SpreadConstraint], pod_class: PodClass, table: NodeTable) -> None:
        self._pod_class, self._table = pod_class, table
        #: bool[N], nodes that have the labels of all constraints; without those of constraints that do not need it.
        self.labelled: Bools = np.ones(len(table.nodes), dtype=np.bool_)
        for key in needed_labels(constraints):
            self.labelled &= table.column(key).labelled
        self._by_policies: dict[tuple[bool, bool], Bools] = {}

    def __call__(self, constraint: SpreadConstraint) -> Bools:
        policies = constraint.honors_affinity, constraint.honors_taints
        counted = self._by_policies.get(policies)
        if counted is None:
            counted = self.labelled & included(constraint, self._pod_class, self._table)
            self._by_policies[policies] = counted
        return counted


def included(constraint: SpreadConstraint, pod_class: PodClass, table: NodeTable) -> Bools:
    """bool[N]: nodes that the constraint's inclusion policies let count."""
    nodes = np.ones(len(table.nodes), dtype=np.bool_)
    if constraint.honors_affinity:
        nodes &= affinity_matches(pod_class, table)
    if constraint.honors_taints:
        nodes &= tolerated(pod_class, table)
    return nodes


def inclusion_inputs(constraint: SpreadConstraint, pod_class: PodClass) -> tuple[object, ...]:
    """What of a class decides which nodes a constraint counts."""
    return (
        constraint.honors_affinity and (pod_class.node_selector, pod_class.required_affinity),
        constraint.honors_taints and pod_class.tolerations,
    )
