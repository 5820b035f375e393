"""What the claims of a pod need before the pod is bound: a volume each, chosen by the plan.

Source: kube-scheduler plugins/volumebinding binder.go (AssumePodVolumes, BindPodVolumes, checkBindings). A claim is
bound by the PersistentVolume controller, once the volume is kept for the claim or a provisioner has made one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod
from flowcore.model.selectors import Labels, value_of
from flowcore.model.volumes import (
    Claim,
    ClaimVolume,
    CsiNode,
    Disk,
    PersistentVolume,
    VolumeChoice,
    claim_key,
    volume_key,
)
from flowcore.rules.filters.volume_restrictions import ONE_POD, conflicting_disks
from thalweg_operator.reservations.ledger.reservation import Reservation


class Progress(Enum):
    """How far the claims of a pod are."""

    PENDING = "pending"
    READY = "ready"
    #: They will not be bound as chosen.
    FAILED = "failed"
    #: A provisioner makes no volume for the node.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ClaimsState:
    """How far the claims of a pod are, and why not further.

    Attributes:
        reason: a part of a sentence, "" where they are bound.
        shown: the claims of which the watch shows what was written.
    """

    progress: Progress
    reason: str = ""
    shown: tuple[tuple[str, str], ...] = ()


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
    for key in dict.fromkeys(each.key for each in pod.pod_class.volumes if isinstance(each, ClaimVolume)):
        claim = _claim(cluster, *key)
        if claim is None or claim.lost or claim.deleting:
            return None
        if claim.bound:
            continue
        choice = chosen.get(key)
        if choice is None or choice.uid != claim.uid or not _holds(cluster, choice, claim, node):
            return None
        choices.append(choice)
    return tuple(choices)


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
        and (claim := _claim(cluster, *volume.key)) is not None
        and ONE_POD in claim.access_modes
    ]
    gone = _volumes_of(leaving)
    there = [sums for name, sums in usage.items() if name in cluster.nodes] if alone else []
    return any(sum(sums.volumes[volume] for sums in there) > gone[volume] for volume in alone)


def _volumes_of(pods: Iterable[Pod]) -> Counter[ClaimVolume | Disk]:
    return Counter(volume for pod in pods for volume in pod.pod_class.volumes)


def _holds(cluster: Cluster, choice: VolumeChoice, claim: Claim, node: str) -> bool:
    storage = cluster.storage
    promise = storage.promises.get(choice.key)
    if promise is not None and (promise.choice != choice or (not choice.volume and promise.node != node)):
        return False
    if not choice.volume:
        return not claim.volume_name and claim.selected_node in (None, node)
    volume = storage.objects.get(volume_key(choice.volume))
    return (
        isinstance(volume, PersistentVolume)
        and not volume.deleting
        and (volume.claim is None or volume.claim.is_to(claim))
        and claim.selected_node is None
        and storage.promised_to(choice.volume) in (None, choice.key)
    )


def unwritten(cluster: Cluster, reservation: Reservation) -> Iterator[VolumeChoice]:
    """What is to be written for a pod's claims, as far as the watch shows."""
    for choice in reservation.volumes:
        claim = _claim(cluster, *choice.key)
        if claim is not None and not claim.bound and not _is_written(cluster, choice, claim, reservation.node):
            yield choice


def _is_written(cluster: Cluster, choice: VolumeChoice, claim: Claim, node: str) -> bool:
    if not choice.volume:
        return claim.selected_node == node
    volume = cluster.storage.objects.get(volume_key(choice.volume))
    return isinstance(volume, PersistentVolume) and volume.claim is not None and volume.claim.uid == claim.uid


def claims_state(cluster: Cluster, reservation: Reservation) -> ClaimsState:
    """How far the claims of a pod are by what the watch shows."""
    shown = []
    pending = ""
    for choice in reservation.volumes:
        name = choice.name
        claim = _claim(cluster, *choice.key)
        if claim is None or claim.uid != choice.uid:
            return ClaimsState(Progress.FAILED, f'persistentvolumeclaim "{name}" is gone')
        was_shown = choice.key in reservation.shown
        if claim.bound:
            shown.append(choice.key)
            volume = cluster.storage.objects.get(volume_key(claim.volume_name))
            if not isinstance(volume, PersistentVolume):
                pending = pending or f'persistentvolume "{claim.volume_name}" is not there yet'
            elif not _is_reached(cluster, volume, reservation.node):
                text = f'persistentvolumeclaim "{name}" is bound to a volume that the node does not reach'
                return ClaimsState(Progress.FAILED, text)
            continue
        if _is_written(cluster, choice, claim, reservation.node):
            shown.append(choice.key)
            pending = pending or f'persistentvolumeclaim "{name}" is not bound yet'
            continue
        failure = _failure(cluster, choice, claim, reservation.node, was_shown=was_shown)
        if failure is not None:
            return failure
        pending = pending or f'persistentvolumeclaim "{name}" is not bound yet'
    return ClaimsState(Progress.PENDING if pending else Progress.READY, pending, tuple(shown))


def _failure(cluster: Cluster, choice: VolumeChoice, claim: Claim, node: str, *, was_shown: bool) -> ClaimsState | None:
    """What happened to a claim that shows nothing of what was written; None: the watch may be behind."""
    if not choice.volume:
        if claim.selected_node is None and was_shown:
            text = f'no volume is provisioned for persistentvolumeclaim "{claim.name}" on node {node}'
            return ClaimsState(Progress.REFUSED, text)
        if claim.selected_node is not None:
            text = f'a volume is provisioned for persistentvolumeclaim "{claim.name}" on another node'
            return ClaimsState(Progress.FAILED, text)
        return None
    volume = cluster.storage.objects.get(volume_key(choice.volume))
    if (
        not isinstance(volume, PersistentVolume)
        or was_shown
        or (volume.claim is not None and not volume.claim.is_to(claim))
    ):
        text = f'persistentvolume "{choice.volume}" is not there for persistentvolumeclaim "{claim.name}"'
        return ClaimsState(Progress.FAILED, text)
    return None


def _claim(cluster: Cluster, namespace: str, name: str) -> Claim | None:
    claim = cluster.storage.objects.get(claim_key(namespace, name))
    return claim if isinstance(claim, Claim) else None


def _is_reached(cluster: Cluster, volume: PersistentVolume, node: str) -> bool:
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
