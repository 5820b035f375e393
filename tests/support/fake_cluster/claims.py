"""Claims and devices of the API server: what our writes, Kubernetes' controller, drivers and others make of them."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec
from support.device_clusters import GPU, claim, slice_of
from support.draw_devices import read_claims, read_classes, read_slices
from thalweg_operator.reservations.effects import Allocate, ReleaseClaims
from thalweg_operator.reservations.events import Event, ObjectSet

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.cluster.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from flowcore.model.resource_claims import (
    AllocatedDevice,
    ClaimAllocation,
    ClaimingPod,
    PlannedClaim,
    PodClaim,
    ResourceClaim,
)
from flowcore.model.resource_slices import DeviceId, ResourceSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DRIVER = "gpu.example.com"
#: What a driver says of devices that it makes ready once they are allocated.
LATER = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}


class Part(Enum):
    """What is written for a claim: one for extended resources is made before, and told to its pod after."""

    MADE = "made"
    ALLOCATED = "allocated"
    TOLD = "told"


def parts_of(write: Allocate) -> list[tuple[PlannedClaim, Part]]:
    """What is written one after the other."""
    parts = (tuple(Part) if planned.requests else (Part.ALLOCATED,) for planned in write.claims)
    return [(planned, part) for planned, of_claim in zip(write.claims, parts, strict=True) for part in of_claim]


class ClaimNotToBeHad(Exception):
    """The API server, or what it has, forbids it."""


class ApiClaims:
    """See the module.

    Args:
        publish: the watch is going to show an event.

    Attributes:
        claims: by key.
        slices: by name.
        later: names of the nodes whose devices get ready only after they were allocated.
        told: what the status of a pod says of the claim for its extended resources, by the pod's uid.
    """

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self._publish = publish
        self.claims: dict[ClaimKey, ResourceClaim] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.later: set[str] = set()
        self.told: dict[str, str] = {}
        self._made = 0

    def events(self) -> Iterator[Event]:
        """What a new watch shows."""
        if self.slices:
            (device_class,) = read_classes([GPU]).values()
            yield ObjectSet(DEVICE_CLASSES, device_class.name, device_class)
        for name, resource_slice in self.slices.items():
            yield ObjectSet(RESOURCE_SLICES, name, resource_slice)
        for key, known in self.claims.items():
            yield ObjectSet(RESOURCE_CLAIMS, key, known)

    # --- objects ---

    def publish_devices(self, node: str, count: int, *, later: bool) -> None:
        """A driver publishes devices of a node; ``later``: they get ready once they are allocated."""
        manifest: dict[str, Any] = slice_of(node, count)
        if later:
            self.later.add(node)
            for device in manifest["spec"]["devices"]:
                device.update(LATER)
        (self.slices[node],) = read_slices([manifest])
        self._publish(ObjectSet(RESOURCE_SLICES, node, self.slices[node]))

    def put(self, value: ResourceClaim) -> None:
        """A claim is created or changed."""
        key = value.namespace, value.name
        if self.claims.get(key) != value:
            self.claims[key] = value
            self._publish(ObjectSet(RESOURCE_CLAIMS, key, value))

    def make(self, namespace: str, name: str, uid: str, owner: str = "", group: str = "") -> None:
        """A claim for one device; with an owner, of a template for the pod or the PodGroup of this uid.

        Args:
            group: name of the PodGroup.
        """
        (made,) = read_claims([claim(name)])
        self.put(msgspec.structs.replace(made, namespace=namespace, uid=uid, controller=owner, controller_group=group))

    def remove(self, key: ClaimKey) -> None:
        """A claim goes."""
        if self.claims.pop(key, None) is not None:
            self._publish(ObjectSet(RESOURCE_CLAIMS, key, None))

    # --- writes of ours ---

    def allocate(self, write: Allocate, count: int) -> None:
        """The first so many parts of a write are carried out (``parts_of``).

        Raises:
            ClaimNotToBeHad: one of the claims is not as planned any more.
        """
        for planned, part in parts_of(write)[:count]:
            if part is Part.MADE:
                self._make_extended(planned, write.pod.uid)
            elif part is Part.TOLD:
                self.told[write.pod.uid] = planned.name
            else:
                self._allocate(planned, write.pod.uid)

    def _make_extended(self, planned: PlannedClaim, pod: str) -> None:
        known = self.claims.get(planned.key)
        requests = tuple(msgspec.structs.replace(request, resource="") for request in planned.requests)
        if known is None:
            self._made += 1
            uid = f"made-{self._made}"
            made = ResourceClaim(*planned.key, uid, pod, requests=requests, is_ours=True, is_extended=True)
            self.put(made)
        elif known.is_being_deleted or known.requests != requests:
            raise ClaimNotToBeHad("it is being deleted, or was made for another node")

    def _allocate(self, planned: PlannedClaim, pod: str) -> None:
        known = self.claims.get(planned.key)
        if known is None or (known.uid != planned.uid and not planned.requests):
            raise ClaimNotToBeHad("it is gone")
        allocation = known.allocation or planned.allocation
        if not allocation.is_like(planned.allocation):
            raise ClaimNotToBeHad("it was allocated otherwise in the meantime")
        reserved = dict.fromkeys((*known.reserved_for, planned.consumer(pod)))
        ours = known.is_ours or known.allocation is None
        self.put(
            self._as_reported(
                msgspec.structs.replace(known, allocation=allocation, reserved_for=tuple(reserved), is_ours=ours)
            )
        )

    def release(self, write: ReleaseClaims) -> None:
        """Claims lose a consumer; what is ours or in the way, and nobody reserves, comes free, or is deleted."""
        for ref in write.claims:
            if ref.is_extended and write.pod is not None:
                self.told.pop(write.pod.uid, None)
            known = self.claims.get((ref.namespace, ref.name))
            if known is None or (ref.uid and known.uid != ref.uid):
                continue
            left = tuple(uid for uid in known.reserved_for if uid != write.consumer)
            is_free = not left and (known.is_ours or ref.is_in_the_way)
            if ref.is_extended and is_free and known.allocation is None:
                self.remove((known.namespace, known.name))  # nothing keeps it
                continue
            known = msgspec.structs.replace(known, reserved_for=left)
            known = _deallocated(known) if is_free else known
            self.put(known)
            if ref.is_extended and is_free:
                self.put(msgspec.structs.replace(known, is_being_deleted=True))

    # --- others ---

    def _as_reported(self, known: ResourceClaim) -> ResourceClaim:
        """A claim that was just allocated, as to what its devices lack."""
        if known.allocation is None or known.awaited or known.failure:
            return known
        lacking = [
            f"{each.device} (ready)"
            for each in known.allocation.devices
            if each.device.pool in self.later and not self._is_reported(known)
        ]
        return msgspec.structs.replace(known, awaited=tuple(lacking))

    def _is_reported(self, known: ResourceClaim) -> bool:
        before = self.claims.get((known.namespace, known.name))
        return before is not None and before.allocation is not None and not before.awaited

    def report(self, key: ClaimKey, *, ready: bool) -> None:
        """The driver says of the devices of a claim that they are ready, or never will be."""
        known = self.claims[key]
        if known.awaited:
            failure = "" if ready else f"{known.awaited[0]} broke"
            self.put(msgspec.structs.replace(known, awaited=() if ready else known.awaited, failure=failure))

    def free_devices(self) -> list[DeviceId]:
        """Devices that no claim has."""
        held = self.held()
        devices = (
            DeviceId(each.driver, each.pool, device.name) for each in self.slices.values() for device in each.devices
        )
        return [device for device in devices if not held[device]]

    def held(self) -> Counter[DeviceId]:
        """How many claims have each device."""
        return Counter(
            each.device
            for known in self.claims.values()
            if known.allocation is not None
            for each in known.allocation.devices
        )

    def allocate_elsewhere(self, key: ClaimKey, device: DeviceId, uid: str = "") -> None:
        """Somebody else gives a claim a device, for a pod of this uid or for none."""
        known, allocation = self.claims[key], ClaimAllocation((AllocatedDevice("r", device),))
        reserved = (uid,) if uid else ()
        changed = msgspec.structs.replace(known, allocation=allocation, reserved_for=reserved, is_ours=False)
        self.put(self._as_reported(changed))

    def follow_pods(self, uids: set[str]) -> None:
        """The controller removes pods that are gone, and deallocates what was reserved for nobody else.

        Args:
            uids: of the pods that are there.
        """
        for key, known in list(self.claims.items()):
            left = tuple(uid for uid in known.reserved_for if uid in uids)
            if (known.controller and known.controller not in uids) or (
                known.is_being_deleted and not known.reserved_for
            ):
                self.remove(key)
            elif left != known.reserved_for:
                self.put(msgspec.structs.replace(known, reserved_for=left) if left else _deallocated(known))


def _deallocated(known: ResourceClaim) -> ResourceClaim:
    return msgspec.structs.replace(
        known, allocation=None, reserved_for=(), is_ours=known.is_extended, awaited=(), failure=""
    )


def claiming(namespace: str, name: str, uid: str, *claims: str, template: bool) -> ClaimingPod:
    """A pod that names claims; ``template``: those that were made for it."""
    if template:
        named = tuple(PodClaim(each, template="t") for each in claims)
        return ClaimingPod(namespace, name, uid, named, tuple((each, each) for each in claims))
    return ClaimingPod(namespace, name, uid, tuple(PodClaim(each, claim=each) for each in claims))
