"""Kubelet features that nodes declare and pods need.

Source: component-helpers nodedeclaredfeatures (framework.go, featureset.go, features/). Of the features that 1.36 and
1.37 register, scheduling asks for two; the others concern changes to running pods, or fields of alpha gates.
"""

from __future__ import annotations

from flowcore.api.pod_objects import WirePodSpec

RESTART_ALL = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
_KNOWN = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    RESTART_ALL,
    USER_NAMESPACES_HOST_NETWORK,
)


def needed_features(spec: WirePodSpec) -> tuple[str, ...]:
    """The features that a pod's node must declare, sorted (InferForScheduling)."""
    features = []
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    if any(rule.action == "RestartAllContainers" for each in containers for rule in each.restart_policy_rules or ()):
        features.append(RESTART_ALL)
    if spec.host_network and spec.host_users is False:
        features.append(USER_NAMESPACES_HOST_NETWORK)
    return tuple(features)


def declared_features(listed: list[str] | None) -> tuple[str, ...]:
    """The known features that a node declares; an unsorted list is read as in mapSorted."""
    features, position = [], 0
    for name in listed or ():
        while position < len(_KNOWN) and _KNOWN[position] < name:
            position += 1
        if position < len(_KNOWN) and _KNOWN[position] == name:
            features.append(name)
            position += 1
    return tuple(features)
