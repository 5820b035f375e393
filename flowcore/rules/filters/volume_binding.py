"""VolumeBinding: a node reaches the volumes of a pod's claims, bound ones and ones yet to be found or made.

Source: kube-scheduler plugins/volumebinding (volume_binding.go, binder.go), component-helpers storage/volume
(pv_helpers.go). A claim that waits for its first consumer takes the smallest volume of its class that the node reaches;
where there is none, one is made if the class allows it there. Of volumes of one size kube-scheduler takes any, we the
first by name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

from flowcore.cluster.arrays.free_volumes import FreeVolumes
from flowcore.cluster.arrays.node_matching import meets_all
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.quantities import whole_from_nanos
from flowcore.model.selectors import NodeSelectorTerm
from flowcore.model.volumes import Claim, ClaimVolume, PersistentVolume, StorageClass, Volumes
from flowcore.rules.filters.node_volume_limits import not_for_pod
from flowcore.rules.filters.rejection import Rejection
from flowcore.rules.filters.volume_restrictions import not_found

NAME = "VolumeBinding"
REASON_AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
REASON_NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
REASON_NO_SPACE = "node(s) did not have enough free storage"
REASON_LOST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASON_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
#: The parser's words follow in kube-scheduler's message.
REASON_UNREADABLE = f'running "{NAME}" filter plugin: error creating internal label selector for claim'
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


def prefilter_reason(volumes: Volumes, storage: Storage) -> str:
    """Why every node is rejected, "" if some may fit."""
    used = [each for each in volumes if isinstance(each, ClaimVolume)]
    for source in used:
        claim = storage.claims.get(source.key)
        if claim is None:
            if source.made_for is None:
                return not_found(source.name)
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{source.name}"'
        if claim.lost:
            missing = claim.volume_name
            return f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume "{missing}"'
        if claim.deleting:
            return f'persistentvolumeclaim "{claim.name}" is being deleted'
        foreign = not_for_pod(source, claim)
        if foreign:
            return foreign
        if claim.problem:
            return f'persistentvolumeclaim "{claim.name}" cannot be read: {claim.problem}'
    immediate = False
    for source in used:
        claim = storage.claims[source.key]
        if not claim.bound:
            storage_class = storage.classes.get(claim.storage_class) if claim.storage_class else None
            mode = "Immediate" if storage_class is None else storage_class.binding_mode
            if mode is None:
                problem = f'VolumeBindingMode not set for StorageClass "{claim.storage_class}"'
                return f'running PreFilter plugin "{NAME}": {problem}'
            immediate = immediate or mode != "WaitForFirstConsumer" or bool(claim.volume_name)
    return REASON_UNBOUND if immediate else ""


def rejections(volumes: Volumes, storage: Storage, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that miss a volume; a node can be in several of the rejections."""
    claims = [storage.claims[each.key] for each in volumes if isinstance(each, ClaimVolume)]
    if not claims:
        return ()
    likeness = _likeness(claims, storage, table)
    if likeness is None:
        return _rejections(claims, storage, table)
    known: dict[object, tuple[Rejection, ...]] = _memo(storage, table)
    rejected = known.get(("rejected", likeness))
    if rejected is None:
        rejected = known["rejected", likeness] = _rejections(claims, storage, table)
    return rejected


def remembered(volumes: Volumes, storage: Storage, table: NodeTable) -> tuple[dict[object, Any], object]:
    """What is remembered of a storage for one table of nodes, and a key that claims alike but for their sizes share.

    The key is None where a pod's claims are judged by more than what they ask for.
    """
    claims = [storage.claims[each.key] for each in volumes if isinstance(each, ClaimVolume)]
    return _memo(storage, table), _likeness(claims, storage, table)


def _memo(storage: Storage, table: NodeTable) -> dict[object, Any]:
    """What is remembered of a storage for one table of nodes."""
    known: tuple[NodeTable, dict[object, Any]] | None = storage.memo.get(NAME)
    if known is None or known[0] is not table:
        known = storage.memo[NAME] = table, {}
    return known[1]


def _likeness(claims: list[Claim], storage: Storage, table: NodeTable) -> object:
    """What claims that may have any free volume are judged by, as those that one template makes; None: by more.

    Of a size it is which volumes and which capacities are large enough: claims of many sizes are alike, too.
    """
    if any(claim.bound or storage.kept_for(claim) or not _is_readable(claim) for claim in claims):
        return None
    return tuple(
        (
            claim.storage_class,
            free_volumes(claim.storage_class, storage, table).place_of_size(claim.size or Decimal(0)),
            _space_needed(claim, storage, table),
            claim.access_modes,
            claim.volume_mode,
            claim.attributes_class,
            claim.selector,
            claim.selected_node,
        )
        for claim in in_turn(claims)
    )


def _rejections(claims: list[Claim], storage: Storage, table: NodeTable) -> tuple[Rejection, ...]:
    nobody = np.zeros(len(table.nodes), dtype=np.bool_)
    rejected, failed = _bound([claim for claim in claims if claim.bound], storage, table)
    waiting = [claim for claim in claims if not claim.bound]
    if waiting:
        # A node for which another claim is provisioned is checked no further.
        elsewhere = nobody.copy()
        for claim in waiting:
            if claim.selected_node is not None:
                chosen = table.index.get(claim.selected_node)
                others = ~nobody
                if chosen is not None:
                    others[chosen] = False
                elsewhere |= others
        asked = ~(elsewhere | failed)
        unreadable = next((each for each in waiting if needs_match(each) and not _is_readable(each)), None)
        if unreadable is not None:
            # Of a node with an error only the error is reported.
            rejected = [Rejection(rejection.reason, rejection.nodes & ~asked) for rejection in rejected]
            rejected.append(Rejection(f"{REASON_UNREADABLE}: {unreadable.namespace}/{unreadable.name}", asked))
            asked = nobody
        rejected.append(Rejection(REASON_NO_VOLUME, elsewhere & ~failed))
        rejected += _unbound(waiting, storage, table, asked)
    return tuple(rejected)


def _bound(claims: list[Claim], storage: Storage, table: NodeTable) -> tuple[list[Rejection], Bools]:
    """Nodes that do not reach the volumes of bound claims, by the first claim only; and those with an error."""
    decided = np.zeros(len(table.nodes), dtype=np.bool_)
    failed = np.zeros_like(decided)
    rejected = []
    for claim in claims:
        volume = storage.volumes.get(claim.volume_name)
        if volume is None:
            rejected.append(Rejection(REASON_LOST, ~decided))
            break
        far = ~reach(volume.affinity, table)
        if volume.plugin:
            migrated = _migrated(volume.plugin, storage, table)
            if volume.attachment is not None and volume.attachment.problem:
                here = migrated & ~decided
                text = f'running "{NAME}" filter plugin: could not translate pv: {volume.attachment.problem}'
                rejected.append(Rejection(text, here))
                failed |= here
                decided |= here
            else:
                far = np.where(migrated, ~reach(volume.migrated_affinity, table), far)
        rejected.append(Rejection(REASON_AFFINITY, far & ~decided))
        decided |= far
    return rejected, failed


def nodes_reached(volume: PersistentVolume, storage: Storage, table: NodeTable) -> Int64s:
    """int64[M]: rows of the nodes that reach a volume that is free, or kept for a claim; known once for each affinity.

    Most volumes that wait for a claim are disks of one node.
    """
    known: tuple[NodeTable, dict[object, Int64s]] | None = storage.by_table.get(NAME)
    if known is None or known[0] is not table:
        known = storage.by_table[NAME] = table, {}
    rows = known[1].get(volume.affinity)
    if rows is None:
        rows = known[1][volume.affinity] = np.nonzero(reach(volume.affinity, table))[0]
    return rows


def _migrated(plugin: str, storage: Storage, table: NodeTable) -> Bools:
    """bool[N]: nodes where a CSI driver serves the plugin's volumes."""
    served = {node.name for node in storage.csi_nodes.values() if plugin in node.migrated}
    return np.array([node.name in served for node in table.nodes], dtype=np.bool_)


def reach(affinity: tuple[NodeSelectorTerm, ...] | None, table: NodeTable) -> Bools:
    """bool[N]: nodes that a volume's affinity selects by labels (CheckNodeAffinity does not read names)."""
    if affinity is None:
        return np.ones(len(table.nodes), dtype=np.bool_)
    near = np.zeros(len(table.nodes), dtype=np.bool_)
    for term in affinity:
        if not term.selects_nothing:
            near |= meets_all(term.expressions, table)
    return near


def _unbound(waiting: list[Claim], storage: Storage, table: NodeTable, asked: Bools) -> list[Rejection]:
    """Nodes, among those asked about, on which a claim has no volume and none can be provisioned.

    Args:
        waiting: claims that wait for their first consumer; those with a selected node are being provisioned.
    """
    unmet, full = np.zeros_like(asked), np.zeros_like(asked)
    matching = Matching(storage, table)
    for claim in in_turn(waiting):
        # The first claim without a volume decides.
        left = asked & ~(matching.take(claim) | unmet | full)
        can_make, has_space = provision(claim, storage, table)
        unmet |= left & ~can_make
        full |= left & can_make & ~has_space
    return [Rejection(REASON_NO_VOLUME, unmet), Rejection(REASON_NO_SPACE, full)]


def needs_match(claim: Claim) -> bool:
    """Whether a volume has yet to be found; else one is being provisioned."""
    return claim.selected_node is None


def in_turn(waiting: Iterable[Claim]) -> list[Claim]:
    """The claims of a pod in the order in which they get their volumes: the smallest first of those to be found."""
    return sorted(
        waiting, key=lambda claim: (needs_match(claim), (claim.size or Decimal(0)) if needs_match(claim) else 0)
    )


def _is_readable(claim: Claim) -> bool:
    return claim.selector is None or claim.selector.is_valid


class Matching:
    """The claims of one pod take free volumes, one claim after the other, on all nodes at once."""

    def __init__(self, storage: Storage, table: NodeTable, promised: Iterable[str] = ()) -> None:
        """``promised``: names of volumes that others are to get, beside those that the storage knows of."""
        self._storage, self._table, self._promised = storage, table, storage.promised.union(promised)
        #: Volumes kept for a claim -> nodes where an earlier claim of the pod has it.
        self._kept: dict[str, Bools] = {}
        #: By class: for each earlier claim the place of its volume on each node.
        self._places: dict[str, list[Int64s]] = {}

    def take(self, claim: Claim, sizes: Int64s | None = None) -> Bools:
        """bool[N]: nodes where the claim has a volume; later claims do without it there.

        Args:
            sizes: int64[N], gets the bytes of that volume.
        """
        matched = np.zeros(len(self._table.nodes), dtype=np.bool_)
        if not needs_match(claim):
            return matched
        looking = ~matched
        for volume in kept_volumes(claim, self._storage):
            taken = self._kept.setdefault(volume.name, np.zeros_like(looking))
            reached = np.zeros_like(looking)
            reached[nodes_reached(volume, self._storage, self._table)] = True
            got = looking & reached & ~taken
            matched |= got
            if sizes is not None:
                sizes[got] = whole_from_nanos(int(volume.size))
            looking = looking & taken
            taken |= got
            if not looking.any():
                break
        free = free_volumes(claim.storage_class, self._storage, self._table)
        if free.volumes and looking.any():
            earlier = self._places.setdefault(claim.storage_class, [])
            none, places = len(free.volumes), free.smallest(offered(claim, free, self._promised), earlier)
            earlier.append(np.where(looking, places, none))
            has_one = earlier[-1] < none
            matched |= has_one
            if sizes is not None:
                sizes[has_one] = free.sizes[earlier[-1][has_one]]
        return matched


def kept_volumes(claim: Claim, storage: Storage) -> list[PersistentVolume]:
    """Volumes reserved for the claim (claimRef): they precede all others, even where no node reaches them."""
    return [
        volume
        for volume in storage.kept_for(claim)
        if volume.storage_class == claim.storage_class and may_hold(volume, claim)
    ]


def free_volumes(storage_class: str, storage: Storage, table: NodeTable) -> FreeVolumes:
    """Volumes of a class that are kept for no claim; promised ones are among them."""
    known: tuple[NodeTable, FreeVolumes] | None = storage.free_memo.get(storage_class)
    if known is None or known[0] is not table:
        free = FreeVolumes(
            storage.free(storage_class), lambda volume: nodes_reached(volume, storage, table), len(table.nodes)
        )
        known = storage.free_memo[storage_class] = table, free
    return known[1]


def offered(claim: Claim, free: FreeVolumes, taken: Iterable[str]) -> Bools:
    """bool[V]: free volumes that are large enough for a claim, suit it and are not among those taken."""
    asked = claim.access_modes, claim.volume_mode, claim.attributes_class, claim.selector
    suit = free.memo.get(asked)
    if suit is None:
        any_size = msgspec.structs.replace(claim, size=None)
        suit = free.memo[asked] = np.array(
            [may_hold(volume, any_size) and is_offered(volume, any_size) for volume in free.volumes], dtype=np.bool_
        )
    suit = suit.copy()
    suit[: free.place_of_size(claim.size or Decimal(0))] = False
    suit[[free.places[name] for name in taken if name in free.places]] = False
    return suit


def may_hold(volume: PersistentVolume, claim: Claim) -> bool:
    """Whether a volume suits the claim but for its nodes and its state (FindMatchingVolume)."""
    return (
        (volume.claim is None or volume.claim.is_to(claim))
        and volume.size >= (claim.size or 0)
        and volume.volume_mode == claim.volume_mode
        and volume.attributes_class == claim.attributes_class
        and not volume.deleting
    )


def is_offered(volume: PersistentVolume, claim: Claim) -> bool:
    """Whether a volume without a claimRef is free for the claim."""
    return (
        volume.available
        and (claim.selector is None or claim.selector.matches(volume.labels))
        and set(claim.access_modes) <= set(volume.access_modes)
    )


def provisions(storage_class: StorageClass) -> bool:
    """Whether volumes of a class are made for claims; else somebody makes them by hand."""
    return storage_class.provisioner not in ("", _NO_PROVISIONER)


def provision(claim: Claim, storage: Storage, table: NodeTable) -> tuple[Bools, Bools]:
    """bool[N] twice: where a volume can be provisioned for the claim, and where there is capacity for it."""
    known: dict[object, tuple[Bools, Bools]] = _memo(storage, table)
    key = "provisioned", claim.storage_class, _space_needed(claim, storage, table)
    answer = known.get(key)
    if answer is None:
        answer = known[key] = _provision(claim, storage, table)
    return answer


def _space_needed(claim: Claim, storage: Storage, table: NodeTable) -> int:
    """How many capacities of the claim's class are too small for it; -1 where none is asked."""
    storage_class = storage.classes.get(claim.storage_class)
    driver = None if storage_class is None else storage.drivers.get(storage_class.provisioner)
    if claim.size is None or driver is None or not driver.tracks_capacity:
        return -1
    known: dict[object, list[int]] = _memo(storage, table)
    largest = known.get(("capacities", claim.storage_class))
    if largest is None:
        spaces = storage.spaces(claim.storage_class)
        largest = known["capacities", claim.storage_class] = sorted(space.largest for space in spaces)
    return bisect_left(largest, whole_from_nanos(int(claim.size)))


def _provision(claim: Claim, storage: Storage, table: NodeTable) -> tuple[Bools, Bools]:
    everywhere = np.ones(len(table.nodes), dtype=np.bool_)
    storage_class = storage.classes[claim.storage_class]
    if not provisions(storage_class):
        return ~everywhere, everywhere
    can_make = reach(storage_class.topologies, table) if storage_class.topologies else everywhere
    driver = storage.drivers.get(storage_class.provisioner)
    if claim.size is None or driver is None or not driver.tracks_capacity:
        return can_make, everywhere
    has_space = ~everywhere
    for capacity in storage.spaces(storage_class.name):
        if (
            capacity.topology is not None
            and capacity.topology.is_valid
            and capacity.largest >= whole_from_nanos(int(claim.size))
        ):
            has_space |= meets_all(capacity.topology.requirements, table)
    return can_make, has_space
