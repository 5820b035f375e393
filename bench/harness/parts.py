"""A generated cluster in parts with disjoint nodes, each planned by itself: shards, or the clusters of a fleet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.nodes import Node
from flowcore.model.pods import HostPort
from flowcore.model.resources import Amounts
from flowcore.planning.round import run_round

#: Steps of a part's round.
_STEPS = 4


@dataclass
class Part:
    """Some nodes, and what was placed there.

    Attributes:
        placed: node name and amounts of each pod that was placed.
    """

    nodes: Sequence[Node]
    placed: list[tuple[str, Amounts]] = field(default_factory=list)

    def snapshot(self, pending: Iterable[PendingPod] = ()) -> Snapshot:
        """The part as it is now."""
        ports: tuple[HostPort, ...] = ()
        return build_snapshot(
            generation=1,
            now=0.0,
            table=NodeTable.of(self.nodes),
            running=((node, amounts, ports) for node, amounts in self.placed),
            pending=tuple(pending),
        )

    def plan(self, pods: Sequence[PendingPod]) -> tuple[list[PendingPod], float]:
        """Plans these pods here; returns those that did not fit, and the CPU seconds."""
        if not pods or not self.nodes:
            return list(pods), 0.0
        snapshot, began = self.snapshot(pods), time.process_time()
        result = run_round(snapshot, steps=_STEPS)
        seconds = time.process_time() - began
        self.placed += [(each.node, each.pod.pod_class.requests) for each in result.placements]
        return [each.pod for each in result.unplaced], seconds
