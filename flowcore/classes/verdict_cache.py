"""What filters said of each class on each node, for as long as it holds: node x filter x class.

Source: the seed "equivalence class". A column is kept for each filter and each thing that the filter can read of a
class: classes that tolerate the same taints share that of TaintToleration. What makes an entry stale is a table
(``invalidation``). Columns are a memory and nothing else: without them every answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowcore.classes.columns import MOST_BYTES, Column, Columns, Tally
from flowcore.classes.invalidation import INVALIDATES, Event, Row, Scope, node_events, scopes
from flowcore.filters import node_resources_fit
from flowcore.filters.registry import Filter, ask
from flowcore.filters.rejection import Reads, Rejection
from flowcore.model.neighbours import Kind
from flowcore.model.pods import PodClass
from flowcore.model.snapshot import Int64s, NodeTable, Snapshot

#: No round has so many pods; counts up to it take half the memory.
_MOST_COUNTED = 2**31 - 1


class VerdictCache:
    """Verdicts on one state of a cluster, the one last given to ``follow``; others are judged without memory.

    Whoever keeps it from one state to the next tells what happened in between (``change_nodes``, ``change_at``);
    pods that rules between pods read are found by the state's ``neighbours`` themselves.
    """

    def __init__(self, rows: Iterable[Row] = INVALIDATES, most: int = MOST_BYTES) -> None:
        self._scopes = scopes(rows)
        self._columns = Columns(0, most)
        self._state: Snapshot | None = None
        self._part: tuple[bytes, Snapshot] | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> VerdictCache:
        """One that knows nothing but which state it is asked about."""
        cache = cls()
        cache.change_nodes(NodeTable.of(()), snapshot.table, ())
        cache.follow(snapshot)
        return cache

    # --- what happens ---

    def change_nodes(self, before: NodeTable, after: NodeTable, names: Iterable[str]) -> None:
        """Nodes came, went or changed; ``names`` are those that may have."""
        columns = self._columns
        if after.index is not before.index:
            places = after.places_in(before)
            columns.rearrange(places)
            added = np.nonzero(places < 0)[0]
            if len(added):
                columns.happened(Event.NODE_ADDED, added)
            if len(after.nodes) - len(added) < len(before.nodes):
                columns.happened(Event.NODE_DELETED)
        at: dict[Event, list[int]] = {}
        labels: set[str] = set()
        for name in names:
            if name in before.index and name in after.index:
                old, new = before.nodes[before.index[name]], after.nodes[after.index[name]]
                for event in node_events(old, new):
                    at.setdefault(event, []).append(after.index[name])
                labels.update(key for key, _ in set(old.labels) ^ set(new.labels))
        for event, nodes in at.items():
            columns.happened(event, nodes)
        for key in labels:
            columns.happened((Event.NODE_LABELS, key))

    def change_at(self, event: Event, nodes: Iterable[int]) -> None:
        """Something else happened at these nodes: pods came, left or were resized, or it reports something new."""
        self._columns.happened(event, nodes)

    def change_storage(self, event: Event) -> None:
        """Storage objects, or volumes of pods that run, changed."""
        self._columns.happened(event)

    def follow(self, state: Snapshot) -> None:
        """The state that is asked about from now on."""
        self._state, self._part = state, None

    def age(self) -> None:
        """To be called now and then: forgets what nobody asked about since the last call but one."""
        self._columns.age()

    # --- questions ---

    def ask(self, which: Filter, pod_class: PodClass, kind: Kind, snapshot: Snapshot) -> tuple[Rejection, ...]:
        """What a filter says of a class: see ``flowcore.filters.registry.ask``."""
        if not self._is_followed(snapshot, which.state):
            return ask(which, pod_class, kind, snapshot)
        reads = which.reads(pod_class, kind, snapshot)
        if reads is None:
            return ()

        def encode(part: Snapshot, _at: Int64s | None, legend: list[Any]) -> NDArray[Any]:
            return _encoded(which.rejections(pod_class, kind, part), legend, len(part.table.nodes))

        key = (which.name, which.part, reads.of_class)
        mark = None if which.by_node else self._mark(which, reads, snapshot)
        return _decoded(self._column(which.name, key, self._events(which.name), snapshot, encode, mark))

    def counts(self, pod_class: PodClass, snapshot: Snapshot) -> Int64s:
        """int64[N]: how many pods of a class each node takes by what they ask for (NodeResourcesFit)."""

        def count(part: Snapshot, _at: Int64s | None) -> NDArray[Any]:
            return np.minimum(node_resources_fit.counts(pod_class, part), _MOST_COUNTED).astype(np.int32)

        name = node_resources_fit.NAME
        key = ("counts", pod_class.requests)
        return self.values(name, key, self._events(name), snapshot, count).astype(np.int64)

    def values(
        self,
        owner: str,
        key: Hashable,
        stale_when: Iterable[Event],
        snapshot: Snapshot,
        compute: Callable[[Snapshot, Int64s | None], NDArray[Any]],
    ) -> NDArray[Any]:
        """[N] of whatever follows for each node from that node and from what is taken there alone.

        Args:
            owner: whose tally it counts in.
            key: equal ones give equal values.
            compute: gives the values for all nodes of a snapshot: this one, or those at some places of it.
        """
        if not self._is_followed(snapshot, lambda each: each.used):
            return compute(snapshot, None)
        found = self._column(owner, key, stale_when, snapshot, lambda part, at, _legend: compute(part, at), None).values
        return np.zeros(len(snapshot.table.nodes), dtype=np.int64) if found is None else found

    def take_tallies(self) -> dict[str, Tally]:
        """How often each filter was asked since the last call."""
        found, self._columns.tallies = self._columns.tallies, {}
        return found

    @property
    def nbytes(self) -> int:
        """Bytes that are remembered."""
        return self._columns.nbytes

    def _is_followed(self, snapshot: Snapshot, state: Callable[[Snapshot], object] | None) -> bool:
        mine = self._state
        if mine is None or mine.table is not snapshot.table:
            return False
        return state is None or state(mine) is state(snapshot)

    def _column(
        self,
        owner: str,
        key: Hashable,
        stale_when: Iterable[Event],
        snapshot: Snapshot,
        compute: Callable[[Snapshot, Int64s | None, list[Any]], NDArray[Any]],
        mark: Hashable,
    ) -> Column:
        def at(nodes: Int64s | None, legend: list[Any]) -> NDArray[Any]:
            return compute(snapshot if nodes is None else self._nodes_of(snapshot, nodes), nodes, legend)

        return self._columns.column(owner, key, stale_when, at, mark)

    def _nodes_of(self, snapshot: Snapshot, nodes: Int64s) -> Snapshot:
        """Many columns are stale at the same nodes."""
        which = nodes.tobytes()
        if self._part is None or self._part[0] != which:
            self._part = (which, snapshot.of_nodes(nodes))
        return self._part[1]

    def _events(self, name: str) -> list[Event]:
        return [event for event, scope in self._scopes.get(name, {}).items() if scope is Scope.NODE]

    def _mark(self, which: Filter, reads: Reads, snapshot: Snapshot) -> Hashable:
        """Of everything beyond a node that its verdicts depend on: when it changed last."""
        columns, crowds = self._columns, reads.crowds
        found: list[int] = [snapshot.neighbours.forgotten]
        for event, scope in self._scopes.get(which.name, {}).items():
            match scope:
                case Scope.EVERYWHERE:
                    found.append(columns.last(event))
                case Scope.LABELS:
                    found.append(max((columns.last((event, key)) for key in reads.labels), default=0))
                case Scope.TAINTS:
                    found.append(columns.last(event) if reads.taints else 0)
                case Scope.RULES if event is Event.POD_ADDED:
                    found.append(max((crowd.came for crowd in crowds), default=0))
                case Scope.RULES:
                    found.append(max((crowd.went for crowd in crowds), default=0))
                case Scope.NAMESPACES:
                    found.append(max((crowd.made for crowd in crowds), default=0))
                case Scope.DOMAIN:
                    # How many of the nodes where these pods are, or were, are not in the table.
                    index = snapshot.table.index
                    found.append(sum(len(crowd.by_node) - len(crowd.on(index)[0]) for crowd in crowds))
                case Scope.NODE:
                    pass
        return tuple(found)


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
    alike, kinds = np.zeros(count, dtype=np.int64), 1
    for row in np.packbits(rejected, axis=0):
        combined = row if kinds == 1 else alike * 256 + row
        there = np.bincount(combined) > 0
        alike, kinds = (np.cumsum(there) - 1)[combined], int(there.sum())
    first = np.zeros(kinds, dtype=np.int64)
    first[alike] = np.arange(count)  # any of them will do
    of = np.array(numbers)
    codes = [sets.setdefault(tuple(of[rejected[:, node]].tolist()), len(sets)) for node in first.tolist()]
    # Another column may have the same legend as it was before: never in place.
    legend[2] = np.zeros((len(reasons), len(sets)), dtype=np.bool_)
    for at, each in enumerate(sets):
        legend[2][list(each), at] = True
    return np.array(codes, dtype=np.int64)[alike].astype(np.min_scalar_type(len(sets) - 1))


def _decoded(column: Column) -> tuple[Rejection, ...]:
    if column.values is None:
        return ()
    reasons: dict[str, int] = column.legend[0]
    found = (
        Rejection(reason, of_set[column.values]) for reason, of_set in zip(reasons, column.legend[2], strict=False)
    )
    return tuple(rejection for rejection in found if rejection.nodes.any())
