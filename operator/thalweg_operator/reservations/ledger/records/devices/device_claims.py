"""Device claims of pods that are on their way to a node by our binding, and who else took devices meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import ClaimAllocation, PlannedClaim, ResourceClaim
from flowcore.model.resource_slices import DeviceId, PoolId, ResourceSlice
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
        #: Generation of the cluster when others last took something of a device, or a pool changed.
        self._taken: dict[DeviceId | PoolId, int] = {}
        #: Slices with counters that their devices share, by pool.
        self._counted: dict[PoolId, set[str]] = {}

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

    def forget_taken(self) -> None:
        """What was taken before is known to the next plan, and concerns no older one."""
        self._taken.clear()

    def claim_changed(
        self,
        before: ResourceClaim | None,
        after: ResourceClaim | None,
        planned: Iterable[PlannedClaim],
        generation: int,
    ) -> None:
        """A claim changed.

        Args:
            planned: what it gets by reservations of ours.
            generation: of the cluster, with the change.
        """
        old = None if before is None else before.allocation
        new = None if after is None else after.allocation
        if new is None or new == old or any(new.is_like(each.allocation) for each in planned):
            return
        for key in self._touched(new):
            self._taken[key] = generation

    def slice_changed(
        self, name: str, before: ResourceSlice | None, after: ResourceSlice | None, generation: int
    ) -> None:
        """A slice came, changed or went: what a plan knew of its pool does not hold any more."""
        for resource_slice in (before, after):
            if resource_slice is not None:
                self._taken[resource_slice.pool_id] = generation
        if before is not None and before.shared_counters:
            _discard(self._counted, before.pool_id, name)
        if after is not None and after.shared_counters:
            self._counted.setdefault(after.pool_id, set()).add(name)

    def taken_since(self, claims: Iterable[PlannedClaim], generation: int, *, slices: bool) -> bool:
        """Whether after a generation of the cluster others took something of the devices of claims.

        Args:
            slices: whether it counts too that a pool of theirs changed.
        """
        for claim in claims:
            for key in self._touched(claim.allocation, pools=slices):
                if self._taken.get(key, 0) > generation:
                    return True
        return False

    def _touched(self, allocation: ClaimAllocation, *, pools: bool = False) -> Iterator[DeviceId | PoolId]:
        """What an allocation takes of: its devices, and pools where one device leaves less to others."""
        for device in allocation.devices:
            if not device.admin_access:
                yield device.device
            pool = PoolId(device.device.driver, device.device.pool)
            if pools or pool in self._counted:
                yield pool


def _discard(keys: dict[K, set[str]], key: K, name: str) -> None:
    names = keys[key]
    names.discard(name)
    if not names:
        del keys[key]
