"""Volumes of the API server: what our writes, the PersistentVolume controller, provisioners and others make of them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec
from support.fake_cluster.claims import ClaimNotToBeHad
from thalweg_operator.reservations.effects import BindClaim
from thalweg_operator.reservations.events import Event, ObjectSet

from flowcore.cluster.kinds import STORAGE_OBJECTS
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.model.volumes import (
    Claim,
    ClaimKey,
    ClaimRef,
    PersistentVolume,
    StorageClass,
    StorageKey,
    StorageObject,
    claim_key,
    key_of,
    volume_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOST = "kubernetes.io/hostname"
#: Classes whose claims wait for their first consumer: of volumes that are there, and of those that are made.
LOCAL, MADE = "local", "made"
_CLASSES = (
    StorageClass(LOCAL, "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
    StorageClass(MADE, "csi.example.com", "WaitForFirstConsumer"),
)


class ApiVolumes:
    """See the module.

    Args:
        publish: the watch is going to show an event.

    Attributes:
        objects: by key.
    """

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self._publish = publish
        self.objects: dict[StorageKey, StorageObject] = {}

    def events(self) -> Iterator[Event]:
        """What a new watch shows."""
        for key, stored in self.objects.items():
            yield ObjectSet(STORAGE_OBJECTS, key, stored)

    # --- objects ---

    def put(self, stored: StorageObject) -> None:
        """An object is created or changed."""
        key = key_of(stored)
        if self.objects.get(key) != stored:
            self.objects[key] = stored
            self._publish(ObjectSet(STORAGE_OBJECTS, key, stored))

    def publish_volumes(self, node: str, count: int) -> None:
        """So many volumes that only this node reaches."""
        for storage_class in _CLASSES:
            self.put(storage_class)
        for number in range(count):
            self.put(_volume(f"{node}-{number}", node, LOCAL))

    def make(self, namespace: str, name: str, uid: str, storage_class: str = LOCAL) -> None:
        """A claim."""
        modes = ("ReadWriteOnce",)
        self.put(
            Claim(namespace, name, uid=uid, storage_class=storage_class, size=Decimal(1), access_modes=modes),
        )

    def claim(self, key: ClaimKey) -> Claim:
        """The claim of this key."""
        claim = self.objects[claim_key(*key)]
        assert isinstance(claim, Claim)
        return claim

    def claims(self) -> list[Claim]:
        """All claims, by key."""
        return [each for _, each in sorted(self.objects.items()) if isinstance(each, Claim)]

    def volumes(self) -> list[PersistentVolume]:
        """All volumes, by name."""
        return [each for _, each in sorted(self.objects.items()) if isinstance(each, PersistentVolume)]

    def reaches(self, key: ClaimKey, node: str) -> bool:
        """Whether a claim is bound to a volume that a node reaches."""
        claim = self.objects.get(claim_key(*key))
        if not isinstance(claim, Claim) or not claim.bound:
            return False
        volume = self.objects[volume_key(claim.volume_name)]
        assert isinstance(volume, PersistentVolume)
        return volume.claim is not None and volume.claim.uid == claim.uid and volume.affinity == _reach(node)

    # --- writes of ours ---

    def bind(self, write: BindClaim) -> None:
        """A claim gets what was chosen for it.

        Raises:
            ClaimNotToBeHad: somebody else has the volume, or another node was chosen.
        """
        choice = write.choice
        claim = self.objects.get(claim_key(*choice.key))
        if not isinstance(claim, Claim) or claim.uid != choice.uid:
            raise ClaimNotToBeHad("it is gone")
        if not choice.volume:
            if claim.selected_node not in (None, write.node):
                raise ClaimNotToBeHad("another node was chosen")
            if not claim.bound:
                self.put(msgspec.structs.replace(claim, selected_node=write.node))
            return
        volume = self.objects.get(volume_key(choice.volume))
        if not isinstance(volume, PersistentVolume) or (volume.claim is not None and not volume.claim.is_to(claim)):
            raise ClaimNotToBeHad("another claim has the volume")
        self.put(msgspec.structs.replace(volume, claim=ClaimRef(*choice.key, choice.uid)))

    # --- others ---

    def controllers_act(self) -> None:
        """Claims are bound to the volumes that are kept for them; volumes are made where a node was chosen."""
        for volume in self.volumes():
            if volume.claim is None:
                continue
            claim = self.objects.get(claim_key(volume.claim.namespace, volume.claim.name))
            if not isinstance(claim, Claim) or claim.uid != volume.claim.uid:
                continue
            if not claim.bound:
                self.put(msgspec.structs.replace(volume, available=False))
                self.put(msgspec.structs.replace(claim, bound=True, volume_name=volume.name))
            elif claim.volume_name != volume.name:
                self.put(msgspec.structs.replace(volume, claim=None, available=True))  # it has another one
        for claim in self.claims():
            if claim.selected_node is not None and not claim.bound:
                name = f"made-for-{claim.name}"
                kept = ClaimRef(claim.namespace, claim.name, claim.uid)
                made = _volume(name, claim.selected_node, claim.storage_class)
                self.put(msgspec.structs.replace(made, claim=kept, available=False))
                self.put(msgspec.structs.replace(claim, bound=True, volume_name=name))

    def refuse(self, key: ClaimKey) -> None:
        """The provisioner makes no volume on the node that was chosen."""
        claim = self.claim(key)
        if not claim.bound and claim.selected_node is not None:
            self.put(msgspec.structs.replace(claim, selected_node=None))

    def take(self, name: str) -> None:
        """Somebody else keeps a free volume for a claim of his."""
        volume = self.objects[volume_key(name)]
        assert isinstance(volume, PersistentVolume)
        if volume.claim is None:
            self.put(msgspec.structs.replace(volume, claim=ClaimRef("others", name, "theirs"), available=False))


def _volume(name: str, node: str, storage_class: str) -> PersistentVolume:
    return PersistentVolume(
        name,
        storage_class=storage_class,
        size=Decimal(1),
        available=True,
        access_modes=("ReadWriteOnce",),
        affinity=_reach(node),
    )


def _reach(node: str) -> tuple[NodeSelectorTerm, ...]:
    return (NodeSelectorTerm((Requirement(HOST, "In", (node,)),)),)
