"""Device taint rules."""

from __future__ import annotations

from flowcore.api.base import Wire, WireMeta
from flowcore.api.resource_slices import WireDeviceTaint
from flowcore.model.device_taint_rules import DeviceTaintRule
from flowcore.model.resource_slices import DeviceTaint


class WireTaintedDevices(Wire):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class WireDeviceTaintRuleSpec(Wire):
    taint: WireDeviceTaint | None = None
    device_selector: WireTaintedDevices | None = None


class WireDeviceTaintRule(Wire):
    metadata: WireMeta
    spec: WireDeviceTaintRuleSpec | None = None


def to_device_taint_rule(wire: WireDeviceTaintRule) -> DeviceTaintRule:
    """A device taint rule."""
    spec = wire.spec or WireDeviceTaintRuleSpec()
    taint, selector = spec.taint or WireDeviceTaint(), spec.device_selector or WireTaintedDevices()
    return DeviceTaintRule(
        wire.metadata.name,
        DeviceTaint(taint.key, taint.value, taint.effect),
        selects=spec.device_selector is not None,
        driver=selector.driver,
        pool=selector.pool,
        device=selector.device,
    )
