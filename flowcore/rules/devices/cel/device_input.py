"""A device as expressions see it: the variable ``device``.

Source: dynamic-resource-allocation cel/compile.go (DeviceMatches). Names without a domain are in the driver's.
"""

from __future__ import annotations

from flowcore.model.resource_slices import Device, DeviceAttribute
from flowcore.rules.devices.cel.problems import CelProblem
from flowcore.rules.devices.cel.values import CelQuantity, CelValue, DomainMap, parse_version

#: Fields of the variable.
FIELDS = frozenset(("driver", "allowMultipleAllocations", "attributes", "capacity"))


def device_input(driver: str, device: Device) -> dict[str, CelValue] | CelProblem:
    """The value of ``device``, or why it has none: an attribute is of a type that is not known, or is no version."""
    attributes = DomainMap()
    for name, value in device.attributes:
        known = _value(name, value)
        if isinstance(known, CelProblem):
            return known
        _put(attributes, driver, name, known)
    capacity = DomainMap()
    for name, amount in device.capacity:
        _put(capacity, driver, name, CelQuantity(int(amount.value)))
    return {
        "driver": driver,
        "allowMultipleAllocations": device.allow_multiple,
        "attributes": attributes,
        "capacity": capacity,
    }


def _value(name: str, attribute: DeviceAttribute) -> CelValue:
    if not attribute.kind:
        return CelProblem("runtime", f"attribute {name}: unsupported attribute value")
    if attribute.kind != "version":
        return attribute.value
    version = parse_version(str(attribute.value))
    if version is None:
        return CelProblem("runtime", f'attribute {name}: parse semantic version: "{attribute.value}" is none')
    return version


def _put(domains: DomainMap, driver: str, name: str, value: CelValue) -> None:
    domain, slash, identifier = name.partition("/")
    if not slash:
        domain, identifier = driver, name
    domains.setdefault(domain, {})[identifier] = value
