"""All filters in kube-scheduler's order, each as it is asked: what it reads of a class, and whom it rejects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flowcore.filters import (
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    pod_topology_spread,
    policy_constraints,
    taint_toleration,
    volume_filters,
)
from flowcore.filters.rejection import Reads, Rejection
from flowcore.model.neighbours import Kind
from flowcore.model.pods import PodClass
from flowcore.model.snapshot import Snapshot

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
#: Not plugins of kube-scheduler's: a node whose allocatable cannot be read takes nothing; what policies demand.
UNSOUND = "NodeUnreadable"
CONSTRAINTS = policy_constraints.NAME


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter as it is asked.

    Attributes:
        part: which part of it, for one that is asked in parts: the first that rejects a node gives the reason.
        reads: what it reads of a class, for the snapshot as it stands; None where it rejects no node for that reason.
        rejections: what it says of every node; asked only where ``reads`` is not None.
        state: what of the snapshot it reads beside the nodes, None for nothing.
        by_node: its verdict on a node follows from that node and what is on it alone.
    """

    name: str
    reads: Callable[[PodClass, Kind, Snapshot], Reads | None]
    rejections: Callable[[PodClass, Kind, Snapshot], tuple[Rejection, ...]]
    part: str = ""
    state: Callable[[Snapshot], object] | None = None
    by_node: bool = True


def _unsound(_pod_class: PodClass, _kind: Kind, snapshot: Snapshot) -> tuple[Rejection, ...]:
    return (Rejection("", snapshot.table.unsound),)


PORTS = Filter(
    node_ports.NAME,
    lambda pod_class, _kind, _snapshot: node_ports.reads(pod_class),
    lambda pod_class, _kind, snapshot: node_ports.rejections(pod_class, snapshot),
    state=lambda snapshot: snapshot.ports,
)

RUNNING_TERMS = Filter(
    inter_pod_affinity.NAME,
    lambda _class, kind, snapshot: inter_pod_affinity.reads(kind, snapshot.neighbours),
    lambda _class, kind, snapshot: inter_pod_affinity.rejections(kind, snapshot.neighbours, snapshot.table),
    part="running pods' terms",
    state=lambda snapshot: snapshot.neighbours,
    by_node=False,
)


def _of_volumes(name: str) -> Filter:
    return Filter(
        name,
        lambda pod_class, _kind, _snapshot: volume_filters.reads(pod_class.volumes),
        lambda pod_class, _kind, snapshot: volume_filters.rejections(
            name, pod_class.volumes, snapshot.storage, snapshot.table
        ),
        state=lambda snapshot: snapshot.storage,
        by_node=False,
    )


#: In the order in which a verdict names them; those that ``STATIC_FILTERS`` names come first, after ``UNSOUND``; what
#: policies demand comes last.
IN_ORDER = (
    Filter(UNSOUND, lambda _class, _kind, _snapshot: Reads(()), _unsound),
    Filter(
        node_unschedulable.NAME,
        lambda pod_class, _kind, _snapshot: node_unschedulable.reads(pod_class),
        lambda pod_class, _kind, snapshot: node_unschedulable.rejections(pod_class, snapshot.table),
    ),
    Filter(
        node_name.NAME,
        lambda pod_class, _kind, _snapshot: node_name.reads(pod_class),
        lambda pod_class, _kind, snapshot: node_name.rejections(pod_class, snapshot.table),
    ),
    Filter(
        taint_toleration.NAME,
        lambda pod_class, _kind, _snapshot: taint_toleration.reads(pod_class),
        lambda pod_class, _kind, snapshot: taint_toleration.rejections(pod_class, snapshot.table),
    ),
    Filter(
        node_affinity.NAME,
        lambda pod_class, _kind, _snapshot: node_affinity.reads(pod_class),
        lambda pod_class, _kind, snapshot: node_affinity.rejections(pod_class, snapshot.table),
    ),
    PORTS,
    Filter(
        node_resources_fit.NAME,
        lambda pod_class, _kind, _snapshot: node_resources_fit.reads(pod_class),
        lambda pod_class, _kind, snapshot: node_resources_fit.rejections(pod_class, snapshot),
        state=lambda snapshot: snapshot.used,
    ),
    *(_of_volumes(name) for name in volume_filters.NAMES),
    Filter(
        pod_topology_spread.NAME,
        lambda pod_class, kind, snapshot: pod_topology_spread.reads(pod_class, kind, snapshot.neighbours),
        lambda pod_class, kind, snapshot: pod_topology_spread.rejections(
            pod_class, kind, snapshot.neighbours, snapshot.table
        ),
        state=lambda snapshot: snapshot.neighbours,
        by_node=False,
    ),
    # The plugin stops at its first reason, and the pod's own terms come first.
    Filter(
        inter_pod_affinity.NAME,
        lambda _class, kind, snapshot: inter_pod_affinity.own_reads(kind, snapshot.neighbours),
        lambda _class, kind, snapshot: inter_pod_affinity.own_rejections(kind, snapshot.neighbours, snapshot.table),
        part="own terms",
        state=lambda snapshot: snapshot.neighbours,
        by_node=False,
    ),
    RUNNING_TERMS,
    Filter(
        node_declared_features.NAME,
        lambda pod_class, _kind, _snapshot: node_declared_features.reads(pod_class),
        lambda pod_class, _kind, snapshot: node_declared_features.rejections(pod_class, snapshot.table),
    ),
    Filter(
        policy_constraints.NAME,
        lambda _class, kind, _snapshot: policy_constraints.nodes_reads(kind),
        lambda _class, kind, snapshot: policy_constraints.nodes_rejections(kind, snapshot.table),
        part="nodes",
        by_node=False,
    ),
    Filter(
        policy_constraints.NAME,
        lambda _class, kind, snapshot: policy_constraints.reads(kind, snapshot.neighbours),
        lambda _class, kind, snapshot: policy_constraints.rejections(kind, snapshot.neighbours, snapshot.table),
        part="limits",
        state=lambda snapshot: snapshot.neighbours,
        by_node=False,
    ),
)

#: Those whose rejections hold for a whole round, whatever it places: a volume that cannot be had on a node cannot be
#: had there beside more pods either.
LASTING = (*(each for each in IN_ORDER if each.state is None or each.name in volume_filters.NAMES), RUNNING_TERMS)

#: What a filter says of a class on every node of a snapshot.
Ask = Callable[[Filter, PodClass, Kind, Snapshot], tuple[Rejection, ...]]


def ask(which: Filter, pod_class: PodClass, kind: Kind, snapshot: Snapshot) -> tuple[Rejection, ...]:
    """Asks a filter. Whoever remembers its answers has another function of this kind."""
    if which.reads(pod_class, kind, snapshot) is None:
        return ()
    return tuple(found for found in which.rejections(pod_class, kind, snapshot) if found.nodes.any())
