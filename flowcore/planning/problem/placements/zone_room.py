"""Room in NUMA zones while a round commits placements; copied before its first change."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.numa_room import NumaRoom
from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.problem.demands.demands import Demand


class ZoneRoom:
    """Room in the zones of all nodes.

    Attributes:
        room: None where no node reports any; not to be changed.
    """

    def __init__(self, room: NumaRoom | None) -> None:
        self.room = room
        self._is_own = False

    def shared(self) -> ZoneRoom:
        """The same room as it is now; each of both is copied before it changes."""
        self._is_own = False
        return ZoneRoom(self.room)

    def limit(self, demand: Demand, counts: Int64s, nodes: Int64s | None = None) -> Int64s:
        """No more pods of a demand than find a zone; of these nodes, int64[M], or of all."""
        needs = demand.group.pod_class.numa
        if needs is None or self.room is None:
            return counts
        return np.minimum(counts, self.room.counts(needs, nodes))

    def take(self, demand: Demand, nodes: Int64s, counts: Int64s) -> None:
        """Pods of a demand come to these nodes, int64[M]."""
        needs = demand.group.pod_class.numa
        if needs is None or self.room is None:
            return
        if not self._is_own:
            self.room, self._is_own = self.room.copy(), True
        self.room.take(needs, nodes, counts)
