"""Device claims of pods that are on their way to a node by our binding, and which devices other claims have too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from flowcore.cluster.arrays.device_objects import ClaimKey, DeviceObjects
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import PlannedClaim, ResourceClaim
from flowcore.model.resource_slices import DeviceId, PoolId, ResourceSlice
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.had_twice import PoolAmounts, device_had_twice
from thalweg_operator.reservations.ledger.reservation import Reservation

K = TypeVar("K")


class Releasing(msgspec.Struct, gc=False):
    """Claims that a pod, or all pods of a PodGroup, have no use for any more.

    Attributes:
        claims: keys of the claims.
        writes: how many writes are not answered yet. Once all are, the watch may still have to show it.
    """

    claims: tuple[ClaimKey, ...] = ()
    writes: int = 0


class DeviceClaimRecords:
    """What is remembered of device claims between steps.

    Attributes:
        users: keys of the pods with a reservation that a claim is planned for, by the claim's key.
        releasing: what is given back, by the uid of the pod or the PodGroup; meanwhile its pods are not planned.
        ended: reservations that ended without their pod being bound, and whose claims may be written.
        idle_since: since when nobody uses what a claim has, by its key.
        wanted: claims that a plan would have freed for a pod, by the pod's uid: it can have devices elsewhere.
    """

    def __init__(self) -> None:
        self.users: dict[ClaimKey, set[str]] = {}
        self.releasing: dict[str, Releasing] = {}
        self.ended: list[Reservation] = []
        self.idle_since: dict[ClaimKey, float] = {}
        self.wanted: dict[str, tuple[ClaimKey, ...]] = {}
        #: What claims have, as the watch shows it.
        self._allocated = AllocatedDevices()
        #: Generation of the cluster when a slice of a pool last changed, and names of the slices of each pool.
        self._pool_changes: dict[PoolId, int] = {}
        self._slices: dict[PoolId, set[str]] = {}
        #: What pools have that several claims may take of, as far as it was asked for since their last change.
        self._amounts: dict[PoolId, PoolAmounts] = {}

    # --- reservations ---

    def replace(self, before: Reservation | None, after: Reservation | None) -> None:
        """A reservation changed, or it came (before: None), or it ended (after: None)."""
        if before is not None:
            for key in {claim.key for claim in before.device_claims}:  # a pod may name one twice
                _discard(self.users, key, before.pod.key)
        if after is not None:
            for claim in after.device_claims:
                self.users.setdefault(claim.key, set()).add(after.pod.key)

    def take_ended(self) -> list[Reservation]:
        """Reservations that ended since the last call."""
        ended, self.ended = self.ended, []
        return ended

    def want_freed(self, pod: Pod, claims: tuple[ClaimKey, ...]) -> None:
        """The last plan would have these claims of a pod freed, whoever allocated them; (): none."""
        if claims:
            self.wanted[pod.uid] = claims
        else:
            self.wanted.pop(pod.uid, None)

    def is_releasing(self, pod: Pod) -> bool:
        """Whether claims of a pod are given back."""
        if not self.releasing:
            return False
        devices = pod.pod_class.devices
        is_of_group = devices is not None and devices.group is not None and devices.group.uid in self.releasing
        return is_of_group or pod.uid in self.releasing

    # --- what others take ---

    def forget_pool_changes(self) -> None:
        """What changed before is known to the next plan."""
        self._pool_changes.clear()

    def claim_changed(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        """A claim changed."""
        old = None if before is None else before.allocation
        new = None if after is None else after.allocation
        if old is not None:
            self._allocated.remove(old)
        if new is not None:
            self._allocated.add(new)

    def slice_changed(
        self, name: str, before: ResourceSlice | None, after: ResourceSlice | None, generation: int
    ) -> None:
        """A slice came, changed or went: what a plan knew of its pool does not hold any more."""
        for resource_slice in (before, after):
            if resource_slice is not None:
                self._pool_changes[resource_slice.pool_id] = generation
                self._amounts.pop(resource_slice.pool_id, None)
        if before is not None:
            _discard(self._slices, before.pool_id, name)
        if after is not None:
            self._slices.setdefault(after.pool_id, set()).add(name)

    def pools_changed_since(self, claims: Iterable[PlannedClaim], generation: int) -> bool:
        """Whether a pool of the devices of claims changed after a generation of the cluster."""
        pools = {PoolId(each.device.driver, each.device.pool) for claim in claims for each in claim.allocation.devices}
        return any(self._pool_changes.get(pool, 0) > generation for pool in pools)

    def had_twice(
        self, claims: Iterable[PlannedClaim], objects: DeviceObjects
    ) -> Iterator[tuple[PlannedClaim, DeviceId]]:
        """The claims of a pod that have, or are to get, devices that other claims have too, as the watch shows.

        What was planned, and by whom, does not count: also an operator that has just started knows it.
        """
        planned = {claim.key: claim for claim in claims}  # a pod may name one twice
        if not planned:
            return
        allocated = AllocatedDevices(self._allocated)
        for key, claim in planned.items():
            if not has_devices(objects, key):
                allocated.add(claim.allocation)
        for claim in planned.values():
            device = device_had_twice(claim.allocation, allocated, lambda pool: self._amounts_of(pool, objects))
            if device is not None:
                yield claim, device

    def _amounts_of(self, pool: PoolId, objects: DeviceObjects) -> PoolAmounts:
        if pool not in self._amounts:
            slices = [objects.slices[name] for name in sorted(self._slices.get(pool, ()))]
            self._amounts[pool] = PoolAmounts.of(pool, slices)
        return self._amounts[pool]


def has_devices(objects: DeviceObjects, key: ClaimKey) -> bool:
    """Whether the watch shows that a claim has its devices."""
    claim = objects.claims.get(key)
    return claim is not None and claim.allocation is not None


def _discard(keys: dict[K, set[str]], key: K, name: str) -> None:
    names = keys[key]
    names.discard(name)
    if not names:
        del keys[key]
