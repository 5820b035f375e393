"""Pods, gangs and classes of pods that made rounds fail: they are tried again after growing pauses, one at a time."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass

from thalweg_operator.planning.quarantine.debts import SECONDS_PER_LOST_SECOND

#: First pause at least, and the limit up to which pauses double, or to the first pause if that is longer.
_INITIAL, _LONGEST = 60.0, 3600.0
#: The same while no other pods can be planned either.
_SHORT_INITIAL, _SHORT_LONGEST = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class _Backoff:
    """One of them.

    Attributes:
        retry_at: time of the next retry.
        delay: seconds from the failure to the retry.
        reason: message for the condition of its pods.
        planned_rounds: number of rounds with a plan before the failure.
    """

    retry_at: float
    delay: float
    reason: str
    planned_rounds: int


class Backoffs:
    """By the key of an item or a class."""

    def __init__(self) -> None:
        self._backoffs: dict[Hashable, _Backoff] = {}
        #: No retry starts before this time.
        self._earliest_retry = 0.0

    def __len__(self) -> int:
        return len(self._backoffs)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._backoffs

    def begin(
        self, key: Hashable, now: float, seconds_lost: float, problem: str, planned_rounds: int, suspected_after: int
    ) -> None:
        """Begins a pause, the next one after a retry.

        Args:
            key: of an item or a class.
            planned_rounds: number of rounds with a plan so far.
            suspected_after: the same when it was first suspected. While there was none since that, or since the last
                retry, the fault may be elsewhere: the pause is short.
        """
        before = self._backoffs.get(key)
        first, longest = _SHORT_INITIAL, _SHORT_LONGEST
        if planned_rounds > (suspected_after if before is None else before.planned_rounds):
            first, longest = max(_INITIAL, SECONDS_PER_LOST_SECOND * seconds_lost), _LONGEST
        pause = first if before is None else max(first, min(2 * before.delay, longest))
        reason = f"planning this pod failed: {problem}; next try in {_format_seconds(pause)}"
        self._backoffs[key] = _Backoff(now + pause, pause, reason, planned_rounds)
        self._earliest_retry = max(self._earliest_retry, now + first)

    def planned(self, keys: Iterable[Hashable], now: float) -> None:
        """A retry ended with a plan."""
        for key in keys:
            self._backoffs.pop(key, None)
        self._earliest_retry = now

    def of(self, *keys: Hashable) -> tuple[str, float] | None:
        """Why a pod with these keys backs off, and when it is tried again; None: it does not."""
        backoffs = [self._backoffs[key] for key in keys if key in self._backoffs]
        if not backoffs:
            return None
        return backoffs[0].reason, max(self._earliest_retry, *(backoff.retry_at for backoff in backoffs))

    def retries(self) -> list[float]:
        """When retries are due."""
        return [max(backoff.retry_at, self._earliest_retry) for backoff in self._backoffs.values()]

    def retain(self, keys: Collection[Hashable]) -> None:
        """Drops all others."""
        self._backoffs = {key: backoff for key, backoff in self._backoffs.items() if key in keys}


def _format_seconds(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"
