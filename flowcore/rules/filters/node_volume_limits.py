"""NodeVolumeLimits: how many volumes of each CSI driver a node takes.

Source: kube-scheduler plugins/nodevolumelimits/csi.go. A volume counts once per node, however many pods share it;
VolumeAttachments count for volumes that no pod on the node uses any more. A driver may say that nodes without it take
no such volumes (checkCSIDriverOnNode).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.volumes import (
    CSI_DRIVERS,
    UNMIGRATED,
    Attachment,
    Claim,
    ClaimVolume,
    CsiNode,
    Disk,
    Volumes,
)
from flowcore.rules.filters.rejection import Rejection
from flowcore.rules.filters.volume_restrictions import not_found

NAME = "NodeVolumeLimits"
REASON = "node(s) exceed max volume count"
#: The driver precedes in kube-scheduler's message.
REASON_MISSING = "CSI driver is not installed on the node"
_NO_LIMIT = 2**62
#: What is remembered of a storage under this name.
_LIMITED = "limited-drivers"


@dataclass(frozen=True, slots=True)
class _Count:
    """Volumes by unique name, with their drivers; ``problem``: the error that ended the count."""

    drivers: dict[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Loads:
    """What is attached, over the nodes of a table.

    Attributes:
        limits, counts: driver -> int64[N].
        holders: volume -> positions of the nodes where pods use it.
        limited: bool[N], nodes with a limit for any driver.
        problems: position -> why its pods' volumes cannot be counted.
    """

    table: NodeTable
    limits: dict[str, Int64s]
    counts: dict[str, Int64s]
    holders: dict[str, list[int]]
    limited: Bools
    problems: dict[int, str]


def rejections(volumes: Volumes, storage: Storage, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes whose limit would be exceeded, and nodes on which an error prevents the count."""
    with_csi = _with_csi(storage, table)
    rejected = []
    for migrated, nodes in ((False, ~with_csi), (True, with_csi)):
        wanted = _count(volumes, storage, migrated=migrated, is_new=True)
        if wanted.problem:
            rejected.append(Rejection(wanted.problem, nodes))
            continue
        missing = np.zeros(len(nodes), dtype=np.bool_)
        for driver in _needed(wanted.drivers, storage):
            lacks = nodes & ~missing & ~_installed(driver, storage, table)
            rejected.append(Rejection(f"{driver} {REASON_MISSING}", lacks))
            missing |= lacks
        if migrated and wanted.drivers:
            exceeded = _exceeded(wanted.drivers, _loads(storage, table))
            rejected += [Rejection(each.reason, each.nodes & ~missing) for each in exceeded]
    return tuple(rejected)


def _needed(drivers: dict[str, str], storage: Storage) -> list[str]:
    """Drivers of these volumes that a node must have, sorted."""
    known = (storage.drivers.get(driver) for driver in sorted(set(drivers.values())))
    return [driver.name for driver in known if driver is not None and driver.is_needed]


def _installed(driver: str, storage: Storage, table: NodeTable) -> Bools:
    """bool[N]: nodes that have a driver."""
    nodes = (storage.csi_nodes.get(node.name) for node in table.nodes)
    return np.array([node is not None and driver in node.drivers for node in nodes], dtype=np.bool_)


def _exceeded(wanted: dict[str, str], loads: _Loads) -> list[Rejection]:
    uncounted = np.zeros_like(loads.limited)
    rejected = []
    for node, problem in loads.problems.items():
        only = np.zeros_like(loads.limited)
        only[node] = uncounted[node] = True
        rejected.append(Rejection(problem, only))
    over = np.zeros_like(loads.limited)
    for driver, limit in loads.limits.items():
        own = [volume for volume, its in wanted.items() if its == driver]
        if own:
            fresh: Int64s = np.full(len(limit), len(own), dtype=np.int64)
            for volume in own:
                fresh[loads.holders.get(volume, [])] -= 1
            over |= (fresh > 0) & (loads.counts[driver] + fresh > limit)
    return [*rejected, Rejection(REASON, over & ~uncounted)]


def rejects(volumes: Volumes, storage: Storage, node: str, mounted: Volumes) -> bool:
    """Whether ``rejections`` has a node, with these volumes mounted there and no others."""
    csi_node = storage.csi_nodes.get(node)
    wanted = _count(volumes, storage, migrated=csi_node is not None, is_new=True)
    limits = _limits(csi_node)
    if wanted.problem or any(
        csi_node is None or driver not in csi_node.drivers for driver in _needed(wanted.drivers, storage)
    ):
        return True
    if not wanted.drivers or not limits:
        return False
    held = _count(mounted, storage, migrated=True, is_new=False)
    attached = Counter({**_attached(node, storage), **held.drivers}.values())
    fresh = Counter(driver for volume, driver in wanted.drivers.items() if volume not in held.drivers)
    return bool(held.problem) or any(0 < fresh[driver] > limit - attached[driver] for driver, limit in limits)


def limited_attachments(volumes: Volumes, storage: Storage) -> dict[str, str]:
    """Volumes among these, with their drivers, of which some node takes a limited number."""
    limited: set[str] | None = storage.memo.get(_LIMITED)
    if limited is None:
        limited = {driver for node in storage.csi_nodes.values() for driver, _ in node.limits}
        storage.memo[_LIMITED] = limited
    if not limited:
        return {}
    wanted = _count(volumes, storage, migrated=True, is_new=True)
    return {volume: driver for volume, driver in wanted.drivers.items() if driver in limited}


class PlannedAttachments:
    """Volumes that pods bring to nodes, beside what is attached already."""

    def __init__(self, storage: Storage, table: NodeTable) -> None:
        self._storage, self._table = storage, table
        #: By row, volumes with their drivers; by driver, int64[N], how many of them are not attached yet.
        self._coming: dict[int, dict[str, str]] = {}
        self._counts: dict[str, Int64s] = {}

    def copy(self) -> PlannedAttachments:
        """An independent copy."""
        copied = PlannedAttachments(self._storage, self._table)
        copied._coming = dict(self._coming)
        copied._counts = {driver: counts.copy() for driver, counts in self._counts.items()}
        return copied

    def put(self, row: int, pods: Iterable[Volumes]) -> None:
        """Sets which pods come to a node: all of them."""
        coming: dict[str, str] = {}
        for volumes in pods:
            coming |= limited_attachments(volumes, self._storage)
        if not coming and row not in self._coming:
            return
        holders = _loads(self._storage, self._table).holders
        self._coming[row] = coming = {
            volume: driver for volume, driver in coming.items() if row not in holders.get(volume, ())
        }
        number = Counter(coming.values())
        for driver in {*number, *self._counts}:
            if driver not in self._counts:
                self._counts[driver] = np.zeros(len(self._table.nodes), dtype=np.int64)
            self._counts[driver][row] = number[driver]

    def exceeded(self, volumes: Volumes) -> Bools:
        """bool[N]: nodes that a pod's volumes are too many for now."""
        over = np.zeros(len(self._table.nodes), dtype=np.bool_)
        wanted = limited_attachments(volumes, self._storage) if self._counts else {}
        if not wanted:
            return over
        loads = _loads(self._storage, self._table)
        for driver in self._counts.keys() & loads.limits.keys() & set(wanted.values()):
            own = [volume for volume, its in wanted.items() if its == driver]
            fresh: Int64s = np.full(len(over), len(own), dtype=np.int64)
            for volume in own:
                fresh[loads.holders.get(volume, [])] -= 1
                fresh[[row for row, coming in self._coming.items() if volume in coming]] -= 1
            over |= (fresh > 0) & (loads.counts[driver] + self._counts[driver] + fresh > loads.limits[driver])
        return over


def _with_csi(storage: Storage, table: NodeTable) -> Bools:
    """bool[N]: nodes with a CSINode."""
    known: tuple[NodeTable, Bools] | None = storage.memo.get("with CSINode")
    if known is None or known[0] is not table:
        known = table, np.array([node.name in storage.csi_nodes for node in table.nodes], dtype=np.bool_)
        storage.memo["with CSINode"] = known
    return known[1]


def _loads(storage: Storage, table: NodeTable) -> _Loads:
    known: _Loads | None = storage.mount_memo.get(NAME)
    if known is not None and known.table is table:
        return known
    limited = [row for row, node in enumerate(table.nodes) if _limits(storage.csi_nodes.get(node.name))]
    limits: dict[str, Int64s] = {}
    counts: dict[str, Int64s] = {}
    holders: dict[str, list[int]] = {}
    problems: dict[int, str] = {}
    for row in limited:
        name = table.nodes[row].name
        mounted = _count(storage.mounted.get(name, ()), storage, migrated=True, is_new=False)
        if mounted.problem:
            problems[row] = mounted.problem
            continue
        for unique in mounted.drivers:
            holders.setdefault(unique, []).append(row)
        number = Counter({**_attached(name, storage), **mounted.drivers}.values())
        for driver, limit in _limits(storage.csi_nodes[name]):
            if driver not in limits:
                limits[driver] = np.full(len(table.nodes), _NO_LIMIT, dtype=np.int64)
                counts[driver] = np.zeros(len(table.nodes), dtype=np.int64)
            limits[driver][row], counts[driver][row] = limit, number[driver]
    mask = np.zeros(len(table.nodes), dtype=np.bool_)
    mask[limited] = True
    made = _Loads(table, limits, counts, holders, mask, problems)
    storage.mount_memo[NAME] = made
    return made


def _attached(node: str, storage: Storage) -> dict[str, str]:
    """Volumes that are attached to a node, with their drivers, in use or not."""
    drivers = {}
    for attachment in storage.attached_to(node):
        volume = storage.volumes.get(attachment.volume_name)
        # An in-tree volume that is attached through its driver is not counted.
        if volume is not None and volume.attachment is not None and not volume.plugin:
            drivers[f"{attachment.driver}/{volume.attachment.handle}"] = attachment.driver
    return drivers


def _limits(node: CsiNode | None) -> tuple[tuple[str, int], ...]:
    return () if node is None else node.limits


def _count(volumes: Iterable[ClaimVolume | Disk], storage: Storage, *, migrated: bool, is_new: bool) -> _Count:
    """Volumes that CSI drivers attach.

    Args:
        migrated: the node has a CSINode, so that in-tree volumes count as those of their drivers.
        is_new: of a pod that waits, which cannot run without its claims; a running pod's lost ones are passed over.
    """
    drivers: dict[str, str] = {}
    for source in volumes:
        if isinstance(source, Disk):
            attachment = source.attachment if migrated else None
            if attachment is not None and attachment.problem:
                return _Count(problem=_failed(attachment.problem))
        else:
            if not source.name:
                return _Count(problem=_failed("PersistentVolumeClaim had no name"))
            claim = storage.claims.get(source.key)
            if claim is None:
                if is_new:
                    return _Count(problem=f"looking up PVC {source.namespace}/{source.name}: {not_found(source.name)}")
                continue
            foreign = not_for_pod(source, claim)
            if foreign:
                return _Count(problem=_failed(foreign))
            attachment = _of_claim(claim, storage, migrated=migrated)
        # Without a driver or a handle it has no unique name.
        if attachment is not None and not attachment.problem and (isinstance(source, Disk) or _is_whole(attachment)):
            drivers[f"{attachment.driver}/{attachment.handle}"] = attachment.driver
    return _Count(drivers)


def _is_whole(attachment: Attachment) -> bool:
    return bool(attachment.driver and attachment.handle)


def _of_claim(claim: Claim, storage: Storage, *, migrated: bool) -> Attachment | None:
    """A claim's volume, or the volume that will be provisioned for it."""
    volume = storage.volumes.get(claim.volume_name) if claim.volume_name else None
    if volume is not None:
        return None if volume.plugin and not migrated else volume.attachment
    storage_class = storage.classes.get(claim.storage_class) if claim.storage_class else None
    if storage_class is None:
        return None
    driver = storage_class.provisioner
    if driver in UNMIGRATED or (driver in CSI_DRIVERS and not migrated):
        return None
    # No handle of a real volume begins like this.
    return Attachment(CSI_DRIVERS.get(driver, driver), f"\0{claim.namespace}/{claim.name}")


def not_for_pod(volume: ClaimVolume, claim: Claim) -> str:
    """What is wrong with the claim of an ephemeral volume, "" when it was made for the pod."""
    if volume.made_for is None or volume.made_for[1] == claim.controller:
        return ""
    pod, where = volume.made_for[0], volume.namespace
    return f"PVC {where}/{claim.name} was not created for pod {where}/{pod} (pod is not owner)"


def _failed(problem: str) -> str:
    """kube-scheduler's text for a filter that ends with an error."""
    return f'running "{NAME}" filter plugin: {problem}'
