"""Which volume each claim of a pod gets on a node: one that is free, or one that is provisioned there.

Source: kube-scheduler plugins/volumebinding binder.go (findMatchingVolumes, checkVolumeProvisions), as the filter
VolumeBinding judges it. Claims take turns, the smallest first; each takes the smallest volume that is large enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.volumes import Claim, ClaimKey, ClaimVolume, PersistentVolume, VolumeChoice, Volumes
from flowcore.rules.filters.volume_binding import (
    Matching,
    free_volumes,
    in_turn,
    kept_volumes,
    needs_match,
    nodes_reached,
    offered,
    provision,
)


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
    claims = _claims_of(volumes, storage)
    if claims is None:
        return None
    choices: list[VolumeChoice] = []
    own: set[str] = set()
    waiting: list[Claim] = []
    for claim in claims:
        promised = promises.claims.get((claim.namespace, claim.name))
        if promised is None:
            waiting.append(claim)
        elif row in _rows_with(*promised, storage, table):
            choices.append(promised[0])
        else:
            return None
    for claim in in_turn(waiting):
        volume = _smallest(claim, row, storage, table, promises.volumes, own) if needs_match(claim) else None
        if volume is not None:
            own.add(volume.name)
        elif not _can_be_provisioned(claim, storage, table)[row]:
            return None
        choices.append(VolumeChoice(claim.namespace, claim.name, claim.uid, "" if volume is None else volume.name))
    return tuple(choices)


def can_choose(volumes: Volumes, storage: Storage, table: NodeTable, promises: Promises = NO_PROMISES) -> Bools:
    """bool[N]: on which nodes ``choose`` finds something for each claim."""
    claims = _claims_of(volumes, storage)
    fits = np.full(len(table.nodes), claims is not None)
    waiting: list[Claim] = []
    for claim in claims or ():
        promised = promises.claims.get((claim.namespace, claim.name))
        if promised is None:
            waiting.append(claim)
        else:
            has = np.zeros_like(fits)
            has[_rows_with(*promised, storage, table)] = True
            fits &= has
    matching = Matching(storage, table, promises.volumes)
    for claim in in_turn(waiting):
        fits &= matching.take(claim) | _can_be_provisioned(claim, storage, table)
    return fits


def is_of_one_node(choice: VolumeChoice, storage: Storage, table: NodeTable) -> bool:
    """Whether pods on other nodes find the same volumes as before, whoever gets this one."""
    volume = storage.volumes.get(choice.volume)
    return volume is None or len(nodes_reached(volume, storage, table)) == 1


def _claims_of(volumes: Volumes, storage: Storage) -> list[Claim] | None:
    """The claims of a pod that are not bound, each once; None where one does not exist."""
    claims = [storage.claims.get(each.key) for each in volumes if isinstance(each, ClaimVolume)]
    known = [claim for claim in dict.fromkeys(claims) if claim is not None]
    return None if None in claims else [claim for claim in known if not claim.bound]


def _rows_with(choice: VolumeChoice, node: int, storage: Storage, table: NodeTable) -> Int64s:
    """int64[M]: nodes where pods have what a claim was promised for a pod on a node."""
    volume = storage.volumes.get(choice.volume)
    return np.array([node]) if volume is None else nodes_reached(volume, storage, table)


def _smallest(
    claim: Claim, row: int, storage: Storage, table: NodeTable, promised: set[str], own: set[str]
) -> PersistentVolume | None:
    """The volume that FindMatchingVolume finds for a claim on a node; of equal sizes the first by name."""
    kept = next((volume for volume in kept_volumes(claim, storage) if volume.name not in own), None)
    if kept is not None:
        return kept if row in nodes_reached(kept, storage, table) else None
    free = free_volumes(claim.storage_class, storage, table)
    return free.smallest_at(row, offered(claim, free, storage.promised.union(promised, own)))


def _can_be_provisioned(claim: Claim, storage: Storage, table: NodeTable) -> Bools:
    """bool[N]: nodes where a volume can be made for the claim."""
    if claim.storage_class not in storage.classes:
        return np.zeros(len(table.nodes), dtype=np.bool_)
    can_make, has_space = provision(claim, storage, table)
    return can_make & has_space
