"""What failed rounds cost, by the namespace whose pods they had alone.

Pure: the caller passes the time (of a monotonic clock).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Seconds in which a second is paid off. Retries pause as long: they cost a hundredth of the time.
SECONDS_PER_LOST_SECOND: Final = 100.0
#: Seconds that the pods of a namespace may cost before only classes of it are planned that could be planned before.
_ALLOWED = 120.0


@dataclass(frozen=True, slots=True)
class _Debt:
    """What a namespace owed when it was charged last, in seconds, and when that was."""

    seconds: float
    since: float


class NamespaceDebts:
    """Debts that are not paid off."""

    def __init__(self) -> None:
        self._debts: dict[str, _Debt] = {}

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._debts

    def __len__(self) -> int:
        return len(self._debts)

    def charge(self, namespace: str, seconds: float, now: float) -> None:
        """A round with pods of this namespace alone failed after some seconds."""
        self._debts[namespace] = _Debt(self.of(namespace, now) + seconds, now)

    def of(self, namespace: str, now: float) -> float:
        """Seconds that a namespace owes."""
        debt = self._debts.get(namespace)
        return 0.0 if debt is None else max(0.0, debt.seconds - (now - debt.since) / SECONDS_PER_LOST_SECOND)

    def exceeded(self, namespace: str, now: float) -> bool:
        """Whether a namespace owes more than is allowed."""
        return self.of(namespace, now) > _ALLOWED

    def forget_paid(self, now: float) -> None:
        """Drops what is paid off."""
        self._debts = {name: debt for name, debt in self._debts.items() if self.of(name, now) > 0.0}

    def allowed_again(self) -> list[float]:
        """When each debt falls to what is allowed."""
        return [debt.since + SECONDS_PER_LOST_SECOND * (debt.seconds - _ALLOWED) for debt in self._debts.values()]
