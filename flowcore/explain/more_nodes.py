"""Whether more nodes would help a pod that no node takes: cluster autoscalers add nodes for such pods only.

A node that an autoscaler adds is empty. It is in the domains of the nodes that are there, has its own hostname, and may
have more of a resource, other labels and no taints. So it cures what fills a node or belongs to one node. It cures
neither what is wrong with the pod, its claims or its policy, nor what pods elsewhere in its domains forbid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flowcore.cluster.snapshot import Snapshot
from flowcore.filters import (
    Verdicts,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    policy_constraints,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from flowcore.filters.registry import NODE_UNREADABLE
from flowcore.model.constraint_limits import HOSTNAME
from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.pod_index import PodSignature

_Cures = Callable[[str, InterPodConstraints], bool]


def _always(_reason: str, _constraints: InterPodConstraints) -> bool:
    return True


def _never(_reason: str, _constraints: InterPodConstraints) -> bool:
    return False


def _of(*reasons: str) -> _Cures:
    return lambda reason, _constraints: reason in reasons


def _spread(reason: str, constraints: InterPodConstraints) -> bool:
    """A node of a domain that has too many pods is no better than the others; a node without the label is."""
    if reason == pod_topology_spread.REASON_NO_LABEL:
        return True
    return reason == pod_topology_spread.REASON and any(each.topology_key == HOSTNAME for each in constraints.spread)


def _affinity(reason: str, constraints: InterPodConstraints) -> bool:
    """An empty node brings nothing that a pod wants to be with; it is away from what a pod keeps off by hostname."""
    if reason == inter_pod_affinity.REASON_ANTI_AFFINITY:
        return any(each.topology_key == HOSTNAME for each in constraints.anti_affinity)
    # The terms of running pods are not known here. Most are about the hostname.
    return reason == inter_pod_affinity.REASON


#: By filter: whether a node that comes may pass where the nodes that are there were rejected for a reason.
CURES: Mapping[str, _Cures] = {
    NODE_UNREADABLE: _always,
    node_unschedulable.NAME: _always,
    node_name.NAME: _never,
    taint_toleration.NAME: _always,
    node_affinity.NAME: _always,
    node_ports.NAME: _always,
    node_resources_fit.NAME: _always,
    volume_restrictions.NAME: _of(volume_restrictions.REASON_DISK),
    node_volume_limits.NAME: _of(node_volume_limits.REASON),
    volume_binding.NAME: _of(
        volume_binding.REASON_AFFINITY, volume_binding.REASON_NO_VOLUME, volume_binding.REASON_NO_SPACE
    ),
    volume_zone.NAME: _of(volume_zone.REASON),
    pod_topology_spread.NAME: _spread,
    inter_pod_affinity.NAME: _affinity,
    node_declared_features.NAME: _always,
    # Asked for itself: limits hold on new nodes too, but for those by hostname.
    policy_constraints.NAME: _always,
}


def more_nodes_help(verdicts: Verdicts, signature: PodSignature, snapshot: Snapshot, count: int = 1) -> bool:
    """Whether other nodes may take so many pods of a class that the nodes that are there do not take.

    Args:
        verdicts: of the class for the snapshot.
    """
    constraints = signature.constraints or InterPodConstraints()
    if constraints.contradiction or constraints.unreadable_affinity or constraints.unreadable_spread:
        return False
    beside, room = policy_constraints.room_for_new_nodes(signature, snapshot.pod_index, snapshot.table)
    if room < count:
        return False
    for name, rejections in verdicts.by_filter:
        for rejection in rejections:
            if not CURES[name](rejection.reason, constraints):
                beside &= ~rejection.nodes
    return not len(snapshot.table.nodes) or bool(beside.any())
