"""One consistent view of a cluster, with arrays.

``N`` nodes in a fixed order, ``R`` resources: the base ones first, then every extended resource that a
node offers or a pending pod asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from flowcore.model.gangs import Gang
from flowcore.model.holds import NO_HOLDS, Holds
from flowcore.model.lasting import Lasting
from flowcore.model.neighbours import ANY_KIND, Kind, Neighbours
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import HostPort, PodClass
from flowcore.model.recent import Recent, weigh
from flowcore.model.reports import Reports
from flowcore.model.resources import BASE_RESOURCES, CPU, MEMORY, PODS, Amounts
from flowcore.model.selectors import Labels, value_of
from flowcore.model.storage import Storage
from flowcore.model.volumes import Volumes

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: What a pod without a request counts as in the cost model, so that such pods spread too:
#: kube-scheduler's DefaultMilliCPURequest and DefaultMemoryRequest (pkg/scheduler/util/pod_resources.go).
ASSUMED_CPU, ASSUMED_MEMORY = 100, 200 * 1024 * 1024
#: Bytes of the columns of labels that are kept, twice. At 12,500 nodes one is 50 kB, and more with many values.
_LABEL_BYTES = 2**26
#: More than this costs no more: sums of it over a node's pods stay within int64, and exact as floats.
MOST_ASSUMED = 2**50


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """All nodes' values of one label: ``values[codes[i]]`` is node i's, code -1 where it has none."""

    codes: NDArray[np.int32]
    values: tuple[str, ...]

    def updated(self, key: str, at: Int64s, rows: Iterable[tuple[int, Labels]]) -> LabelColumn:
        """The column of other nodes: those that were at ``at`` (-1: nowhere), with the labels of some rows set anew."""
        codes = _taken(self.codes, at, -1)
        places: dict[str, int] | None = None
        for i, labels in rows:
            value = next((value for name, value in labels if name == key), None)
            if value is None:
                codes[i] = -1
            elif codes[i] < 0 or self.values[codes[i]] != value:
                if places is None:
                    places = {each: code for code, each in enumerate(self.values)}
                codes[i] = places.setdefault(value, len(places))
        return LabelColumn(codes, self.values if places is None else tuple(places))


@dataclass(frozen=True, slots=True)
class NodeTable:
    """The nodes as arrays, without what runs on them. Columns of labels are made when first asked for."""

    nodes: tuple[Node, ...]
    index: Mapping[str, int]
    unschedulable: Bools
    unsound: Bools
    taint_codes: NDArray[np.int32]
    taint_sets: tuple[tuple[Taint, ...], ...]
    _columns: Recent[str, LabelColumn] = field(default_factory=lambda: Recent(_LABEL_BYTES), repr=False, compare=False)

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> NodeTable:
        """Nodes in the order given; a name that comes twice keeps its last node."""
        ordered = tuple({node.name: node for node in nodes}.values())
        taint_sets: dict[tuple[Taint, ...], int] = {}
        codes = [taint_sets.setdefault(node.taints, len(taint_sets)) for node in ordered]
        return cls(
            nodes=ordered,
            index={node.name: i for i, node in enumerate(ordered)},
            unschedulable=np.array([node.unschedulable for node in ordered], dtype=np.bool_),
            unsound=np.array([bool(node.problem) for node in ordered], dtype=np.bool_),
            taint_codes=np.array(codes, dtype=np.int32),
            taint_sets=tuple(taint_sets),
        )

    def updated(self, put: Iterable[Node], gone: Iterable[str] = ()) -> NodeTable:
        """The table with these nodes new or changed and those gone, its nodes by name.

        Costs what changed and a few copies of arrays. Where no node comes or goes, ``index`` stays the same object.
        """
        changed = {node.name: node for node in put}
        dropped = {name for name in gone if name in self.index} - changed.keys()
        if len(self.taint_sets) > 2 * len(self.nodes) + 100:  # sets that no node has any more pile up
            every = {node.name: node for node in self.nodes if node.name not in dropped} | changed
            return NodeTable.of(every[name] for name in sorted(every))
        index, at = self.index, np.arange(len(self.nodes), dtype=np.int64)
        nodes = list(self.nodes)
        if dropped or not changed.keys() <= index.keys():
            index = {name: i for i, name in enumerate(sorted((index.keys() | changed.keys()) - dropped))}
            at = np.array([self.index.get(name, -1) for name in index], dtype=np.int64)
            nodes = [changed[name] if name in changed else self.nodes[self.index[name]] for name in index]
        unschedulable, unsound = _taken(self.unschedulable, at, 0), _taken(self.unsound, at, 0)
        taint_codes, taint_sets = _taken(self.taint_codes, at, 0), {each: i for i, each in enumerate(self.taint_sets)}
        for name, node in changed.items():
            i = index[name]
            nodes[i] = node
            unschedulable[i], unsound[i] = node.unschedulable, bool(node.problem)
            taint_codes[i] = taint_sets.setdefault(node.taints, len(taint_sets))
        rows = [(index[name], node.labels) for name, node in changed.items()]
        most = 2 * len(self.nodes) + 100  # likewise
        columns = self._columns.mapped(
            lambda key, column: column.updated(key, at, rows) if len(column.values) <= most else None
        )
        return NodeTable(tuple(nodes), index, unschedulable, unsound, taint_codes, tuple(taint_sets), columns)

    def places_in(self, older: NodeTable) -> NDArray[np.int64]:
        """int64[N]: where each node was in another table, -1 where it was not."""
        if older.index is self.index:
            return np.arange(len(self.nodes), dtype=np.int64)
        return np.array([older.index.get(node.name, -1) for node in self.nodes], dtype=np.int64)

    def column(self, key: str) -> LabelColumn:
        """The values of one label over all nodes."""
        column = self._columns.get(key)
        if column is None:
            values: dict[str, int] = {}
            codes = np.full(len(self.nodes), -1, dtype=np.int32)
            for i, node in enumerate(self.nodes):
                value = value_of(node.labels, key)
                if value is not None:
                    codes[i] = values.setdefault(value, len(values))
            column = LabelColumn(codes, tuple(values))
            self._columns.put(key, column, codes.nbytes + weigh(column.values))
        return column

    def age(self) -> None:
        """To be called now and then: forgets the labels that nobody asked for since the last call but one."""
        self._columns.age()


class Replaced(msgspec.Struct, frozen=True, gc=False):
    """A running pod whose place another is to take: what it holds, and where (model/replacing.py).

    Attributes:
        host_ports, volumes: what no other pod of the node holds.
        left: it has left, and what it held is kept for the new pod: that is what is described here.
        flaw: why its place cannot be taken, whatever room there is; "": perhaps it can. The rest is empty then.
    """

    key: str = ""
    node: str = ""
    usage: Amounts = ()
    host_ports: tuple[HostPort, ...] = ()
    kind: Kind = ANY_KIND
    volumes: Volumes = ()
    left: bool = False
    flaw: str = ""


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod to be placed, under the policy that governs it.

    Attributes:
        gangs: names of the gangs that it belongs to (Snapshot.gangs).
        replaces: the running pod whose place it takes, which leaves when this one comes.
        since: when it could first be planned, 0: not known, so as long as it exists.
    """

    key: str
    uid: str
    pod_class: PodClass
    policy: str
    created: float = 0.0
    kind: Kind = ANY_KIND
    gangs: tuple[str, ...] = ()
    replaces: Replaced | None = None
    since: float = 0.0

    @property
    def waits_since(self) -> float:
        """What ageing counts from: nobody ages behind a gate of one's own."""
        return self.since or self.created


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Nodes, what is taken on them, and what waits.

    Attributes:
        generation: which state of the cluster this is; a plan names the one it was made from.
        now: seconds since the epoch, an argument like any other.
        allocatable, used: int64[N, R]; ``used`` includes reservations. Used may exceed allocatable.
        assumed: int64[N, 2], cpu and memory as the cost model counts them (see ASSUMED_CPU).
        ports: host ports taken, for the nodes that have any.
        storage: what filters on volumes read.
        neighbours: the pods that run there, reservations too, as rules between pods see them.
        reports: what the nodes tell of themselves; costs read it, filters do not.
        gangs: those that waiting pods belong to, by name.
        lasting: what of ``used`` does not come free for gangs that wait; None: nothing is known to come free.
        holds: how long room has been kept for gangs so far.
    """

    generation: int
    now: float
    table: NodeTable
    resources: tuple[str, ...]
    allocatable: Int64s
    used: Int64s
    assumed: Int64s
    ports: Mapping[int, frozenset[HostPort]]
    pending: tuple[PendingPod, ...] = ()
    storage: Storage = field(default_factory=Storage)
    neighbours: Neighbours = field(default_factory=Neighbours)
    reports: Reports = field(default_factory=Reports)
    gangs: Mapping[str, Gang] = field(default_factory=dict)
    lasting: tuple[Lasting, ...] | None = ()
    holds: Holds = NO_HOLDS

    @property
    def free(self) -> Int64s:
        """int64[N, R]: allocatable less used; negative where a node is overcommitted already."""
        return self.allocatable - self.used

    def of_nodes(self, at: Int64s) -> Snapshot:
        """These nodes alone, for what looks at each node by itself; what runs elsewhere is not told."""
        table = NodeTable.of(self.table.nodes[i] for i in at.tolist())
        ports = {place: self.ports[i] for place, i in enumerate(at.tolist()) if i in self.ports} if self.ports else {}
        return replace(
            self,
            table=table,
            allocatable=self.allocatable[at],
            used=self.used[at],
            assumed=self.assumed[at],
            ports=ports,
            pending=(),
        )

    def vector(self, amounts: Amounts) -> Int64s:
        """int64[R]: amounts in this snapshot's columns, with one pod in ``pods``.

        A resource that no node offers has no column: NodeResourcesFit rejects every node for it by its name.
        """
        row = np.zeros(len(self.resources), dtype=np.int64)
        for name, amount in amounts:
            if name in self.resources:
                row[self.resources.index(name)] = amount
        row[self.resources.index(PODS)] = 1
        return row

    def with_usage(
        self, used: Int64s, assumed: Int64s, ports: Mapping[int, frozenset[HostPort]], neighbours: Neighbours
    ) -> Snapshot:
        """The same cluster with other pods on its nodes and nothing pending."""
        return replace(self, used=used, assumed=assumed, ports=ports, neighbours=neighbours, pending=())


def _taken(values: NDArray[Any], at: Int64s, missing: int) -> NDArray[Any]:
    """A copy of the entries at ``at``, with something else where that is -1."""
    found = np.full(len(at), missing, dtype=values.dtype)
    there = at >= 0
    found[there] = values[at[there]]
    return found


def assumed_amounts(requests: Amounts) -> tuple[int, int]:
    """Cpu (milli) and memory (bytes) that the cost model counts for a pod."""
    found = dict(requests)
    cpu, memory = found.get(CPU, 0) or ASSUMED_CPU, found.get(MEMORY, 0) or ASSUMED_MEMORY
    return min(cpu, MOST_ASSUMED), min(memory, MOST_ASSUMED)


def build_snapshot(
    *,
    generation: int,
    now: float,
    table: NodeTable,
    running: Iterable[tuple[str, Amounts, tuple[HostPort, ...]]],
    pending: tuple[PendingPod, ...],
    storage: Storage | None = None,
    neighbours: Neighbours | None = None,
) -> Snapshot:
    """A snapshot from values.

    Args:
        running: node name, amounts and host ports of each pod that holds room; nodes not in the table
            are passed over.
        neighbours: the same pods as rules between pods see them; None where no rule is to be asked.
    """
    names = set(BASE_RESOURCES)
    for node in table.nodes:
        names.update(name for name, _ in node.allocatable)
    resources = BASE_RESOURCES + tuple(sorted(names.difference(BASE_RESOURCES)))
    column = {name: i for i, name in enumerate(resources)}
    count = len(table.nodes)
    allocatable = np.zeros((count, len(resources)), dtype=np.int64)
    for i, node in enumerate(table.nodes):
        for name, amount in node.allocatable:
            allocatable[i, column[name]] = amount
    taken = [[0] * len(resources) for _ in range(count)]  # Python integers: sums of int64s may exceed int64
    assumed = [[0, 0] for _ in range(count)]
    ports: dict[int, frozenset[HostPort]] = {}
    for node_name, amounts, host_ports in running:
        at = table.index.get(node_name)
        if at is None:
            continue
        for name, amount in amounts:
            where = column.get(name)
            if where is not None:
                taken[at][where] += amount
        taken[at][column[PODS]] += 1
        cpu, memory = assumed_amounts(amounts)
        assumed[at][0] += cpu
        assumed[at][1] += memory
        if host_ports:
            ports[at] = ports.get(at, frozenset()) | frozenset(host_ports)
    return Snapshot(
        generation=generation,
        now=now,
        table=table,
        resources=resources,
        allocatable=allocatable,
        used=to_int64(taken, len(resources)),
        assumed=to_int64(assumed, 2),
        ports=ports,
        pending=pending,
        storage=storage or Storage(),
        neighbours=Neighbours() if neighbours is None else neighbours,
        reports=Reports.of(table.nodes),
    )


def to_int64(rows: list[list[int]], width: int) -> Int64s:
    """int64[N, width] of Python integers, capped at int64."""
    limit = 2**63 - 1
    capped = [[min(value, limit) for value in row] for row in rows]
    return np.array(capped, dtype=np.int64).reshape(len(rows), width)
