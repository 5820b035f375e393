"""What pods need in one NUMA zone.

Source: the kubelet's resource managers (pkg/kubelet/cm): whole cpus, memory and huge pages of Guaranteed pods, and
devices of all pods have a zone; everything else is shared.
"""

from __future__ import annotations

from typing import Final

from flowcore.api.pod_objects import WireContainer, WirePodAnnotations, WirePodSpec, WirePodStatus
from flowcore.model.errors import ModelError
from flowcore.model.numa import NUMA, NumaNeeds
from flowcore.model.quantities import nanos
from flowcore.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    Amounts,
    NanoList,
    is_extended,
    pod_total,
    read_list,
    to_amounts,
)

_SINGLE: Final = "single"
_ONE: Final = 10**9
_GUARANTEED: Final = "Guaranteed"


def numa_needs(
    spec: WirePodSpec, status: WirePodStatus, annotations: WirePodAnnotations | None, requests: Amounts
) -> NumaNeeds | None:
    """What the zones of its node must have for a pod; None: it needs nothing of a certain zone.

    Args:
        requests: of the whole pod.

    Raises:
        ModelError: the annotation has an unknown value.
    """
    text = None if annotations is None else annotations.numa
    if text not in (None, _SINGLE):
        raise ModelError(f"annotation {NUMA}", f'"{text[:64]}" is not "{_SINGLE}"')
    guaranteed = _is_guaranteed(spec, status)
    if text is None and not guaranteed and not any(is_extended(name) for name, _ in requests):
        return None
    app = [_in_a_zone(each, guaranteed=guaranteed) for each in spec.containers or ()]
    init = spec.init_containers or ()
    first = [(_in_a_zone(each, guaranteed=guaranteed), each.restart_policy == "Always") for each in init]
    # What an init container had goes to the containers after it: one that needs no more than these needs nothing more.
    kept = [
        container
        for container, is_sidecar in first
        if is_sidecar or not any(_within(container, app_container) for app_container in app)
    ]
    containers = tuple(amounts for each in (*kept, *app) if (amounts := to_amounts(each)))
    if text == _SINGLE:
        whole = tuple((name, amount) for name, amount in requests if name != EPHEMERAL_STORAGE)
        return NumaNeeds(containers, whole, everywhere=True)
    pod = to_amounts(pod_total(app, first, {}, {}))
    return NumaNeeds(containers, pod) if pod else None


def _is_guaranteed(spec: WirePodSpec, status: WirePodStatus) -> bool:
    """Whether requests are limits; the API server says so of every pod, manifests of none."""
    if status.qos_class:
        return status.qos_class == _GUARANTEED
    containers = [*(spec.init_containers or ()), *(spec.containers or ())]
    return bool(containers) and all(_is_limited(each) for each in containers)


def _is_limited(container: WireContainer) -> bool:
    resources = container.resources
    if resources is None or not resources.limits:
        return False
    limits, requests = resources.limits, resources.requests or {}
    return all(
        name in limits and nanos(requests.get(name, limits[name])) == nanos(limits[name]) for name in (CPU, MEMORY)
    )


def _in_a_zone(container: WireContainer, *, guaranteed: bool) -> NanoList:
    requests = container.resources.requests if container.resources is not None else None
    amounts = read_list(requests, f"containers[{container.name}].resources.requests")
    return {
        name: amount for name, amount in amounts.items() if amount and _has_zone(name, amount, guaranteed=guaranteed)
    }


def _has_zone(name: str, amount: int, *, guaranteed: bool) -> bool:
    if is_extended(name):
        return True
    whole = name != CPU or amount % _ONE == 0
    return guaranteed and whole and (name in (CPU, MEMORY) or name.startswith("hugepages-"))


def _within(requests: NanoList, limit: NanoList) -> bool:
    return all(amount <= limit.get(name, 0) for name, amount in requests.items())
