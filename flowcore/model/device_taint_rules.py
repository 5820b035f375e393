"""DeviceTaintRules: an administrator's taints of devices, beside those that drivers publish.

Source: resource/v1 DeviceTaintRule; dynamic-resource-allocation resourceslice/tracker (applyPatches).
"""

from __future__ import annotations

import msgspec

from flowcore.model.resource_slices import DeviceTaint, ResourceSlice


class DeviceTaintRule(msgspec.Struct, frozen=True, gc=False):
    """A taint, and the devices that have it.

    Attributes:
        selects: False: no device, since the rule has no selector.
        driver, pool, device: what the devices are of and their name; None: any.
    """

    name: str
    taint: DeviceTaint
    selects: bool = True
    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def is_about(self, resource_slice: ResourceSlice) -> bool:
        """Whether devices of a slice may have the taint."""
        return (
            self.selects
            and self.driver in (None, resource_slice.driver)
            and self.pool in (None, resource_slice.pool)
            and (self.device is None or any(device.name == self.device for device in resource_slice.devices))
        )
