"""The claims that the pods of a PodGroup share.

Source: dynamic-resource-allocation resourceclaim (IsForPod, BindTo), KEP-5729.
"""

from __future__ import annotations

import msgspec

from flowcore.model.gang_spec import GangKey, GangSource, PodGroup
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import ClaimingGroup


def claiming_group(key: GangKey, group: PodGroup | None) -> ClaimingGroup | None:
    """A PodGroup as the claims of its pods see it; None: it is none of Kubernetes.

    Args:
        group: None: it is not there.
    """
    if key.source is not GangSource.NATIVE:
        return None
    return ClaimingGroup(key.name) if group is None else ClaimingGroup(key.name, group.uid, group.claims)


def with_group(pod: Pod, group: ClaimingGroup | None) -> Pod:
    """A pod whose claims know its group; the pod itself where it claims nothing, or they know it already."""
    devices = pod.pod_class.devices
    if devices is None or devices.group == group:
        return pod
    pod_class = msgspec.structs.replace(pod.pod_class, devices=msgspec.structs.replace(devices, group=group))
    return msgspec.structs.replace(pod, pod_class=pod_class)
