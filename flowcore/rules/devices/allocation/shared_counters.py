"""Counters that the partitions of a pool share: what a device takes of them must be there.

Source: dynamic-resource-allocation structured (checkAvailableCounters). kube-scheduler 1.36 keeps counters by the
pool's name alone, so that two drivers with a pool of one name are counted as one pool; here each pool has its own.
"""

from __future__ import annotations

from flowcore.model.resource_slices import PoolId
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.pools import Pool, PooledDevice

#: Counter set and counter -> billionths.
_Amounts = dict[tuple[str, str], int]


class SharedCounters:
    """What is left of the counters of each pool while devices are chosen."""

    def __init__(self, allocated: AllocatedDevices) -> None:
        self._allocated = allocated
        self._left: dict[PoolId, _Amounts] = {}

    def take(self, pooled: PooledDevice) -> bool:
        """Takes what a device needs; False: something is missing, and nothing has changed."""
        left = self._left_of(pooled.pool)
        needs = _needs(pooled)
        # Also a counter that the device does not need: one that is overdrawn says that the pool's state is not known.
        if any(amount < needs.get(counter, 0) for counter, amount in left.items()):
            return False
        for counter, amount in needs.items():
            left[counter] -= amount
        return True

    def release(self, pooled: PooledDevice) -> None:
        """Gives back what was taken for a device."""
        left = self._left_of(pooled.pool)
        for counter, amount in _needs(pooled).items():
            left[counter] += amount

    def _left_of(self, pool: Pool) -> _Amounts:
        left = self._left.get(pool.pool_id)
        if left is None:
            left = self._left[pool.pool_id] = self._available(pool)
        return left

    def _available(self, pool: Pool) -> _Amounts:
        left = {
            (name, counter): int(value) for name, values in pool.counters.items() for counter, value in values.items()
        }
        for pooled in pool.consumers:
            if self._allocated.is_allocated(pooled.device_id):
                for counter, amount in _needs(pooled).items():
                    left[counter] -= amount
        return left


def _needs(pooled: PooledDevice) -> _Amounts:
    needs: _Amounts = {}
    for consumption in pooled.device.consumes:
        for counter, amount in consumption.counters:
            key = (consumption.name, counter)
            needs[key] = needs.get(key, 0) + int(amount)
    return needs
