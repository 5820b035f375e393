"""PodTopologySpread: DoNotSchedule constraints.

Source: kube-scheduler plugins/podtopologyspread/filtering.go and common.go. The skew of a domain is the pods of the
constraint's kind there, the new one included, less those of the emptiest domain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowcore.filters import node_affinity, taint_toleration
from flowcore.filters.rejection import Reads, Rejection
from flowcore.model.neighbours import Alike, Kind, Neighbours
from flowcore.model.pods import PodClass
from flowcore.model.rules import Rules, SpreadConstraint
from flowcore.model.snapshot import Bools, Int64s, NodeTable

NAME = "PodTopologySpread"
REASON = "node(s) didn't match pod topology spread constraints"
REASON_NO_LABEL = f"{REASON} (missing required label)"
#: kube-scheduler goes on with the parser's words.
REASON_UNREADABLE = "obtaining pod's hard topology spread constraints"
_NO_DOMAIN = 2**31 - 1


def unreadable(rules: Rules, table: NodeTable) -> tuple[Rejection, ...]:
    """Every node, for a pod with a constraint that cannot be parsed."""
    if not rules.unreadable_spread:
        return ()
    reason = f"{REASON_UNREADABLE}: {rules.unreadable_spread}.labelSelector cannot be parsed"
    return (Rejection(reason, np.ones(len(table.nodes), dtype=np.bool_)),)


def reads(pod_class: PodClass, kind: Kind, neighbours: Neighbours) -> Reads | None:
    """The constraints, whom they count, and what decides which nodes they count."""
    spread = () if kind.rules is None else kind.rules.spread
    if not spread:
        return None
    honors_affinity = any(constraint.honors_affinity for constraint in spread)
    honors_taints = any(constraint.honors_taints for constraint in spread)
    keys = {constraint.topology_key for constraint in spread}
    if honors_affinity:
        keys |= node_affinity.label_keys(pod_class)
    itself = tuple(each.selector is not None and each.selector.matches(kind.labels) for each in spread)
    return Reads(
        of_class=(
            spread,
            kind.namespace,
            itself,
            (pod_class.node_selector, pod_class.required_affinity) if honors_affinity else None,
            pod_class.tolerations if honors_taints else None,
        ),
        crowds=tuple(neighbours.crowd(Alike(kind.namespace, constraint.selector)) for constraint in spread),
        labels=tuple(sorted(keys)),
        taints=honors_taints,
    )


def rejections(pod_class: PodClass, kind: Kind, neighbours: Neighbours, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes where a constraint would be broken; a node is given the reason of its first one only."""
    rules = kind.rules
    if rules is None or not rules.spread:
        return ()
    counts_on = Counted(rules.spread, pod_class, table)
    unlabelled = np.zeros(len(table.nodes), dtype=np.bool_)
    skewed = np.zeros_like(unlabelled)
    for constraint in rules.spread:
        undecided = ~(unlabelled | skewed)
        has_label = table.column(constraint.topology_key).codes >= 0
        unlabelled |= undecided & ~has_label
        skewed |= undecided & has_label & _too_skewed(constraint, kind, neighbours, counts_on(constraint), table)
    return (Rejection(REASON_NO_LABEL, unlabelled), Rejection(REASON, skewed))


class Counted:
    """bool[N] for each constraint of a pod: nodes whose pods and domains count for it.

    Nodes that lack the label of any of the constraints count for none of them. What constraints have in common is
    found once.
    """

    def __init__(self, constraints: Sequence[SpreadConstraint], pod_class: PodClass, table: NodeTable) -> None:
        self._pod_class, self._table = pod_class, table
        self._labelled = np.ones(len(table.nodes), dtype=np.bool_)
        for key in dict.fromkeys(constraint.topology_key for constraint in constraints):
            self._labelled &= table.column(key).codes >= 0
        self._by_policy: dict[tuple[bool, bool], Bools] = {}

    def __call__(self, constraint: SpreadConstraint) -> Bools:
        policy = constraint.honors_affinity, constraint.honors_taints
        found = self._by_policy.get(policy)
        if found is None:
            found = self._by_policy[policy] = self._labelled & included(constraint, self._pod_class, self._table)
        return found


def included(constraint: SpreadConstraint, pod_class: PodClass, table: NodeTable) -> Bools:
    """bool[N]: nodes that the constraint's inclusion policies let count."""
    included = np.ones(len(table.nodes), dtype=np.bool_)
    if constraint.honors_affinity:
        for rejection in node_affinity.rejections(pod_class, table):
            included &= ~rejection.nodes
    if constraint.honors_taints:
        for rejection in taint_toleration.rejections(pod_class, table):
            included &= ~rejection.nodes
    return included


def _too_skewed(
    constraint: SpreadConstraint, kind: Kind, neighbours: Neighbours, here: Bools, table: NodeTable
) -> Bools:
    column, selector = table.column(constraint.topology_key), constraint.selector
    counts: Int64s = np.zeros(len(column.values) + 1, dtype=np.int64)  # the last entry is for nodes without the label
    positions, pods = neighbours.crowd(Alike(kind.namespace, selector)).on(table.index)
    counting = here[positions]
    np.add.at(counts, column.codes[positions[counting]], pods[counting])
    domains = np.unique(column.codes[here])
    least = int(counts[domains].min()) if len(domains) else _NO_DOMAIN
    if len(domains) < constraint.min_domains:
        least = 0
    itself = int(selector is not None and selector.matches(kind.labels))
    return counts[column.codes] + (itself - least) > constraint.max_skew
