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
    """The devices of all allocations that were added and not removed.

    Args:
        beside: what others have beside these; it may change.
    """

    def __init__(self, beside: AllocatedDevices | None = None) -> None:
        self._beside = beside
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

    def copy(self) -> AllocatedDevices:
        """An independent copy, beside the same others."""
        copied = AllocatedDevices(self._beside)
        copied._whole, copied._shares = self._whole.copy(), self._shares.copy()
        copied._consumed = {device: amounts.copy() for device, amounts in self._consumed.items()}
        return copied

    def add(self, allocation: ClaimAllocation) -> None:
        """Takes an allocation."""
        self._count(allocation, 1)

    def remove(self, allocation: ClaimAllocation) -> None:
        """Gives back one that was added."""
        self._count(allocation, -1)

    def is_whole(self, device: DeviceId) -> bool:
        """Whether a claim has all of a device."""
        return device in self._whole or (self._beside is not None and self._beside.is_whole(device))

    def is_had_twice(self, device: DeviceId) -> bool:
        """Whether a claim has all of a device, and another one has it or a share of it."""
        whole, shares = self.holders(device)
        return whole > 1 or (whole > 0 and shares > 0)

    def holders(self, device: DeviceId) -> tuple[int, int]:
        """How many claims have all of a device, and how many a share of it."""
        whole, shares = (0, 0) if self._beside is None else self._beside.holders(device)
        return self._whole[device] + whole, self._shares[device] + shares

    def has_consumption(self, device: DeviceId) -> bool:
        """Whether something of a device's capacity is taken."""
        return device in self._consumed or (self._beside is not None and self._beside.has_consumption(device))

    def consumed(self, device: DeviceId) -> Mapping[str, int]:
        """How much of each capacity is taken, in billionths."""
        own = self._consumed.get(device, _NOTHING)
        others = _NOTHING if self._beside is None else self._beside.consumed(device)
        return {name: own.get(name, 0) + others.get(name, 0) for name in own.keys() | others} if others else own

    def is_allocated(self, device: DeviceId) -> bool:
        """Whether any claim has the device or a share of it: it counts against the counters of its pool."""
        own = device in self._whole or device in self._shares or device in self._consumed
        return own or (self._beside is not None and self._beside.is_allocated(device))

    def _count(self, allocation: ClaimAllocation, number: int) -> None:
        for result in allocation.devices:
            if result.admin_access:
                continue
            device = result.device
            _add(self._whole if result.share_id is None else self._shares, device, number)
            if result.share_id is not None and result.consumed:
                amounts = self._consumed.setdefault(device, Counter())
                for name, amount in result.consumed:
                    amounts[name] += number * int(amount)
                if number < 0 and not any(amounts.values()):
                    del self._consumed[device]


def _add(counts: Counter[DeviceId], device: DeviceId, number: int) -> None:
    counts[device] += number
    if not counts[device]:
        del counts[device]
