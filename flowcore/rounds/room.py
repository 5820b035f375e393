"""The room left on the nodes while a round commits placements: the one mutable thing in it.

Every placement of every method goes through ``take`` or ``take_all``, which let nothing in that does not fit, or, where
``space`` said just before how many fit, through ``take_many``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from flowcore.costs.model import Load
from flowcore.filters.node_ports import clash
from flowcore.filters.node_resources_fit import count_fitting
from flowcore.model.neighbours import Kind
from flowcore.model.pods import HostPort
from flowcore.model.resources import BANDWIDTH, PODS
from flowcore.model.snapshot import Bools, Int64s, Snapshot
from flowcore.rounds.demands import Demand
from flowcore.rounds.topology import UNLIMITED, Counts


class Room:
    """Free resources and host ports of a snapshot, shrinking as pods are committed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._load, self._free = Load.of(snapshot), snapshot.free
        self._pods = snapshot.resources.index(PODS)
        self._bandwidth = snapshot.resources.index(BANDWIDTH) if BANDWIDTH in snapshot.resources else None
        self._changes: list[Int64s] = []
        self.free: Int64s = snapshot.free
        self.assumed: Int64s = snapshot.assumed.copy()
        self.ports: dict[int, frozenset[HostPort]] = dict(snapshot.ports)
        self.together = Counts()

    def copy(self) -> Room:
        """An independent copy, in which the same has changed."""
        other = Room(self._snapshot)
        other._changes = [np.unique(np.concatenate(self._changes))] if self._changes else []
        other.free, other.assumed, other.ports = self.free.copy(), self.assumed.copy(), dict(self.ports)
        other.together = self.together.copy()
        return other

    @property
    def snapshot(self) -> Snapshot:
        """As it was before the first commit."""
        return self._snapshot

    def load(self) -> Load:
        """How full the nodes are."""
        return self._load_of(slice(None))

    def load_at(self, nodes: Int64s) -> Load:
        """How full these nodes are."""
        return self._load_of(nodes)

    def _load_of(self, nodes: Int64s | slice) -> Load:
        start = self._load
        taken = start.taken[nodes].copy()
        taken[:, :2] = self.assumed[nodes]
        if self._bandwidth is not None:
            taken[:, 2] += self._free[nodes, self._bandwidth] - self.free[nodes, self._bandwidth]
        pods = start.pods[nodes] + (self._free[nodes, self._pods] - self.free[nodes, self._pods])
        return Load(start.table, start.capacity[nodes], taken, start.pods_allowed[nodes], pods)

    @property
    def changes(self) -> int:
        """How often something was committed."""
        return len(self._changes)

    def changed_since(self, change: int) -> Bools | None:
        """bool[N]: nodes that commits after that many changed; None where there were none."""
        recent = self._changes[change:]
        if not recent:
            return None
        touched = np.zeros(len(self.free), dtype=np.bool_)
        touched[np.concatenate(recent)] = True
        return touched

    def counts(self, demand: Demand) -> Int64s:
        """int64[N]: how many pods of the group each node takes now if all go there, by space and by rules."""
        space = self.space(demand)
        return np.minimum(space, self.together.most(demand.ties)) if demand.ties.bound else space

    def space(self, demand: Demand) -> Int64s:
        """int64[N]: how many pods of the group each node has room for, one at most where host ports are held.

        Not to be written to.
        """
        if not self._changes:
            return demand.counts
        fitting = np.where(demand.allowed, count_fitting(demand.wanted, self.free), 0)
        ports = demand.group.pod_class.host_ports
        if ports:
            fitting = np.minimum(fitting, 1)
            for at, taken in self.ports.items():
                if fitting[at] and clash(ports, taken):
                    fitting[at] = 0
        return fitting

    def space_at(self, demand: Demand, nodes: Int64s) -> Int64s:
        """``space`` of these nodes only, int64[len(nodes)]."""
        fitting = np.where(demand.allowed[nodes], count_fitting(demand.wanted, self.free[nodes]), 0)
        ports = demand.group.pod_class.host_ports
        if ports:
            fitting = np.minimum(fitting, 1)
            for place, node in enumerate(nodes.tolist()):
                if fitting[place] and clash(ports, self.ports.get(node, ())):
                    fitting[place] = 0
        return fitting

    def count_on(self, demand: Demand, at: int, most: int = UNLIMITED) -> int:
        """``counts`` of one node, or ``most`` where that is less."""
        if not demand.allowed[at]:
            return 0
        asked = demand.wanted > 0
        fitting = min(most, max(0, int((self.free[at, asked] // demand.wanted[asked]).min())))
        if fitting and demand.ties.bound:
            fitting = self.together.most_at(demand.ties, at, fitting)
        ports = demand.group.pod_class.host_ports
        if ports and fitting:
            return 0 if clash(ports, self.ports.get(at, ())) else 1
        return fitting

    def take(self, demand: Demand, at: int, count: int) -> int:
        """Commits up to ``count`` pods to a node; returns how many it took."""
        taken = self.count_on(demand, at, count)
        if taken:
            self.together.feed(demand.ties, at, taken)
            self._changes.append(np.array([at], dtype=np.int64))
            self.free[at] -= demand.wanted * taken
            self.assumed[at] += demand.size[:2].astype(np.int64) * taken
            ports = demand.group.pod_class.host_ports
            if ports:
                self.ports[at] = self.ports.get(at, frozenset()) | frozenset(ports)
        return taken

    def take_many(self, demand: Demand, nodes: Int64s, counts: Int64s) -> None:
        """Commits pods of one group that no rule binds to several nodes, each at most ``counts`` of that node.

        Args:
            nodes, counts: int64[M], each node once.
        """
        self._changes.append(nodes)
        self.together.feed_all(demand.ties, nodes, counts)
        self.free[nodes] -= demand.wanted * counts[:, np.newaxis]
        self.assumed[nodes] += demand.size[:2].astype(np.int64) * counts[:, np.newaxis]
        ports = demand.group.pod_class.host_ports
        if ports:
            for node in nodes.tolist():
                self.ports[node] = self.ports.get(node, frozenset()) | frozenset(ports)

    def hold(self, demand: Demand, node: int, count: int) -> None:
        """Keeps room for so many pods out, without placing them; below zero: gives it back. No rule counts them."""
        self._changes.append(np.array([node], dtype=np.int64))
        self.free[node] -= demand.wanted * count

    def give_back(self, demand: Demand, nodes: Int64s, counts: Int64s) -> None:
        """Undoes ``take_many`` for pods without host ports."""
        self.take_many(demand, nodes, -counts)

    def take_all(self, demands: Sequence[Demand], classes: Int64s, nodes: Int64s, counts: Int64s) -> Bools:
        """Commits arcs whose nodes have room for everything planned there; leaves the other nodes alone.

        Args:
            classes, nodes, counts: int64[M], the arcs of a plan; ``classes`` indexes ``demands``.

        Returns:
            bool[M]: which arcs were committed.
        """
        wanted = np.array([demand.wanted for demand in demands], dtype=np.int64)
        size = np.array([demand.size[:2] for demand in demands]).astype(np.int64)
        # Ports and rules between pods are decided one by one.
        alone = np.array([bool(each.group.pod_class.host_ports) or each.ties.bound for each in demands], dtype=np.bool_)
        asked = wanted[classes] * counts[:, np.newaxis]
        places, at = np.unique(nodes, return_inverse=True)
        total = np.zeros((len(places), wanted.shape[1]), dtype=np.int64)
        np.add.at(total, at, asked)
        # Each arc fits alone, but amounts near 2^63 may overflow in the sum: those go one by one.
        rough = np.zeros(total.shape)
        np.add.at(rough, at, asked.astype(np.float64))
        whole = (((total <= self.free[places]) & (rough < 2.0**62)) | (rough == 0)).all(axis=1)
        whole[at[alone[classes]]] = False
        chosen: Bools = whole[at]
        self._changes.append(nodes[chosen])
        np.subtract.at(self.free, nodes[chosen], asked[chosen])
        np.add.at(self.assumed, nodes[chosen], (size[classes] * counts[:, np.newaxis])[chosen])
        for place, demand in enumerate(demands):
            if demand.ties.feeds:
                mine = chosen & (classes == place)
                self.together.feed_all(demand.ties, nodes[mine], counts[mine])
        return chosen

    def as_snapshot(self, placed: Iterable[tuple[str, Kind]]) -> Snapshot:
        """The snapshot as it is after the commits.

        Args:
            placed: node name and kind of each pod that was committed.
        """
        snapshot = self._snapshot
        used = snapshot.allocatable - self.free
        return snapshot.with_usage(used, self.assumed, self.ports, snapshot.neighbours.plus(placed))
