"""Devices of which claims have more than there is, since who wrote last did not know what others had written.

The API server compares no claim with another one: whoever chooses devices by what was there before may give one away
twice, be it whole, the capacity that shares take of it, or the counters that it shares with its pool.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from flowcore.model.resource_claims import AllocatedDevice, ClaimAllocation
from flowcore.model.resource_slices import DeviceId, PoolId, ResourceSlice
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.pools import PooledDevice, whole_pool
from flowcore.rules.devices.allocation.shared_counters import SharedCounters


def device_had_twice(
    allocation: ClaimAllocation, allocated: AllocatedDevices, slices_of: Callable[[PoolId], Collection[ResourceSlice]]
) -> DeviceId | None:
    """A device of an allocation of which claims have more than there is; None: there is none.

    Args:
        allocated: what all claims have, this one too.
        slices_of: the slices of a pool.
    """
    for result in allocation.devices:
        if not result.admin_access and (
            allocated.is_had_twice(result.device) or _exceeds_pool(result, allocated, slices_of)
        ):
            return result.device
    return None


def _exceeds_pool(
    result: AllocatedDevice, allocated: AllocatedDevices, slices_of: Callable[[PoolId], Collection[ResourceSlice]]
) -> bool:
    """Whether claims take more than there is of a device's capacities, or of counters that it needs."""
    pool_id = PoolId(result.device.driver, result.device.pool)
    slices = slices_of(pool_id)
    if result.share_id is None and not any(each.shared_counters for each in slices):
        return False
    pool = whole_pool(pool_id, slices)
    pooled = None if pool is None else next((each for each in pool.devices if each.device_id == result.device), None)
    if pooled is None:
        return False  # nobody knows what there is
    return _exceeds_capacity(pooled, allocated) or SharedCounters(allocated).is_overdrawn(pooled)


def _exceeds_capacity(pooled: PooledDevice, allocated: AllocatedDevices) -> bool:
    consumed = allocated.consumed(pooled.device_id)
    return any(consumed.get(name, 0) > int(capacity.value) for name, capacity in pooled.device.capacity)
