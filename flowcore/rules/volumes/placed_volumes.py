"""Volumes that pods of a round get as they are placed, one pod after the other, and what they leave for the next.

VolumeRestrictions, NodeVolumeLimits and VolumeBinding judge the cluster as the round begins. This says what its own
placements change of that: a disk is mounted, an attachment is used up, a claim that only one pod may use is in use, a
free volume is promised to a claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.volumes import ClaimKey, ClaimVolume, Disk, VolumeChoice, Volumes
from flowcore.rules.filters.node_volume_limits import PlannedAttachments, limited_attachments
from flowcore.rules.filters.volume_restrictions import conflicting_disks, only_for_one_pod
from flowcore.rules.volumes.free_storage import storage_scores
from flowcore.rules.volumes.volume_choice import Promises, can_choose, choose, is_of_one_node


def contends(volumes: Volumes, storage: Storage) -> bool:
    """Whether pods of one round may take from each other what these volumes need.

    Others of their pods need not be looked at one by one: bound claims that any number of pods may mount.
    """
    if not volumes:
        return False
    known: dict[Volumes, bool] = storage.memo.setdefault("contends", {})
    answer = known.get(volumes)
    if answer is None:
        claims = [storage.claims.get(each.key) for each in volumes if isinstance(each, ClaimVolume)]
        answer = known[volumes] = (
            any(isinstance(each, Disk) and each.key for each in volumes)
            or any(claim is not None and not claim.bound for claim in claims)
            or bool(only_for_one_pod(volumes, storage))
            or bool(limited_attachments(volumes, storage))
        )
    return answer


def decides_for_others(volumes: Volumes, storage: Storage) -> bool:
    """Whether a pod decides on which nodes others with the same volumes do.

    By a claim that is unbound yet, or that only one pod may use.
    """
    claims = (storage.claims.get(key) for key in _claims(volumes))
    return any(claim is not None and not claim.bound for claim in claims) or bool(only_for_one_pod(volumes, storage))


class PlacedVolumes:
    """What pods that were placed have taken."""

    def __init__(self, storage: Storage, table: NodeTable) -> None:
        self._storage, self._table = storage, table
        self._promises = Promises()
        #: Classes of volumes that were promised.
        self._classes: set[str] = set()
        #: How many placed pods use each claim.
        self._users: Counter[ClaimKey] = Counter()
        #: By row: volumes of placed pods, and whether any of them is a disk.
        self._mounted: dict[int, tuple[Volumes, ...]] = {}
        self._has_disks = False
        self._attached = PlannedAttachments(storage, table)

    def copy(self) -> PlacedVolumes:
        """An independent copy."""
        copied = PlacedVolumes(self._storage, self._table)
        copied._promises = Promises(set(self._promises.volumes), dict(self._promises.claims))
        copied._classes, copied._users = set(self._classes), self._users.copy()
        copied._mounted, copied._has_disks = dict(self._mounted), self._has_disks
        copied._attached = self._attached.copy()
        return copied

    def fitting(self, volumes: Volumes) -> Bools:
        """bool[N]: on which nodes a pod gets its volumes, of those where it had them as the round began."""
        if any(self._users[key] for key in only_for_one_pod(volumes, self._storage)):
            return np.zeros(len(self._table.nodes), dtype=np.bool_)
        fits: Bools = ~self._attached.exceeded(volumes)
        if self._concerns(volumes):
            fits &= can_choose(volumes, self._storage, self._table, self._promises)
            if self._has_disks:
                fits[[row for row, mounted in self._mounted.items() if _conflict(volumes, mounted)]] = False
        return fits

    def storage_scores(self, volumes: Volumes) -> Int64s | None:
        """int64[N]: scores of what a pod's claims get now (``storage_scores``); None: as when the round began."""
        if not self._concerns(volumes):
            return None
        return storage_scores(volumes, self._storage, self._table, self._promises.volumes)

    def _concerns(self, volumes: Volumes) -> bool:
        """Whether a disk, a claim or a class of these volumes is one of those that placed pods took of."""
        for source in volumes:
            if isinstance(source, Disk):
                if source.key and self._has_disks:
                    return True
            elif self._users[source.key]:
                return True
            elif self._classes:
                claim = self._storage.claims.get(source.key)
                if claim is not None and claim.storage_class in self._classes:
                    return True
        return False

    def take(self, volumes: Volumes, row: int) -> bool:
        """A pod comes to a node.

        Returns:
            Whether other nodes may have other volumes now.
        """
        storage, table = self._storage, self._table
        spreads = bool(only_for_one_pod(volumes, storage))
        for choice in choose(volumes, row, storage, table, self._promises) or ():
            spreads |= not is_of_one_node(choice, storage, table)
            self._promises.claims.setdefault(choice.key, (choice, row))
            if choice.volume:
                self._promises.volumes.add(choice.volume)
                self._classes.add(storage.claims[choice.key].storage_class)
        for key in _claims(volumes):
            self._users[key] += 1
        self._has_disks |= any(isinstance(each, Disk) for each in volumes)
        self._mounted[row] = (*self._mounted.get(row, ()), volumes)
        self._attached.put(row, self._mounted[row])
        return spreads

    def release(self, volumes: Volumes, row: int) -> None:
        """A pod that came to a node does not come after all."""
        mounted = list(self._mounted.get(row, ()))
        if volumes in mounted:
            mounted.remove(volumes)
            self._mounted[row] = tuple(mounted)
            self._attached.put(row, self._mounted[row])
        for key in _claims(volumes):
            self._users[key] -= 1
            if not self._users[key] and key in self._promises.claims:
                self._promises.volumes.discard(self._promises.claims.pop(key)[0].volume)

    def to_storage(self) -> Storage:
        """The storage as it is with all that was taken."""
        choices, nodes = dict(self._promises.claims), self._table.nodes
        return self._storage.with_pods(
            (
                nodes[row].name,
                volumes,
                [choices.pop(key)[0] for key in dict.fromkeys(_claims(volumes)) if key in choices],
            )
            for row, mounted in self._mounted.items()
            for volumes in mounted
        )


def chosen_for(
    pods: Iterable[tuple[Volumes, str]], storage: Storage, table: NodeTable, promises: Promises | None = None
) -> Iterator[tuple[VolumeChoice, ...]]:
    """What the claims of pods get that go to nodes, one pod after the other; () where one of them gets nothing.

    Args:
        pods: volumes and the name of the node of each.
        promises: what pods before them were promised; these are added to it.
    """
    promises = Promises() if promises is None else promises
    for volumes, node in pods:
        row = table.index.get(node)
        choices = choose(volumes, row, storage, table, promises) if volumes and row is not None else None
        for choice in choices or ():
            promises.claims.setdefault(choice.key, (choice, row or 0))
            if choice.volume:
                promises.volumes.add(choice.volume)
        yield choices or ()


class ComingVolumes:
    """The storage with the volumes of pods that come; it is asked about again and again, mostly with one pod more."""

    def __init__(self, storage: Storage, table: NodeTable) -> None:
        """``storage``: before any of them."""
        self._before, self._table = storage, table
        self._pods: list[tuple[Volumes, str]] = []
        self._promises, self._storage = Promises(), storage

    def storage(self, pods: Sequence[tuple[Volumes, str]]) -> Storage:
        """The storage once pods have come to nodes: volumes and the name of the node of each.

        For the pods of the last call it is the same object: what filters remember of it holds.
        """
        if self._pods != pods[: len(self._pods)]:
            self._pods, self._promises, self._storage = [], Promises(), self._before
        more = pods[len(self._pods) :]
        if more:
            choices = list(chosen_for(more, self._before, self._table, self._promises))
            self._pods = list(pods)
            self._storage = self._storage.with_pods(
                (node, volumes, chosen) for (volumes, node), chosen in zip(more, choices, strict=True)
            )
        return self._storage


def _conflict(volumes: Volumes, mounted: Iterable[Volumes]) -> bool:
    """Whether a node that has these mounted cannot mount a pod's disks beside them."""
    return any(conflicting_disks(volumes, others) for others in mounted)


def _claims(volumes: Volumes) -> Iterator[ClaimKey]:
    return (each.key for each in volumes if isinstance(each, ClaimVolume))
