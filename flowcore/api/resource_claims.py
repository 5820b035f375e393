"""Resource claims.

Source of what makes a device ready: kube-scheduler plugins/dynamicresources (isClaimReadyForBinding).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from flowcore.api.base import Quantities, Wire, WireMeta
from flowcore.api.device_selectors import (
    WireDeviceSelector,
    to_device_amounts,
    to_expressions,
    to_terms,
)
from flowcore.api.kinds import POD_GROUPS
from flowcore.api.named_claims import to_pod_claims
from flowcore.api.pod_objects import WireOwner, WirePod
from flowcore.api.selectors import WireNodeSelector
from flowcore.model.errors import ModelError
from flowcore.model.gang_spec import GangSource
from flowcore.model.resource_claims import (
    EXACT_COUNT,
    AllocatedDevice,
    AttributeConstraint,
    ClaimAllocation,
    ClaimingPod,
    ClaimRequest,
    DeviceRequest,
    DeviceToleration,
    ResourceClaim,
)
from flowcore.model.resource_slices import DeviceId

#: Under this name Thalweg writes, and the API server remembers what it wrote (metadata.managedFields).
FIELD_MANAGER: Final = "thalweg"
#: Characters of a driver's message that are told.
_MESSAGE_LENGTH: Final = 200


class WireDeviceToleration(Wire):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class WireRequestedCapacity(Wire):
    requests: Quantities | None = None


class WireDeviceRequest(Wire):
    """What is asked for exactly, and an alternative: the latter has a name, but no admin access."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[WireDeviceSelector] | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: list[WireDeviceToleration] | None = None
    capacity: WireRequestedCapacity | None = None


class WireClaimRequest(Wire):
    name: str = ""
    exactly: WireDeviceRequest | None = None
    first_available: list[WireDeviceRequest] | None = None


class WireAttributeConstraint(Wire):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class WireClaimDevices(Wire):
    requests: list[WireClaimRequest] | None = None
    constraints: list[WireAttributeConstraint] | None = None


class WireDeviceClaimSpec(Wire):
    devices: WireClaimDevices | None = None


class WireAllocatedDevice(Wire):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: Quantities | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class WireAllocatedDevices(Wire):
    results: list[WireAllocatedDevice] | None = None


class WireAllocation(Wire):
    devices: WireAllocatedDevices | None = None
    node_selector: WireNodeSelector | None = None


class WireConsumer(Wire):
    uid: str = ""


class WireDeviceCondition(Wire):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class WireDeviceStatus(Wire):
    """What a driver says of a device that a claim has."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[WireDeviceCondition] | None = None


class WireDeviceClaimStatus(Wire):
    allocation: WireAllocation | None = None
    reserved_for: list[WireConsumer] | None = None
    devices: list[WireDeviceStatus] | None = None


class WireWriter(Wire):
    """Who wrote which fields, as the API server remembers it."""

    manager: str = ""
    subresource: str = ""
    fields_v1: Any = msgspec.field(default=None, name="fieldsV1")


class WireDeviceClaimAnnotations(Wire):
    extended: str | None = msgspec.field(default=None, name="resource.kubernetes.io/extended-resource-claim")


class WireDeviceClaimMeta(WireMeta):
    owner_references: list[WireOwner] | None = None
    annotations: WireDeviceClaimAnnotations | None = None
    managed_fields: list[WireWriter] | None = None


class WireDeviceClaim(Wire):
    metadata: WireDeviceClaimMeta
    spec: WireDeviceClaimSpec | None = None
    status: WireDeviceClaimStatus | None = None


class WireDeviceClaimTemplateSpec(Wire):
    spec: WireDeviceClaimSpec | None = None


class WireDeviceClaimTemplate(Wire):
    metadata: WireMeta
    spec: WireDeviceClaimTemplateSpec | None = None


def to_claim_of_template(wire: WireDeviceClaimTemplate) -> ResourceClaim:
    """A claim that a template makes, with the template's name, and nobody's yet.

    Raises:
        ModelError: as ``to_resource_claim``.
    """
    meta = WireDeviceClaimMeta(name=wire.metadata.name, namespace=wire.metadata.namespace)
    return to_resource_claim(WireDeviceClaim(meta, wire.spec.spec if wire.spec else None))


def to_resource_claim(wire: WireDeviceClaim) -> ResourceClaim:
    """A resource claim.

    Raises:
        ModelError: an amount is no quantity; the error names claim, request and field.
    """
    meta, status = wire.metadata, wire.status or WireDeviceClaimStatus()
    is_extended = meta.annotations is not None and meta.annotations.extended == "true"
    devices = (wire.spec.devices if wire.spec else None) or WireClaimDevices()
    namespace = meta.namespace or "default"
    controller = next((owner for owner in meta.owner_references or () if owner.controller), None)
    try:
        requests = tuple(_request(each, f"spec.devices.requests[{each.name}]") for each in devices.requests or ())
        allocation = None if status.allocation is None else _allocation(status.allocation)
    except ModelError as error:
        raise ModelError(f"ResourceClaim {namespace}/{meta.name}: {error.field}", error.problem) from None
    return ResourceClaim(
        namespace=namespace,
        name=meta.name,
        uid=meta.uid or "",
        controller="" if controller is None else controller.uid,
        controller_group=controller.name if controller is not None and _is_pod_group(controller) else "",
        is_being_deleted=meta.deletion_timestamp is not None,
        requests=requests,
        constraints=tuple(
            AttributeConstraint(tuple(each.requests or ()), each.match_attribute or "", each.distinct_attribute or "")
            for each in devices.constraints or ()
        ),
        allocation=allocation,
        reserved_for=tuple(consumer.uid for consumer in status.reserved_for or ()),
        is_ours=any(
            (allocation is not None and _wrote(writer, "status", "allocation"))
            or (is_extended and _wrote(writer, "spec"))
            for writer in meta.managed_fields or ()
        ),
        awaited=() if allocation is None else tuple(_awaited(allocation, status.devices or ())),
        failure="" if allocation is None else _failure(allocation, status.devices or ()),
        is_extended=is_extended,
    )


def to_claiming_pod(wire: WirePod) -> ClaimingPod:
    """A pod as verdicts on devices see it."""
    meta, status = wire.metadata, wire.status
    return ClaimingPod(
        namespace=meta.namespace or "default",
        name=meta.name,
        uid=meta.uid or "",
        claims=to_pod_claims(wire.spec.resource_claims),
        made=tuple(
            (each.name, each.resource_claim_name or "")
            for each in (status.resource_claim_statuses if status else None) or ()
        ),
    )


def _is_pod_group(owner: WireOwner) -> bool:
    """Whether it is a PodGroup of Kubernetes, of any version (resourceclaim isForPodGroupByPod)."""
    kind = POD_GROUPS[GangSource.NATIVE]
    return owner.kind == kind.kind and owner.api_version.startswith(f"{kind.group}/")


def _wrote(writer: WireWriter, part: str, field: str = "") -> bool:
    """Whether Thalweg is the one who wrote a part of a claim, "spec" or "status", or a field of it."""
    if (writer.manager, writer.subresource) != (FIELD_MANAGER, "status" if part == "status" else ""):
        return False
    written = writer.fields_v1.get(f"f:{part}") if isinstance(writer.fields_v1, dict) else None
    return isinstance(written, dict) and (not field or f"f:{field}" in written)


def _conditions(device: AllocatedDevice, reported: Sequence[WireDeviceStatus]) -> dict[str, WireDeviceCondition]:
    """What a driver says of a device, by type; only what is true."""
    return {
        condition.type: condition
        for status in reported
        if (DeviceId(status.driver, status.pool, status.device), status.share_id) == (device.device, device.share_id)
        for condition in status.conditions or ()
        if condition.status == "True"
    }


def _awaited(allocation: ClaimAllocation, reported: Sequence[WireDeviceStatus]) -> Iterator[str]:
    """Devices that may not be used yet, each with the conditions that it lacks."""
    for device in allocation.devices:
        known = _conditions(device, reported) if device.binding_conditions else {}
        lacking = [condition for condition in device.binding_conditions if condition not in known]
        if lacking:
            yield f"{device.device} ({', '.join(lacking)})"


def _failure(allocation: ClaimAllocation, reported: Sequence[WireDeviceStatus]) -> str:
    """The first condition by which a driver says that a device will never be ready."""
    for device in allocation.devices:
        known = _conditions(device, reported) if device.binding_conditions and device.failure_conditions else {}
        for condition in device.failure_conditions:
            if condition in known:
                what, why = known[condition], ""
                why = f", {what.reason}" * bool(what.reason) + f": {what.message[:_MESSAGE_LENGTH]}" * bool(
                    what.message
                )
                return f"{device.device} ({condition}{why})"
    return ""


def _request(wire: WireClaimRequest, field: str) -> ClaimRequest:
    return ClaimRequest(
        name=wire.name,
        exactly=None if wire.exactly is None else _alternative(wire.exactly, wire.name, f"{field}.exactly"),
        first_available=tuple(
            _alternative(each, each.name, f"{field}.firstAvailable[{each.name}]") for each in wire.first_available or ()
        ),
    )


def _alternative(wire: WireDeviceRequest, name: str, field: str) -> DeviceRequest:
    capacity = wire.capacity.requests if wire.capacity else None
    return DeviceRequest(
        name=name,
        device_class=wire.device_class_name,
        selectors=to_expressions(wire.selectors),
        mode=wire.allocation_mode or EXACT_COUNT,
        count=wire.count or 1,
        admin_access=bool(wire.admin_access),
        tolerations=tuple(
            DeviceToleration(each.key, each.operator or "Equal", each.value, each.effect, each.toleration_seconds)
            for each in wire.tolerations or ()
        ),
        capacity=to_device_amounts(capacity, f"{field}.capacity.requests"),
    )


def _allocation(wire: WireAllocation) -> ClaimAllocation:
    results = (wire.devices.results if wire.devices else None) or ()
    return ClaimAllocation(
        devices=tuple(
            AllocatedDevice(
                request=result.request,
                device=DeviceId(result.driver, result.pool, result.device),
                admin_access=bool(result.admin_access),
                share_id=result.share_id,
                consumed=to_device_amounts(
                    result.consumed_capacity, f"status.allocation.devices.results[{result.device}].consumedCapacity"
                ),
                binding_conditions=tuple(result.binding_conditions or ()),
                failure_conditions=tuple(result.binding_failure_conditions or ()),
            )
            for result in results
        ),
        terms=to_terms(wire.node_selector),
    )
