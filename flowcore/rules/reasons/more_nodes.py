"""Whether more nodes may help a pod that no node takes: cluster autoscalers try new nodes for such pods only.

A node that an autoscaler adds has its own hostname, and may have more of a resource, other labels and no taints. It may
be in a zone that has no node yet, and come with pods: those of DaemonSets, and others that wait. So it cures what fills
a node or belongs to one node, and may cure what pods elsewhere forbid. It does not cure what is wrong with the pod, its
claims or its policy.

Autoscalers ask kube-scheduler's filters about the nodes that they could add. What these do not know, limits of
policies and the spread that a policy gives its pods, is asked here: for these a new node is in the domains of a node
that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from msgspec.structs import replace

from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.model.inter_pod_constraints import HOSTNAME, InterPodConstraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.rules.filters import (
    Verdicts,
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
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from flowcore.rules.filters.registry import NODE_UNREADABLE


def _of(*reasons: str) -> Callable[[str], bool]:
    return lambda reason: reason in reasons


def _always(_reason: str) -> bool:
    return True


#: By filter: whether a node that comes may pass where the nodes that are there were rejected for a reason.
CURES: Mapping[str, Callable[[str], bool]] = {
    NODE_UNREADABLE: _always,
    node_unschedulable.NAME: _always,
    node_name.NAME: _of(),
    taint_toleration.NAME: _always,
    taint_eviction.NAME: _always,
    node_affinity.NAME: _always,
    node_ports.NAME: _always,
    node_resources_fit.NAME: _always,
    volume_restrictions.NAME: _of(volume_restrictions.REASON_DISK),
    node_volume_limits.NAME: lambda reason: reason.endswith(
        (node_volume_limits.REASON, node_volume_limits.REASON_MISSING)
    ),
    volume_binding.NAME: _of(
        volume_binding.REASON_AFFINITY, volume_binding.REASON_NO_VOLUME, volume_binding.REASON_NO_SPACE
    ),
    volume_zone.NAME: _of(volume_zone.REASON),
    dynamic_resources.NAME: _of(dynamic_resources.REASON_NONE_FIT),
    node_declared_features.NAME: _always,
    node_resource_topology.NAME: _always,
    # What pods in the domains of a new node forbid is asked for itself.
    pod_topology_spread.NAME: _always,
    inter_pod_affinity.NAME: _always,
    policy_constraints.NAME: _always,
}


def more_nodes_help(
    pod_class: PodClass,
    signature: PodSignature,
    snapshot: Snapshot,
    verdicts: Verdicts,
    count: int = 1,
    *,
    in_new_domains: bool = True,
) -> bool:
    """Whether other nodes may take ``count`` pods of a class that the existing nodes do not take.

    Args:
        verdicts: of the class for the snapshot.
        in_new_domains: they may be in domains that have no node yet, and come with pods; else they are empty, and share
            all domains but the hostname with a node that is there.
    """
    constraints = signature.constraints or InterPodConstraints()
    if constraints.contradiction or constraints.unreadable_affinity or constraints.unreadable_spread:
        return False
    table, pod_index = snapshot.table, snapshot.pod_index
    beside, room = policy_constraints.room_for_new_nodes(signature, pod_index, table)
    if room < count:
        return False
    if not in_new_domains:
        beside &= ~inter_pod_affinity.closed_to_new_nodes(signature, pod_index, table)
    # Either all of a pod's constraints are its policy's, or none.
    if not in_new_domains or any(each.is_default for each in constraints.spread):
        beside &= ~_closed_by_spread(pod_class, signature, constraints, snapshot)
    if pod_class.devices is not None:
        beside &= ~dynamic_resources.closed_to_new_nodes(pod_class.devices, snapshot)
    for name, rejections in verdicts.by_filter:
        for rejection in rejections:
            if not CURES[name](rejection.reason):
                beside &= ~rejection.nodes
    return not len(table.nodes) or bool(beside.any())


def _closed_by_spread(
    pod_class: PodClass, signature: PodSignature, constraints: InterPodConstraints, snapshot: Snapshot
) -> Bools:
    """bool[N]: nodes in whose domains spread constraints close an empty new node, too."""
    closed = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    by_domain = tuple(each for each in constraints.spread if each.topology_key != HOSTNAME)
    if by_domain:
        zonal = replace(signature, constraints=replace(constraints, spread=by_domain))
        for rejection in pod_topology_spread.rejections(pod_class, zonal, snapshot.pod_index, snapshot.table):
            if rejection.reason == pod_topology_spread.REASON:
                closed |= rejection.nodes
    return closed
