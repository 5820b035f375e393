"""Device classes, slices and claims of a cluster, and which of them are to be sent on."""

from __future__ import annotations

from typing import Any, TypeVar

from flowcore.cluster.changes import ClusterChanges
from flowcore.model.devices import DeviceClass
from flowcore.model.resource_claims import DeviceTaker, ResourceClaim
from flowcore.model.resource_slices import ResourceSlice

K = TypeVar("K", str, tuple[str, str])
V = TypeVar("V")

#: What stands for the pods that take devices, where kinds that changed are told.
TAKERS = "takers"
#: And for a search that goes on.
SEARCH = "search"
#: Namespace and name of a ResourceClaim.
ClaimKey = tuple[str, str]


class DeviceObjects:
    """What allocations of devices read of a cluster.

    Attributes:
        slices, classes: by name.
        claims: by namespace and name.
        extended: uid of a pod -> the claim that was made for its extended resources.
        takers: pods that are to take devices and whose claims may not say so yet, in their order.
        version: another number after each change.
        published: another number after each change of a slice or of a class.
        rounds: how many rounds began in which work has limits; 0: there are none.
        turn: the number of the round, for pods that have devices in turns.
        is_searched: whether all that was asked was searched and had its turn; else the next round goes on.
        memo: what those who read the objects keep between two changes.
    """

    def __init__(self) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.claims: dict[ClaimKey, ResourceClaim] = {}
        self.extended: dict[str, ClaimKey] = {}
        self.takers: tuple[DeviceTaker, ...] = ()
        self.version = self.published = self.rounds = self.turn = 0
        self.is_searched = True
        self.memo: dict[str, Any] = {}
        self._changed_slices: set[str] = set()
        self._changed_classes: set[str] = set()
        self._changed_claims: set[ClaimKey] = set()
        self._unread_claims: set[ClaimKey] = set()

    def set_slice(self, name: str, resource_slice: ResourceSlice | None) -> bool:
        """Takes a ResourceSlice; None: it is gone. Whether that is a change."""
        changed = _set(self.slices, name, resource_slice, self._changed_slices)
        self._count(changed=changed, published=True)
        return changed

    def set_class(self, name: str, device_class: DeviceClass | None) -> bool:
        """Takes a DeviceClass; None: it is gone. Whether that is a change."""
        changed = _set(self.classes, name, device_class, self._changed_classes)
        self._count(changed=changed, published=True)
        return changed

    def set_claim(self, key: ClaimKey, claim: ResourceClaim | None) -> bool:
        """Takes a ResourceClaim; None: it is gone. Whether that is a change."""
        before = self.claims.get(key)
        changed = _set(self.claims, key, claim, self._changed_claims)
        if changed:
            self._unread_claims.add(key)
            if before is not None and before.is_extended:
                self.extended.pop(before.controller, None)
            if claim is not None and claim.is_extended:
                self.extended[claim.controller] = key
        self._count(changed=changed, published=False)
        return changed

    def take_unread_claims(self) -> set[ClaimKey]:
        """Claims that changed since the last call, for who keeps something in ``memo``: all of them at first."""
        unread, self._unread_claims = self._unread_claims, set()
        return unread

    def begin_round(self, turn: int = 0) -> None:
        """From here on the work of one round has its limits; the same ``turn`` gives the same plan again."""
        self.rounds += 1
        self.turn = turn

    def _count(self, *, changed: bool, published: bool) -> None:
        self.version += changed
        self.published += changed and published

    def take_changes(self, changes: ClusterChanges) -> None:
        """Adds what changed since the last call."""
        changes.slices, changes.removed_slices = _taken(self.slices, self._changed_slices)
        changes.device_classes, changes.removed_device_classes = _taken(self.classes, self._changed_classes)
        changes.claims, changes.removed_claims = _taken(self.claims, self._changed_claims)

    def add_all(self, changes: ClusterChanges) -> None:
        """Adds everything, as if all had changed."""
        changes.slices = list(self.slices.values())
        changes.device_classes = list(self.classes.values())
        changes.claims = list(self.claims.values())
        changes.takers = list(self.takers)

    def mark_all_dirty(self) -> None:
        """The next ``take_changes`` adds everything."""
        self._changed_slices.update(self.slices)
        self._changed_classes.update(self.classes)
        self._changed_claims.update(self.claims)

    def apply(self, changes: ClusterChanges) -> list[str]:
        """Takes over what another one added, which is not sent on; returns the kinds that changed, sorted."""
        changed = {
            "ResourceSlice": [self.set_slice(each.name, each) for each in changes.slices]
            + [self.set_slice(name, None) for name in changes.removed_slices],
            "ResourceClaim": [self.set_claim((each.namespace, each.name), each) for each in changes.claims]
            + [self.set_claim(key, None) for key in changes.removed_claims],
            "DeviceClass": [self.set_class(each.name, each) for each in changes.device_classes]
            + [self.set_class(name, None) for name in changes.removed_device_classes],
        }
        self._changed_slices.clear()
        self._changed_classes.clear()
        self._changed_claims.clear()
        if changes.takers is not None and self.takers != tuple(changes.takers):
            self.takers = tuple(changes.takers)
            self.version += 1
            changed[TAKERS] = [True]
        if not self.is_searched:
            self.is_searched = True
            changed[SEARCH] = [True]
        return sorted(kind for kind, changes_of_kind in changed.items() if any(changes_of_kind))


def _set(objects: dict[K, V], key: K, value: V | None, changed: set[K]) -> bool:
    if objects.get(key) == value:
        return False
    if value is None:
        del objects[key]
    else:
        objects[key] = value
    changed.add(key)
    return True


def _taken(objects: dict[K, V], changed: set[K]) -> tuple[list[V], list[K]]:
    keys = sorted(changed)
    changed.clear()
    return [objects[key] for key in keys if key in objects], [key for key in keys if key not in objects]
