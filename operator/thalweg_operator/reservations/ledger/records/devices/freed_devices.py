"""Devices of a victim come free a little later than its other room: once its claims are gone or have no allocation.

Source: kube-controller-manager: the resource claim controller looks at a claim when a pod of it has ended, and the
garbage collector deletes claims that were made for a pod. A round in between would find the devices taken, and might
evict others for them. Where they do not come free, whoever else left would leave in vain too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import ResourceClaim
from flowcore.rules.devices.pod_claims import own_claims
from thalweg_operator.reservations.ledger.reservation import Reservation

#: Seconds that devices may take to come free.
SECONDS = 30.0


@dataclass(slots=True)
class _Awaited:
    """What a pod waits for.

    Attributes:
        reservation: ``Reservation.id``.
        claims: uids of claims that have devices still, by key.
        since: when the last of its victims left, by the monotonic clock.
    """

    reservation: int
    claims: dict[ClaimKey, str]
    since: float


class FreedDevices:
    """Pods that claim devices, whose victims have left, and whose victims' claims have devices still.

    Attributes:
        late: uids of claims that have devices still after too long, though nobody uses them, by key.
    """

    def __init__(self) -> None:
        self._awaited: dict[str, _Awaited] = {}
        self.late: dict[ClaimKey, str] = {}

    def victim_left(
        self, victim: Pod, claims: Mapping[ClaimKey, ResourceClaim], waiting: Iterable[Reservation], now: float
    ) -> None:
        """A victim is gone or has ended.

        Args:
            waiting: the reservations that waited for it.
        """
        devices = victim.pod_class.devices
        if devices is None:
            return
        held = {
            (claim.namespace, claim.name): claim.uid
            for claim in own_claims(devices, claims)
            if claim.allocation is not None
        }
        for reservation in waiting if held else ():
            if reservation.pod.pod_class.devices is None:
                continue
            known = self._awaited.get(reservation.pod.key)
            before = known.claims if known is not None and known.reservation == reservation.id else {}
            self._awaited[reservation.pod.key] = _Awaited(reservation.id, before | held, now)

    def claim_changed(self, key: ClaimKey, claim: ResourceClaim | None) -> list[str]:
        """A claim changed, None: it is gone; keys of the pods that wait for no claim any more."""
        done = []
        if key in self.late and (
            claim is None
            or claim.allocation is None
            or claim.uid != self.late[key]
            or any(consumer != claim.controller for consumer in claim.reserved_for)
        ):
            del self.late[key]
        for pod, awaited in self._awaited.items():
            if key in awaited.claims and (
                claim is None or claim.allocation is None or claim.uid != awaited.claims[key]
            ):
                del awaited.claims[key]
                if not awaited.claims:
                    done.append(pod)
        for pod in done:
            del self._awaited[pod]
        return sorted(done)

    def waits(self, reservation: Reservation) -> bool:
        """Whether a pod waits for devices of victims that have left."""
        awaited = self._awaited.get(reservation.pod.key)
        return awaited is not None and awaited.reservation == reservation.id

    def overdue(self, reservations: Mapping[str, Reservation], now: float) -> list[tuple[Reservation, str]]:
        """Reservations that wait for too long, each with the reason. They are forgotten, as those that have ended."""
        overdue = []
        for pod, awaited in list(self._awaited.items()):
            reservation = reservations.get(pod)
            if reservation is None or reservation.id != awaited.reservation:
                del self._awaited[pod]
            elif now - awaited.since > SECONDS:
                del self._awaited[pod]
                self.late |= awaited.claims
                names = ", ".join("/".join(key) for key in sorted(awaited.claims))
                text = f"claims of pods that left for it still have devices after {SECONDS:.0f} s: {names}"
                overdue.append((reservation, text))
        return overdue
