"""Volumes that pods of a round take as they are placed, one pod after the other; copied before its first change."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.volumes import ClaimKey, ClaimVolume
from flowcore.planning.problem.demands.demands import Demand
from flowcore.rules.volumes import PlacedVolumes


class VolumeRoom:
    """Volumes of all nodes beside those that placed pods take."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._placed: PlacedVolumes | None = None
        self._is_own = False
        #: Claims that several pods of the round use.
        self._shared: frozenset[ClaimKey] | None = None

    def shared(self) -> VolumeRoom:
        """The same room as it is now; each of both is copied before it changes."""
        self._is_own = False
        shared = VolumeRoom(self._snapshot)
        shared._placed, shared._shared = self._placed, self._shared
        return shared

    def limit(self, demand: Demand, counts: Int64s, nodes: Int64s) -> Int64s:
        """No pods of a demand where they do not get their volumes; of these nodes, int64[M].

        Args:
            counts: int64[M], as other rules allow.
        """
        if not demand.group.pod_class.contends_for_volumes:
            return counts
        if demand.excludes_its_like:
            counts = np.minimum(counts, 1)
        placed, volumes = self._placed, demand.group.pod_class.volumes
        if placed is None:
            return counts
        return np.where(placed.fitting(volumes)[nodes], counts, 0)

    def added_cost(self, demand: Demand, nodes: Int64s) -> Int64s | None:
        """int64[M]: how much dearer what a pod of a demand gets on nodes is than as the round began.

        None: there is no difference. Below zero: cheaper. That of nodes without its volumes has no meaning.
        """
        costs, placed = demand.claims.storage, self._placed
        if costs is None or placed is None:
            return None
        scores = placed.storage_scores(demand.group.pod_class.volumes)
        if scores is None:
            return None
        added: Int64s = costs.cost(scores[nodes]) - costs.begun[nodes]
        return added

    def take(self, demand: Demand, nodes: Int64s, counts: Int64s) -> bool:
        """Pods of a demand come to these nodes, int64[M], or leave where a count is below zero.

        Returns:
            Whether other nodes may have other volumes now.
        """
        pod_class = demand.group.pod_class
        if not pod_class.contends_for_volumes:
            return False
        if not self._is_own or self._placed is None:
            placed = self._placed
            self._placed = (
                PlacedVolumes(self._snapshot.storage, self._snapshot.table) if placed is None else placed.copy()
            )
            self._is_own = True
        touches_all = self._is_shared(demand)
        for node, count in zip(nodes.tolist(), counts.tolist(), strict=True):
            for _ in range(count):
                touches_all |= self._placed.take(pod_class.volumes, node)
            for _ in range(-count):
                self._placed.release(pod_class.volumes, node)
                touches_all = True
        return touches_all

    def _is_shared(self, demand: Demand) -> bool:
        """Whether another pod of the round uses one of the claims."""
        if self._shared is None:
            once, more = set[ClaimKey](), set[ClaimKey]()
            for pod in self._snapshot.pending:
                claims = {each.key for each in pod.pod_class.volumes if isinstance(each, ClaimVolume)}
                more |= once & claims
                once |= claims
            self._shared = frozenset(more)
        volumes = demand.group.pod_class.volumes
        return any(isinstance(each, ClaimVolume) and each.key in self._shared for each in volumes)

    def to_storage(self) -> Storage:
        """The storage as it is with all that was taken."""
        return self._snapshot.storage if self._placed is None else self._placed.to_storage()
