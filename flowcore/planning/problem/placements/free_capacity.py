"""The room left on the nodes while a round commits placements: the one mutable thing in it.

Every placement of every method goes through ``place`` or ``place_all``, which let nothing in that does not fit, or, if
``fit_counts`` said just before how many fit, through ``place_many``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.claim_scores import NO_CLAIM_COSTS
from flowcore.costs.model import Load
from flowcore.costs.potential import NodePotential
from flowcore.model.cost_policy import Utilisation
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import HostPort
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.device_room import DeviceRoom
from flowcore.planning.problem.placements.volume_room import VolumeRoom
from flowcore.planning.problem.placements.zone_room import ZoneRoom
from flowcore.rules.filters.node_ports import clash
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.topology.domain_limits import UNLIMITED
from flowcore.rules.topology.round_constraints.domain_counts import DomainCounts

#: Where more than one node in this number changed, all are computed: that is faster than to gather some.
_MOSTLY = 4


class FreeCapacity:
    """Free resources and host ports of a snapshot, shrinking as pods are committed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        #: As the round begins, by what it is made of.
        self._loads: dict[Utilisation, Load] = {}
        #: How often something was committed, and int64[N] after how many commits each node changed last.
        self.changes = 0
        self._changed_at: Int64s = np.zeros(len(snapshot.table.nodes), dtype=np.int64)
        self.free: Int64s = snapshot.free.copy("F")
        #: What pods of the round count for, int64[N, 4], by the potential that prices them (Demand.counted).
        self._planned: dict[NodePotential, Int64s] = {}
        #: Values of potentials as the round begins; those of now, and how many of the changes are in there.
        self._start_values: dict[NodePotential, Int64s] = {}
        self._values: dict[NodePotential, tuple[Int64s, int]] = {}
        #: By how much a pod of a size increases a potential on each node, and how many of the changes are in there.
        self._increases: dict[tuple[NodePotential, bytes], tuple[Int64s, int]] = {}
        self.ports: dict[int, frozenset[HostPort]] = dict(snapshot.ports)
        self.domain_counts = DomainCounts()
        self._zones = ZoneRoom(snapshot.numa)
        self._devices = DeviceRoom(snapshot)
        self._volumes = VolumeRoom(snapshot)

    def copy(self) -> FreeCapacity:
        """An independent copy, in which the same has changed."""
        copied = FreeCapacity(self._snapshot)
        copied._loads, copied._start_values = self._loads, self._start_values
        copied.changes, copied._changed_at = self.changes, self._changed_at.copy()
        copied.free, copied.ports = self.free.copy("F"), dict(self.ports)
        copied._planned = {potential: planned.copy("F") for potential, planned in self._planned.items()}
        copied.domain_counts = self.domain_counts.copy()
        copied._zones, copied._devices = self._zones.shared(), self._devices.shared()
        copied._volumes = self._volumes.shared()
        return copied

    @property
    def snapshot(self) -> Snapshot:
        """As it was before the first commit."""
        return self._snapshot

    def load(self, utilisation: Utilisation = Utilisation.REQUESTED) -> Load:
        """How full the nodes are, with all that was committed."""
        load = self._start(utilisation)
        for planned in self._planned.values():
            load = replace(load, taken=load.taken + planned[:, :3], pods=load.pods + planned[:, 3])
        return load

    def load_at(self, nodes: Int64s, potential: NodePotential, more: Int64s | None = None) -> Load:
        """How full these nodes are for pods of one potential: with what ran, and with those that are priced alike.

        Args:
            more: int64[len(nodes), 4], so much more on each (Demand.counted).
        """
        start, planned = self._start(potential.utilisation), self._planned.get(potential)
        added = more if planned is None else planned[nodes] if more is None else planned[nodes] + more
        return start.at(nodes) if added is None else start.at(nodes, added[:, :3], added[:, 3])

    def _start(self, utilisation: Utilisation) -> Load:
        start = self._loads.get(utilisation)
        if start is None:
            start = self._loads[utilisation] = Load.of(self._snapshot, utilisation)
        return start

    def load_of(self, potential: NodePotential) -> Load:
        """``load_at`` of all nodes."""
        start, planned = self._start(potential.utilisation), self._planned.get(potential)
        if planned is None:
            return start
        return replace(start, taken=start.taken + planned[:, :3], pods=start.pods + planned[:, 3])

    def next_increase(self, demand: Demand) -> Int64s:
        """int64[N]: what the demand's next pod pays on each node beside its arc.

        That is by how much it increases the potential, and by how much dearer than as the round began is what its
        claims get there.
        """
        planned = self._planned.get(demand.potential)
        increase, added = demand.first_increase, self.claims_cost_at(demand, np.arange(len(self.free)))
        if planned is not None:
            increase, nodes = increase.copy(), np.nonzero(planned[:, 3])[0]
            increase[nodes] = self._potential_increase_at(demand, nodes)
        return increase if added is None else increase + added

    def next_increase_at(self, demand: Demand, nodes: Int64s) -> Int64s:
        """``next_increase`` of these nodes only, int64[len(nodes)]."""
        increase, added = self._potential_increase_at(demand, nodes), self.claims_cost_at(demand, nodes)
        return increase if added is None else increase + added

    def _potential_increase_at(self, demand: Demand, nodes: Int64s) -> Int64s:
        # Many demands are of one size: what is known for one is known for all.
        key = demand.potential, demand.size.tobytes()
        increases, seen = self._increases.get(key, (demand.first_increase, 0))
        stale = np.nonzero(self.is_changed(seen))[0]
        if len(stale) > len(nodes) or not demand.is_priced:
            return self._computed_increase_at(demand, nodes)
        if len(stale):
            increases = increases if seen else increases.copy()
            increases[stale] = self._computed_increase_at(demand, stale)
            self._increases[key] = increases, self.changes
        increase: Int64s = increases[nodes]
        return increase

    def _computed_increase_at(self, demand: Demand, nodes: Int64s) -> Int64s:
        potential = demand.potential
        before = self._values_of(potential)
        if len(nodes) * _MOSTLY > len(before):
            increase: Int64s = potential.increase(self.load_of(potential), demand.size, before)[nodes]
            return increase
        return potential.increase(self.load_at(nodes, potential), demand.size, before[nodes])

    def _values_of(self, potential: NodePotential) -> Int64s:
        """int64[N]: the potential of all nodes as they are."""
        if potential not in self._start_values:
            self._start_values[potential] = potential.values(self._start(potential.utilisation))
        values, seen = self._values.get(potential, (self._start_values[potential], 0))
        if seen < self.changes:
            nodes = np.nonzero(self.is_changed(seen))[0]
            values = values if seen else values.copy()
            values[nodes] = potential.values(self.load_at(nodes, potential))
            self._values[potential] = values, self.changes
        return values

    def _planned_of(self, potential: NodePotential) -> Int64s:
        planned = self._planned.get(potential)
        if planned is None:
            planned = self._planned[potential] = np.zeros((len(self.free), 4), dtype=np.int64, order="F")
        return planned

    def is_changed(self, since: int) -> Bools:
        """bool[N]: nodes that changed after the first ``since`` commits."""
        changed: Bools = self._changed_at > since
        return changed

    def _note_change(self, nodes: Int64s | int) -> None:
        self.changes += 1
        self._changed_at[nodes] = self.changes

    def take_claimed(self, demand: Demand, nodes: Int64s, counts: Int64s) -> None:
        """Devices and volumes of pods that come to nodes, int64[M], or leave where a count is below zero.

        Some devices and some volumes can be had on several nodes.
        """
        touches_all = self._devices.take(demand, nodes, counts)
        if self._volumes.take(demand, nodes, counts) or touches_all:
            self._note_change(np.arange(len(self.free)))

    def claims_cost_at(self, demand: Demand, nodes: Int64s) -> Int64s | None:
        """int64[len(nodes)]: how much dearer what a demand's next pod gets there is than as the round began.

        None: there is no difference. Below zero: cheaper.
        """
        if demand.claims is NO_CLAIM_COSTS:
            return None
        of_devices, of_volumes = self._devices.added_cost(demand, nodes), self._volumes.added_cost(demand, nodes)
        if of_devices is None or of_volumes is None:
            return of_volumes if of_devices is None else of_devices
        return of_devices + of_volumes

    def max_pods(self, demand: Demand) -> Int64s:
        """int64[N]: how many pods of the group each node takes now if all go there, by space and by rules."""
        space = self.fit_counts(demand)
        return (
            np.minimum(space, self.domain_counts.max_pods(demand.constraints))
            if demand.constraints.constrained
            else space
        )

    def fit_counts(self, demand: Demand) -> Int64s:
        """int64[N]: how many pods of the group each node has room for, one at most where host ports are held.

        Not to be written to.
        """
        if not self.changes:
            return demand.counts
        counts, nodes = demand.counts.copy(), np.nonzero(self.is_changed(0))[0]
        counts[nodes] = self.fit_counts_at(demand, nodes)
        return counts

    def fit_counts_at(self, demand: Demand, nodes: Int64s) -> Int64s:
        """``fit_counts`` of these nodes only, int64[len(nodes)]."""
        fitting = np.where(demand.allowed[nodes], count_fitting(demand.requests, self.free.T[:, nodes].T), 0)
        fitting = self._devices.limit(demand, self._zones.limit(demand, fitting, nodes), nodes)
        fitting = self._volumes.limit(demand, fitting, nodes)
        ports = demand.group.pod_class.host_ports
        if ports:
            fitting = np.minimum(fitting, 1)
            for place, node in enumerate(nodes.tolist()):
                if fitting[place] and clash(ports, self.ports.get(node, ())):
                    fitting[place] = 0
        return fitting

    def has_room_at(self, demand: Demand, nodes: Int64s) -> Bools:
        """bool[len(nodes)]: which of these nodes have room for a pod of the group."""
        if not demand.group.pod_class.fits_by_amounts:
            return self.fit_counts_at(demand, nodes) > 0
        fits: Bools = demand.allowed[nodes]
        for column in np.nonzero(demand.requests > 0)[0].tolist():
            fits &= self.free[:, column][nodes] >= demand.requests[column]
        return fits

    def max_pods_at(self, demand: Demand, node: int, limit: int = UNLIMITED) -> int:
        """``max_pods`` of one node, or ``limit`` where that is less."""
        if not demand.allowed[node]:
            return 0
        asked = demand.requests > 0
        fitting = min(limit, max(0, int((self.free[node, asked] // demand.requests[asked]).min())))
        if fitting and demand.group.pod_class.numa is not None:
            fitting = int(self._zones.limit(demand, np.array([fitting]), np.array([node]))[0])
        if fitting and demand.group.pod_class.devices is not None:
            fitting = int(self._devices.limit(demand, np.array([fitting]), np.array([node]))[0])
        if fitting and demand.group.pod_class.contends_for_volumes:
            fitting = int(self._volumes.limit(demand, np.array([fitting]), np.array([node]))[0])
        if fitting and demand.constraints.constrained:
            fitting = self.domain_counts.max_pods_at(demand.constraints, node, fitting)
        ports = demand.group.pod_class.host_ports
        if ports and fitting:
            return 0 if clash(ports, self.ports.get(node, ())) else 1
        return fitting

    def place(self, demand: Demand, node: int, count: int) -> int:
        """Commits up to ``count`` pods to a node; returns how many it took."""
        taken = self.max_pods_at(demand, node, count)
        if taken:
            self.domain_counts.increment(demand.constraints, node, taken)
            self._note_change(node)
            self.free[node] -= demand.requests * taken
            self._planned_of(demand.potential)[node] += demand.counted * taken
            if demand.group.pod_class.numa is not None:
                self._zones.take(demand, np.array([node]), np.array([taken]))
            self.take_claimed(demand, np.array([node]), np.array([taken]))
            ports = demand.group.pod_class.host_ports
            if ports:
                self.ports[node] = self.ports.get(node, frozenset()) | frozenset(ports)
        return taken

    def place_many(self, demand: Demand, nodes: Int64s, counts: Int64s) -> None:
        """Commits pods of a group without rules to several nodes, to each at most the number that fits there.

        Args:
            nodes, counts: int64[M], each node once.
        """
        self._note_change(nodes)
        self.domain_counts.increment_all(demand.constraints, nodes, counts)
        self.free[nodes] -= demand.requests * counts[:, np.newaxis]
        self._planned_of(demand.potential)[nodes] += demand.counted * counts[:, np.newaxis]
        self._zones.take(demand, nodes, counts)
        self.take_claimed(demand, nodes, counts)
        ports = demand.group.pod_class.host_ports
        if ports:
            for node in nodes.tolist():
                self.ports[node] = self.ports.get(node, frozenset()) | frozenset(ports)

    def place_one_each(self, demands: Sequence[Demand], nodes: Int64s) -> None:
        """Commits a pod of each of some demands that fit by amounts alone, where there is room for it.

        Args:
            nodes: int64[len(demands)], each node once.
        """
        self._note_change(nodes)
        self.free[nodes] -= np.array([demand.requests for demand in demands])
        by_potential: dict[NodePotential, list[int]] = {}
        for place, demand in enumerate(demands):
            by_potential.setdefault(demand.potential, []).append(place)
            if demand.constraints.increments:
                self.domain_counts.increment(demand.constraints, int(nodes[place]), 1)
        for potential, places in by_potential.items():
            counted = np.array([demands[place].counted for place in places])
            self._planned_of(potential)[nodes[places]] += counted

    def place_by_turns(self, arcs: Sequence[tuple[Demand, int, int]]) -> list[tuple[int, int]]:
        """Commits up to ``count`` pods of each (demand, node, count), again and again: one pod may let in another.

        Returns:
            Number of the arc and how many it took, in the order of the commits; an arc may be there several times.
        """
        placed: list[tuple[int, int]] = []
        waiting = {number: count for number, (_, _, count) in enumerate(arcs)}
        progress = True
        while waiting and progress:
            progress = False
            for number, count in list(waiting.items()):
                demand, node, _ = arcs[number]
                taken = self.place(demand, node, count)
                if taken:
                    progress = True
                    placed.append((number, taken))
                    waiting[number] -= taken
                    if not waiting[number]:
                        del waiting[number]
        return placed

    def reserve(self, demand: Demand, node: int, count: int) -> None:
        """Takes out room for ``count`` pods without placing them; below zero: gives it back. No rule counts them."""
        self._note_change(node)
        self.free[node] -= demand.requests * count
        self._zones.take(demand, np.array([node]), np.array([count]))
        self.take_claimed(demand, np.array([node]), np.array([count]))

    def release(self, demand: Demand, nodes: Int64s, counts: Int64s) -> None:
        """Undoes ``place_many`` for pods without host ports."""
        self.place_many(demand, nodes, -counts)

    def place_all(self, demands: Sequence[Demand], classes: Int64s, nodes: Int64s, counts: Int64s) -> Bools:
        """Commits arcs whose nodes have room for everything planned there; leaves the other nodes alone.

        Args:
            classes, nodes, counts: int64[M], the arcs of a plan; ``classes`` indexes ``demands``.

        Returns:
            bool[M]: which arcs were committed.
        """
        if not len(classes):
            return np.zeros(0, dtype=np.bool_)
        # A plan may have many demands, and place pods of few.
        placed, classes = np.unique(classes, return_inverse=True)
        demands = [demands[number] for number in placed.tolist()]
        requests = np.array([demand.requests for demand in demands], dtype=np.int64)
        counted = np.array([demand.counted for demand in demands])
        # Ports, NUMA zones, devices, volumes and rules between pods are decided one by one.
        alone = np.array([each.is_placed_alone for each in demands], dtype=np.bool_)
        asked = requests[classes] * counts[:, np.newaxis]
        places, place_of = np.unique(nodes, return_inverse=True)
        total = np.zeros((len(places), requests.shape[1]), dtype=np.int64)
        np.add.at(total, place_of, asked)
        # Each arc fits alone, but amounts near 2^63 may overflow in the sum: those go one by one.
        rough = np.zeros(total.shape)
        np.add.at(rough, place_of, asked.astype(np.float64))
        whole = (((total <= self.free[places]) & (rough < 2.0**62)) | (rough == 0)).all(axis=1)
        whole[place_of[alone[classes]]] = False
        chosen: Bools = whole[place_of]
        self._note_change(nodes[chosen])
        np.subtract.at(self.free, nodes[chosen], asked[chosen])
        for potential in {demand.potential for demand in demands}:
            alike = np.array([demand.potential == potential for demand in demands], dtype=np.bool_)
            of_class = chosen & alike[classes]
            np.add.at(
                self._planned_of(potential), nodes[of_class], (counted[classes] * counts[:, np.newaxis])[of_class]
            )
        for place, demand in enumerate(demands):
            if demand.constraints.increments:
                of_class = chosen & (classes == place)
                self.domain_counts.increment_all(demand.constraints, nodes[of_class], counts[of_class])
        return chosen

    def to_snapshot(self, placed: Iterable[tuple[str, PodSignature]]) -> Snapshot:
        """The snapshot as it is after the commits. A pod counts there for what it counts for under its policy.

        Args:
            placed: node name and kind of each pod that was committed.
        """
        snapshot = self._snapshot
        used = snapshot.allocatable - self.free
        assumed = snapshot.non_zero_requested.copy()
        for planned in self._planned.values():
            assumed += planned[:, :2]
        snapshot_after = snapshot.with_usage(used, assumed, self.ports, snapshot.pod_index.with_changes(placed))
        takers = (*snapshot.takers, *self._devices.takers) if self._devices.takers else snapshot.takers
        storage = self._volumes.to_storage()
        return replace(snapshot_after, numa=self._zones.shared().room, storage=storage, takers=takers)
