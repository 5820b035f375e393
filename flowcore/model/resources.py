"""Amounts of resources: which names scheduling counts, in which unit, and what a pod asks for.

Units: ``cpu`` in millicores, everything else in whole units (bytes, pods, devices).

Sources: component-helpers ``resource/helpers.go`` (PodRequests), kube-scheduler
``framework/types.go`` (Resource.Add, SetMaxResource), ``apis/core/v1/helper`` (resource names).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from flowcore.model.errors import ModelError
from flowcore.model.quantities import MAX_AMOUNT, milli_from_nanos, nanos, whole_from_nanos

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"
#: The extended resource of network bandwidth, in bits per second: nodes offer it, pods ask for it.
BANDWIDTH = "networking.thalweg/bandwidth"
#: Columns that every array of amounts starts with; extended resources follow, sorted by name.
BASE_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)

#: What costs count for a container that requests none, so that such pods spread too: kube-scheduler's
#: DefaultMilliCPURequest and DefaultMemoryRequest (pkg/scheduler/util/pod_resources.go).
DEFAULT_MILLI_CPU_REQUEST, DEFAULT_MEMORY_REQUEST = 100, 200 * 1024 * 1024
#: Larger requests count as this: sums over the pods of a node then stay within int64 and exact as floats.
MAX_NON_ZERO_REQUEST = 2**50

#: Resource name -> amount, sorted by name, zeros left out: hashable and shared between pods.
Amounts = tuple[tuple[str, int], ...]
#: Cpu (milli-cores) and memory (bytes) that costs count for a pod's containers that request none; (): it has one
#: container, so that its requests tell.
Unrequested = tuple[int, ...]
#: Amounts before rounding, in billionths: sums are rounded once, at the end, as kube-scheduler does.
NanoList = dict[str, int]

_QUALIFIED = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def is_counted(name: str) -> bool:
    """Whether NodeResourcesFit looks at this resource at all.

    True for the base resources, hugepages, attachable volumes and extended resources; other names without
    a domain (``storage``, ``gpu``) are not scheduled by.
    """
    if name in BASE_RESOURCES or name.startswith(("hugepages-", "attachable-volumes-")):
        return True
    if "kubernetes.io/" in name:
        return True
    return "/" in name and not name.startswith("requests.") and _QUALIFIED.fullmatch(name) is not None


def is_extended(name: str) -> bool:
    """Whether it is an extended resource: a device or the like, of a domain that is not Kubernetes' own."""
    return "/" in name and "kubernetes.io/" not in name


def read_list(resources: Mapping[str, str | int | float] | None, field: str) -> NanoList:
    """A Kubernetes resource list in billionths.

    Raises:
        ModelError: a quantity does not parse or is negative; ``field`` says which.
    """
    result: NanoList = {}
    for name, quantity in (resources or {}).items():
        try:
            amount = nanos(quantity)
        except ModelError as error:
            raise ModelError(f"{field}.{name}", error.problem) from None
        if amount < 0:
            raise ModelError(f"{field}.{name}", f'"{quantity}" is negative')
        result[name] = amount
    return result


def add(total: NanoList, more: NanoList) -> None:
    """Adds ``more`` to ``total`` in place."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def raise_to(total: NanoList, floor: NanoList) -> None:
    """Lifts each entry of ``total`` to that of ``floor`` in place."""
    for name, amount in floor.items():
        if amount > total.get(name, -1):
            total[name] = amount


def pod_total(
    containers: Iterable[NanoList],
    init_containers: Iterable[tuple[NanoList, bool]],
    pod_level: NanoList,
    overhead: NanoList,
) -> NanoList:
    """What a pod asks for (KEP-753 for sidecars, KEP-2837 for pod-level resources).

    Args:
        containers: requests of the app containers, which run together.
        init_containers: requests and "restarts always" (a sidecar), in order: one runs after the other,
            each beside the sidecars before it.
        pod_level: ``spec.resources.requests``; for cpu, memory and hugepages it replaces the sum.
        overhead: ``spec.overhead``, added last.
    """
    total: NanoList = {}
    for requests in containers:
        add(total, requests)
    sidecars: NanoList = {}
    peak: NanoList = {}
    for requests, is_sidecar in init_containers:
        if is_sidecar:
            add(total, requests)
            add(sidecars, requests)
            raise_to(peak, sidecars)
        else:
            running = dict(requests)
            add(running, sidecars)
            raise_to(peak, running)
    raise_to(total, peak)
    for name, amount in pod_level.items():
        if is_pod_level(name):
            total[name] = amount
    add(total, overhead)
    total.pop(PODS, None)  # one pod is one pod, whatever it writes there
    return total


def is_pod_level(name: str) -> bool:
    """Whether a pod may request this as a whole: resource/helpers.go (IsSupportedPodLevelResource)."""
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def to_amounts(total: NanoList) -> Amounts:
    """Rounds up to the units that scheduling counts in; drops zeros and what is not counted."""
    rounded = (
        (name, milli_from_nanos(amount) if name == CPU else whole_from_nanos(amount))
        for name, amount in total.items()
        if amount > 0 and is_counted(name)
    )
    return tuple(sorted(rounded))


def beyond_requests(requests: Amounts, unrequested: Unrequested) -> tuple[int, int]:
    """Cpu (milli-cores) and memory (bytes) that costs count for a pod beyond what it requests."""
    if unrequested:
        return unrequested[0], unrequested[1]
    amounts = dict(requests)
    cpu = 0 if amounts.get(CPU) else DEFAULT_MILLI_CPU_REQUEST
    return cpu, 0 if amounts.get(MEMORY) else DEFAULT_MEMORY_REQUEST


def non_zero_requests(requests: Amounts, unrequested: Unrequested) -> tuple[int, int]:
    """Cpu (milli-cores) and memory (bytes) that costs count for a pod.

    Source: kube-scheduler framework/types.go (calculateResource) and plugins/noderesources/resource_allocation.go.

    Args:
        requests: of the pod, or what it uses on its node.
        unrequested: see ``PodClass``.
    """
    amounts = dict(requests)
    if unrequested:
        cpu, memory = amounts.get(CPU, 0) + unrequested[0], amounts.get(MEMORY, 0) + unrequested[1]
    else:
        cpu, memory = amounts.get(CPU) or DEFAULT_MILLI_CPU_REQUEST, amounts.get(MEMORY) or DEFAULT_MEMORY_REQUEST
    return min(cpu, MAX_NON_ZERO_REQUEST), min(memory, MAX_NON_ZERO_REQUEST)


def capped(amounts: Iterable[tuple[str, int]]) -> Amounts:
    """Sums by name, each at most as much as an amount can be: more is no fuller."""
    return tuple((name, min(amount, MAX_AMOUNT)) for name, amount in amounts)
