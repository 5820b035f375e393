"""Device classes."""

from __future__ import annotations

from flowcore.api.base import Wire, WireMeta
from flowcore.model.devices import DeviceClass


class WireDeviceClassSpec(Wire):
    extended_resource_name: str | None = None


class WireDeviceClass(Wire):
    metadata: WireMeta
    spec: WireDeviceClassSpec | None = None


def to_device_class(wire: WireDeviceClass) -> DeviceClass:
    """A device class."""
    return DeviceClass(wire.metadata.name, (wire.spec.extended_resource_name if wire.spec else None) or "")
