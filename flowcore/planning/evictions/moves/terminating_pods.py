"""The pods that end: moves for gain are judged by the cluster without them, and leave their nodes alone until then.

A pod that ends weighs on its node still, and its replacement on the next one already: by that load others would leave
in vain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.model.resources import non_zero_requests
from flowcore.model.running_pods import RunningPods


@dataclass(frozen=True, slots=True)
class TerminatingPods:
    """What comes free on nodes.

    Attributes:
        room: int64[N, R], what the pods that end take.
        counted: int64[N, 2], the same in the columns of ``Snapshot.non_zero_requested``.
        unsettled: bool[N], nodes where a pod ends, or where a replacement is awaited that may not come.
    """

    room: Int64s
    counted: Int64s
    unsettled: Bools

    @classmethod
    def of(cls, snapshot: Snapshot, running: RunningPods) -> Self:
        """The terminating pods of a snapshot."""
        index = snapshot.table.index
        room, counted = np.zeros_like(snapshot.used), np.zeros_like(snapshot.non_zero_requested)
        unsettled = np.zeros(len(index), dtype=np.bool_)
        for held in running.terminating:
            if held.node in index:
                room[index[held.node]] += snapshot.vector(held.usage)
                counted[index[held.node]] += np.array(non_zero_requests(held.usage, held.unrequested))
        terminating = (held.node for held in running.terminating)
        unsettled[[index[name] for name in (*terminating, *running.places) if name in index]] = True
        return cls(room, counted, unsettled)

    def gone_from(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot as it will be. What pods prefer to have near or far counts those that end all the same."""
        used = np.maximum(snapshot.used - self.room, 0)
        counted = np.maximum(snapshot.non_zero_requested - self.counted, 0)
        return snapshot.with_usage(used, counted, snapshot.ports, snapshot.pod_index)
