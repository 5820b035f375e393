"""What the device claims of a pod need before the pod is bound: devices, chosen by the plan, that are ready.

Source: kube-scheduler plugins/dynamicresources (Reserve, PreBind). What is written counts once the watch shows it: then
it shows too what others wrote before, so that no device is had twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import PlannedClaim, ResourceClaim
from thalweg_operator.reservations.effects import Allocate
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.records.devices.device_claims import has_devices
from thalweg_operator.reservations.ledger.reservation import NEVER, Reservation
from thalweg_operator.reservations.step.before_binding.progress import READY, ClaimsState, Progress


def writes(cluster: Cluster, reservation: Reservation) -> Iterator[Allocate]:
    """What is to be written for a pod's claims, as far as the watch shows."""
    claims = reservation.device_claims
    if not has_claims(cluster, reservation) or makes_claim(reservation):
        yield Allocate(reservation.pod, reservation.node, reservation.id, claims)


def refusal(write: Allocate, reason: str) -> str:
    """What a pod is told whose claims cannot be written."""
    return f"its claims could not be reserved for {write.node}: {reason}"


def loss(reservation: Reservation, before: ResourceClaim | None, after: ResourceClaim | None) -> str:
    """What a pod is told that a claim is not reserved for any more; "": that did not happen."""
    if before is None:
        return ""
    key = before.namespace, before.name
    planned = next((each for each in reservation.device_claims if each.key == key), None)
    if planned is None:
        return ""
    consumer = planned.consumer(reservation.pod.uid)
    if consumer not in before.reserved_for or (after is not None and consumer in after.reserved_for):
        return ""
    if planned.group is not None:
        return f"ResourceClaim {before.key} is not reserved for PodGroup {planned.group.name} any more"
    return f"ResourceClaim {before.key} is not reserved for it any more"


def claims_state(cluster: Cluster, ledger: Ledger, reservation: Reservation) -> ClaimsState:
    """How far the claims of a pod are by what the watch shows."""
    planned_claims = reservation.device_claims
    # The watch does not show whether the pod's status names the claim for its extended resources.
    awaits_answer = makes_claim(reservation) and not reservation.devices_written
    if awaits_answer or not has_claims(cluster, reservation):
        return ClaimsState(Progress.PENDING, is_written=False)
    if any(ledger.device_claims.had_twice(planned_claims, cluster.devices)):
        return ClaimsState(Progress.TAKEN)
    claims = [cluster.devices.claims[planned.key] for planned in planned_claims]
    failure = next((claim.failure for claim in claims if claim.failure), "")
    if failure:
        return ClaimsState(Progress.FAILED, f"a device will not get ready: {failure}")
    awaited = _awaited(cluster, reservation)
    if awaited:
        return ClaimsState(Progress.PENDING, f"its devices on {reservation.node} are not ready: {awaited}")
    return READY


def taken(cluster: Cluster, ledger: Ledger, reservation: Reservation) -> ClaimsState | None:
    """What becomes of a pod before its claims are written, if other claims have their devices too; None: none has.

    A claim that has its devices already, by an operator before this one or by others, is given back as far as it is
    ours. It may not be, or others may use it: so its pod pauses as after a refusal, and is told.
    """
    twice = list(ledger.device_claims.had_twice(reservation.device_claims, cluster.devices))
    if not twice:
        return None
    for claim, device in twice:
        if has_devices(cluster.devices, claim.key):
            name = "/".join(claim.key)
            return ClaimsState(Progress.FAILED, f"ResourceClaim {name} has {device}, which another claim has too")
    return ClaimsState(Progress.TAKEN, is_written=False)


def overdue(cluster: Cluster, reservation: Reservation, now: float, timeout: float) -> str:
    """What a pod is told whose devices take too long; "": they do not.

    Args:
        timeout: seconds that a driver may take.
    """
    if not reservation.device_claims or reservation.waits_since == NEVER or now - reservation.waits_since <= timeout:
        return ""
    awaited = _awaited(cluster, reservation) if has_claims(cluster, reservation) else "the allocation is not shown"
    return f"devices were not ready within {timeout:g} s: {awaited}" if awaited else ""


def is_of_its_group(pod: Pod, reservation: Reservation) -> bool:
    """Whether a pod is of the PodGroup that its claims were planned for. Another of its name may have replaced that."""
    devices = pod.pod_class.devices
    uid = "" if devices is None or devices.group is None else devices.group.uid
    return all(claim.group is None or claim.group.uid == uid for claim in reservation.device_claims)


def makes_claim(reservation: Reservation) -> bool:
    """Whether a claim is made for the extended resources of a pod."""
    return any(claim.requests for claim in reservation.device_claims)


def has_claims(cluster: Cluster, reservation: Reservation) -> bool:
    """Whether the watch shows that all claims of a pod have what was planned, and are reserved for it or its group."""
    return all(_shows(cluster, reservation, planned) for planned in reservation.device_claims)


def _shows(cluster: Cluster, reservation: Reservation, planned: PlannedClaim) -> bool:
    """Whether the watch shows that a claim has what was planned, and is reserved as planned."""
    claim = cluster.devices.claims.get(planned.key)
    return (
        claim is not None
        and (claim.uid == planned.uid or (bool(planned.requests) and claim.controller == reservation.pod.uid))
        and claim.allocation is not None
        and claim.allocation.is_like(planned.allocation)
        and planned.consumer(reservation.pod.uid) in claim.reserved_for
    )


def _awaited(cluster: Cluster, reservation: Reservation) -> str:
    """The devices of a pod that are not ready, each with the conditions that it lacks; "": all are."""
    claims = (cluster.devices.claims[planned.key] for planned in reservation.device_claims)
    return ", ".join(device for claim in claims for device in claim.awaited)
