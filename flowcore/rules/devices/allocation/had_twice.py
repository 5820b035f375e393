"""Devices of which claims have more than there is, since who wrote last did not know what others had written.

The API server compares no claim with another one: whoever chooses devices by what was there before may give one away
twice, be it whole, the capacity that shares take of it, or the counters that it shares with its pool.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from flowcore.model.resource_claims import ClaimAllocation
from flowcore.model.resource_slices import CounterSet, Device, DeviceId, PoolId, ResourceSlice
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.pools import Counters, whole_pool


@dataclass(frozen=True, slots=True)
class PoolAmounts:
    """What a pool has of capacities and counters that several claims may take of.

    Attributes:
        devices: those that have such a capacity, or take of such a counter.
        consumers: counter set -> the devices that take of it, and what.
    """

    devices: dict[DeviceId, Device] = field(default_factory=dict)
    counters: Counters = field(default_factory=dict)
    consumers: dict[str, list[tuple[DeviceId, CounterSet]]] = field(default_factory=dict)

    @classmethod
    def of(cls, pool_id: PoolId, slices: Collection[ResourceSlice]) -> PoolAmounts:
        """The amounts of a pool; nothing if nobody knows what there is, since its slices are not complete."""
        pool = whole_pool(pool_id, slices)
        if pool is None:
            return cls()
        amounts = cls(counters=pool.counters)
        for pooled in pool.devices:
            if pooled.device.allow_multiple or pooled.device.consumes:
                amounts.devices[pooled.device_id] = pooled.device
            for taken in pooled.device.consumes:
                amounts.consumers.setdefault(taken.name, []).append((pooled.device_id, taken))
        return amounts

    def are_exceeded(self, device_id: DeviceId, allocated: AllocatedDevices) -> bool:
        """Whether claims take more than there is of a device's capacities, or of counters that it needs."""
        device = self.devices.get(device_id)
        if device is None:
            return False
        consumed = allocated.consumed(device_id)
        if any(consumed.get(name, 0) > int(capacity.value) for name, capacity in device.capacity):
            return True
        return any(self._is_overdrawn(needed, allocated) for needed in device.consumes)

    def _is_overdrawn(self, needed: CounterSet, allocated: AllocatedDevices) -> bool:
        left = {name: int(self.counters[needed.name][name]) for name, _ in needed.counters}
        for device_id, taken in self.consumers[needed.name]:
            if allocated.is_allocated(device_id):
                for name, amount in taken.counters:
                    if name in left:
                        left[name] -= int(amount)
        return any(amount < 0 for amount in left.values())


def device_had_twice(
    allocation: ClaimAllocation, allocated: AllocatedDevices, amounts_of: Callable[[PoolId], PoolAmounts]
) -> DeviceId | None:
    """A device of an allocation of which claims have more than there is; None: there is none.

    Args:
        allocated: what all claims have, this one too.
    """
    own = AllocatedDevices()
    own.add(allocation)
    for result in allocation.devices:
        if result.admin_access:
            continue
        amounts = amounts_of(PoolId(result.device.driver, result.device.pool))
        # If the claim by itself has more than there is, its pool has shrunk since: no other claim is in its way.
        is_exceeded = amounts.are_exceeded(result.device, allocated) and not amounts.are_exceeded(result.device, own)
        if allocated.is_had_twice(result.device) or is_exceeded:
            return result.device
    return None
