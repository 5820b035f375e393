"""Device classes."""

from __future__ import annotations

from flowcore.api.base import Wire, WireMeta, to_seconds
from flowcore.api.claim_allocations import WireDeviceConfig, config_text
from flowcore.api.device_selectors import WireDeviceSelector, to_expressions
from flowcore.model.devices import DeviceClass


class WireDeviceClassSpec(Wire):
    extended_resource_name: str | None = None
    selectors: list[WireDeviceSelector] | None = None
    config: list[WireDeviceConfig] | None = None


class WireDeviceClass(Wire):
    metadata: WireMeta
    spec: WireDeviceClassSpec | None = None


def to_device_class(wire: WireDeviceClass) -> DeviceClass:
    """A device class."""
    spec = wire.spec or WireDeviceClassSpec()
    return DeviceClass(
        wire.metadata.name,
        spec.extended_resource_name or "",
        to_expressions(spec.selectors),
        tuple(map(config_text, spec.config or ())),
        to_seconds(wire.metadata.creation_timestamp),
    )
