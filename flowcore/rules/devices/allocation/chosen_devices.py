"""The devices that a search has chosen so far, and what others may still have beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from flowcore.model.resource_claims import AllocatedDevice
from flowcore.model.resource_slices import DeviceId
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.attribute_constraints import ConstraintState
from flowcore.rules.devices.allocation.consumable_capacity import FinerThanStepsError, consumed_capacity, fits_capacity
from flowcore.rules.devices.allocation.pools import PooledDevice
from flowcore.rules.devices.allocation.requested_devices import ClaimsUnallocatable, RequestedDevices, taints_keep_out
from flowcore.rules.devices.allocation.shared_counters import SharedCounters


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    """A device that a request has for now.

    Attributes:
        consumed: what the request takes of its capacities, if others may have shares of it too; else None.
        takes_counters: it is the first share, or the whole, of a device that takes counters of its pool.
    """

    pooled: PooledDevice
    requested: RequestedDevices
    consumed: Mapping[str, int] | None
    takes_counters: bool

    def to_allocated(self) -> AllocatedDevice:
        """As an allocation has it."""
        return AllocatedDevice(
            request=self.requested.reference,
            device=self.pooled.device_id,
            admin_access=self.requested.request.admin_access,
            share_id=None if self.consumed is None else "",
            consumed=tuple((name, Decimal(amount)) for name, amount in sorted((self.consumed or {}).items())),
            binding_conditions=self.pooled.device.binding_conditions,
            failure_conditions=self.pooled.device.failure_conditions,
        )


class ChosenDevices:
    """Choices of all claims, the last one undone first."""

    def __init__(self, allocated: AllocatedDevices, constraints: Sequence[Sequence[ConstraintState]]) -> None:
        self._allocated = allocated
        self._constraints = constraints
        self._counters = SharedCounters(allocated)
        self._whole: dict[DeviceId, list[int]] = defaultdict(list)
        self._shares: dict[DeviceId, list[Mapping[str, int]]] = defaultdict(list)
        self.of_claims: list[list[ChosenDevice]] = [[] for _ in constraints]

    def is_in_use(self, claim: int, requested: RequestedDevices, pooled: PooledDevice) -> bool:
        """Whether a device cannot serve a request since a claim has it. With admin access only the own claim counts."""
        holders = self._whole.get(pooled.device_id, ())
        if requested.request.admin_access:
            return claim in holders
        return bool(holders) or self._allocated.is_whole(pooled.device_id)

    def is_untouched(self, pooled: PooledDevice) -> bool:
        """Whether no claim has anything of a device."""
        device = pooled.device_id
        return not (self._allocated.is_allocated(device) or self._whole.get(device) or self._shares.get(device))

    def fits(self, requested: RequestedDevices, pooled: PooledDevice) -> Mapping[str, int] | None:
        """What a request would take of a device's capacities; None: they are not there.

        Raises:
            ClaimsUnallocatable: an amount cannot be rounded to what the device gives out.
        """
        taken, device = amounts_of(requested, pooled), pooled.device_id
        others = (self._allocated.consumed(device), *self._shares.get(device, ()))
        return taken if taken is not None and fits_capacity(taken, pooled.device, *others) else None

    def take(self, claim: int, requested: RequestedDevices, pooled: PooledDevice) -> bool:
        """Chooses a device that matches; False: a rule forbids it, and nothing has changed.

        Raises:
            ClaimsUnallocatable: a constraint forbids a device where the request asks for all of them.
        """
        device, is_shared = pooled.device, pooled.device.allow_multiple
        if not device.is_allocatable or self.is_in_use(claim, requested, pooled):
            return False
        if taints_keep_out(device.taints, requested.request.tolerations):
            return False
        takes_counters = bool(device.consumes) and not (is_shared and self._has_share(pooled.device_id))
        if takes_counters and not self._counters.take(pooled):
            return False
        # Amounts last, as kube-scheduler does: a constraint that forbids one of all devices is an error before that.
        keeps_constraints = self._constrain(claim, requested, pooled)
        taken = self.fits(requested, pooled) if keeps_constraints else None
        if taken is None:
            if keeps_constraints:
                self._release(claim, requested, pooled, len(self._constraints[claim]))
            if takes_counters:
                self._counters.release(pooled)
            return False
        if is_shared:
            self._shares[pooled.device_id].append(taken)
        else:
            self._whole[pooled.device_id].append(claim)
        self.of_claims[claim].append(ChosenDevice(pooled, requested, taken if is_shared else None, takes_counters))
        return True

    def undo(self, claim: int) -> None:
        """Gives back the last device of a claim."""
        chosen = self.of_claims[claim].pop()
        pooled = chosen.pooled
        if chosen.consumed is None:
            self._whole[pooled.device_id].pop()
        else:
            self._shares[pooled.device_id].pop()
        self._release(claim, chosen.requested, pooled, len(self._constraints[claim]))
        if chosen.takes_counters:
            self._counters.release(pooled)

    def _has_share(self, device: DeviceId) -> bool:
        return self._allocated.has_consumption(device) or bool(self._shares.get(device))

    def _constrain(self, claim: int, requested: RequestedDevices, pooled: PooledDevice) -> bool:
        for position, constraint in enumerate(self._constraints[claim]):
            if constraint.add(requested.parent.name, requested.alternative, pooled.device, pooled.driver):
                continue
            self._release(claim, requested, pooled, position)
            if requested.takes_all:
                raise ClaimsUnallocatable(
                    f"claim {requested.claim.key}, request {requested.request.name}: cannot add device "
                    f"{pooled.device_id} because a claim constraint would not be satisfied"
                )
            return False
        return True

    def _release(self, claim: int, requested: RequestedDevices, pooled: PooledDevice, added: int) -> None:
        for constraint in reversed(self._constraints[claim][:added]):
            constraint.remove(requested.parent.name, requested.alternative, pooled.device, pooled.driver)


def amounts_of(requested: RequestedDevices, pooled: PooledDevice) -> Mapping[str, int] | None:
    """What a request takes of a device's capacities; None: its driver does not give out such amounts.

    Raises:
        ClaimsUnallocatable: an amount cannot be rounded to what the device gives out.
    """
    try:
        return consumed_capacity(requested.request.capacity, pooled.device)
    except FinerThanStepsError as error:
        named = f"claim {requested.claim.key}, request {requested.request.name}"
        device = pooled.device.name if requested.takes_all else str(pooled.device_id)
        raise ClaimsUnallocatable(f"{named}: checking capacity for device {device}: {error.reason}") from None
