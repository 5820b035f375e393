"""Devices that claims have: whole ones, and shares.

Source: kube-scheduler plugins/dynamicresources (allocateddevices.go), dynamic-resource-allocation structured
(IsDeviceAllocated). What is had with admin access leaves its device to others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from flowcore.model.resource_claims import ClaimAllocation, ResourceClaim
from flowcore.model.resource_slices import DeviceId

_NOTHING: Mapping[str, int] = {}


class AllocatedDevices:
    """The devices of all allocations that were added and not removed."""

    def __init__(self) -> None:
        self._whole = Counter[DeviceId]()
        self._shares = Counter[DeviceId]()
        self._consumed: dict[DeviceId, Counter[str]] = {}

    @classmethod
    def of_claims(cls, claims: Iterable[ResourceClaim]) -> AllocatedDevices:
        """What these claims have."""
        allocated = cls()
        for claim in claims:
            if claim.allocation is not None:
                allocated.add(claim.allocation)
        return allocated

    def add(self, allocation: ClaimAllocation) -> None:
        """Takes an allocation."""
        self._count(allocation, 1)

    def remove(self, allocation: ClaimAllocation) -> None:
        """Gives back one that was added."""
        self._count(allocation, -1)

    def is_whole(self, device: DeviceId) -> bool:
        """Whether a claim has all of a device."""
        return device in self._whole

    def has_consumption(self, device: DeviceId) -> bool:
        """Whether something of a device's capacity is taken."""
        return device in self._consumed

    def consumed(self, device: DeviceId) -> Mapping[str, int]:
        """How much of each capacity is taken, in billionths."""
        return self._consumed.get(device, _NOTHING)

    def is_allocated(self, device: DeviceId) -> bool:
        """Whether any claim has the device or a share of it: it counts against the counters of its pool."""
        return device in self._whole or device in self._shares or device in self._consumed

    def _count(self, allocation: ClaimAllocation, number: int) -> None:
        for result in allocation.devices:
            if result.admin_access:
                continue
            device = result.device
            _add(self._whole if result.share_id is None else self._shares, device, number)
            if result.share_id is not None and result.consumed:
                amounts = self._consumed.setdefault(device, Counter())
                for name, amount in result.consumed:
                    amounts[name] += number * amount
                if number < 0 and not any(amounts.values()):
                    del self._consumed[device]


def _add(counts: Counter[DeviceId], device: DeviceId, number: int) -> None:
    counts[device] += number
    if not counts[device]:
        del counts[device]
