"""What the volume claims of a pod need before the pod is bound: a volume each, chosen by the plan.

What is written for a claim is not undone where its pod does not come after all: the PersistentVolume controller or the
provisioner may have begun. The pod is planned anew, by what the watch shows then: to a node that reaches the volume. So
nothing has to be remembered beyond the process: who leads next plans the pod as this one would.

Source: kube-scheduler plugins/volumebinding binder.go (AssumePodVolumes, BindPodVolumes, checkBindings). A claim is
bound by the PersistentVolume controller, once the volume is kept for the claim or a provisioner has made one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

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
from flowcore.rules.filters.volume_restrictions import ONE_POD, conflicting_disks
from thalweg_operator.reservations.effects import BindClaim
from thalweg_operator.reservations.ledger.reservation import Reservation
from thalweg_operator.reservations.step.before_binding.progress import READY, ClaimsState, Progress

#: Seconds that claims have to be bound in, as kube-scheduler gives them (bindTimeoutSeconds).
BINDING_SECONDS: Final = 600.0


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
        claim, choice = _claim(cluster, *key), chosen.get(key)
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
    claims = (_claim(cluster, *key) for key in _claim_keys(pod))
    return all(claim is not None and claim.bound and _is_bound_there(cluster, claim, node) for claim in claims)


def _claim_keys(pod: Pod) -> Iterable[ClaimKey]:
    return dict.fromkeys(volume.key for volume in pod.pod_class.volumes if isinstance(volume, ClaimVolume))


def _is_bound_there(cluster: Cluster, claim: Claim, node: str) -> bool:
    """Whether the volume of a bound claim is there, and a node reaches it."""
    volume = cluster.storage.objects.get(volume_key(claim.volume_name))
    return isinstance(volume, PersistentVolume) and _is_reached(cluster, volume, node)


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
    of_nodes = [sums for name, sums in usage.items() if name in cluster.nodes] if alone else []
    return any(sum(sums.volumes[volume] for sums in of_nodes) > gone[volume] for volume in alone)


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


def writes(cluster: Cluster, reservation: Reservation) -> Iterator[BindClaim]:
    """What is to be written for a pod's claims, as far as the watch shows."""
    for choice in reservation.volumes:
        claim = _claim(cluster, *choice.key)
        if claim is not None and not claim.bound and not _is_written(cluster, choice, claim, reservation.node):
            yield BindClaim(reservation.pod, reservation.node, reservation.id, choice)


def refusal(write: BindClaim, reason: str) -> str:
    """What a pod is told whose claim cannot be written."""
    return _not_bound(f'persistentvolumeclaim "{write.choice.name}": {reason}')


def overdue(cluster: Cluster, reservation: Reservation, now: float) -> str:
    """What a pod is told whose claims take too long to be bound; "": they do not."""
    if not reservation.volumes or now - reservation.waits_since <= BINDING_SECONDS:
        return ""
    awaited = _awaited(cluster, reservation)
    if not awaited:
        return ""
    return _not_bound(f"{awaited}, {BINDING_SECONDS / 60:.0f} minutes after that was asked for")


def _not_bound(reason: str) -> str:
    return f"its volumes were not bound: {reason}"


def _is_written(cluster: Cluster, choice: VolumeChoice, claim: Claim, node: str) -> bool:
    if not choice.volume:
        return claim.selected_node == node
    volume = cluster.storage.objects.get(volume_key(choice.volume))
    return isinstance(volume, PersistentVolume) and volume.claim is not None and volume.claim.uid == claim.uid


def shown(cluster: Cluster, reservation: Reservation) -> tuple[ClaimKey, ...]:
    """Keys of the claims of which the watch shows what was written."""
    return tuple(
        choice.key
        for choice in reservation.volumes
        if (claim := _chosen(cluster, choice)) is not None
        and (claim.bound or _is_written(cluster, choice, claim, reservation.node))
    )


def claims_state(cluster: Cluster, reservation: Reservation) -> ClaimsState:
    """How far the claims of a pod are by what the watch shows."""
    for choice in reservation.volumes:
        failure = _failure(cluster, choice, reservation)
        if failure is not None:
            progress, reason = failure
            return ClaimsState(progress, _not_bound(reason))
    return ClaimsState(Progress.PENDING) if _awaited(cluster, reservation) else READY


def _awaited(cluster: Cluster, reservation: Reservation) -> str:
    """What the claims of a pod wait for first, a part of a sentence; "": for nothing."""
    for choice in reservation.volumes:
        claim = _chosen(cluster, choice)
        if claim is None or not claim.bound:
            return f'persistentvolumeclaim "{choice.name}" is not bound yet'
        if not isinstance(cluster.storage.objects.get(volume_key(claim.volume_name)), PersistentVolume):
            return f'persistentvolume "{claim.volume_name}" is not there yet'
    return ""


def _failure(cluster: Cluster, choice: VolumeChoice, reservation: Reservation) -> tuple[Progress, str] | None:
    """Why a claim does not get its volume; None: it may, or the watch is behind."""
    claim, node = _chosen(cluster, choice), reservation.node
    if claim is None:
        return Progress.FAILED, f'persistentvolumeclaim "{choice.name}" is gone'
    if claim.bound:
        volume = cluster.storage.objects.get(volume_key(claim.volume_name))
        if isinstance(volume, PersistentVolume) and not _is_reached(cluster, volume, node):
            text = f'persistentvolumeclaim "{choice.name}" is bound to a volume that the node does not reach'
            return Progress.FAILED, text
        return None
    if _is_written(cluster, choice, claim, node):
        return None
    was_shown = choice.key in reservation.volumes_shown
    if choice.volume:
        return _failure_of_volume(cluster, choice, claim, was_shown=was_shown)
    if claim.selected_node is not None:
        return Progress.FAILED, f'a volume is provisioned for persistentvolumeclaim "{claim.name}" on another node'
    if was_shown:
        text = f'no volume is provisioned for persistentvolumeclaim "{claim.name}" on node {node}'
        return Progress.NODE_REFUSED, text
    return None


def _failure_of_volume(
    cluster: Cluster, choice: VolumeChoice, claim: Claim, *, was_shown: bool
) -> tuple[Progress, str] | None:
    volume = cluster.storage.objects.get(volume_key(choice.volume))
    is_there = isinstance(volume, PersistentVolume) and (volume.claim is None or volume.claim.is_to(claim))
    if is_there and not was_shown:
        return None
    text = f'persistentvolume "{choice.volume}" is not there for persistentvolumeclaim "{claim.name}"'
    return Progress.FAILED, text


def _chosen(cluster: Cluster, choice: VolumeChoice) -> Claim | None:
    """The claim that something was chosen for; None: it is gone."""
    claim = _claim(cluster, *choice.key)
    return claim if claim is not None and claim.uid == choice.uid else None


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
