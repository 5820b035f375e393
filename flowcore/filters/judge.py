"""All filters in kube-scheduler's order: may a class go to each node, and if not, why not.

kube-scheduler stops at the first plugin that rejects a node (framework/runtime RunFilterPlugins); so do we, so that the
reason we give is the reason it would give.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from flowcore.filters import (
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    pod_topology_spread,
    taint_toleration,
    volume_filters,
)
from flowcore.filters.rejection import Rejection
from flowcore.model.neighbours import ANY_KIND, Kind, Neighbours
from flowcore.model.pods import PodClass
from flowcore.model.snapshot import Bools, NodeTable, Snapshot

#: Filters that read only the node object and the pod class: they hold for a whole round.
STATIC_FILTERS = (node_unschedulable.NAME, node_name.NAME, taint_toleration.NAME, node_affinity.NAME)
#: All filters, in kube-scheduler's default order (apis/config/v1/default_plugins.go).
FILTERS = (
    *STATIC_FILTERS,
    node_ports.NAME,
    node_resources_fit.NAME,
    *volume_filters.NAMES,
    pod_topology_spread.NAME,
    inter_pod_affinity.NAME,
    node_declared_features.NAME,
)
#: Not a plugin of kube-scheduler's: a node whose allocatable cannot be read takes nothing.
UNSOUND = "NodeUnreadable"


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


def judge(pod_class: PodClass, snapshot: Snapshot, kind: Kind = ANY_KIND) -> Verdicts:
    """Verdicts of every filter for one class, for the snapshot as it stands.

    Args:
        kind: what rules between pods read of it, its own rules among that.
    """
    table = snapshot.table
    found = (
        *volume_filters.outright(pod_class.volumes, snapshot.storage, table),
        *_unreadable(kind, table),
        *_static(pod_class, table),
        (node_ports.NAME, node_ports.rejections(pod_class, snapshot)),
        (node_resources_fit.NAME, node_resources_fit.rejections(pod_class, snapshot)),
        *volume_filters.rejections(pod_class.volumes, snapshot.storage, table),
        *_between_pods(pod_class, kind, snapshot.neighbours, table),
        (node_declared_features.NAME, node_declared_features.rejections(pod_class, table)),
    )
    fits = np.ones(len(table.nodes), dtype=np.bool_)
    for _, rejections in found:
        for rejection in rejections:
            fits &= ~rejection.nodes
    return Verdicts(table, fits, tuple((name, rejections) for name, rejections in found if rejections))


def static_fits(pod_class: PodClass, table: NodeTable) -> Bools:
    """bool[N]: nodes that pass every filter which reads nothing but the node object and the class."""
    fits = np.ones(len(table.nodes), dtype=np.bool_)
    features = node_declared_features.rejections(pod_class, table)
    for _, rejections in (*_static(pod_class, table), ("", features)):
        for rejection in rejections:
            fits &= ~rejection.nodes
    return fits


def _static(pod_class: PodClass, table: NodeTable) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    unsound = (Rejection("", table.unsound),) if table.unsound.any() else ()
    return (
        (UNSOUND, unsound),
        (node_unschedulable.NAME, node_unschedulable.rejections(pod_class, table)),
        (node_name.NAME, node_name.rejections(pod_class, table)),
        (taint_toleration.NAME, taint_toleration.rejections(pod_class, table)),
        (node_affinity.NAME, node_affinity.rejections(pod_class, table)),
    )


def _unreadable(kind: Kind, table: NodeTable) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """What cannot be parsed ends a pod's cycle in PreFilter, before any node is looked at."""
    if kind.rules is None:
        return ()
    return (
        (pod_topology_spread.NAME, pod_topology_spread.unreadable(kind.rules, table)),
        (inter_pod_affinity.NAME, inter_pod_affinity.unreadable(kind.rules, table)),
    )


def _between_pods(
    pod_class: PodClass, kind: Kind, neighbours: Neighbours, table: NodeTable
) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    theirs = inter_pod_affinity.rejections(kind, neighbours, table)
    rules = kind.rules
    if rules is None:
        return ((inter_pod_affinity.NAME, theirs),)
    spread = pod_topology_spread.rejections(pod_class, kind, rules, neighbours, table)
    if rules.unreadable_affinity:
        return ((pod_topology_spread.NAME, spread),)
    own = inter_pod_affinity.own_rejections(kind, rules, neighbours, table)
    refused = np.zeros(len(table.nodes), dtype=np.bool_)
    for rejection in own:
        refused |= rejection.nodes
    # The plugin stops at its first reason.
    theirs = tuple(Rejection(rejection.reason, rejection.nodes & ~refused) for rejection in theirs)
    return ((pod_topology_spread.NAME, spread), (inter_pod_affinity.NAME, own + theirs))
