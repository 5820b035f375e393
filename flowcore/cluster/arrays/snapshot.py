"""One consistent view of a cluster, with arrays.

``N`` nodes in a fixed order, ``R`` resources: the base resources first, then each resource that a node offers, sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.device_columns import DeviceColumns
from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.cluster.arrays.node_reports import Reports
from flowcore.cluster.arrays.numa_room import NumaRoom
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.backfill_history import NO_BACKFILL_HISTORY, BackfillHistory
from flowcore.model.gangs import Gang
from flowcore.model.generational_cache import GenerationalCache, estimate_bytes
from flowcore.model.nodes import Node, Taint
from flowcore.model.persistent_usage import PersistentUsage
from flowcore.model.pod_index import EMPTY_SIGNATURE, PodIndex, PodSignature
from flowcore.model.pods import HostPort, PodClass
from flowcore.model.queues import QueueState
from flowcore.model.resource_claims import DeviceTaker
from flowcore.model.resources import PODS, Amounts, Unrequested, beyond_requests, non_zero_requests
from flowcore.model.running_pods import RunningPods
from flowcore.model.selectors import Labels, domain_value
from flowcore.model.volumes import Volumes

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Bytes of cached label columns, twice. At 12,500 nodes a column has 50 kB, and more with many values.
_LABEL_CACHE_BYTES = 2**26


@dataclass(frozen=True)
class LabelColumn:
    """The values of one label, or of several (``domain_value``): ``values[codes[i]]`` is the value of node i.

    Code -1 where it has none.
    """

    codes: NDArray[np.int32]
    values: tuple[str, ...]

    @cached_property
    def labelled(self) -> Bools:
        """bool[N]: nodes that have a value; not to be changed."""
        return self.codes >= 0

    @cached_property
    def domain_codes(self) -> Int64s:
        """int64[N]: the codes, with the number of values in place of -1; not to be changed."""
        return np.where(self.labelled, self.codes, len(self.values)).astype(np.int64)

    def updated(self, key: str, previous: Int64s, rows: Iterable[tuple[int, Labels]]) -> LabelColumn:
        """The column of another table: its nodes had these rows before (-1: new), and some rows have new labels."""
        codes = _gather(self.codes, previous, -1)
        code_of_value: dict[str, int] | None = None
        for i, labels in rows:
            value = domain_value(labels, key)
            if value is None:
                codes[i] = -1
            elif codes[i] < 0 or self.values[codes[i]] != value:
                if code_of_value is None:
                    code_of_value = {each: code for code, each in enumerate(self.values)}
                codes[i] = code_of_value.setdefault(value, len(code_of_value))
        return LabelColumn(codes, self.values if code_of_value is None else tuple(code_of_value))


@dataclass(frozen=True, slots=True)
class NodeTable:
    """The nodes as arrays, without their pods. A column of labels is made when it is first asked for."""

    nodes: tuple[Node, ...]
    index: Mapping[str, int]
    unschedulable: Bools
    unreadable: Bools
    taint_codes: NDArray[np.int32]
    taint_sets: tuple[tuple[Taint, ...], ...]
    _columns: GenerationalCache[str, LabelColumn] = field(
        default_factory=lambda: GenerationalCache(_LABEL_CACHE_BYTES), repr=False, compare=False
    )

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> NodeTable:
        """Nodes in the given order; of two nodes with one name the last counts."""
        ordered = tuple({node.name: node for node in nodes}.values())
        taint_sets: dict[tuple[Taint, ...], int] = {}
        codes = [taint_sets.setdefault(node.taints, len(taint_sets)) for node in ordered]
        return cls(
            nodes=ordered,
            index={node.name: i for i, node in enumerate(ordered)},
            unschedulable=np.array([node.unschedulable for node in ordered], dtype=np.bool_),
            unreadable=np.array([bool(node.problem) for node in ordered], dtype=np.bool_),
            taint_codes=np.array(codes, dtype=np.int32),
            taint_sets=tuple(taint_sets),
        )

    def updated(self, put: Iterable[Node], gone: Iterable[str] = ()) -> NodeTable:
        """The table with some nodes new or changed and others gone; its nodes are sorted by name.

        Costs what changed and a few copies of arrays. Where no node comes or goes, ``index`` and the order stay.
        """
        changed = {node.name: node for node in put}
        dropped = {name for name in gone if name in self.index} - changed.keys()
        if len(self.taint_sets) > 2 * len(self.nodes) + 100:  # sets that no node has any more pile up
            every = {node.name: node for node in self.nodes if node.name not in dropped} | changed
            return NodeTable.of(every[name] for name in sorted(every))
        index, previous = self.index, np.arange(len(self.nodes), dtype=np.int64)
        nodes = list(self.nodes)
        if dropped or not changed.keys() <= index.keys():
            index = {name: i for i, name in enumerate(sorted((index.keys() | changed.keys()) - dropped))}
            previous = np.array([self.index.get(name, -1) for name in index], dtype=np.int64)
            nodes = [changed[name] if name in changed else self.nodes[self.index[name]] for name in index]
        unschedulable, unreadable = _gather(self.unschedulable, previous, 0), _gather(self.unreadable, previous, 0)
        taint_codes, taint_sets = (
            _gather(self.taint_codes, previous, 0),
            {taints: i for i, taints in enumerate(self.taint_sets)},
        )
        for name, node in changed.items():
            i = index[name]
            nodes[i] = node
            unschedulable[i], unreadable[i] = node.unschedulable, bool(node.problem)
            taint_codes[i] = taint_sets.setdefault(node.taints, len(taint_sets))
        rows = [(index[name], node.labels) for name, node in changed.items()]
        most = 2 * len(self.nodes) + 100  # likewise
        columns = self._columns.mapped(
            lambda key, column: column.updated(key, previous, rows) if len(column.values) <= most else None
        )
        return NodeTable(tuple(nodes), index, unschedulable, unreadable, taint_codes, tuple(taint_sets), columns)

    def positions_in(self, older: NodeTable) -> NDArray[np.int64]:
        """int64[N]: the position of each node in another table; -1 where it is not there."""
        if older.index is self.index:
            return np.arange(len(self.nodes), dtype=np.int64)
        return np.array([older.index.get(node.name, -1) for node in self.nodes], dtype=np.int64)

    def column(self, key: str) -> LabelColumn:
        """The values of one label, or of several (``domain_value``), over all nodes, cached."""
        column = self._columns.get(key)
        if column is None:
            values: dict[str, int] = {}
            codes = np.full(len(self.nodes), -1, dtype=np.int32)
            for i, node in enumerate(self.nodes):
                value = domain_value(node.labels, key)
                if value is not None:
                    codes[i] = values.setdefault(value, len(values))
            column = LabelColumn(codes, tuple(values))
            self._columns.put(key, column, codes.nbytes + estimate_bytes(column.values))
        return column

    def has_column(self, key: str) -> bool:
        """Whether the values of a label were read."""
        return key in self._columns

    def age(self) -> None:
        """Drops the columns that were not read since the last call but one. To be called now and then."""
        self._columns.age()


class Victim(msgspec.Struct, frozen=True, gc=False):
    """A running pod whose place another pod takes: what it holds, and where (cluster/replaced_pod.py).

    Attributes:
        host_ports, volumes: those that no other pod of the node holds.
        has_left: the pod is gone and its room is held for the new pod. The other fields then describe the held room.
        unschedulable_reason: why the place cannot be taken whatever room there is; "": perhaps it can. All fields but
            the key are empty then.
        queue: name of the FlowQueue that its usage counts for; "": none.
        unrequested: see ``PodClass``.
    """

    key: str = ""
    node: str = ""
    usage: Amounts = ()
    host_ports: tuple[HostPort, ...] = ()
    signature: PodSignature = EMPTY_SIGNATURE
    volumes: Volumes = ()
    has_left: bool = False
    unschedulable_reason: str = ""
    queue: str = ""
    unrequested: Unrequested = ()

    @property
    def non_zero_usage(self) -> tuple[int, int]:
        """Cpu (milli-cores) and memory (bytes) that costs count for it."""
        return non_zero_requests(self.usage, self.unrequested)


class PendingPod(msgspec.Struct, frozen=True, gc=False):
    """A pod to be placed, under the policy that governs it.

    Attributes:
        gangs: names of its gangs (Snapshot.gangs).
        victim: the running pod whose place it takes and which leaves for it.
        plannable_since: when it could first be planned; 0: unknown, then ``created`` counts.
        preempts: whether running pods may be evicted for it (spec.preemptionPolicy).
        waits_for_leavers: pods of a lower priority leave the node that it is nominated for: nobody else leaves for it.
        queue: name of the FlowQueue that it counts for; "": none.
        foreseen: cpu (milli-cores) and memory (bytes) that it is expected to use; None: unknown, or of no interest.
    """

    key: str
    uid: str
    pod_class: PodClass
    policy: str
    created: float = 0.0
    signature: PodSignature = EMPTY_SIGNATURE
    gangs: tuple[str, ...] = ()
    victim: Victim | None = None
    plannable_since: float = 0.0
    preempts: bool = True
    queue: str = ""
    foreseen: tuple[int, int] | None = None
    waits_for_leavers: bool = False

    @property
    def waiting_since(self) -> float:
        """When ageing starts. A pod behind a scheduling gate of others does not age."""
        return self.plannable_since or self.created

    @property
    def came(self) -> tuple[float, float]:
        """Sorts equal pods by who came first. Within one second sorts keep the order of ``Snapshot.pending``."""
        return self.waiting_since, self.created


@dataclass(frozen=True)
class Snapshot:
    """Nodes, their usage, and the pods that wait.

    Attributes:
        generation: of the cluster's state; a plan names the generation that it was made from.
        now: seconds since the epoch, an argument like any other.
        allocatable, used: int64[N, R]; ``used`` includes reservations and may exceed ``allocatable``.
        non_zero_requested: int64[N, 2], cpu and memory as the cost model counts them (``non_zero_requests``).
        ports: host ports in use, by position of the node; without the nodes where there are none.
        storage: read by filters on volumes.
        pod_index: running pods and reservations, as rules between pods see them.
        reports: of the nodes; read by costs, not by filters.
        gangs: gangs of pending pods, by name.
        persistent_usage: the part of ``used`` that does not come free for waiting gangs; None: unknown, so all of it.
        backfill_history: how long room has been held for gangs so far.
        running: running pods that may leave their nodes; None: nobody may. ``used`` counts them in either case.
        queues: the FlowQueues, and what their pods hold; None: there are none.
        held_back: why limits of queues leave nothing for waiting pods before others leave, by key of the pod.
        measured: float64[N, 3], cpu (milli-cores), memory (bytes) and bandwidth (bits per second) that count as used by
            measurement (model/usage.py MeasuredLoad); NaN: not measured. None: nothing is.
        numa: what is free in the NUMA zones of nodes; None: no node reports them. Not to be changed.
        devices: what may be allocated of devices, and what is; not to be changed.
        takers: pods that a plan has placed and that take devices, in their order, beside those of ``devices``.
        columns: the resources that are devices; None: there are none.
    """

    generation: int
    now: float
    table: NodeTable
    resources: tuple[str, ...]
    allocatable: Int64s
    used: Int64s
    non_zero_requested: Int64s
    ports: Mapping[int, frozenset[HostPort]]
    pending: tuple[PendingPod, ...] = ()
    storage: Storage = field(default_factory=Storage)
    pod_index: PodIndex = field(default_factory=PodIndex)
    reports: Reports = field(default_factory=Reports)
    gangs: Mapping[str, Gang] = field(default_factory=dict)
    persistent_usage: tuple[PersistentUsage, ...] | None = ()
    backfill_history: BackfillHistory = NO_BACKFILL_HISTORY
    running: RunningPods | None = None
    queues: QueueState | None = None
    held_back: Mapping[str, str] = field(default_factory=dict)
    measured: NDArray[np.float64] | None = None
    numa: NumaRoom | None = None
    devices: DeviceObjects = field(default_factory=DeviceObjects)
    takers: tuple[DeviceTaker, ...] = ()
    columns: DeviceColumns | None = None

    @cached_property
    def free(self) -> Int64s:
        """int64[N, R]: allocatable - used; negative where a node is overcommitted. By column, not to be written to."""
        free = np.asfortranarray(self.allocatable - self.used)
        free.flags.writeable = False
        return free

    @cached_property
    def most_beyond_requests(self) -> tuple[int, int]:
        """Cpu (milli-cores) and memory (bytes) that costs count for a pod beyond its requests.

        The most of any pod that waits or may leave.
        """
        running = () if self.running is None else self.running.pods
        classes = {pod.pod_class for pod in self.pending} | {pod.pod_class for pod in running}
        beyond = [beyond_requests(each.requests, each.unrequested) for each in classes]
        return max((cpu for cpu, _ in beyond), default=0), max((memory for _, memory in beyond), default=0)

    def of_nodes(self, rows: Int64s) -> Snapshot:
        """A part of the nodes, for computations on each node by itself."""
        table = NodeTable.of(self.table.nodes[i] for i in rows.tolist())
        ports = {place: self.ports[i] for place, i in enumerate(rows.tolist()) if i in self.ports} if self.ports else {}
        return replace(
            self,
            table=table,
            allocatable=self.allocatable[rows],
            used=self.used[rows],
            non_zero_requested=self.non_zero_requested[rows],
            ports=ports,
            pending=(),
            measured=None if self.measured is None else self.measured[rows],
            numa=None if self.numa is None else self.numa.of_nodes(rows),
            columns=None if self.columns is None else self.columns.of_nodes(rows),
        )

    @property
    def plain_resources(self) -> tuple[str, ...]:
        """The resources that nodes offer themselves, without columns of devices."""
        devices = 0 if self.columns is None else len(self.columns.names)
        return self.resources[: len(self.resources) - devices]

    def vector(self, amounts: Amounts) -> Int64s:
        """int64[R]: amounts in the columns of this snapshot, and 1 in the column ``pods`` unless they say 0.

        A resource that no node offers has no column: NodeResourcesFit rejects every node for it by name.
        """
        row = np.zeros(len(self.resources), dtype=np.int64)
        row[self.resources.index(PODS)] = 1
        for name, amount in amounts:
            if name in self.resources:
                row[self.resources.index(name)] = amount
        return row

    def with_usage(
        self, used: Int64s, non_zero_requested: Int64s, ports: Mapping[int, frozenset[HostPort]], pod_index: PodIndex
    ) -> Snapshot:
        """The same nodes with other pods on them and nothing pending.

        What comes or goes changes what is measured as it changes what is requested: nobody has measured it yet.
        """
        measured = self.measured
        if measured is not None:
            measured = measured.copy()
            measured[:, :2] = np.maximum(measured[:, :2] + (non_zero_requested - self.non_zero_requested), 0.0)
        return replace(
            self,
            used=used,
            non_zero_requested=non_zero_requested,
            ports=ports,
            pod_index=pod_index,
            pending=(),
            measured=measured,
        )


def _gather(values: NDArray[Any], positions: Int64s, missing: int) -> NDArray[Any]:
    """A copy of the entries at these positions; ``missing`` where a position is -1."""
    gathered = np.full(len(positions), missing, dtype=values.dtype)
    known = positions >= 0
    gathered[known] = values[positions[known]]
    return gathered
