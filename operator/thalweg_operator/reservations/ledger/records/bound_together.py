"""Pods that are bound together, once all of them have what they need before."""

from __future__ import annotations

from thalweg_operator.reservations.ledger.reservation import Reservation
from thalweg_operator.reservations.ledger.transitions import Phase


class BoundTogether:
    """Groups of pods of which none is bound before all may be.

    Attributes:
        members: keys of the pods, by the group's name.
        lost: names of groups that lost a pod before its binding, and whether the others need one of those.
    """

    def __init__(self) -> None:
        self.members: dict[str, set[str]] = {}
        self.lost: dict[str, bool] = {}

    def replace(self, before: Reservation, after: Reservation) -> None:
        """A reservation changed."""
        if before.bound_with != after.bound_with:
            self._leave(before)
            if after.bound_with:
                self.members.setdefault(after.bound_with, set()).add(after.pod.key)

    def ended(self, reservation: Reservation, *, fulfilled: bool) -> None:
        """A reservation ended; ``fulfilled``: its pod is on its node."""
        name = reservation.bound_with
        if name and reservation.phase is Phase.PREPARING:
            self.lost[name] = self.lost.get(name, False) or not (fulfilled or reservation.optional)
        self._leave(reservation)

    def _leave(self, reservation: Reservation) -> None:
        name = reservation.bound_with
        if name:
            self.members[name].discard(reservation.pod.key)
            if not self.members[name]:
                del self.members[name]
