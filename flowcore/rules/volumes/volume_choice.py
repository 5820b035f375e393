"""Which volume each claim of a pod gets on a node: one that is free, or one that is provisioned there.

Source: kube-scheduler plugins/volumebinding binder.go (findMatchingVolumes, checkVolumeProvisions), as the filter
VolumeBinding judges it. Claims take turns, the smallest first; each takes the smallest volume that is large enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, NodeTable
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.volumes import Claim, ClaimKey, ClaimVolume, PersistentVolume, VolumeChoice, Volumes
from flowcore.rules.filters.volume_binding import is_offered, may_hold, needs_match, nodes_reached, provision

#: A volume that more nodes than this reach is not listed by node.
_FEW = 16


@dataclass(slots=True)
class Promises:
    """What pods before this one were promised.

    Attributes:
        volumes: PersistentVolumes that claims are to be bound to.
        claims: what each claim is to get, and the row of the node that its pod goes to.
    """

    volumes: set[str] = field(default_factory=set)
    claims: dict[ClaimKey, tuple[VolumeChoice, int]] = field(default_factory=dict)


NO_PROMISES = Promises()


def choose(
    volumes: Volumes, row: int, storage: Storage, table: NodeTable, promises: Promises = NO_PROMISES
) -> tuple[VolumeChoice, ...] | None:
    """What the claims of a pod get on a node; claims that are bound need nothing.

    Args:
        row: of the node, which passes every filter on volumes.
        promises: what others were promised meanwhile.

    Returns:
        None where a claim gets nothing.
    """
    waiting = [storage.claims.get(each.key) for each in volumes if isinstance(each, ClaimVolume)]
    choices: list[VolumeChoice] = []
    own: set[str] = set()
    to_provision: list[Claim] = []
    to_match: list[Claim] = []
    for claim in dict.fromkeys(waiting):
        if claim is None:
            return None
        if claim.bound:
            continue
        promised = promises.claims.get((claim.namespace, claim.name))
        if promised is not None:
            choice, node = promised
            if not _is_had_at(choice, node, row, storage, table):
                return None
            choices.append(choice)
        else:
            (to_match if needs_match(claim) else to_provision).append(claim)
    for claim in sorted(to_match, key=lambda each: each.size or 0):
        volume = _smallest(claim, row, storage, table, promises.volumes, own)
        if volume is None:
            to_provision.append(claim)
        else:
            own.add(volume.name)
            choices.append(VolumeChoice(claim.namespace, claim.name, claim.uid, volume.name))
    for claim in to_provision:
        if not _can_be_provisioned(claim, row, storage, table):
            return None
        choices.append(VolumeChoice(claim.namespace, claim.name, claim.uid))
    return tuple(choices)


def is_of_one_node(choice: VolumeChoice, storage: Storage, table: NodeTable) -> bool:
    """Whether pods on other nodes find the same volumes as before, whoever gets this one."""
    volume = storage.volumes.get(choice.volume)
    return volume is None or len(nodes_reached(volume, storage, table)) == 1


def _is_had_at(choice: VolumeChoice, node: int, row: int, storage: Storage, table: NodeTable) -> bool:
    """Whether what a claim was promised for a pod on a node serves a pod on another node too."""
    volume = storage.volumes.get(choice.volume)
    if volume is None:
        return row == node
    rows = nodes_reached(volume, storage, table)
    place = int(np.searchsorted(rows, row))
    return place < len(rows) and int(rows[place]) == row


@dataclass(frozen=True, slots=True)
class _FreeVolumes:
    """Volumes of a class that are kept for no claim, by size and then by name.

    Attributes:
        near: those that few nodes reach, by the row of the node; with their places among all.
        wide: the others, with their places and bool[N], the nodes that reach each.
    """

    table: NodeTable
    near: dict[int, list[tuple[int, PersistentVolume]]]
    wide: list[tuple[int, PersistentVolume, Bools]]


def _free_volumes(storage_class: str, storage: Storage, table: NodeTable) -> _FreeVolumes:
    known: dict[str, _FreeVolumes] = storage.memo.setdefault("free-volumes", {})
    free = known.get(storage_class)
    if free is None or free.table is not table:
        near: dict[int, list[tuple[int, PersistentVolume]]] = {}
        wide: list[tuple[int, PersistentVolume, Bools]] = []
        for place, volume in enumerate(storage.free(storage_class)):
            rows = nodes_reached(volume, storage, table)
            if len(rows) > _FEW:
                reached = np.zeros(len(table.nodes), dtype=np.bool_)
                reached[rows] = True
                wide.append((place, volume, reached))
            else:
                for row in rows.tolist():
                    near.setdefault(row, []).append((place, volume))
        free = known[storage_class] = _FreeVolumes(table, near, wide)
    return free


def _smallest(
    claim: Claim, row: int, storage: Storage, table: NodeTable, promised: set[str], own: set[str]
) -> PersistentVolume | None:
    """The volume that FindMatchingVolume finds for a claim on a node; of equal sizes the first by name."""
    for volume in storage.kept_for(claim):
        if volume.storage_class == claim.storage_class and may_hold(volume, claim) and volume.name not in own:
            # Kept for the claim: it precedes all others, even where the node does not reach it.
            is_near = row in nodes_reached(volume, storage, table)
            return volume if is_near else None
    free = _free_volumes(claim.storage_class, storage, table)

    def is_free(volume: PersistentVolume) -> bool:
        is_taken = volume.name in promised or volume.name in own
        return not is_taken and may_hold(volume, claim) and is_offered(volume, claim)

    near = next(((place, volume) for place, volume in free.near.get(row, ()) if is_free(volume)), None)
    for place, volume, reached in free.wide:
        if near is not None and near[0] < place:
            break
        if reached[row] and is_free(volume):
            return volume
    return None if near is None else near[1]


def _can_be_provisioned(claim: Claim, row: int, storage: Storage, table: NodeTable) -> bool:
    if claim.storage_class not in storage.classes:
        return False
    known: dict[tuple[str, Decimal | None], tuple[NodeTable, Bools]] = storage.memo.setdefault("provisioned", {})
    key = claim.storage_class, claim.size
    answer = known.get(key)
    if answer is None or answer[0] is not table:
        can_make, has_space = provision(claim, storage, table)
        answer = known[key] = table, can_make & has_space
    return bool(answer[1][row])
