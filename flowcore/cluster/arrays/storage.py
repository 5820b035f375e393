"""Storage objects of a cluster and the volumes that running pods mount, indexed for filters.

A change costs what changed, not the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from itertools import chain
from typing import Any

import msgspec

from flowcore.model.volumes import (
    Capacity,
    Claim,
    ClaimKey,
    ClaimRef,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageClass,
    StorageKey,
    StorageObject,
    VolumeAttachment,
    VolumeChoice,
    Volumes,
    key_of,
)


class Storage:
    """Storage objects and mounted volumes, indexed for filters.

    Attributes:
        claims, volumes, classes, csi_nodes, drivers: storage objects by their keys.
        mounted: volumes that the pods of a node mount, by node; without the nodes where there are none.
        promised: names of volumes that are promised to claims, and still listed as free.
        memo: results that filters cache; forgotten when an object changes.
        mount_memo: the same for results that read what is mounted, too; forgotten when that changes as well.
        free_memo: the same for results that read the lists of free volumes, whatever is promised.
        by_table: the same for results that no storage object changes, but a change of the nodes.
    """

    def __init__(self) -> None:
        self.claims: dict[ClaimKey, Claim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CsiNode] = {}
        self.drivers: dict[str, CsiDriver] = {}
        self.mounted: dict[str, Volumes] = {}
        self.promised: frozenset[str] = frozenset()
        self.memo: dict[str, Any] = {}
        self.mount_memo: dict[str, Any] = {}
        self.free_memo: dict[str, Any] = {}
        self.by_table: dict[str, Any] = {}
        self._attachments: dict[str, VolumeAttachment] = {}
        self._capacities: dict[ClaimKey, Capacity] = {}
        # Volumes by whom they serve: the claim that one is kept for, as most are, or else all claims of a class. In
        # order where that was asked for: a claim takes the smallest that is large enough.
        self._serving: dict[ClaimKey | str, set[str]] = {}
        self._in_order: dict[ClaimKey | str, tuple[PersistentVolume, ...]] = {}
        self._attached: dict[str, set[str]] = {}
        self._spaces: dict[str, set[ClaimKey]] = {}

    @classmethod
    def of(cls, objects: Iterable[StorageObject], running: Iterable[tuple[str, Volumes]]) -> Storage:
        """Storage from its objects, and from the node name and volumes of each running pod."""
        storage = cls()
        for stored in objects:
            storage.put(stored)
        mounted: dict[str, Volumes] = {}
        for node, volumes in running:
            if volumes:
                mounted[node] = mounted.get(node, ()) + volumes
        for node, volumes in mounted.items():
            storage.mount(node, volumes)
        return storage

    def __iter__(self) -> Iterator[StorageObject]:
        """All objects."""
        kinds: tuple[Mapping[Any, StorageObject], ...] = (
            self.claims, self.volumes, self.classes, self.csi_nodes, self.drivers, self._attachments, self._capacities
        )  # fmt: skip
        return chain.from_iterable(objects.values() for objects in kinds)

    # --- changes ---

    def put(self, stored: StorageObject) -> None:
        """Takes a new or changed object."""
        self.drop(key_of(stored))
        match stored:
            case Claim():
                self.claims[stored.namespace, stored.name] = stored
            case PersistentVolume():
                self.volumes[stored.name] = stored
                self._index(stored)
            case StorageClass():
                self.classes[stored.name] = stored
            case CsiNode():
                self.csi_nodes[stored.name] = stored
            case CsiDriver():
                self.drivers[stored.name] = stored
            case VolumeAttachment():
                self._attachments[stored.name] = stored
                self._attached.setdefault(stored.node_name, set()).add(stored.name)
            case Capacity():
                self._capacities[stored.key] = stored
                self._spaces.setdefault(stored.storage_class, set()).add(stored.key)

    def drop(self, key: StorageKey) -> None:
        """An object is gone; it need not have been known."""
        self.memo, self.mount_memo, self.free_memo = {}, {}, {}
        kind, namespace, name = key
        match kind:
            case "PersistentVolumeClaim":
                self.claims.pop((namespace, name), None)
            case "PersistentVolume":
                volume = self.volumes.pop(name, None)
                if volume is not None:
                    self._unindex(volume)
            case "StorageClass":
                self.classes.pop(name, None)
            case "CSINode":
                self.csi_nodes.pop(name, None)
            case "CSIDriver":
                self.drivers.pop(name, None)
            case "VolumeAttachment":
                attachment = self._attachments.pop(name, None)
                if attachment is not None:
                    _remove(self._attached, attachment.node_name, name)
            case "CSIStorageCapacity":
                capacity = self._capacities.pop((namespace, name), None)
                if capacity is not None:
                    _remove(self._spaces, capacity.storage_class, (namespace, name))

    def mount(self, node: str, volumes: Volumes) -> None:
        """Replaces the volumes that the pods of a node mount."""
        self.mount_memo = {}
        self.mounted.pop(node, None)
        if volumes:
            self.mounted[node] = volumes

    def with_pods(self, pods: Iterable[tuple[str, Volumes, Iterable[VolumeChoice]]]) -> Storage:
        """The storage with the volumes of pods mounted, and their claims promised what was chosen for them.

        Args:
            pods: node, volumes and choices of each.
        """
        coming = [each for each in pods if each[1]]
        if not coming:
            return self
        changed = copy(self)
        changed.memo, changed.mount_memo = {}, {}
        for name in ("claims", "volumes", "mounted", "_serving", "_in_order"):
            setattr(changed, name, dict(getattr(self, name)))
        for node, volumes, choices in coming:
            changed.mounted[node] = changed.mounted.get(node, ()) + volumes
            for choice in choices:
                changed._promise(choice, node)  # noqa: SLF001 - its own
        return changed

    def _promise(self, choice: VolumeChoice, node: str) -> None:
        """A claim gets what was chosen for it; the lists of free volumes stay as they are, other storages have them."""
        volume = self.volumes.get(choice.volume)
        if volume is None:
            self.claims[choice.key] = promised_claim(self.claims[choice.key], node)
            return
        self._ordered(volume.storage_class)  # lists the volume as it was
        self.volumes[volume.name] = promised_volume(volume, choice)
        self.promised |= {volume.name}
        self._serving[choice.key] = self._serving.get(choice.key, set()) | {volume.name}
        self._in_order.pop(choice.key, None)

    def with_mounted(self, mounted: Mapping[str, Volumes]) -> Storage:
        """The storage with these volumes mounted on some nodes, and no others there.

        It costs the number of nodes with volumes. The objects are the same, and what is remembered of them.
        """
        if not mounted:
            return self
        changed = copy(self)
        changed.mounted, changed.mount_memo = {**self.mounted, **mounted}, {}
        return changed

    def with_nodes(self, csi_nodes: Mapping[str, CsiNode]) -> Storage:
        """The storage with the drivers of more nodes, by name; nothing is remembered of it."""
        changed = copy(self)
        changed.csi_nodes = {**self.csi_nodes, **csi_nodes}
        changed.memo, changed.mount_memo, changed.free_memo, changed.by_table = {}, {}, {}, {}
        return changed

    def _index(self, volume: PersistentVolume) -> None:
        self._serving.setdefault(_served_by(volume), set()).add(volume.name)
        self._in_order.pop(_served_by(volume), None)

    def _unindex(self, volume: PersistentVolume) -> None:
        _remove(self._serving, _served_by(volume), volume.name)
        self._in_order.pop(_served_by(volume), None)

    # --- questions ---

    def free(self, storage_class: str) -> tuple[PersistentVolume, ...]:
        """Volumes of a class without a claim, and ``promised`` ones among them, by size and then by name."""
        return self._ordered(storage_class)

    def kept_for(self, claim: Claim) -> tuple[PersistentVolume, ...]:
        """Volumes kept for a claim of this name, in the same order."""
        return self._ordered((claim.namespace, claim.name))

    def _ordered(self, served: ClaimKey | str) -> tuple[PersistentVolume, ...]:
        if served not in self._serving:
            return ()  # claims may name any class: misses are not cached
        volumes = self._in_order.get(served)
        if volumes is None:
            members = (self.volumes[name] for name in self._serving[served])
            volumes = self._in_order[served] = tuple(sorted(members, key=lambda volume: (volume.size, volume.name)))
        return volumes

    def attached_to(self, node: str) -> list[VolumeAttachment]:
        """Attachments to a node, by name."""
        return [self._attachments[name] for name in sorted(self._attached.get(node, ()))]

    def spaces(self, storage_class: str) -> list[Capacity]:
        """Capacities of a class, by key."""
        return [self._capacities[key] for key in sorted(self._spaces.get(storage_class, ()))]


def _served_by(volume: PersistentVolume) -> ClaimKey | str:
    """Whom a volume serves: the claim that it is kept for, or all claims of its class."""
    claim = volume.claim
    return volume.storage_class if claim is None else (claim.namespace, claim.name)


def promised_volume(volume: PersistentVolume, choice: VolumeChoice) -> PersistentVolume:
    """The volume once it is kept for the claim that it was chosen for."""
    return msgspec.structs.replace(volume, claim=ClaimRef(choice.namespace, choice.name, choice.uid))


def promised_claim(claim: Claim, node: str) -> Claim:
    """The claim once a volume is to be provisioned for it on a node."""
    return msgspec.structs.replace(claim, selected_node=node)


def _remove(sets: dict[Any, set[Any]], key: object, member: object) -> None:
    members = sets.get(key)
    if members is not None:
        members.discard(member)
        if not members:
            del sets[key]
