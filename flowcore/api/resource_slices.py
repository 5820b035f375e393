"""Resource slices."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from flowcore.api.base import Quantity, Wire, WireMeta
from flowcore.api.device_selectors import to_device_amounts, to_nanos, to_terms
from flowcore.api.selectors import WireNodeSelector
from flowcore.model.errors import ModelError
from flowcore.model.resource_slices import (
    CounterSet,
    Device,
    DeviceAmounts,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    NodeReach,
    RequestPolicy,
    ResourceSlice,
    ValidRange,
)


class WireDeviceAttribute(Wire):
    """Exactly one is set. Lists, which a gate that is off in 1.36 brings, are not read."""

    integer: int | None = msgspec.field(default=None, name="int")
    boolean: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class WireValidRange(Wire):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class WireRequestPolicy(Wire):
    default: Quantity | None = None
    valid_values: list[Quantity] | None = None
    valid_range: WireValidRange | None = None


class WireDeviceCapacity(Wire):
    value: Quantity = "0"
    request_policy: WireRequestPolicy | None = None


class WireCounter(Wire):
    value: Quantity = "0"


class WireCounterSet(Wire):
    name: str = ""
    counters: dict[str, WireCounter] | None = None


class WireCounterConsumption(Wire):
    counter_set: str = ""
    counters: dict[str, WireCounter] | None = None


class WireDeviceTaint(Wire):
    key: str = ""
    value: str = ""
    effect: str = ""


class WireDevice(Wire):
    name: str = ""
    attributes: dict[str, WireDeviceAttribute] | None = None
    capacity: dict[str, WireDeviceCapacity] | None = None
    consumes_counters: list[WireCounterConsumption] | None = None
    node_name: str | None = None
    node_selector: WireNodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[WireDeviceTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None


class WirePool(Wire):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class WireResourceSliceSpec(Wire):
    driver: str = ""
    pool: WirePool | None = None
    node_name: str | None = None
    node_selector: WireNodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[WireDevice] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[WireCounterSet] | None = None


class WireResourceSlice(Wire):
    metadata: WireMeta
    spec: WireResourceSliceSpec | None = None


def to_resource_slice(wire: WireResourceSlice) -> ResourceSlice:
    """A resource slice.

    Raises:
        ModelError: an amount is no quantity; the error names slice, device and field.
    """
    spec = wire.spec or WireResourceSliceSpec()
    pool, name = spec.pool or WirePool(), wire.metadata.name
    try:
        devices = tuple(_device(device, f"spec.devices[{device.name}]") for device in spec.devices or ())
        counters = tuple(
            CounterSet(each.name, _counters(each.counters, f"spec.sharedCounters[{each.name}].counters"))
            for each in spec.shared_counters or ()
        )
    except ModelError as error:
        raise ModelError(f"ResourceSlice {name}: {error.field}", error.problem) from None
    return ResourceSlice(
        name=name,
        driver=spec.driver,
        pool=pool.name,
        generation=pool.generation,
        slice_count=pool.resource_slice_count,
        reach=NodeReach(spec.node_name or "", bool(spec.all_nodes), to_terms(spec.node_selector)),
        per_device=bool(spec.per_device_node_selection),
        devices=devices,
        shared_counters=counters,
    )


def _device(wire: WireDevice, field: str) -> Device:
    return Device(
        name=wire.name,
        attributes=tuple((name, _attribute(value)) for name, value in sorted((wire.attributes or {}).items())),
        capacity=tuple(
            (name, _capacity(value, f"{field}.capacity[{name}]"))
            for name, value in sorted((wire.capacity or {}).items())
        ),
        consumes=tuple(
            CounterSet(
                each.counter_set, _counters(each.counters, f"{field}.consumesCounters[{each.counter_set}].counters")
            )
            for each in wire.consumes_counters or ()
        ),
        taints=tuple(DeviceTaint(taint.key, taint.value, taint.effect) for taint in wire.taints or ()),
        reach=NodeReach(wire.node_name or "", bool(wire.all_nodes), to_terms(wire.node_selector)),
        binds_to_node=bool(wire.binds_to_node),
        binding_conditions=tuple(wire.binding_conditions or ()),
        failure_conditions=tuple(wire.binding_failure_conditions or ()),
        allow_multiple=bool(wire.allow_multiple_allocations),
    )


def _attribute(wire: WireDeviceAttribute) -> DeviceAttribute:
    if wire.integer is not None:
        return DeviceAttribute("int", wire.integer)
    if wire.boolean is not None:
        return DeviceAttribute("bool", wire.boolean)
    if wire.string is not None:
        return DeviceAttribute("string", wire.string)
    return DeviceAttribute("") if wire.version is None else DeviceAttribute("version", wire.version)


def _counters(wire: dict[str, WireCounter] | None, field: str) -> DeviceAmounts:
    return to_device_amounts({name: counter.value for name, counter in (wire or {}).items()}, field)


def _capacity(wire: WireDeviceCapacity, field: str) -> DeviceCapacity:
    value = to_nanos(wire.value, f"{field}.value")
    return DeviceCapacity(value, _policy(wire.request_policy, f"{field}.requestPolicy"))


def _policy(wire: WireRequestPolicy | None, field: str) -> RequestPolicy | None:
    if wire is None:
        return None
    return RequestPolicy(
        default=_optional(wire.default, f"{field}.default"),
        valid_values=tuple(to_nanos(value, f"{field}.validValues") for value in wire.valid_values or ()),
        valid_range=_range(wire.valid_range, f"{field}.validRange"),
    )


def _range(wire: WireValidRange | None, field: str) -> ValidRange | None:
    if wire is None:
        return None
    return ValidRange(
        least=_optional(wire.min, f"{field}.min"),
        most=_optional(wire.max, f"{field}.max"),
        step=_optional(wire.step, f"{field}.step"),
    )


def _optional(amount: Quantity | None, field: str) -> Decimal | None:
    return None if amount is None else to_nanos(amount, field)
