"""Requests of a pod's containers: resources, host ports and images."""

from __future__ import annotations

from flowcore.api.pod_objects import WireContainer, WireContainerStatus, WirePodSpec, WirePodStatus
from flowcore.model.devices import may_be_devices
from flowcore.model.pods import HostPort
from flowcore.model.quantities import whole_from_nanos
from flowcore.model.resource_claims import ExtendedRequest, ExtendedRequests
from flowcore.model.resources import Amounts, NanoList, pod_total, raise_to, read_list


def requests_of(spec: WirePodSpec, status: WirePodStatus | None = None) -> NanoList:
    """The pod's requests; with ``status``, its usage while it is resized in place (KEP-1287)."""
    held: dict[str, WireContainerStatus] = {}
    infeasible = False
    if status is not None:
        held = {s.name: s for s in (status.container_statuses or []) + (status.init_container_statuses or [])}
        # The first condition of the type decides: component-helpers resource/helpers.go (IsPodResizeInfeasible).
        pending = next((c for c in status.conditions or () if c.type == "PodResizePending"), None)
        infeasible = pending is not None and pending.reason == "Infeasible"

    def effective(asked: NanoList, actual: NanoList, allocated: NanoList) -> NanoList:
        result: NanoList = {} if infeasible else dict(asked)
        raise_to(result, actual)
        raise_to(result, allocated)
        return result

    def container(wire: WireContainer, field: str, *, resizable: bool) -> NanoList:
        asked = read_list(wire.resources.requests if wire.resources else None, f"{field}.resources.requests")
        seen = held.get(wire.name)
        if not resizable or seen is None or seen.resources is None:
            return asked
        where = f"status.containerStatuses[{wire.name}]"
        return effective(
            asked,
            read_list(seen.resources.requests, f"{where}.resources.requests"),
            read_list(seen.allocated_resources, f"{where}.allocatedResources"),
        )

    containers = [container(c, f"spec.containers[{i}]", resizable=True) for i, c in enumerate(spec.containers or ())]
    init_containers = [
        (
            container(c, f"spec.initContainers[{i}]", resizable=c.restart_policy == "Always"),
            c.restart_policy == "Always",
        )
        for i, c in enumerate(spec.init_containers or ())
    ]
    pod_level = read_list(spec.resources.requests if spec.resources else None, "spec.resources.requests")
    if pod_level and status is not None and status.resources is not None:
        actual = read_list(status.resources.requests, "status.resources.requests")
        allocated = read_list(status.allocated_resources, "status.allocatedResources")
        resized = effective(pod_level, actual, allocated)
        pod_level = {name: resized.get(name, 0) for name in pod_level}
    return pod_total(containers, init_containers, pod_level, read_list(spec.overhead, "spec.overhead"))


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
    return status.resources is not None or any(s.resources is not None for s in reported)


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
