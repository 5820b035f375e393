"""Running pods whose eviction the API server refused: for a while no plan evicts them."""

from __future__ import annotations

from collections.abc import Mapping

from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.victim_record import UnevictablePod

#: Seconds of the first and of the longest pause.
_FIRST, _LONGEST = 5.0, 300.0


def refused(ledger: Ledger, uid: str, reason: str, now: float) -> None:
    """The API server refuses to evict a pod: it pauses, twice as long each time."""
    known = ledger.unevictable.get(uid)
    tries = 0 if known is None else known.tries
    pause = min(_LONGEST, _FIRST * 2.0 ** min(tries, 16))
    ledger.unevictable[uid] = UnevictablePod(reason, now + pause, tries + 1)


def reasons(ledger: Ledger, now: float) -> Mapping[str, str]:
    """Why pods are not to be evicted now, by UID."""
    return {uid: pod.reason for uid, pod in ledger.unevictable.items() if pod.until > now}


def forget(ledger: Ledger, now: float) -> None:
    """Forgets pods whose pause ended long ago. Until then another refusal makes the pause longer."""
    if ledger.unevictable:
        ledger.unevictable = {uid: pod for uid, pod in ledger.unevictable.items() if pod.until + _LONGEST > now}
