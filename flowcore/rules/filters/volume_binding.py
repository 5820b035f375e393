"""VolumeBinding: a node reaches the volumes of a pod's claims, bound ones and ones yet to be found or made.

Source: kube-scheduler plugins/volumebinding (volume_binding.go, binder.go), component-helpers storage/volume
(pv_helpers.go). A claim that waits for its first consumer takes the smallest volume of its class that the node reaches;
where there is none, one is made if the class allows it there. Of volumes of one size kube-scheduler takes any, we the
first by name.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.node_matching import meets_all
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.quantities import whole_from_nanos
from flowcore.model.selectors import NodeSelectorTerm
from flowcore.model.volumes import Claim, ClaimVolume, PersistentVolume, Volumes
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
    likeness = _likeness(claims, storage)
    if likeness is None:
        return _rejections(claims, storage, table)
    known: tuple[NodeTable, dict[object, tuple[Rejection, ...]]] | None = storage.memo.get(NAME)
    if known is None or known[0] is not table:
        known = storage.memo[NAME] = table, {}
    rejected = known[1].get(likeness)
    if rejected is None:
        rejected = known[1][likeness] = _rejections(claims, storage, table)
    return rejected


def _likeness(claims: list[Claim], storage: Storage) -> object:
    """What claims that may have any free volume are judged by, as those that one template makes; None: by more."""
    if any(claim.bound or storage.kept_for(claim) or not _is_readable(claim) for claim in claims):
        return None
    return tuple(
        (
            claim.storage_class,
            claim.size,
            claim.access_modes,
            claim.volume_mode,
            claim.attributes_class,
            claim.selector,
            claim.selected_node,
        )
        for claim in claims
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
    missing: list[tuple[Claim, Bools]] = [(claim, asked) for claim in waiting if not needs_match(claim)]
    taken: dict[str, Bools] = {}  # volume -> nodes where an earlier claim of the pod took it
    to_match = sorted(filter(needs_match, waiting), key=lambda claim: claim.size or 0)
    missing += [(claim, asked & ~_match(claim, storage, table, taken)) for claim in to_match]
    unmet, full = np.zeros_like(asked), np.zeros_like(asked)
    for claim, nodes in missing:
        # The first claim without a volume decides.
        left = nodes & ~(unmet | full)
        can_make, has_space = provision(claim, storage, table)
        unmet |= left & ~can_make
        full |= left & can_make & ~has_space
    return [Rejection(REASON_NO_VOLUME, unmet), Rejection(REASON_NO_SPACE, full)]


def needs_match(claim: Claim) -> bool:
    """Whether a volume has yet to be found; else one is being provisioned."""
    return claim.selected_node is None


def _is_readable(claim: Claim) -> bool:
    return claim.selector is None or claim.selector.is_valid


def _match(claim: Claim, storage: Storage, table: NodeTable, taken: dict[str, Bools]) -> Bools:
    """bool[N]: nodes with a volume for the claim, which is marked as taken there."""
    nothing = np.zeros(len(table.nodes), dtype=np.bool_)
    # A volume reserved for the claim (claimRef) precedes all others, even where no node reaches it.
    kept = [
        volume
        for volume in storage.kept_for(claim)
        if volume.storage_class == claim.storage_class and may_hold(volume, claim)
    ]
    free = [
        volume for volume in storage.free(claim.storage_class) if may_hold(volume, claim) and is_offered(volume, claim)
    ]
    done, matched = nothing.copy(), nothing.copy()
    left = len(done)
    for volume in (*kept, *free):
        rows = nodes_reached(volume, storage, table)
        taken_on = taken.get(volume.name, nothing)
        rows = rows[~(done[rows] | taken_on[rows])]
        matched[rows] = True
        if volume.claim is not None:
            done |= ~taken_on
            left = len(done) - int(np.count_nonzero(done))
        elif len(rows):
            done[rows] = True
            left -= len(rows)
        if len(rows):
            taken[volume.name] = taken_on.copy()
            taken[volume.name][rows] = True
        if not left:
            break
    return matched


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


def provision(claim: Claim, storage: Storage, table: NodeTable) -> tuple[Bools, Bools]:
    """bool[N] twice: where a volume can be provisioned for the claim, and where there is capacity for it."""
    everywhere = np.ones(len(table.nodes), dtype=np.bool_)
    storage_class = storage.classes[claim.storage_class]
    if storage_class.provisioner in ("", _NO_PROVISIONER):
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
