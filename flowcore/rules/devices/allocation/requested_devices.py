"""What the claims of a pod ask for, one entry for each alternative of each request, and whether it can be asked for.

Taints of devices keep away the requests that do not tolerate them.

Source: dynamic-resource-allocation structured (Allocate, validateDeviceRequest, taintPreventsAllocation),
resourceclaim/devicetoleration.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flowcore.model.device_gates import ADMIN_ACCESS, CONSUMABLE_CAPACITY
from flowcore.model.devices import DeviceClass
from flowcore.model.nodes import KEEPS_OUT
from flowcore.model.resource_claims import (
    ALL,
    EXACT_COUNT,
    ClaimRequest,
    DeviceRequest,
    DeviceToleration,
    ResourceClaim,
)
from flowcore.model.resource_slices import DeviceTaint
from flowcore.rules.devices.allocation.pools import PooledDevice

_LACKS_AMOUNTS = f"has capacity requests, but the {CONSUMABLE_CAPACITY} feature is disabled"


class ClaimsUnallocatable(Exception):
    """Why claims get no devices.

    Attributes:
        reason: kube-scheduler's text.
        is_error: something is wrong with a claim, a class or the pools; other nodes are not tried.
        is_limit: it costs more than is spent on it here; other nodes are.
    """

    def __init__(self, reason: str, *, is_error: bool = True, is_limit: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_error = is_error
        self.is_limit = is_limit


@dataclass(slots=True)
class RequestedDevices:
    """One way to serve a request.

    Attributes:
        parent: the request of which this is an alternative; it is the request's own if there is but one.
        number: how many devices it takes.
        all_devices: which ones, for all that match; empty for a number of them.
    """

    claim: ResourceClaim
    parent: ClaimRequest
    request: DeviceRequest
    device_class: DeviceClass
    number: int
    all_devices: list[PooledDevice] = field(default_factory=list)

    @property
    def takes_all(self) -> bool:
        """Whether it takes all devices that match, at least one."""
        return self.request.mode == ALL

    @property
    def reference(self) -> str:
        """The request's name in an allocation."""
        return self.parent.reference(self.request)

    @property
    def alternative(self) -> str:
        """The alternative's name, "" for a request without alternatives."""
        return self.request.name if self.parent.first_available else ""


def check_capacity_gate(claim: ResourceClaim, parent: ClaimRequest) -> None:
    """Whether a request may ask for amounts, if it does.

    Raises:
        ClaimsUnallocatable: it may not.
    """
    if parent.lacks == CONSUMABLE_CAPACITY:
        asking = next(each for each in parent.alternatives if each.capacity)
        if parent.first_available:
            raise ClaimsUnallocatable(f"claim {claim.key}, subrequest {asking.name}: {_LACKS_AMOUNTS}")
        raise ClaimsUnallocatable(f"claim {claim.key}, request {asking.name}: {_LACKS_AMOUNTS}")


def requested_devices(
    claim: ResourceClaim, parent: ClaimRequest, request: DeviceRequest, classes: Mapping[str, DeviceClass]
) -> RequestedDevices:
    """A request that is well formed, and of a class that exists. The number of one for all devices is yet to be found.

    Raises:
        ClaimsUnallocatable: it is not.
    """
    named = f"claim {claim.key}, request {request.name}"
    for index, expression in enumerate(request.selectors):
        if expression is None:
            raise ClaimsUnallocatable(f"{named}, selector #{index}: CEL expression empty (unsupported selector type?)")
    if request.admin_access and parent.lacks == ADMIN_ACCESS:
        raise ClaimsUnallocatable(f"{named}: admin access is requested, but the feature is disabled")
    if not request.device_class:
        raise ClaimsUnallocatable(f"{named}: missing device class name (unsupported request type?)")
    device_class = classes.get(request.device_class)
    if device_class is None:
        raise ClaimsUnallocatable(
            f"{named}: could not retrieve device class {request.device_class}: "
            f'deviceclass.resource.k8s.io "{request.device_class}" not found'
        )
    if request.mode not in (EXACT_COUNT, ALL):
        raise ClaimsUnallocatable(f"{named}: unsupported count mode {request.mode}")
    number = request.count if request.mode == EXACT_COUNT else 0
    return RequestedDevices(claim, parent, request, device_class, number)


def taints_keep_out(taints: Iterable[DeviceTaint], tolerations: tuple[DeviceToleration, ...]) -> bool:
    """Whether one of the taints keeps away a request with these tolerations."""
    return any(
        taint.effect in KEEPS_OUT and not any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    )


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case _:
            return False
