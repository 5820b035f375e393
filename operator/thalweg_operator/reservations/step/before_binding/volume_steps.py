"""What the volume claims of a pod need before the pod is bound: a volume each, chosen by the plan.

What is written for a claim is not undone where its pod does not come after all: the PersistentVolume controller or the
provisioner may have begun. The pod is planned anew, by what the watch shows then: to a node that reaches the volume. So
nothing has to be remembered beyond the process: who leads next plans the pod as this one would.

Source: kube-scheduler plugins/volumebinding binder.go (AssumePodVolumes, BindPodVolumes, checkBindings). A claim is
bound by the PersistentVolume controller, once the volume is kept for the claim or a provisioner has made one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flowcore.cluster.cluster import Cluster
from flowcore.model.volumes import Claim, ClaimKey, PersistentVolume, StorageClass, VolumeChoice, volume_key
from thalweg_operator.reservations.effects import BindClaim
from thalweg_operator.reservations.ledger.reservation import NEVER, Reservation
from thalweg_operator.reservations.step.before_binding.progress import READY, ClaimsState, Progress
from thalweg_operator.reservations.volume_needs import claim_of, is_reached

#: Seconds that claims have to be bound in, as kube-scheduler gives them (bindTimeoutSeconds).
BINDING_SECONDS: Final = 600.0
#: Seconds after which a pod is told that it waits for its volumes. Most have theirs by then.
TOLD_AFTER: Final = 10.0
#: Seconds that the watch may take to show what was written. Then it is written again: perhaps a provisioner took its
#: node back before the watch showed that it had it.
SHOWN_WITHIN: Final = 10.0


def writes(cluster: Cluster, reservation: Reservation) -> Iterator[BindClaim]:
    """What is to be written for a pod's claims, as far as the watch shows."""
    for choice in reservation.volumes:
        claim = claim_of(cluster, *choice.key)
        if claim is not None and not claim.bound and not _is_written(cluster, choice, claim, reservation.node):
            yield BindClaim(reservation.pod, reservation.node, reservation.id, choice)


def unbound(cluster: Cluster, reservation: Reservation) -> tuple[Claim, ...]:
    """The claims of a pod that are not bound yet."""
    claims = (_chosen(cluster, choice) for choice in reservation.volumes)
    return tuple(claim for claim in claims if claim is not None and not claim.bound)


def waiting_message(cluster: Cluster, reservation: Reservation, now: float) -> str:
    """What a pod is told that waits for its volumes for some time; "": it does not."""
    if not reservation.volumes or now - reservation.waits_since < TOLD_AFTER:
        return ""
    awaited = _awaited(cluster, reservation)
    return f"its volumes on {reservation.node} are not ready: {awaited}" if awaited else ""


def is_unseen(reservation: Reservation, now: float) -> bool:
    """Whether the watch should have shown by now what was written for the claims of a pod."""
    return reservation.volumes_written != NEVER and now - reservation.volumes_written >= SHOWN_WITHIN


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
            return f'persistentvolumeclaim "{choice.name}" is not bound yet{_source(cluster, choice, claim)}'
        if not isinstance(cluster.storage.objects.get(volume_key(claim.volume_name)), PersistentVolume):
            return f'persistentvolume "{claim.volume_name}" is not there yet'
    return ""


def _source(cluster: Cluster, choice: VolumeChoice, claim: Claim | None) -> str:
    """Where the volume of a claim is to come from, in brackets; "": nobody knows."""
    if choice.volume:
        return f' (persistentvolume "{choice.volume}")'
    storage_class = None if claim is None else cluster.storage.objects.get(("StorageClass", "", claim.storage_class))
    return f" (provisioner {storage_class.provisioner})" if isinstance(storage_class, StorageClass) else ""


def _failure(cluster: Cluster, choice: VolumeChoice, reservation: Reservation) -> tuple[Progress, str] | None:
    """Why a claim does not get its volume; None: it may, or the watch is behind."""
    claim, node = _chosen(cluster, choice), reservation.node
    if claim is None:
        return Progress.FAILED, f'persistentvolumeclaim "{choice.name}" is gone'
    if claim.bound:
        volume = cluster.storage.objects.get(volume_key(claim.volume_name))
        if isinstance(volume, PersistentVolume) and not is_reached(cluster, volume, node):
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
        return Progress.NODE_REFUSED, f"{text}{_source(cluster, choice, claim)}; the Events of the claim say why"
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
    claim = claim_of(cluster, *choice.key)
    return claim if claim is not None and claim.uid == choice.uid else None
