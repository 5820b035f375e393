"""The cluster as arrays: changes in, snapshots out. Every Snapshot of the operator and the command line is made here.

A change costs what changed and a few copies of arrays, not the cluster. A fresh table with everything
(``full_changes``) comes to the same arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.cluster.arrays.node_reports import Reports
from flowcore.cluster.arrays.numa_room import NumaRoom
from flowcore.cluster.arrays.snapshot import Int64s, NodeTable, PendingPod, Snapshot
from flowcore.cluster.arrays.storage import Storage
from flowcore.cluster.changes import ClusterChanges
from flowcore.model.backfill_history import NO_BACKFILL_HISTORY, BackfillHistory
from flowcore.model.gangs import Gang
from flowcore.model.node_usage import NodeUsage
from flowcore.model.nodes import Node
from flowcore.model.numa import NumaClaims, NumaNode
from flowcore.model.persistent_usage import PersistentUsage
from flowcore.model.pod_index import PodIndex
from flowcore.model.pods import HostPort
from flowcore.model.queues import QueueState
from flowcore.model.resources import BASE_RESOURCES, PODS
from flowcore.model.running_pods import RunningPods
from flowcore.model.usage import MeasuredLoad
from flowcore.model.volumes import key_of

_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """What one ``apply`` changed, for caches of what filters said. Positions are those of the new node table.

    Attributes:
        table_before: the node table until then; the same object where no node changed.
        nodes: names of nodes that are new or changed.
        more_pods, fewer_pods, resized_pods: positions of nodes with more pods, with fewer, and with as many that hold
            something else; new nodes are left out.
        reports: positions of nodes with a new report.
        measured: positions of nodes with another measured load.
        mounts: whether the pods of a node that is not new have mounted other volumes.
        storage_kinds: kinds of the storage objects that changed, sorted.
        numa: positions of nodes with other NUMA zones, or other room in them.
        device_kinds: kinds of the objects about devices that changed, sorted.
    """

    table_before: NodeTable
    nodes: Sequence[str]
    more_pods: Sequence[int]
    fewer_pods: Sequence[int]
    resized_pods: Sequence[int]
    reports: Sequence[int]
    mounts: bool
    storage_kinds: Sequence[str]
    measured: Sequence[int] = ()
    numa: Sequence[int] = ()
    device_kinds: Sequence[str] = ()


class ClusterTables:
    """Arrays over the nodes (their rows), and indexes of pods, reports and storage objects.

    Snapshots share the arrays: a snapshot holds until the next ``apply``.

    Args:
        table: nodes to begin with, in their order; the tables keep that order until a node comes or goes.
        storage, pod_index: storage objects and pods to begin with.
    """

    def __init__(
        self, table: NodeTable | None = None, storage: Storage | None = None, pod_index: PodIndex | None = None
    ) -> None:
        self._table = NodeTable.of(())
        self._usage: dict[str, NodeUsage] = {}
        #: How many nodes offer each resource.
        self._offer_counts: Counter[str] = Counter()
        self._resources: tuple[str, ...] = BASE_RESOURCES
        self._allocatable: Int64s = np.zeros((0, len(BASE_RESOURCES)), dtype=np.int64)
        self._used: Int64s = self._allocatable.copy()
        self._non_zero_requested: Int64s = np.zeros((0, 2), dtype=np.int64)
        self._ports: dict[int, frozenset[HostPort]] = {}
        #: Of nodes with any measured load.
        self._measured: dict[str, MeasuredLoad] = {}
        self._measured_rows: NDArray[np.float64] = np.zeros((0, 3))
        self._pod_index = PodIndex() if pod_index is None else pod_index
        self._reports = Reports()
        self._storage = Storage() if storage is None else storage
        self._devices = DeviceObjects()
        self._numa: dict[str, tuple[NumaNode, NumaClaims]] = {}
        #: Made of these when it is asked for, for one order of the nodes.
        self._numa_room: tuple[Mapping[str, int], NumaRoom] | None = None
        if table is not None:
            self._replace_table(table, table.nodes, ())
            self._reports = Reports.of(table.nodes)

    @property
    def table(self) -> NodeTable:
        """The nodes, by name once any came or went."""
        return self._table

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the columns: the base resources, then each that a node offers, sorted."""
        return self._resources

    # --- changes ---

    def apply(self, changes: ClusterChanges) -> ChangedRows:
        """Takes changes over; returns which rows they changed."""
        before = self._table
        if changes.nodes or changes.removed_nodes:
            self._replace_table(
                before.updated(changes.nodes, changes.removed_nodes), changes.nodes, changes.removed_nodes
            )
            for name in changes.removed_nodes:
                self._usage.pop(name, None)
                self._reports.put(name, None)
                self._storage.mount(name, ())
                self._measured.pop(name, None)
        more_pods, fewer_pods, resized_pods, mounts = self._apply_usage(changes.usage, before)
        for namespace, labels in changes.namespaces.items():
            self._pod_index.set_namespace(namespace, labels)
        for service in changes.services:
            self._pod_index.services.put(service.key, service)
        for service_key in changes.removed_services:
            self._pod_index.services.put(service_key, None)
        for signature, on in changes.pod_deltas:
            for node, delta in on.items():
                self._pod_index.change(signature, node, delta)
        for node, report in changes.node_reports():
            self._reports.put(node, report)
        self._apply_measured(changes.measured)
        for stored in changes.storage:
            self._storage.put(stored)
        for key in changes.removed_storage:
            self._storage.drop(key)
        for name in changes.removed_numa:
            self._numa.pop(name, None)
        self._numa.update((entry[0].name, entry) for entry in changes.numa)
        numa = [*(entry[0].name for entry in changes.numa), *changes.removed_numa]
        if numa:
            self._numa_room = None
        return ChangedRows(
            table_before=before,
            nodes=[node.name for node in changes.nodes],
            more_pods=more_pods,
            fewer_pods=fewer_pods,
            resized_pods=resized_pods,
            reports=[self._table.index[each.node] for each in changes.reports if each.node in self._table.index],
            mounts=mounts,
            storage_kinds=sorted({key[0] for key in (*map(key_of, changes.storage), *changes.removed_storage)}),
            measured=[self._table.index[each.node] for each in changes.measured if each.node in self._table.index],
            numa=[self._table.index[name] for name in numa if name in self._table.index],
            device_kinds=self._devices.apply(changes),
        )

    def _replace_table(self, table: NodeTable, put: Sequence[Node], removed: Sequence[str]) -> None:
        before, self._table = self._table, table
        if table.index is not before.index:
            rows = table.positions_in(before)
            self._allocatable, self._used, self._non_zero_requested = (
                _moved(values, rows) for values in (self._allocatable, self._used, self._non_zero_requested)
            )
            self._measured_rows = np.where(rows[:, np.newaxis] < 0, np.nan, _moved(self._measured_rows, rows))
            if self._ports:
                places = enumerate(rows.tolist())
                self._ports = {row: self._ports[place] for row, place in places if place in self._ports}
        self._update_columns(before, put, removed)
        column = {name: i for i, name in enumerate(self._resources)}
        for node in put:
            row = [0] * len(column)
            for name, amount in node.allocatable:
                row[column[name]] = amount
            self._allocatable[table.index[node.name]] = row

    def _update_columns(self, before: NodeTable, put: Sequence[Node], removed: Sequence[str]) -> None:
        """Counts how many nodes offer each resource. A resource has a column as long as any node offers it."""
        changed = {node.name: node for node in put}
        for name in changed.keys() | set(removed):
            if name in before.index:
                self._offer_counts.subtract(resource for resource, _ in before.nodes[before.index[name]].allocatable)
        for node in changed.values():
            self._offer_counts.update(name for name, _ in node.allocatable)
        self._offer_counts = +self._offer_counts
        names = BASE_RESOURCES + tuple(sorted(self._offer_counts.keys() - set(BASE_RESOURCES)))
        if names == self._resources:
            return
        columns = np.array([self._resources.index(each) if each in self._resources else -1 for each in names])
        new = set(names).difference(self._resources)
        self._resources = names
        self._allocatable, self._used = (
            np.ascontiguousarray(_moved(values.T, columns).T) for values in (self._allocatable, self._used)
        )
        for usage in self._usage.values() if new else ():
            row = self._table.index.get(usage.node)
            if row is not None and not new.isdisjoint(name for name, _ in usage.amounts):
                self._used[row] = self._usage_row(usage)

    def _usage_row(self, usage: NodeUsage) -> list[int]:
        row = dict.fromkeys(self._resources, 0)
        # A resource that no node offers has no column.
        row.update((name, min(amount, _MAX_INT64)) for name, amount in usage.amounts if name in row)
        row[PODS] = usage.pods
        return list(row.values())

    def _apply_usage(
        self, usage: Sequence[NodeUsage], before: NodeTable
    ) -> tuple[list[int], list[int], list[int], bool]:
        more_pods: list[int] = []
        fewer_pods: list[int] = []
        resized_pods: list[int] = []
        mounts = False
        for node_usage in usage:
            old = self._usage.get(node_usage.node)
            self._usage[node_usage.node] = node_usage
            is_new = node_usage.node not in before.index
            if node_usage.volumes != (() if old is None else old.volumes):
                self._storage.mount(node_usage.node, node_usage.volumes)
                mounts |= not is_new
            row = self._table.index.get(node_usage.node)
            if row is None:
                continue
            self._used[row] = self._usage_row(node_usage)
            self._non_zero_requested[row] = min(node_usage.cpu, _MAX_INT64), min(node_usage.memory, _MAX_INT64)
            if node_usage.ports:
                self._ports[row] = frozenset(node_usage.ports)
            else:
                self._ports.pop(row, None)
            if old == node_usage or is_new:
                continue
            pods = 0 if old is None else old.pods
            rows = resized_pods if node_usage.pods == pods else more_pods if node_usage.pods > pods else fewer_pods
            rows.append(row)
        return more_pods, fewer_pods, resized_pods, mounts

    def _apply_measured(self, loads: Iterable[MeasuredLoad]) -> None:
        for load in loads:
            row = self._table.index.get(load.node)
            if row is None:
                continue
            self._measured_rows[row] = [np.nan if each is None else each for each in load.amounts]
            if load.is_empty:
                self._measured.pop(load.node, None)
            else:
                self._measured[load.node] = load

    def age(self) -> None:
        """Drops what was not read since the last call but one. To be called now and then."""
        self._table.age()
        self._pod_index.age()

    # --- what is known ---

    def begin_round(self, number: int) -> None:
        """What is asked from here on has the limits of one round, which has a number."""
        self._devices.begin_round(number)

    def to_snapshot(
        self,
        *,
        generation: int,
        now: float,
        pending: tuple[PendingPod, ...],
        gangs: Iterable[Gang] = (),
        persistent_usage: tuple[PersistentUsage, ...] | None = (),
        backfill_history: BackfillHistory = NO_BACKFILL_HISTORY,
        running: RunningPods | None = None,
        queues: QueueState | None = None,
    ) -> Snapshot:
        """The cluster as it is now, with these pods waiting; see Snapshot for the arguments."""
        return Snapshot(
            generation=generation,
            now=now,
            table=self._table,
            resources=self._resources,
            allocatable=self._allocatable,
            used=self._used,
            non_zero_requested=self._non_zero_requested,
            ports=self._ports,
            pending=pending,
            storage=self._storage,
            pod_index=self._pod_index,
            reports=self._reports,
            gangs={gang.name: gang for gang in gangs},
            persistent_usage=persistent_usage,
            backfill_history=backfill_history,
            running=running,
            queues=queues,
            measured=self._measured_rows if self._measured else None,
            numa=self._to_numa_room(),
            devices=self._devices,
        )

    def _to_numa_room(self) -> NumaRoom | None:
        if not self._numa:
            return None
        index, known = self._table.index, self._numa_room
        if known is None or known[0] is not index:
            known = self._numa_room = index, NumaRoom.of(self._numa, index)
        return known[1]

    def full_changes(self) -> ClusterChanges:
        """All that is known, as changes to tables that know nothing."""
        changes = ClusterChanges(
            nodes=list(self._table.nodes),
            usage=list(self._usage.values()),
            namespaces=dict(self._pod_index.namespaces),
            pod_deltas=list(self._pod_index.copy_counts().items()),
            storage=list(self._storage),
            services=[each for each in self._pod_index.services.objects.values() if each.selector],
            measured=list(self._measured.values()),
            numa=list(self._numa.values()),
        )
        self._devices.add_all(changes)
        for _ in changes.put_reports(self._reports.items()):
            pass
        return changes


def _moved(values: NDArray[Any], rows: Int64s) -> NDArray[Any]:
    """The rows at these positions; zeros where the position is -1."""
    moved = np.zeros((len(rows), values.shape[1]), dtype=values.dtype)
    present = rows >= 0
    moved[present] = values[rows[present]]
    return moved
