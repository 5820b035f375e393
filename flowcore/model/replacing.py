"""Which running pod a new one is to take the place of, by the annotation that says so.

Source: Fleet's Replaces, figures 4 and 5 of the seed pod-affinity-and-gangs.md. A pod that is not there (any more) has
no place to be taken, nor has one that has ended: whoever names it is placed like any other pod. So a new pod is not
stuck where the old one left before it was bound, and a name that never was does not hold it up.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowcore.model.pods import HostPort, Pod
from flowcore.model.policies import REPLACES, Delivery, Policy, Victims
from flowcore.model.selectors import is_dns_subdomain
from flowcore.model.snapshot import Replaced
from flowcore.model.volumes import ClaimVolume, Disk

#: So much of a text that is no name is shown.
_LONGEST = 253


def named_by(pod: Pod) -> str:
    """Key of the pod that this one is to replace; "" where it names none, or nothing that is a name."""
    name = pod.replaces
    return f"{pod.namespace}/{name}" if name is not None and is_dns_subdomain(name) else ""


def forbidden(pod: Pod, old: Pod, policy: Policy, of_old: Policy | None) -> str:
    """Why a pod may not take the place of another whatever room there is; "" when it may.

    Args:
        policy, of_old: the policies that govern them, None: none does.
    """
    if of_old is None or of_old.delivery is Delivery.OBSERVE:
        return f"it may not take the place of {old.key}: no policy governs that pod"
    if old.pod_class.priority > pod.pod_class.priority:
        return f"it may not take the place of {old.key}: that pod has a higher priority"
    if policy.victims is Victims.SAME_CONTROLLER and (not pod.owner or pod.owner != old.owner):
        return (
            f"it may not take the place of {old.key}: that pod is not of the same controller, and policy {policy.name} "
            f"allows no others (spec.replaces.victims)"
        )
    return ""


def replaced_by(
    pod: Pod, pods: Mapping[str, Pod], ports: Mapping[HostPort, int], volumes: Mapping[ClaimVolume | Disk, int]
) -> Replaced | None:
    """Whose place a waiting pod is to take; None: it is placed like any other.

    Args:
        pods: all pods by key.
        ports, volumes: how many pods hold each of them, on the node of the one that is to leave.
    """
    if pod.replaces is None:
        return None
    key = named_by(pod)
    if not key:
        return Replaced(flaw=f"its annotation {REPLACES} names no pod: {pod.replaces[:_LONGEST]!r} is no name of one")
    if key == pod.key:
        return Replaced(flaw=f"its annotation {REPLACES} names itself")
    old = pods.get(key)
    if old is None or old.terminal:
        return None
    if not old.node_name:
        return Replaced(key, flaw=f"the pod it replaces, {key}, does not run yet")
    return Replaced(
        key=key,
        node=old.node_name,
        usage=old.usage,
        host_ports=tuple(port for port in old.pod_class.host_ports if ports.get(port, 0) < 2),
        kind=old.kind,
        volumes=tuple(each for each in old.pod_class.volumes if volumes.get(each, 0) < 2),
    )
