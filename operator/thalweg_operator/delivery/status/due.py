"""When a status is worth a write.

A condition that says something else is written at once. Figures change with each round and each pod: they are written a
few seconds after the last write. Otherwise a cluster that gets one pod a second would have one more write for each.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

#: Seconds between two writes of which the second one tells other figures only.
FIGURES_EVERY: Final = 5.0


class WrittenStatus(NamedTuple):
    """A status as it was written last, and when, in seconds of a monotonic clock."""

    status: dict[str, Any]
    when: float


def is_due(written: WrittenStatus | None, status: dict[str, Any], now: float) -> bool:
    """Whether a status is to be written now.

    Args:
        written: the last one of the same object; None: this process has written none.
        now: in seconds of the same clock.
    """
    if written is None or _said(written.status) != _said(status):
        return True
    return written.status != status and now >= written.when + FIGURES_EVERY


def _said(status: dict[str, Any]) -> tuple[Any, ...]:
    """What of a status is no figure: of which generation it is, and what its conditions are."""
    conditions = [(each["type"], each["status"], each["reason"]) for each in status["conditions"]]
    return status["observedGeneration"], conditions
