"""Device classes, and pods whose extended resources are devices of a class where nodes do not offer them.

Source: resource/v1 DeviceClass; kube-scheduler plugins/dynamicresources/extendeddynamicresources.go;
dynamic-resource-allocation deviceclass/extendedresourcecache. The gate DRAExtendedResource is on by default in 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from flowcore.model.pods import Pod
from flowcore.model.resource_claims import ClaimingPod, ClaimRequest, DeviceRequest
from flowcore.model.resources import is_extended

#: Asking for this prefix with a DeviceClass's name after it is asking for a device of the class.
IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"

_UNREAD = "ResourceSlices, ResourceClaims or DeviceTaintRules cannot be read"


class DeviceClass(msgspec.Struct, frozen=True, gc=False):
    """A DeviceClass.

    Attributes:
        extended_resource: the resource name that pods may ask for instead of claiming, or "".
        selectors: CEL expressions that all hold for its devices; None for one of a kind that is not known.
        config: what drivers are told of its devices, as JSON; "" for what is nested too deep to be copied.
        created: seconds since the epoch; 0: unknown.
    """

    name: str
    extended_resource: str = ""
    selectors: tuple[str | None, ...] = ()
    config: tuple[str, ...] = ()
    created: float = 0.0


def may_be_devices(resource: str) -> bool:
    """Whether a DeviceClass may back a resource (IsDRAExtendedResourceName)."""
    return is_extended(resource) or resource.startswith(IMPLICIT_PREFIX)


def device_resources(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Extended resource -> the DeviceClass that backs it: of several the newest, then the first by name."""
    backing = dict[str, str]()
    for device_class in sorted(classes, key=lambda known: (-known.created, known.name)):
        backing[IMPLICIT_PREFIX + device_class.name] = device_class.name
        if device_class.extended_resource:
            backing.setdefault(device_class.extended_resource, device_class.name)
    return backing


def with_devices(pod: Pod, device_class_by_resource: Mapping[str, str], *, claims_known: bool = True) -> Pod:
    """A waiting pod as it is once DeviceClasses are known: what is a device on some nodes is one more claim of it.

    A pod whose devices cannot be planned is left to kube-scheduler.

    Args:
        device_class_by_resource: of ``device_resources``.
        claims_known: whether ResourceSlices, ResourceClaims and DeviceTaintRules can be read.
    """
    asked = (extended.resource for extended in pod.extended)
    backed = [(name, device_class_by_resource[name]) for name in asked if name in device_class_by_resource]
    if backed:
        resource, device_class = backed[0]
        what = f"its extended resource {resource} is backed by the DeviceClass {device_class}"
        pod = _claiming(pod, dict(backed))
        return pod if claims_known else _unsupported(pod, f"{what}: {_UNREAD}")
    if not claims_known and pod.pod_class.devices is not None:
        return _unsupported(pod, f"its resource claims are not planned: {_UNREAD}")
    return pod


def _unsupported(pod: Pod, reason: str) -> Pod:
    return pod if pod.unsupported_reason else msgspec.structs.replace(pod, unsupported_reason=reason)


def _claiming(pod: Pod, backing: Mapping[str, str]) -> Pod:
    requests = [
        ClaimRequest(name, DeviceRequest(name, backing[extended.resource], count=count), resource=extended.resource)
        for extended in pod.extended
        if extended.resource in backing
        for name, count in extended.requests
    ]
    claiming = pod.pod_class.devices or ClaimingPod(pod.namespace, pod.name, pod.uid)
    claiming = claiming.with_extended_claim(tuple(sorted(requests, key=lambda request: request.name)))
    return msgspec.structs.replace(pod, pod_class=msgspec.structs.replace(pod.pod_class, devices=claiming))
