"""The cluster of a snapshot once pods have left its nodes and others have come."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import HostPort
from flowcore.model.resource_claims import ClaimingPod
from flowcore.model.running_pods import RunningPod
from flowcore.model.volumes import ClaimVolume, Disk, Volumes
from flowcore.rules.filters.dynamic_resources import taker_on
from flowcore.rules.volumes import ComingVolumes


class ClusterChange:
    """Pods leave, then others come, one after the other.

    Attributes:
        used: int64[N, R], as in the snapshot.
        index_changes: what comes to the pod index and what leaves it: name of the node and kind of each pod.
    """

    def __init__(self, before: Snapshot, volumes: ComingVolumes | None = None) -> None:
        """Begins with nothing changed; ``volumes``: those of pods that come to this snapshot, asked before."""
        self._before = before
        self._volumes = ComingVolumes(before.storage, before.table) if volumes is None else volumes
        self.used, self._assumed = before.used.copy(), before.non_zero_requested.copy()
        self._ports, self._numa, self._takers = dict(before.ports), before.numa, list(before.takers)
        self.index_changes: tuple[list[tuple[str, PodSignature]], list[tuple[str, PodSignature]]] = [], []
        self._coming: list[tuple[Volumes, str]] = []
        self._freed: dict[int, set[ClaimVolume | Disk]] = {}

    def copy(self) -> ClusterChange:
        """An independent copy."""
        copied = ClusterChange(self._before, self._volumes)
        copied.used, copied._assumed = self.used.copy(), self._assumed.copy()
        copied._ports, copied._takers = dict(self._ports), list(self._takers)
        copied._numa = None if self._numa is None else self._numa.copy()
        come, left = self.index_changes
        copied.index_changes = list(come), list(left)
        copied._coming = list(self._coming)
        copied._freed = {row: set(volumes) for row, volumes in self._freed.items()}
        return copied

    def leave(
        self,
        signature: PodSignature,
        node: int,
        usage: Int64s,
        counted: Int64s | Sequence[int],
        ports: Collection[HostPort] = (),
        volumes: Collection[ClaimVolume | Disk] = (),
        devices: ClaimingPod | None = None,
    ) -> None:
        """A pod leaves a node. It leaves no zone: which one is not known.

        Args:
            usage: int64[R], what comes free.
            counted: the same in the columns of ``Snapshot.non_zero_requested``.
            ports, volumes: those that no other pod of the node holds.
            devices: of a placement that is taken back. The devices of a pod that ran are free once its claim says so.
        """
        self.used[node] -= usage
        self._assumed[node] = np.maximum(self._assumed[node] - counted, 0)
        self.index_changes[1].append((self._before.table.nodes[node].name, signature))
        if ports:
            self._ports[node] = self._ports.get(node, frozenset()).difference(ports)
        if volumes:
            self._freed.setdefault(node, set()).update(volumes)
        if devices is not None:
            self._takers = [taker for taker in self._takers if taker.pod != devices]

    def come(
        self, pod: PendingPod | RunningPod, node: int, usage: Int64s, counted: Int64s | Sequence[int] | None = None
    ) -> None:
        """A pod comes to a node; ``usage`` and ``counted`` as above, what it takes; None: what it counts for."""
        pod_class, name = pod.pod_class, self._before.table.nodes[node].name
        self.used[node] += usage
        self._assumed[node] += pod_class.non_zero_requests if counted is None else counted
        self.index_changes[0].append((name, pod.signature))
        if pod_class.host_ports:
            self._ports[node] = self._ports.get(node, frozenset()).union(pod_class.host_ports)
        if pod_class.devices is not None:
            self._takers.append(taker_on(pod_class.devices, self._before.table, node))
        if pod_class.volumes:
            self._coming.append((pod_class.volumes, name))
        if pod_class.numa is not None and self._numa is not None:
            self._numa = self._numa if self._numa is not self._before.numa else self._numa.copy()
            self._numa.take(pod_class.numa, np.array([node]), np.array([1]))

    def snapshot(self) -> Snapshot:
        """The cluster as it is then, with nothing pending."""
        before, takers = self._before, tuple(self._takers)
        index = before.pod_index.with_changes(*self.index_changes)
        changed = before.with_usage(self.used, self._assumed, self._ports, index)
        takers = before.takers if takers == before.takers else takers
        return replace(changed, storage=self._storage(), numa=self._numa, takers=takers)

    def _storage(self) -> Storage:
        storage, before = self._volumes.storage(self._coming), self._before.storage.mounted
        mounted: dict[str, Volumes] = {}
        for row, volumes in self._freed.items():
            name = self._before.table.nodes[row].name
            own = before.get(name, ())
            brought = storage.mounted.get(name, ())[len(own) :]
            mounted[name] = (*(volume for volume in own if volume not in volumes), *brought)
        return storage.with_mounted(mounted)
