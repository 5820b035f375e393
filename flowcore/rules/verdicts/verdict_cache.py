"""Verdicts of filters for each class on each node, for as long as they hold: node x filter x class.

Source: the seed "equivalence class". There is a column for each filter and each value that the filter can read of a
class: classes that tolerate the same taints share the column of TaintToleration. A table (``invalidation``) says what
makes an entry stale. The columns are a cache only: without them every answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Int64s, NodeTable, Snapshot
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.rules.filters import node_resources_fit
from flowcore.rules.filters.dynamic_resources import column_requests
from flowcore.rules.filters.registry import Filter, run_filter
from flowcore.rules.filters.rejection import FilterInputs, Rejection
from flowcore.rules.verdicts.columns import MAX_BYTES, CacheStats, Column, Columns
from flowcore.rules.verdicts.invalidation import INVALIDATES, Event, Row, Stale, node_events, scopes

#: More pods than any round has; counts up to it take half the memory.
_MAX_COUNT = 2**31 - 1


class VerdictCache:
    """Verdicts for one state of a cluster, set by ``follow``; for other states nothing is cached.

    An owner that keeps it from one state to the next reports every change in between (``change_nodes``, ``change_at``).
    Changes of pods that rules between pods read are known from the state's ``pod_index``.
    """

    def __init__(self, rows: Iterable[Row] = INVALIDATES, max_bytes: int = MAX_BYTES) -> None:
        self._scopes = scopes(rows)
        self._columns = Columns(0, max_bytes)
        self._state: Snapshot | None = None
        self._part: tuple[bytes, Snapshot] | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> VerdictCache:
        """An empty cache for one state."""
        cache = cls()
        cache.change_nodes(NodeTable.of(()), snapshot.table, ())
        cache.follow(snapshot)
        return cache

    # --- what happens ---

    def change_nodes(self, before: NodeTable, after: NodeTable, names: Iterable[str]) -> None:
        """Nodes came, went or changed; ``names``: those that may have changed."""
        columns = self._columns
        if after.index is not before.index:
            places = after.positions_in(before)
            columns.reorder_nodes(places)
            added = np.nonzero(places < 0)[0]
            if len(added):
                columns.record_event(Event.NODE_ADDED, added)
            if len(after.nodes) - len(added) < len(before.nodes):
                columns.record_event(Event.NODE_DELETED)
        rows: dict[Event, list[int]] = {}
        labels: set[str] = set()
        for name in names:
            if name in before.index and name in after.index:
                old, new = before.nodes[before.index[name]], after.nodes[after.index[name]]
                for event in node_events(old, new):
                    rows.setdefault(event, []).append(after.index[name])
                labels.update(key for key, _ in set(old.labels) ^ set(new.labels))
        for event, nodes in rows.items():
            columns.record_event(event, nodes)
        for key in labels:
            columns.record_event((Event.NODE_LABELS, key))

    def change_at(self, event: Event, nodes: Iterable[int]) -> None:
        """Another event at these nodes: pods came, left or were resized, or a new report."""
        self._columns.record_event(event, nodes)

    def change_everywhere(self, event: Event) -> None:
        """Storage objects, objects about devices, or what pods hold of both, changed: no node is named."""
        self._columns.record_event(event)

    def follow(self, state: Snapshot) -> None:
        """Sets the state that later calls ask about."""
        self._state, self._part = state, None

    def age(self) -> None:
        """Call it now and then: forgets what was not asked for since the last call but one."""
        self._columns.age()

    def follow_columns(self, before: Snapshot, state: Snapshot) -> None:
        """Sets the same state with columns of devices, if the one before was set."""
        if self._state is before:
            self.follow(state)

    # --- questions ---

    def run_filter(
        self, which: Filter, pod_class: PodClass, signature: PodSignature, snapshot: Snapshot
    ) -> tuple[Rejection, ...]:
        """The nodes that a filter rejects: see ``flowcore.rules.filters.registry.run_filter``."""
        if not self._is_followed(snapshot, which.state):
            return run_filter(which, pod_class, signature, snapshot)
        reads = which.reads(pod_class, signature, snapshot)
        if reads is None:
            return ()

        def encode(part: Snapshot, _at: Int64s | None, legend: list[Any]) -> NDArray[Any]:
            return _encoded(which.rejections(pod_class, signature, part), legend, len(part.table.nodes))

        key = (which.name, which.part, reads.class_key)
        version = None if which.by_node else self._version(which, reads, snapshot)
        return _decoded(self._column(which.name, key, self._events(which.name), snapshot, encode, version))

    def counts(self, pod_class: PodClass, snapshot: Snapshot) -> Int64s:
        """int64[N]: how many pods of a class each node takes by their requests (NodeResourcesFit)."""
        numbers = column_requests(pod_class, snapshot)
        if numbers:  # what is remembered does not know when these change
            plain = msgspec.structs.replace(
                pod_class, requests=tuple(each for each in pod_class.requests if each not in numbers)
            )
            columns = [(snapshot.free[:, snapshot.resources.index(name)], number) for name, number in numbers]
            fitting = [np.maximum(free // number, 0) for free, number in columns]
            counts: Int64s = np.minimum.reduce([self.counts(plain, snapshot), *fitting])
            return counts

        def count(part: Snapshot, _at: Int64s | None) -> NDArray[Any]:
            return np.minimum(node_resources_fit.counts(pod_class, part), _MAX_COUNT).astype(np.int32)

        name = node_resources_fit.NAME
        key = ("counts", node_resources_fit.reads(pod_class, snapshot).class_key)
        return self.values(name, key, self._events(name), snapshot, count).astype(np.int64)

    def values(
        self,
        owner: str,
        key: Hashable,
        stale_when: Iterable[Event],
        snapshot: Snapshot,
        compute: Callable[[Snapshot, Int64s | None], NDArray[Any]],
    ) -> NDArray[Any]:
        """[N] values that depend, for each node, on that node and its usage only.

        Args:
            owner: the name under which requests are counted.
            key: equal keys have equal values.
            compute: gives the values for all nodes of a snapshot: this one, or a part with the positions of its nodes.
        """
        if not self._is_followed(snapshot, lambda each: each.used):
            return compute(snapshot, None)
        values = self._column(
            owner, key, stale_when, snapshot, lambda part, rows, _legend: compute(part, rows), None
        ).values
        return np.zeros(len(snapshot.table.nodes), dtype=np.int64) if values is None else values

    def take_stats(self) -> dict[str, CacheStats]:
        """How often each filter was asked since the last call."""
        stats, self._columns.stats = self._columns.stats, {}
        return stats

    @property
    def nbytes(self) -> int:
        """Bytes in the cache."""
        return self._columns.nbytes

    def _is_followed(self, snapshot: Snapshot, state: Callable[[Snapshot], object] | None) -> bool:
        followed = self._state
        if followed is None or followed.table is not snapshot.table:
            return False
        return state is None or state(followed) is state(snapshot)

    def _column(
        self,
        owner: str,
        key: Hashable,
        stale_when: Iterable[Event],
        snapshot: Snapshot,
        compute: Callable[[Snapshot, Int64s | None, list[Any]], NDArray[Any]],
        version: Hashable,
    ) -> Column:
        def at(nodes: Int64s | None, legend: list[Any]) -> NDArray[Any]:
            return compute(snapshot if nodes is None else self._nodes_of(snapshot, nodes), nodes, legend)

        return self._columns.column(owner, key, stale_when, at, version)

    def _nodes_of(self, snapshot: Snapshot, nodes: Int64s) -> Snapshot:
        """The snapshot of these nodes; cached, as many columns are stale at the same nodes."""
        which = nodes.tobytes()
        if self._part is None or self._part[0] != which:
            self._part = (which, snapshot.of_nodes(nodes))
        return self._part[1]

    def _events(self, name: str) -> list[Event]:
        return [event for event, scope in self._scopes.get(name, {}).items() if scope is Stale.NODE]

    def _version(self, which: Filter, reads: FilterInputs, snapshot: Snapshot) -> Hashable:
        """When each thing last changed on which the verdicts depend, beside the node itself."""
        columns, matching_pods = self._columns, reads.matching_pods
        versions: list[int] = [snapshot.pod_index.forgotten]
        for event, scope in self._scopes.get(which.name, {}).items():
            match scope:
                case Stale.EVERYWHERE:
                    versions.append(columns.last_time(event))
                case Stale.LABELS:
                    versions.append(max((columns.last_time((event, key)) for key in reads.label_keys), default=0))
                case Stale.TAINTS:
                    versions.append(columns.last_time(event) if reads.reads_taints else 0)
                case Stale.RULES if event is Event.POD_ADDED:
                    versions.append(max((matching.added_revision for matching in matching_pods), default=0))
                case Stale.RULES:
                    versions.append(max((matching.removed_revision for matching in matching_pods), default=0))
                case Stale.NAMESPACES:
                    versions.append(max((matching.created_revision for matching in matching_pods), default=0))
                case Stale.DOMAIN:
                    # How many of the nodes with these pods are not in the table.
                    index = snapshot.table.index
                    versions.append(
                        sum(len(matching.by_node) - len(matching.to_arrays(index)[0]) for matching in matching_pods)
                    )
                case Stale.NODE:
                    pass
        return tuple(versions)


def _encoded(rejections: Iterable[Rejection], legend: list[Any], count: int) -> NDArray[Any]:
    """[count] codes: 0 for a node that is not rejected, else a set of reasons by its number in the legend.

    Args:
        legend: reasons by number, sets of such numbers by number, and bool[reasons, sets], which set has which reason;
            empty or as an earlier call left it.
    """
    if not legend:
        legend += [{}, {(): 0}, np.zeros((0, 1), dtype=np.bool_)]
    reasons: dict[str, int] = legend[0]
    sets: dict[tuple[int, ...], int] = legend[1]
    numbers, nodes = [], []
    for rejection in rejections:
        number = reasons.setdefault(rejection.reason, len(reasons))
        if rejection.nodes.any():
            numbers.append(number)
            nodes.append(rejection.nodes)
    if not numbers:
        return np.zeros(count, dtype=np.min_scalar_type(len(sets) - 1))
    rejected = np.array(nodes)
    # Nodes with the same set of reasons: eight reasons at a time, so that the work grows with the reasons alone.
    alike, signatures = np.zeros(count, dtype=np.int64), 1
    for row in np.packbits(rejected, axis=0):
        combined = row if signatures == 1 else alike * 256 + row
        occurs = np.bincount(combined) > 0
        alike, signatures = (np.cumsum(occurs) - 1)[combined], int(occurs.sum())
    first = np.zeros(signatures, dtype=np.int64)
    first[alike] = np.arange(count)  # any node of the set
    of = np.array(numbers)
    codes = [sets.setdefault(tuple(of[rejected[:, node]].tolist()), len(sets)) for node in first.tolist()]
    # Another column may hold the earlier legend: never in place.
    legend[2] = np.zeros((len(reasons), len(sets)), dtype=np.bool_)
    for code, reason_numbers in enumerate(sets):
        legend[2][list(reason_numbers), code] = True
    return np.array(codes, dtype=np.int64)[alike].astype(np.min_scalar_type(len(sets) - 1))


def _decoded(column: Column) -> tuple[Rejection, ...]:
    if column.values is None:
        return ()
    reasons: dict[str, int] = column.legend[0]
    rejections = (
        Rejection(reason, of_set[column.values]) for reason, of_set in zip(reasons, column.legend[2], strict=False)
    )
    return tuple(rejection for rejection in rejections if rejection.nodes.any())
