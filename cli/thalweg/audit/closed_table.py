"""Whose placements closed rooms, as a table: by scheduler, namespace and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from flowcore.model.regret import ClosedRoom
from thalweg.questions.status import age

CLOSED_HEAD: Final = ("ROOM CLOSED BY", "NAMESPACE", "REASON", "PODS", "LAST")
#: Rows; ``-o json`` has all rooms.
_MOST: Final = 5


def closed_table(rooms: Sequence[ClosedRoom], now: float) -> list[tuple[str, ...]]:
    """A row for each scheduler, namespace and reason, those for whose placements most pods wait first.

    Args:
        rooms: those that were closed last first.
        now: of the cluster, in seconds since the epoch.
    """
    pods, last = Counter[tuple[str, str, str]](), dict[tuple[str, str, str], ClosedRoom]()
    for room in rooms:
        if room.pod:
            key = room.scheduler, room.namespace, room.reason
            pods[key] += room.pods
            last.setdefault(key, room)
    return [
        (*key, f"{count:,}", f"{last[key].pod} on {last[key].node}, {age(max(0.0, now - last[key].placed))} ago")
        for key, count in pods.most_common(_MOST)
    ]
