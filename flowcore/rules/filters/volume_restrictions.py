"""VolumeRestrictions: a disk is mounted once on a node, a ReadWriteOncePod claim is used by one pod.

Source: kube-scheduler plugins/volumerestrictions.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.volumes import ClaimKey, ClaimVolume, Disk, Volumes
from flowcore.rules.filters.rejection import Rejection

NAME = "VolumeRestrictions"
REASON_DISK = "node(s) had no available disk"
REASON_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
#: The access mode of a claim that one pod uses.
ONE_POD = "ReadWriteOncePod"


def not_found(name: str) -> str:
    """The API's words for a claim that does not exist."""
    return f'persistentvolumeclaim "{name}" not found'


def prefilter_reason(volumes: Volumes, storage: Storage) -> str:
    """Why every node is rejected, "" if some may fit."""
    return next((not_found(each.name) for each in named_claims(volumes) if each.key not in storage.claims), "")


def rejections(volumes: Volumes, storage: Storage, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that have one of the disks mounted, or all nodes while a claim is in use; the first reason only."""
    taken = np.zeros(len(table.nodes), dtype=np.bool_)
    disks = [each for each in volumes if isinstance(each, Disk) and each.key]
    if disks:
        for node_name, mounted in storage.mounted.items():
            row = table.index.get(node_name)
            if row is not None:
                taken[row] = conflicting_disks(volumes, mounted)
    alone = only_for_one_pod(volumes, storage)
    in_use = alone and not alone.isdisjoint(_used(storage, table))
    rejected = [Rejection(REASON_DISK, taken)] if disks else []
    return (*rejected, Rejection(REASON_IN_USE, ~taken)) if in_use else tuple(rejected)


def conflicting_disks(volumes: Volumes, mounted: Volumes) -> bool:
    """Whether no node may mount both."""
    disks = [each for each in volumes if isinstance(each, Disk) and each.key]
    return bool(disks) and any(
        disk.conflicts(beside) for disk in disks for beside in mounted if isinstance(beside, Disk)
    )


def only_for_one_pod(volumes: Volumes, storage: Storage) -> set[ClaimKey]:
    """The claims among these that only one pod may use."""
    named = ((each.key, storage.claims.get(each.key)) for each in named_claims(volumes))
    return {key for key, claim in named if claim is not None and ONE_POD in claim.access_modes}


def _used(storage: Storage, table: NodeTable) -> frozenset[ClaimKey]:
    """Claims that pods on the nodes name."""
    known: tuple[NodeTable, frozenset[ClaimKey]] | None = storage.mount_memo.get(NAME)
    if known is None or known[0] is not table:
        mounted = (volumes for node_name, volumes in storage.mounted.items() if node_name in table.index)
        known = table, frozenset(each.key for volumes in mounted for each in named_claims(volumes))
        storage.mount_memo[NAME] = known
    return known[1]


def named_claims(volumes: Volumes) -> list[ClaimVolume]:
    """Claims that a pod names, without those of its ephemeral volumes."""
    return [each for each in volumes if isinstance(each, ClaimVolume) and each.made_for is None]
