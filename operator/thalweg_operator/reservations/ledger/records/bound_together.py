"""Pods that are bound together, once all of them have what they need before."""

from __future__ import annotations

from thalweg_operator.reservations.ledger.reservation import Reservation
from thalweg_operator.reservations.ledger.transitions import Phase


class BoundTogether:
    """Groups of pods of which none is bound before all may be.

    Attributes:
        members: keys of the pods, by the group's name.
        unready: keys of those that do not have yet what they need, likewise; no group without such a pod is in it.
        lost: names of groups that lost a pod before its binding, and whether the others need one of those.
    """

    def __init__(self) -> None:
        self.members: dict[str, set[str]] = {}
        self.unready: dict[str, set[str]] = {}
        self.lost: dict[str, bool] = {}

    def replace(self, before: Reservation, after: Reservation) -> None:
        """A reservation changed."""
        key, name = after.pod.key, after.bound_with
        if before.bound_with != name:
            self._leave(before)
            if name:
                self.members.setdefault(name, set()).add(key)
        if not name:
            return
        if after.phase is Phase.PREPARING and not after.is_ready:
            self.unready.setdefault(name, set()).add(key)
        else:
            _discard(self.unready, name, key)

    def ended(self, reservation: Reservation, *, fulfilled: bool) -> None:
        """A reservation ended; ``fulfilled``: its pod is on its node."""
        name = reservation.bound_with
        if name and reservation.phase is Phase.PREPARING:
            self.lost[name] = self.lost.get(name, False) or not (fulfilled or reservation.optional)
        self._leave(reservation)

    def _leave(self, reservation: Reservation) -> None:
        for keys in (self.members, self.unready):
            _discard(keys, reservation.bound_with, reservation.pod.key)


def _discard(groups: dict[str, set[str]], name: str, key: str) -> None:
    keys = groups.get(name, set())
    keys.discard(key)
    if not keys:
        groups.pop(name, None)
