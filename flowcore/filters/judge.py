"""All filters in kube-scheduler's order, then policies' constraints: may a class go to each node, and if not, why not.

kube-scheduler stops at the first plugin that rejects a node (framework/runtime RunFilterPlugins); so do we, so that the
reason we give is the reason it would give.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from flowcore.filters import (
    inter_pod_affinity,
    node_resources_fit,
    pod_topology_spread,
    policy_constraints,
    volume_filters,
)
from flowcore.filters.registry import IN_ORDER, LASTING, UNSOUND, Ask, ask
from flowcore.filters.rejection import Rejection
from flowcore.model.neighbours import ANY_KIND, Kind
from flowcore.model.pods import PodClass
from flowcore.model.snapshot import Bools, NodeTable, Snapshot


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Each node's verdict for one class.

    Attributes:
        fits: bool[N].
        by_filter: the filters that rejected nodes, in order; a node's verdict is the first that has it.
    """

    table: NodeTable
    fits: Bools
    by_filter: tuple[tuple[str, tuple[Rejection, ...]], ...]

    def of_node(self, at: int) -> tuple[str, str]:
        """Filter and reason for node ``at``; two empty strings where it fits."""
        for name, found in self.by_filter:
            reasons = [r.reason for r in found if r.nodes[at]]
            if reasons:
                return name, self.table.nodes[at].problem if name == UNSOUND else ", ".join(reasons)
        return "", ""

    def counts(self) -> Counter[str]:
        """How many nodes each reason holds for, as kube-scheduler counts them in its message."""
        result: Counter[str] = Counter()
        undecided = np.ones(len(self.table.nodes), dtype=np.bool_)
        for name, found in self.by_filter:
            rejected = np.zeros_like(undecided)
            for rejection in found:
                here = undecided & rejection.nodes
                text = "node(s) with an unreadable allocatable" if name == UNSOUND else rejection.reason
                result[text] += int(here.sum())
                rejected |= here
            undecided &= ~rejected
        return Counter({reason: count for reason, count in result.items() if count})


def judge(pod_class: PodClass, snapshot: Snapshot, kind: Kind = ANY_KIND, ask: Ask = ask) -> Verdicts:
    """Verdicts of every filter for one class, for the snapshot as it stands.

    Args:
        kind: what rules between pods read of it, its own rules among that.
        ask: who asks the filters.
    """
    table = snapshot.table
    found = (
        *_contradictory(kind, table),
        *volume_filters.outright(pod_class.volumes, snapshot.storage, table),
        *_unreadable(kind, table),
        *((each.name, ask(each, pod_class, kind, snapshot)) for each in IN_ORDER),
    )
    fits = np.ones(len(table.nodes), dtype=np.bool_)
    for _, rejections in found:
        for rejection in rejections:
            fits &= ~rejection.nodes
    return Verdicts(table, fits, tuple((name, rejections) for name, rejections in found if rejections))


def lasting_fits(pod_class: PodClass, kind: Kind, snapshot: Snapshot, ask: Ask = ask) -> Bools:
    """bool[N]: nodes that pass every filter which nothing that a round places can change."""
    rules = kind.rules
    if rules is not None and (rules.contradiction or rules.unreadable_affinity or rules.unreadable_spread):
        return np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    if volume_filters.outright(pod_class.volumes, snapshot.storage, snapshot.table):
        return np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    if node_resources_fit.not_offered(pod_class, snapshot):
        return np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    fits = np.ones(len(snapshot.table.nodes), dtype=np.bool_)
    for each in LASTING:
        for rejection in ask(each, pod_class, kind, snapshot):
            fits &= ~rejection.nodes
    return fits


def _contradictory(kind: Kind, table: NodeTable) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """Whatever else is in the way: room would not help, only another policy would."""
    return (
        () if kind.rules is None else ((policy_constraints.NAME, policy_constraints.contradictory(kind.rules, table)),)
    )


def _unreadable(kind: Kind, table: NodeTable) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """What cannot be parsed ends a pod's cycle in PreFilter, before any node is looked at."""
    if kind.rules is None:
        return ()
    return (
        (pod_topology_spread.NAME, pod_topology_spread.unreadable(kind.rules, table)),
        (inter_pod_affinity.NAME, inter_pod_affinity.unreadable(kind.rules, table)),
    )
