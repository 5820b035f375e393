"""Requests of a pod's containers: resources, host ports and images."""

from __future__ import annotations

from flowcore.api.pod_objects import WireContainer, WireContainerStatus, WirePodSpec, WirePodStatus
from flowcore.model.devices import may_be_devices
from flowcore.model.pods import HostPort
from flowcore.model.quantities import whole_from_nanos
from flowcore.model.resource_claims import ExtendedRequest, ExtendedRequests
from flowcore.model.resources import (
    CPU,
    DEFAULT_MEMORY_REQUEST,
    DEFAULT_MILLI_CPU_REQUEST,
    MEMORY,
    Amounts,
    NanoList,
    Unrequested,
    is_pod_level,
    non_zero_requests,
    pod_total,
    raise_to,
    read_list,
    to_amounts,
)

#: What a container counts for that requests none, in billionths.
_DEFAULTS = {CPU: DEFAULT_MILLI_CPU_REQUEST * 10**6, MEMORY: DEFAULT_MEMORY_REQUEST * 10**9}


def requests_of(spec: WirePodSpec) -> NanoList:
    """The pod's requests."""
    return _total(spec, _asked(spec), _pod_level(spec), overhead=True)


def unrequested_of(spec: WirePodSpec, requests: Amounts) -> Unrequested:
    """What costs count for a pod's containers that request no cpu or memory; see ``Unrequested``.

    A request of 0 is a request. Where the pod has requests as a whole, defaults count only for what neither it nor any
    of its containers requests.

    Source: kube-scheduler framework/types.go (calculateResource, getNonMissingContainerRequests).

    Args:
        requests: of the pod.

    Raises:
        ModelError: a quantity does not parse or is negative.
    """
    asked, pod_level = _asked(spec), _pod_level(spec)
    known = _total(spec, asked, pod_level, overhead=True) if any(map(is_pod_level, pod_level)) else {}
    defaults = {name: amount for name, amount in _DEFAULTS.items() if name not in known}
    filled = [{**defaults, **container} for container in asked]
    counted, sums = dict(to_amounts(_total(spec, filled, pod_level, overhead=True))), dict(requests)
    cpu, memory = counted.get(CPU, 0), counted.get(MEMORY, 0)
    if (cpu, memory) == non_zero_requests(requests, ()):
        return ()
    return cpu - sums.get(CPU, 0), memory - sums.get(MEMORY, 0)


def resized_usage(spec: WirePodSpec, status: WirePodStatus, *, asks: bool = True) -> NanoList:
    """What a running pod takes while it is resized in place (KEP-1287): the largest of three sums.

    What it asks for, what its node has promised and what its containers have; where the node says the last two of the
    pod as a whole, that counts. kube-scheduler 1.37 counts so, and adds overhead that the node has added already.

    Args:
        asks: False: without what the pod asks for, as if that were infeasible.
    """
    held, infeasible, asked = _held(status), not asks or _pending_resize(status) == "Infeasible", _asked(spec)
    allocated, actual = list[NanoList](), list[NanoList]()
    for container, requests in zip(_containers(spec), asked, strict=True):
        seen, where = held.get(container.name), f"status.containerStatuses[{container.name}]"
        promised: NanoList = {} if infeasible else requests
        if seen is not None and seen.allocated_resources is not None:
            promised = read_list(seen.allocated_resources, f"{where}.allocatedResources")
        allocated.append(promised)
        has = None if seen is None or seen.resources is None else seen.resources.requests
        actual.append(promised if has is None else read_list(has, f"{where}.resources.requests"))
    reported = status.resources is not None and status.resources.requests is not None
    if reported and status.allocated_resources is not None:
        sums = whole_amounts(status)
    else:
        sums = [_total(spec, allocated), _total(spec, actual)]
    total: NanoList = {} if infeasible else _total(spec, asked)
    for amounts in sums:
        raise_to(total, amounts)
    pod_level = _pod_level(spec)
    if pod_level and status.resources is not None:
        pod_level = _largest(pod_level, status, infeasible=infeasible)
    return pod_total([total], (), pod_level, read_list(spec.overhead, "spec.overhead"))


def resized_usage_by_container(spec: WirePodSpec, status: WirePodStatus) -> NanoList:
    """The same as kube-scheduler before 1.37 counts it: the largest of three amounts of each container, added up."""
    held, infeasible = _held(status), _pending_resize(status) == "Infeasible"
    amounts = _asked(spec)
    regular = len(spec.containers or ())
    for place, container in enumerate(_containers(spec)):
        seen, stays = held.get(container.name), place < regular or container.restart_policy == "Always"
        if seen is None or seen.resources is None or not stays:
            continue
        where = f"status.containerStatuses[{container.name}]"
        largest: NanoList = {} if infeasible else dict(amounts[place])
        raise_to(largest, read_list(seen.resources.requests, f"{where}.resources.requests"))
        raise_to(largest, read_list(seen.allocated_resources, f"{where}.allocatedResources"))
        amounts[place] = largest
    pod_level = _pod_level(spec)
    if pod_level and status.resources is not None:
        largest = _largest(pod_level, status, infeasible=infeasible)
        pod_level = {name: largest.get(name, 0) for name in pod_level}
    return _total(spec, amounts, pod_level, overhead=True)


def _held(status: WirePodStatus) -> dict[str, WireContainerStatus]:
    return {seen.name: seen for seen in (status.container_statuses or []) + (status.init_container_statuses or [])}


def deferred_growth(spec: WirePodSpec, status: WirePodStatus) -> NanoList:
    """What a pod asks for beyond what it has, where its node defers that; {}: no resize is deferred."""
    if _pending_resize(status) != "Deferred":
        return {}
    has = resized_usage(spec, status, asks=False)
    more = ((name, amount - has.get(name, 0)) for name, amount in resized_usage(spec, status).items())
    return {name: amount for name, amount in more if amount > 0}


def _pending_resize(status: WirePodStatus) -> str:
    """Why its node has not resized a pod yet, Deferred or Infeasible; "": nothing is to be resized.

    The first condition of the type decides: component-helpers resource/helpers.go (IsPodResizeDeferred).
    """
    reasons = (each.reason or "" for each in status.conditions or () if each.type == "PodResizePending")
    return next(reasons, "")


def _containers(spec: WirePodSpec) -> list[WireContainer]:
    """Init containers come last."""
    return [*(spec.containers or ()), *(spec.init_containers or ())]


def _asked(spec: WirePodSpec) -> list[NanoList]:
    """Requests of each container."""
    fields = [f"containers[{place}]" for place in range(len(spec.containers or ()))]
    fields += [f"initContainers[{place}]" for place in range(len(spec.init_containers or ()))]
    return [
        read_list(container.resources.requests if container.resources else None, f"spec.{field}.resources.requests")
        for field, container in zip(fields, _containers(spec), strict=True)
    ]


def _pod_level(spec: WirePodSpec) -> NanoList:
    return read_list(spec.resources.requests if spec.resources else None, "spec.resources.requests")


def whole_amounts(status: WirePodStatus) -> list[NanoList]:
    """What the node says that it has promised to the pod as a whole, and that its containers have."""
    has = status.resources.requests if status.resources else None
    return [
        read_list(status.allocated_resources, "status.allocatedResources"),
        read_list(has, "status.resources.requests"),
    ]


def _largest(pod_level: NanoList, status: WirePodStatus, *, infeasible: bool) -> NanoList:
    """Of a pod that asks for amounts as a whole."""
    largest: NanoList = {} if infeasible else dict(pod_level)
    for amounts in whole_amounts(status):
        raise_to(largest, amounts)
    return largest


def _total(
    spec: WirePodSpec, amounts: list[NanoList], pod_level: NanoList | None = None, *, overhead: bool = False
) -> NanoList:
    """What containers with these amounts take together.

    Args:
        pod_level: amounts of the pod as a whole, which count in place of the sums.
        overhead: whether that of the pod is added.
    """
    regular = len(spec.containers or ())
    starting = [
        (requests, container.restart_policy == "Always")
        for requests, container in zip(amounts[regular:], spec.init_containers or (), strict=True)
    ]
    added = read_list(spec.overhead, "spec.overhead") if overhead else {}
    return pod_total(amounts[:regular], starting, pod_level or {}, added)


def extended_requests_of(spec: WirePodSpec, requests: Amounts) -> ExtendedRequests:
    """What a claim would ask for in place of each extended resource of a pod, sorted by resource.

    Source: kube-scheduler plugins/dynamicresources/extendeddynamicresources.go (createRequestsAndMappings). Init
    containers have the devices of containers that start later, and one more request for what the largest of them lacks.

    Args:
        requests: of the pod.

    Raises:
        ModelError: a quantity does not parse or is negative.
    """
    resources = [name for name, _ in requests if may_be_devices(name)]
    if not resources:
        return ()
    starting = spec.init_containers or []
    containers = [
        read_list(container.resources.requests if container.resources else None, f"containers[{place}]")
        for place, container in enumerate((*starting, *(spec.containers or ())))
    ]
    ends = {place for place, container in enumerate(starting) if container.restart_policy != "Always"}
    container_names = [container.name for container in (*starting, *(spec.containers or ()))]
    return tuple(_device_requests(resource, container_names, containers, ends) for resource in resources)


def _device_requests(
    resource: str, container_names: list[str], containers: list[NanoList], ends: set[int]
) -> ExtendedRequest:
    """What a claim would ask for in place of one resource.

    Args:
        container_names: init containers first.
        containers: requests of each.
        ends: places of init containers that end before others start.
    """
    asked = [whole_from_nanos(container.get(resource, 0)) for container in containers]
    names = [
        f"container-{place}-request-{sorted(container).index(resource)}" if resource in container else ""
        for place, container in enumerate(containers)
    ]
    stays = [0 if place in ends else number for place, number in enumerate(asked)]
    lacks = {place: asked[place] - sum(stays[place:]) for place in sorted(ends)}
    most = max(lacks, key=lambda place: lacks[place], default=None)
    requests = [] if most is None or lacks[most] <= 0 else [(names[most], lacks[most])]
    served = [(place, [names[place]]) for place, number in enumerate(stays) if number]
    for place in sorted(ends):
        later, missing = list[str](), asked[place]
        for user in range(place, len(stays)):
            if missing > 0 and stays[user]:
                later.append(names[user])
                missing -= stays[user]
        served.append((place, later if most is None or missing <= 0 else [*later, names[most]]))
    return ExtendedRequest(
        resource,
        (*requests, *((names[place], number) for place, number in enumerate(stays) if number)),
        tuple((container_names[place], name) for place, requested in served for name in requested),
    )


def has_resize(status: WirePodStatus) -> bool:
    """Whether the kubelet reports amounts, which may differ from the requests of the spec."""
    reported = (status.container_statuses or []) + (status.init_container_statuses or [])
    return status.resources is not None or any(
        seen.resources is not None or seen.allocated_resources is not None for seen in reported
    )


def host_ports_of(spec: WirePodSpec) -> tuple[HostPort, ...]:
    """Host ports of app containers and sidecars, sorted: the pod holds them as long as it runs."""
    containers = [c for c in spec.init_containers or () if c.restart_policy == "Always"] + (spec.containers or [])
    ports = {
        HostPort(port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104 - a value, not a bind
        for container in containers
        for port in container.ports or ()
        if port.host_port is not None and port.host_port > 0
    }
    return tuple(sorted(ports))


def images_of(spec: WirePodSpec) -> tuple[str, ...]:
    """Images of all containers and image volumes, sorted, with repetitions.

    Source: kube-scheduler plugins/imagelocality (normalizedImageName): a name without a tag means ``:latest``.
    """
    return tuple(sorted(name if _has_tag(name) else f"{name}:latest" for name in _references(spec)))


def repositories_of(spec: WirePodSpec) -> tuple[str, ...]:
    """The same without tags and digests: all versions of an image have one name."""
    names = (name.partition("@")[0] for name in _references(spec))
    return tuple(sorted(name.rpartition(":")[0] if _has_tag(name) else name for name in names))


def _references(spec: WirePodSpec) -> list[str]:
    names = [container.image for container in (spec.init_containers or []) + (spec.containers or [])]
    names += [volume.image.reference for volume in spec.volumes or () if volume.image is not None]
    return [name for name in names if name]


def _has_tag(name: str) -> bool:
    return name.rfind(":") > name.rfind("/")
