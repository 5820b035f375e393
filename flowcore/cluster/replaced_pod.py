"""The running pod whose place a new pod takes, by the new pod's annotation.

Source: Fleet's Replaces, figures 4 and 5 of the seed pod-affinity-and-gangs.md. Where the named pod does not exist or
has ended, the new pod is placed like any other. So a new pod does not get stuck when the old pod leaves early or never
existed.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowcore.cluster.arrays.snapshot import Victim
from flowcore.model.pods import HostPort, Pod
from flowcore.model.policies import REPLACES, AllowedVictims, Policy
from flowcore.model.selectors import is_dns_subdomain
from flowcore.model.volumes import ClaimVolume, Disk

#: Characters of an invalid name that messages show.
_MAX_SHOWN = 253


def victim_key(pod: Pod) -> str:
    """Key of the pod that this pod replaces; "" where it names none, or no valid name."""
    name = pod.replaces
    return f"{pod.namespace}/{name}" if name is not None and is_dns_subdomain(name) else ""


def forbidden_reason(pod: Pod, victim: Pod, policy: Policy, victim_policy: Policy | None) -> str:
    """Why a pod may not take the place of another whatever room there is; "" where it may.

    Args:
        policy, victim_policy: the policies that govern the two pods; None: no policy governs the victim.
    """
    if victim_policy is None or not victim_policy.delivery.acts:
        return f"it may not replace {victim.key}: no policy governs that pod"
    if victim.pod_class.priority > pod.pod_class.priority:
        return f"it may not replace {victim.key}: that pod has a higher priority"
    if policy.victims is AllowedVictims.SAME_CONTROLLER and (not pod.owner or pod.owner != victim.owner):
        return (
            f"it may not replace {victim.key}: that pod is not of the same controller, and policy "
            f"{policy.name} allows no others (spec.replaces.victims)"
        )
    return ""


def find_victim(
    pod: Pod,
    pods: Mapping[str, Pod],
    ports: Mapping[HostPort, int],
    volumes: Mapping[ClaimVolume | Disk, int],
    queue: str = "",
) -> Victim | None:
    """The victim of a waiting pod; None: it is placed like any other.

    Args:
        pods: all pods by key.
        ports, volumes: how many pods of the victim's node hold each of them.
        queue: name of the FlowQueue that the victim counts for; "": none.
    """
    if pod.replaces is None:
        return None
    key = victim_key(pod)
    if not key:
        return Victim(
            unschedulable_reason=f"its annotation {REPLACES} names no pod: {pod.replaces[:_MAX_SHOWN]!r} is no name of "
            "one"
        )
    if key == pod.key:
        return Victim(unschedulable_reason=f"its annotation {REPLACES} names itself")
    victim = pods.get(key)
    if victim is None or victim.terminal:
        return None
    if not victim.node_name:
        return Victim(key, unschedulable_reason=f"the pod it replaces, {key}, does not run yet")
    return Victim(
        key=key,
        node=victim.node_name,
        usage=victim.usage,
        host_ports=tuple(port for port in victim.pod_class.host_ports if ports.get(port, 0) < 2),
        signature=victim.signature,
        volumes=tuple(each for each in victim.pod_class.volumes if volumes.get(each, 0) < 2),
        queue=queue,
        unrequested=victim.pod_class.unrequested,
    )
