"""What the volume claims of a pod still get on a node: volumes change while a plan is made and carried out.

Source: kube-scheduler plugins/volumebinding (FindMatchingVolume, CheckNodeAffinity), volumerestrictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod
from flowcore.model.selectors import Labels, value_of
from flowcore.model.volumes import (
    Claim,
    ClaimKey,
    ClaimVolume,
    CsiNode,
    Disk,
    PersistentVolume,
    VolumeChoice,
    claim_key,
    volume_key,
)
from flowcore.rules.filters.volume_binding import is_offered, may_hold
from flowcore.rules.filters.volume_restrictions import ONE_POD, conflicting_disks


def needed(
    cluster: Cluster, pod: Pod, node: str, planned: Iterable[VolumeChoice], leaving: Sequence[Pod] = ()
) -> tuple[VolumeChoice, ...] | None:
    """What a pod's claims still get on a node, as planned.

    Args:
        leaving: pods whose volumes count and do not stand in its way; itself among them if it counts.

    Returns:
        None where the plan does not hold any more: a claim or a volume changed, or others use what it needs.
    """
    if not pod.pod_class.volumes:
        return ()
    if _conflicts(cluster, pod, node, leaving):
        return None
    chosen = {choice.key: choice for choice in planned}
    choices = []
    for key in _claim_keys(pod):
        claim, choice = claim_of(cluster, *key), chosen.get(key)
        if claim is None or claim.lost or claim.deleting or (choice is not None and choice.uid != claim.uid):
            return None
        if claim.bound:
            if not _is_bound_there(cluster, claim, node):
                return None  # somebody has bound it since the plan was asked for
            continue
        if choice is None or not _holds(cluster, choice, claim, node):
            return None
        choices.append(choice)
    return tuple(choices)


def has_volumes(cluster: Cluster, pod: Pod, node: str) -> bool:
    """Whether all volume claims of a pod are bound, to volumes that its node reaches."""
    claims = (claim_of(cluster, *key) for key in _claim_keys(pod))
    return all(claim is not None and claim.bound and _is_bound_there(cluster, claim, node) for claim in claims)


def are_bound(cluster: Cluster, pod: Pod) -> bool:
    """Whether all volume claims of a pod are bound, wherever their volumes are."""
    claims = (claim_of(cluster, *key) for key in _claim_keys(pod))
    return all(claim is not None and claim.bound for claim in claims)


def _claim_keys(pod: Pod) -> Iterable[ClaimKey]:
    return dict.fromkeys(volume.key for volume in pod.pod_class.volumes if isinstance(volume, ClaimVolume))


def _is_bound_there(cluster: Cluster, claim: Claim, node: str) -> bool:
    """Whether the volume of a bound claim is there, and a node reaches it."""
    volume = cluster.storage.objects.get(volume_key(claim.volume_name))
    return isinstance(volume, PersistentVolume) and is_reached(cluster, volume, node)


def _conflicts(cluster: Cluster, pod: Pod, node: str, leaving: Sequence[Pod]) -> bool:
    """Whether others keep a pod's volumes from a node: a disk is mounted there, or a claim for one pod is used."""
    usage, volumes = cluster.occupancy.usage, pod.pod_class.volumes
    beside = usage.get(node)
    if beside is not None:
        gone_here = _volumes_of(left for left in leaving if left.node_name in ("", node))
        if conflicting_disks(volumes, tuple(beside.volumes - gone_here)):
            return True
    alone = [
        volume
        for volume in volumes
        if isinstance(volume, ClaimVolume)
        and volume.made_for is None
        and (claim := claim_of(cluster, *volume.key)) is not None
        and ONE_POD in claim.access_modes
    ]
    gone = _volumes_of(leaving)
    of_nodes = [sums for name, sums in usage.items() if name in cluster.nodes] if alone else []
    return any(sum(sums.volumes[volume] for sums in of_nodes) > gone[volume] for volume in alone)


def _volumes_of(pods: Iterable[Pod]) -> Counter[ClaimVolume | Disk]:
    return Counter(volume for pod in pods for volume in pod.pod_class.volumes)


def _holds(cluster: Cluster, choice: VolumeChoice, claim: Claim, node: str) -> bool:
    """Whether a claim may have what was chosen for it: since the plan others may have come, and volumes changed."""
    storage = cluster.storage
    promise = storage.promises.get(choice.key)
    if promise is not None and (promise.choice != choice or (not choice.volume and promise.node != node)):
        return False
    if not choice.volume:
        return not claim.volume_name and claim.selected_node in (None, node)
    volume = storage.objects.get(volume_key(choice.volume))
    return (
        isinstance(volume, PersistentVolume)
        and volume.storage_class == claim.storage_class
        and may_hold(volume, claim)
        and (volume.claim is not None or is_offered(volume, claim))
        and is_reached(cluster, volume, node)
        and claim.selected_node is None
        and storage.promised_to(choice.volume) in (None, choice.key)
    )


def claim_of(cluster: Cluster, namespace: str, name: str) -> Claim | None:
    """A claim as the watch shows it; None: it is not there."""
    claim = cluster.storage.objects.get(claim_key(namespace, name))
    return claim if isinstance(claim, Claim) else None


def is_reached(cluster: Cluster, volume: PersistentVolume, node: str) -> bool:
    """Whether a node reaches a volume (CheckNodeAffinity), by its driver where one took an in-tree plugin's place."""
    csi_node = cluster.storage.objects.get(("CSINode", "", node))
    migrated = isinstance(csi_node, CsiNode) and bool(volume.plugin) and volume.plugin in csi_node.migrated
    affinity = volume.migrated_affinity if migrated else volume.affinity
    known = cluster.nodes.get(node)
    if affinity is None or known is None:
        return affinity is None
    labels: Labels = known.labels
    return any(
        not term.selects_nothing
        and all(requirement.accepts(value_of(labels, requirement.key)) for requirement in term.expressions)
        for term in affinity
    )
