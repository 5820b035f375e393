"""Devices that are claimed (DRA): which pods need them, so that these are left to kube-scheduler.

Source: resource/v1 DeviceClass; kube-scheduler plugins/dynamicresources/extendeddynamicresources.go. The gate
DRAExtendedResource is on by default in 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from flowcore.model.pods import Pod
from flowcore.model.resources import Amounts

#: Asking for this prefix with a DeviceClass's name after it is asking for a device of the class.
IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"


class DeviceClass(msgspec.Struct, frozen=True, gc=False):
    """A DeviceClass.

    Attributes:
        extended_resource: the resource name that pods may ask for instead of claiming, or "".
        selectors: CEL expressions that all hold for its devices; None for one of a kind that is not known.
        config: what drivers are told of its devices, as JSON.
    """

    name: str
    extended_resource: str = ""
    selectors: tuple[str | None, ...] = ()
    config: tuple[str, ...] = ()


def device_resources(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Extended resource -> the DeviceClass that backs it."""
    return {each.extended_resource: each.name for each in classes if each.extended_resource}


def needs_devices(requests: Amounts, device_class_by_resource: Mapping[str, str]) -> str:
    """Why a pod with these requests is left to kube-scheduler, "" when it need not be.

    Args:
        device_class_by_resource: of ``device_resources``.
    """
    for name, _ in requests:
        device_class = (
            name[len(IMPLICIT_PREFIX) :] if name.startswith(IMPLICIT_PREFIX) else device_class_by_resource.get(name)
        )
        if device_class is not None:
            return (
                f"its extended resource {name} is backed by the DeviceClass {device_class}: devices are allocated by "
                "kube-scheduler"
            )
    return ""


def with_devices(pod: Pod, device_class_by_resource: Mapping[str, str], *, claims_known: bool = True) -> Pod:
    """The pod as it is once DeviceClasses are known: one whose devices cannot be planned is left to kube-scheduler.

    Args:
        device_class_by_resource: of ``device_resources``.
        claims_known: whether ResourceSlices and ResourceClaims can be read.
    """
    unsupported = pod.unsupported_reason or needs_devices(pod.pod_class.requests, device_class_by_resource)
    if not (unsupported or claims_known or pod.pod_class.devices is None):
        unsupported = "its resource claims are not planned: ResourceSlices and ResourceClaims cannot be read"
    return (
        pod if unsupported == pod.unsupported_reason else msgspec.structs.replace(pod, unsupported_reason=unsupported)
    )
