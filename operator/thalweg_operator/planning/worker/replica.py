"""The worker's copy of the cluster: the tables, and what filters said of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import msgspec
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.cluster.arrays.tables import ChangedRows, ClusterTables
from flowcore.cluster.indexes.queue_index import QueueTree
from flowcore.model.nodes import Node
from flowcore.model.persistent_usage import PersistentUsage
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.rules.filters.registry import Filter
from flowcore.rules.filters.rejection import Rejection
from flowcore.rules.verdicts import VerdictCache
from flowcore.rules.verdicts.invalidation import DEVICE_EVENTS, STORAGE_EVENTS, Event
from thalweg_operator.planning.worker.messages import (
    RoundRequest,
    RunningState,
    to_changes,
    to_pod_changes,
    to_running_entry,
    to_running_pod,
)

#: Rounds in a generation: what no round of two generations asked for is dropped.
CACHE_GENERATION = 64


class TimedVerdictCache(VerdictCache):
    """A verdict cache that counts the seconds that its answers take: how long a round waited for filters.

    The core itself has no clock.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0

    def run_filter(
        self, which: Filter, pod_class: PodClass, signature: PodSignature, snapshot: Snapshot
    ) -> tuple[Rejection, ...]:
        """Runs or looks up a filter, and counts the seconds."""
        started = time.perf_counter()
        try:
            return super().run_filter(which, pod_class, signature, snapshot)
        finally:
            self._seconds += time.perf_counter() - started

    def values(
        self,
        owner: str,
        key: Hashable,
        stale_when: Iterable[Event],
        snapshot: Snapshot,
        compute: Callable[[Snapshot, Int64s | None], NDArray[Any]],
    ) -> NDArray[Any]:
        """Looks up or computes an array, and counts the seconds."""
        started = time.perf_counter()
        try:
            return super().values(owner, key, stale_when, snapshot, compute)
        finally:
            self._seconds += time.perf_counter() - started

    def take_seconds(self) -> float:
        """Seconds spent since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


class Replica:
    """Takes over the changes of each request.

    Attributes:
        cache: verdicts on earlier states as far as they still hold; it gets every change here.
        tables: the arrays.
    """

    def __init__(self) -> None:
        self.cache = TimedVerdictCache()
        self.tables = ClusterTables()
        self._persistent_usage: tuple[PersistentUsage, ...] | None = None
        self._running: dict[str, RunningPod] = {}
        self._round_count = 0
        self._told_nodes: Sequence[Node] = ()

    def apply(self, request: RoundRequest) -> None:
        """Takes over a request's changes."""
        self._round_count += 1
        if self._round_count % CACHE_GENERATION == 0:
            self.cache.age()
            self.tables.age()
        self._invalidate(self.tables.apply(to_changes(request)))
        self.tables.begin_round(request.number)
        if request.persistent_usage is not None:
            self._persistent_usage = request.persistent_usage
        for key in request.removed_running:
            self._running.pop(key, None)
        for entry in request.running:
            self._running[entry.key] = to_running_pod(entry, request)

    def _invalidate(self, rows: ChangedRows) -> None:
        if self.tables.table is not rows.table_before:
            self.cache.change_nodes(rows.table_before, self.tables.table, rows.nodes)
        for event, positions in (
            (Event.POD_ADDED, rows.more_pods),
            (Event.POD_DELETED, rows.fewer_pods),
            (Event.POD_RESIZED, rows.resized_pods),
            (Event.NODE_REPORT, rows.reports),
            (Event.NODE_MEASURED, rows.measured),
            (Event.NUMA_ZONES, rows.numa),
        ):
            if positions:
                self.cache.change_at(event, positions)
        if rows.mounts:
            self.cache.change_everywhere(Event.POD_VOLUMES)
        for kind in rows.storage_kinds:
            self.cache.change_everywhere(STORAGE_EVENTS[kind])
        for kind in rows.device_kinds:
            self.cache.change_everywhere(DEVICE_EVENTS[kind])

    def _running_pods(self, state: RunningState) -> RunningPods:
        pods = tuple(self._running.values())
        return RunningPods(pods, state.budgets, state.gangs, state.moves, state.terminating, state.places)

    def to_snapshot(self, request: RoundRequest, pending: tuple[PendingPod, ...]) -> Snapshot:
        """The cluster as it is now, with these pods waiting."""
        state = request.running_state
        snapshot = self.tables.to_snapshot(
            generation=request.generation,
            now=request.now,
            pending=pending,
            gangs=request.gangs,
            persistent_usage=self._persistent_usage,
            backfill_history=request.backfill_history,
            queues=QueueTree(request.queues).state(request.queue_usage),
            running=None if state is None else self._running_pods(state),
        )
        self.cache.follow(snapshot)
        return snapshot

    def names_to_tell(self) -> list[str] | None:
        """Names of the nodes in the order of their prices; None: the operator was told the same before."""
        told, self._told_nodes = self._told_nodes, self.tables.table.nodes
        if told is self._told_nodes:
            return None
        names = [node.name for node in self._told_nodes]
        return None if names == [node.name for node in told] else names

    def full_request(self, request: RoundRequest) -> RoundRequest:
        """The request as a worker that knows nothing would need it."""
        signatures = {signature: place for place, signature in enumerate(request.signatures)}
        classes = {pod_class: place for place, pod_class in enumerate(request.classes)}
        running = [to_running_entry(pod, classes, signatures) for pod in self._running.values()]
        changes = self.tables.full_changes()
        pod_changes = list(to_pod_changes(changes, signatures))
        changes.pod_deltas = []
        return msgspec.structs.replace(
            request,
            reset=True,
            changes=changes,
            pod_changes=pod_changes,
            signatures=list(signatures),
            persistent_usage=self._persistent_usage,
            classes=list(classes),
            running=running,
            removed_running=[],
        )
