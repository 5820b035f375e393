"""Whose placements closed rooms, as a table: by scheduler, namespace and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from flowcore.model.regret import ClosedRoom
from thalweg.questions.status import age

CLOSED_HEAD: Final = ("ROOM CLOSED BY", "NAMESPACE", "REASON", "PODS", "LAST")
#: Rows on a screen; ``-o json`` has all rooms.
_MOST: Final = 5


def closed_table(rooms: Sequence[ClosedRoom], now: float, most: int = _MOST) -> list[tuple[str, ...]]:
    """A row for each scheduler, namespace and reason, those for whose placements most pods wait first.

    Args:
        now: of the cluster, in seconds since the epoch.
        most: rows at most.
    """
    pods, last = Counter[tuple[str, str, str]](), dict[tuple[str, str, str], ClosedRoom]()
    for room in rooms:
        if room.pod:
            key = room.scheduler, room.namespace, room.reason
            pods[key] += room.pods
            last[key] = max(room, last.get(key, room), key=lambda known: known.placed)
    return [(*key, f"{count:,}", _where_and_when(last[key], now)) for key, count in pods.most_common(most)]


def _where_and_when(room: ClosedRoom, now: float) -> str:
    """A dump that was written by hand may not say when a pod was placed."""
    ago = f", {age(max(0.0, now - room.placed))} ago" if room.placed else ""
    return f"{room.pod} on {room.node}{ago}"
