"""All filters in kube-scheduler's order: what each reads of a class, and the nodes that it rejects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.rules.filters import (
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resource_topology,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    policy_constraints,
    taint_eviction,
    taint_toleration,
    volume_filters,
    volume_restrictions,
)
from flowcore.rules.filters.rejection import FilterInputs, Rejection

#: Not a plugin of kube-scheduler: a node whose allocatable cannot be read takes nothing.
NODE_UNREADABLE = "NodeUnreadable"


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter.

    Attributes:
        reads: what its verdict on pods of a class depends on in this snapshot; None: it rejects no node for them.
        rejections: the nodes that it rejects; called only if ``reads`` returns inputs.
        part: which part of a filter this is, if it has several: the first part that rejects a node gives the reason.
        state: what it reads of the snapshot beside the nodes, None for nothing.
        by_node: its verdict on a node follows from that node and the pods on it alone.
        ends_attempt: what it finds on a node that no other filter rejects is wrong with the pod: no node takes it
            (kube-scheduler schedule_one.go, findNodesThatPassFilters: a status of code Error).
    """

    name: str
    reads: Callable[[PodClass, PodSignature, Snapshot], FilterInputs | None]
    rejections: Callable[[PodClass, PodSignature, Snapshot], tuple[Rejection, ...]]
    part: str = ""
    state: Callable[[Snapshot], object] | None = None
    by_node: bool = True
    ends_attempt: bool = False


def _unreadable_nodes(_pod_class: PodClass, _signature: PodSignature, snapshot: Snapshot) -> tuple[Rejection, ...]:
    return (Rejection("", snapshot.table.unreadable),)


PORTS = Filter(
    node_ports.NAME,
    lambda pod_class, _signature, _snapshot: node_ports.reads(pod_class),
    lambda pod_class, _signature, snapshot: node_ports.rejections(pod_class, snapshot),
    state=lambda snapshot: snapshot.ports,
)

RESOURCES = Filter(
    node_resources_fit.NAME,
    lambda pod_class, _signature, snapshot: node_resources_fit.reads(pod_class, snapshot),
    lambda pod_class, _signature, snapshot: node_resources_fit.rejections(pod_class, snapshot),
    state=lambda snapshot: snapshot.used,
)

RUNNING_TERMS = Filter(
    inter_pod_affinity.NAME,
    lambda _class, signature, snapshot: inter_pod_affinity.reads(signature, snapshot.pod_index),
    lambda _class, signature, snapshot: inter_pod_affinity.rejections(signature, snapshot.pod_index, snapshot.table),
    part="running pods' terms",
    state=lambda snapshot: snapshot.pod_index,
    by_node=False,
)

TOPOLOGY = Filter(
    node_resource_topology.NAME,
    lambda pod_class, _signature, _snapshot: node_resource_topology.reads(pod_class),
    lambda pod_class, _signature, snapshot: node_resource_topology.rejections(pod_class, snapshot),
    state=lambda snapshot: snapshot.numa,
)

DEVICES = Filter(
    dynamic_resources.NAME,
    lambda pod_class, _signature, _snapshot: dynamic_resources.reads(pod_class),
    lambda pod_class, _signature, snapshot: dynamic_resources.rejections(pod_class, snapshot),
    # The objects of one table of nodes are the same; what differs is which pods were planned.
    state=lambda snapshot: snapshot.takers,
    by_node=False,
)

DEVICE_ERRORS = Filter(
    dynamic_resources.NAME,
    lambda pod_class, _signature, _snapshot: dynamic_resources.reads(pod_class),
    lambda pod_class, _signature, snapshot: dynamic_resources.errors(pod_class, snapshot),
    part="errors",
    state=lambda snapshot: snapshot.takers,
    by_node=False,
    ends_attempt=True,
)

DEVICE_COLUMNS = Filter(
    dynamic_resources.NAME,
    lambda pod_class, _signature, snapshot: dynamic_resources.column_reads(pod_class, snapshot),
    lambda pod_class, _signature, snapshot: dynamic_resources.column_rejections(pod_class, snapshot),
    part="numbers",
    state=lambda snapshot: snapshot.used,
)


def _of_volumes(name: str) -> Filter:
    return Filter(
        name,
        lambda pod_class, _signature, _snapshot: volume_filters.reads(pod_class.volumes),
        lambda pod_class, _signature, snapshot: volume_filters.rejections(
            name, pod_class.volumes, snapshot.storage, snapshot.table
        ),
        state=lambda snapshot: snapshot.storage,
        by_node=False,
    )


#: In kube-scheduler's default order (apis/config/v1/default_plugins.go), which is the order in which a verdict names
#: them; ``NODE_UNREADABLE`` comes first, our own filters last.
IN_ORDER = (
    Filter(NODE_UNREADABLE, lambda _class, _signature, _snapshot: FilterInputs(()), _unreadable_nodes),
    Filter(
        node_unschedulable.NAME,
        lambda pod_class, _signature, _snapshot: node_unschedulable.reads(pod_class),
        lambda pod_class, _signature, snapshot: node_unschedulable.rejections(pod_class, snapshot.table),
    ),
    Filter(
        node_name.NAME,
        lambda pod_class, _signature, _snapshot: node_name.reads(pod_class),
        lambda pod_class, _signature, snapshot: node_name.rejections(pod_class, snapshot.table),
    ),
    Filter(
        taint_toleration.NAME,
        lambda pod_class, _signature, _snapshot: taint_toleration.reads(pod_class),
        lambda pod_class, _signature, snapshot: taint_toleration.rejections(pod_class, snapshot.table),
    ),
    Filter(
        node_affinity.NAME,
        lambda pod_class, _signature, _snapshot: node_affinity.reads(pod_class),
        lambda pod_class, _signature, snapshot: node_affinity.rejections(pod_class, snapshot.table),
    ),
    PORTS,
    RESOURCES,
    *(_of_volumes(name) for name in volume_filters.NAMES),
    Filter(
        pod_topology_spread.NAME,
        lambda pod_class, signature, snapshot: pod_topology_spread.reads(pod_class, signature, snapshot.pod_index),
        lambda pod_class, signature, snapshot: pod_topology_spread.rejections(
            pod_class, signature, snapshot.pod_index, snapshot.table
        ),
        state=lambda snapshot: snapshot.pod_index,
        by_node=False,
    ),
    # The plugin stops at its first reason, and the pod's own terms come first.
    Filter(
        inter_pod_affinity.NAME,
        lambda _class, signature, snapshot: inter_pod_affinity.own_reads(signature, snapshot.pod_index),
        lambda _class, signature, snapshot: inter_pod_affinity.own_rejections(
            signature, snapshot.pod_index, snapshot.table
        ),
        part="own terms",
        state=lambda snapshot: snapshot.pod_index,
        by_node=False,
    ),
    RUNNING_TERMS,
    DEVICES,
    DEVICE_ERRORS,
    DEVICE_COLUMNS,
    Filter(
        node_declared_features.NAME,
        lambda pod_class, _signature, _snapshot: node_declared_features.reads(pod_class),
        lambda pod_class, _signature, snapshot: node_declared_features.rejections(pod_class, snapshot.table),
    ),
    Filter(
        taint_eviction.NAME,
        lambda pod_class, _signature, _snapshot: taint_eviction.reads(pod_class),
        lambda pod_class, _signature, snapshot: taint_eviction.rejections(pod_class, snapshot.table),
    ),
    TOPOLOGY,
    Filter(
        policy_constraints.NAME,
        lambda _class, signature, _snapshot: policy_constraints.nodes_reads(signature),
        lambda _class, signature, snapshot: policy_constraints.nodes_rejections(signature, snapshot.table),
        part="nodes",
        by_node=False,
    ),
    Filter(
        policy_constraints.NAME,
        lambda _class, signature, snapshot: policy_constraints.reads(signature, snapshot.pod_index),
        lambda _class, signature, snapshot: policy_constraints.rejections(
            signature, snapshot.pod_index, snapshot.table
        ),
        part="limits",
        state=lambda snapshot: snapshot.pod_index,
        by_node=False,
    ),
)

#: Filters whose rejections hold for a whole round, whatever it places: a volume that a pod cannot have on a node is not
#: there beside more pods either. No eviction makes room in a NUMA zone before the next report says so, and no device is
#: free before its claim says so, unless it is one of a number of devices.
ROUND_INVARIANT = (
    *(each for each in IN_ORDER if each.state is None or each.name in volume_filters.NAMES),
    RUNNING_TERMS,
    DEVICES,
    DEVICE_ERRORS,
    TOPOLOGY,
)

#: Filters, beside NodeResourcesFit, that may take a node again once pods have left. The others read no pod, or nothing
#: that is free before a report or a claim says so: no zone, no device, no volume that was promised.
EASED_BY_LEAVING = frozenset({
    PORTS.name, volume_restrictions.NAME, node_volume_limits.NAME, pod_topology_spread.NAME, RUNNING_TERMS.name,
    DEVICE_COLUMNS.name, policy_constraints.NAME,
})  # fmt: skip

#: Runs a filter for a class over a snapshot.
FilterRunner = Callable[[Filter, PodClass, PodSignature, Snapshot], tuple[Rejection, ...]]


def run_filter(
    which: Filter, pod_class: PodClass, signature: PodSignature, snapshot: Snapshot
) -> tuple[Rejection, ...]:
    """The nodes that a filter rejects. A cache of verdicts has another function of this type."""
    if which.reads(pod_class, signature, snapshot) is None:
        return ()
    return tuple(each for each in which.rejections(pod_class, signature, snapshot) if each.nodes.any())


def run_beside_room(
    which: Filter, pod_class: PodClass, signature: PodSignature, snapshot: Snapshot
) -> tuple[Rejection, ...]:
    """The same, but for filters that ask for amounts: whoever counts those itself asks for the rest."""
    return () if which is RESOURCES or which is DEVICE_COLUMNS else run_filter(which, pod_class, signature, snapshot)
