"""Claims and devices of the API server: what our writes, Kubernetes' controller, drivers and others make of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from support.device_clusters import GPU, claim, slice_of
from support.draw_devices import read_claims, read_classes, read_slices
from thalweg_operator.reservations.effects import Allocate, ReleaseClaims
from thalweg_operator.reservations.events import Event, ObjectSet

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.cluster.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from flowcore.model.resource_claims import AllocatedDevice, ClaimAllocation, ClaimingPod, PodClaim, ResourceClaim
from flowcore.model.resource_slices import DeviceId, ResourceSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DRIVER = "gpu.example.com"
#: What a driver says of devices that it makes ready once they are allocated.
LATER = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}


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
    """

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self._publish = publish
        self.claims: dict[ClaimKey, ResourceClaim] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.later: set[str] = set()

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

    def make(self, namespace: str, name: str, uid: str, owner: str = "") -> None:
        """A claim for one device; with an owner, of a template for the pod of this uid."""
        (made,) = read_claims([claim(name)])
        self.put(msgspec.structs.replace(made, namespace=namespace, uid=uid, controller=owner))

    def remove(self, key: ClaimKey) -> None:
        """A claim goes."""
        if self.claims.pop(key, None) is not None:
            self._publish(ObjectSet(RESOURCE_CLAIMS, key, None))

    # --- writes of ours ---

    def allocate(self, write: Allocate, count: int) -> None:
        """The first so many claims of a pod are written.

        Raises:
            ClaimNotToBeHad: one of them is not as planned any more.
        """
        for planned in write.claims[:count]:
            known = self.claims.get(planned.key)
            if known is None or known.uid != planned.uid:
                raise ClaimNotToBeHad("it is gone")
            allocation = known.allocation or planned.allocation
            if not allocation.is_like(planned.allocation):
                raise ClaimNotToBeHad("it was allocated otherwise in the meantime")
            reserved = dict.fromkeys((*known.reserved_for, write.pod.uid))
            ours = known.is_ours or known.allocation is None
            self.put(
                self._as_reported(
                    msgspec.structs.replace(known, allocation=allocation, reserved_for=tuple(reserved), is_ours=ours)
                )
            )

    def release(self, write: ReleaseClaims) -> None:
        """Claims are not reserved for a pod any more; what is ours and nobody reserves comes free."""
        for ref in write.claims:
            known = self.claims.get((ref.namespace, ref.name))
            if known is None or known.uid != ref.uid:
                continue
            left = tuple(uid for uid in known.reserved_for if write.pod is None or uid != write.pod.uid)
            known = msgspec.structs.replace(known, reserved_for=left)
            self.put(_deallocated(known) if not left and known.is_ours else known)

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
            if known.controller and known.controller not in uids:
                self.remove(key)
            elif left != known.reserved_for:
                self.put(msgspec.structs.replace(known, reserved_for=left) if left else _deallocated(known))


def _deallocated(known: ResourceClaim) -> ResourceClaim:
    return msgspec.structs.replace(known, allocation=None, reserved_for=(), is_ours=False, awaited=(), failure="")


def claiming(namespace: str, name: str, uid: str, *claims: str, template: bool) -> ClaimingPod:
    """A pod that names claims; ``template``: those that were made for it."""
    if template:
        named = tuple(PodClaim(each, template="t") for each in claims)
        return ClaimingPod(namespace, name, uid, named, tuple((each, each) for each in claims))
    return ClaimingPod(namespace, name, uid, tuple(PodClaim(each, claim=each) for each in claims))
