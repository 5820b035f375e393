"""Whether it may help a pod that others leave a node which rejects it, by the reason of the rejection.

Source: the status codes of kube-scheduler's plugins, ``Unschedulable`` (it may) and ``UnschedulableAndUnresolvable``
(it does not). tests/oracle compares. What kube-scheduler does not have is judged by us.
"""

from collections.abc import Mapping

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
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from flowcore.rules.filters.registry import NODE_UNREADABLE

#: Filter -> its reasons, and whether it may help that others leave.
LEAVING_MAY_HELP: Mapping[str, Mapping[str, bool]] = {
    node_unschedulable.NAME: {node_unschedulable.REASON: False},
    node_name.NAME: {node_name.REASON: False},
    taint_toleration.NAME: {taint_toleration.REASON: False},
    node_affinity.NAME: {node_affinity.REASON: False},
    node_ports.NAME: {node_ports.REASON: True},
    # "Insufficient ..." too, unless the pod asks for more than the node has.
    node_resources_fit.NAME: {node_resources_fit.TOO_MANY_PODS: True},
    volume_restrictions.NAME: {volume_restrictions.REASON_DISK: True, volume_restrictions.REASON_IN_USE: True},
    node_volume_limits.NAME: {node_volume_limits.REASON: True, node_volume_limits.REASON_MISSING: True},
    volume_binding.NAME: {
        volume_binding.REASON_AFFINITY: False,
        volume_binding.REASON_NO_VOLUME: False,
        volume_binding.REASON_NO_SPACE: False,
        volume_binding.REASON_LOST: False,
        volume_binding.REASON_UNBOUND: False,
        volume_binding.REASON_UNREADABLE: False,
    },
    volume_zone.NAME: {volume_zone.REASON: False},
    pod_topology_spread.NAME: {
        pod_topology_spread.REASON: True,
        pod_topology_spread.REASON_NO_LABEL: False,
        pod_topology_spread.REASON_UNREADABLE: False,
    },
    inter_pod_affinity.NAME: {
        inter_pod_affinity.REASON: True,
        inter_pod_affinity.REASON_AFFINITY: False,
        inter_pod_affinity.REASON_ANTI_AFFINITY: True,
        inter_pod_affinity.REASON_UNREADABLE: False,
    },
    dynamic_resources.NAME: {
        dynamic_resources.REASON_NONE_FIT: False,
        dynamic_resources.REASON_INVALID_POOLS: False,
        dynamic_resources.REASON_ELSEWHERE: False,
        dynamic_resources.REASON_IN_USE: False,
        dynamic_resources.REASON_LATER: False,
        dynamic_resources.REASON_OTHERS_FIRST: False,
    },
    node_declared_features.NAME: {node_declared_features.REASON: False},
}

#: The same for filters that kube-scheduler does not have.
OURS: Mapping[str, Mapping[str, bool]] = {
    NODE_UNREADABLE: {"its allocatable cannot be read": False},
    taint_eviction.NAME: {taint_eviction.REASON: False},
    # Nobody knows which zone a pod leaves.
    node_resource_topology.NAME: {
        node_resource_topology.REASON: False,
        node_resource_topology.REASON_UNREPORTED: False,
    },
    policy_constraints.NAME: {"a limit is reached": True, "not among the nodes of a constraint": False},
}
