"""A plan in the making: room of the nodes, what rules count, who leaves and who comes. Both halves of a round have it.

Every placement of every method goes through ``place`` or ``place_all``, which let nothing in that does not fit, or, if
``fit_counts`` said just before how many fit, through ``place_many``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod, Snapshot
from flowcore.costs.claim_scores import NO_CLAIM_COSTS
from flowcore.costs.model import Load
from flowcore.costs.potential import NodePotential
from flowcore.costs.shares.limit_room import LimitRoom
from flowcore.model.cost_policy import Utilisation
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import HostPort
from flowcore.model.running_pods import EvictionKind, RunningPods
from flowcore.model.volumes import Volumes
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.cluster_change import ClusterChange
from flowcore.planning.problem.placements.decisions import (
    Arrival,
    Change,
    Checkpoint,
    Commit,
    Decisions,
    Leaving,
    counted_move,
)
from flowcore.planning.problem.placements.device_room import DeviceRoom
from flowcore.planning.problem.placements.residents import Residents
from flowcore.planning.problem.placements.volume_room import VolumeRoom
from flowcore.planning.problem.placements.zone_room import ZoneRoom
from flowcore.rules.filters.node_ports import clash
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.topology.domain_limits import UNLIMITED
from flowcore.rules.topology.round_constraints.domain_counts import DomainCounts
from flowcore.rules.volumes import ComingVolumes

#: Where more than one node in this number changed, all are computed: that is faster than to gather some.
_MOSTLY = 4


class Plan:
    """A plan in the making: room of the nodes, what rules between pods count, who leaves and who comes.

    A plan begins with a snapshot, and shrinks as pods are placed. Of pods that run there, or were placed before, some
    may leave in it: its residents. Each decision about these can be taken back.

    Attributes:
        before: the cluster as it was before the first decision.
        changes: how many changes there were, those included that took others back.
        free: int64[N, R], free once all leavers have gone and all have come; by column where nobody may leave.
        ports: host ports in use, by number of the node.
        domain_counts: what rules between pods count.
        leaving: by number of the resident.
        arrivals: waiting pods that get a node beside residents, in the order of the decisions.
        ruled: how many of them have rules, by signature.
        limits: what limits of queues leave, for pods that come beside residents.
        budgets: evictions that each PodDisruptionBudget allows beyond those decided.
        leaving_by_gang: how many running pods of each gang leave.
        moves: how many moves there are by policy, node, namespace and owner, ("policy", name) and so on, and by
            ``share_key``.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        residents: Residents | None = None,
        demands: tuple[Demand, ...] = (),
        priced: Callable[[Demand], Demand] = lambda demand: demand,
        limits: LimitRoom | None = None,
    ) -> None:
        """Begins with a snapshot, with nothing decided.

        Args:
            residents: who may leave; None: nobody.
            demands: of the pods that come beside residents.
            priced: gives the costs of demands that no node had room for; asked only where pods of them get one.
            limits: None: there are none.
        """
        self.before, self.demands, self._priced = snapshot, demands, priced
        self.limits = LimitRoom() if limits is None else limits
        #: As the round begins, by what it is made of.
        self._loads: dict[Utilisation, Load] = {}
        #: int64[N], after how many changes each node changed last.
        self.changes, self._changed_at = 0, np.zeros(len(snapshot.table.nodes), dtype=np.int64)
        #: Residents are asked about node by node, demands resource by resource.
        self.free: Int64s = snapshot.free.copy("F" if residents is None else "C")
        #: int64[N, R]: the part of ``free`` that running leavers hold, without what comes only after them.
        self._awaited = np.zeros(self.free.shape, dtype=np.int64)
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
        self.residents = Residents.of(snapshot, RunningPods(), ()) if residents is None else residents
        self.leaving: dict[int, Leaving] = {}
        self.arrivals: list[Arrival] = []
        self.ruled: Counter[PodSignature] = Counter()
        self.budgets: Counter[str] = Counter(self.residents.running.budgets)
        self.leaving_by_gang: Counter[str] = Counter()
        self.moves: Counter[tuple[str, str]] = Counter()
        #: The changes since the first checkpoint, in their order, and whether there was one.
        self._done: list[Change] = []
        self._is_recorded = False
        self._coming = ComingVolumes(snapshot.storage, snapshot.table)
        #: The number of changes, and the cluster with all decisions about residents then.
        self._decided: tuple[int, Snapshot] | None = None

    def copy(self) -> Plan:
        """An independent copy of a plan in which nobody leaves."""
        copied: Plan = copy(self)
        copied._changed_at, copied.free, copied.ports = self._changed_at.copy(), self.free.copy("F"), dict(self.ports)
        copied._planned = {potential: planned.copy("F") for potential, planned in self._planned.items()}
        copied._values, copied._increases, copied._done, copied._is_recorded = {}, {}, [], False
        copied.domain_counts = self.domain_counts.copy()
        copied._zones, copied._devices = self._zones.shared(), self._devices.shared()
        copied._volumes = self._volumes.shared()
        return copied

    def free_now(self, nodes: Int64s | int | slice = slice(None)) -> Int64s:
        """int64[len(nodes), R], or int64[R] of one: what is free on some nodes, or all, before anybody leaves.

        What waits for no leaver is counted as there, and so are all replacements.
        """
        return self.free[nodes] - self._awaited[nodes]

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
            start = self._loads[utilisation] = Load.of(self.before, utilisation)
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
        stale = self.changed_since(seen)
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
            nodes = self.changed_since(seen)
            values = values if seen else values.copy()
            values[nodes] = potential.values(self.load_at(nodes, potential))
            self._values[potential] = values, self.changes
        return values

    def _planned_of(self, potential: NodePotential) -> Int64s:
        planned = self._planned.get(potential)
        if planned is None:
            planned = self._planned[potential] = np.zeros((len(self.free), 4), dtype=np.int64, order="F")
        return planned

    def changed_since(self, changes: int) -> Int64s:
        """Numbers of the nodes that changed after the first ``changes`` changes; below zero: all nodes."""
        return np.nonzero(self._changed_at > changes)[0]

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
        counts, nodes = demand.counts.copy(), self.changed_since(0)
        counts[nodes] = self.fit_counts_at(demand, nodes)
        return counts

    def fit_counts_at(self, demand: Demand, nodes: Int64s) -> Int64s:
        """``fit_counts`` of these nodes only, int64[len(nodes)]."""
        fitting = np.where(demand.allowed[nodes], count_fitting(demand.requests, self.free.T[:, nodes].T), 0)
        return fitting if demand.group.pod_class.fits_by_amounts else self._limit(demand, fitting, nodes)

    def _limit(self, demand: Demand, fitting: Int64s, nodes: Int64s) -> Int64s:
        """No more pods than zones, devices, volumes and host ports allow, of so many for each node, int64[M]."""
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
        if fitting and not demand.group.pod_class.fits_by_amounts:
            fitting = int(self._limit(demand, np.array([fitting]), np.array([node]))[0])
        if fitting and demand.constraints.constrained:
            fitting = self.domain_counts.max_pods_at(demand.constraints, node, fitting)
        return fitting

    def place(self, demand: Demand, node: int, count: int) -> int:
        """Commits up to ``count`` pods to a node; returns how many it took."""
        taken = self.max_pods_at(demand, node, count)
        if taken:
            self.domain_counts.increment(demand.constraints, node, taken)
            self._add_room(node, demand.requests * -taken)
            self._planned_of(demand.potential)[node] += demand.counted * taken
            if self._is_recorded or not demand.group.pod_class.fits_by_amounts:
                nodes, counts = np.array([node]), np.array([taken])
                self._take_other(demand, nodes, counts)
                self._record(demand, nodes, counts)
        return taken

    def place_many(self, demand: Demand, nodes: Int64s, counts: Int64s) -> None:
        """Commits pods of a group without rules to several nodes, to each at most the number that fits there.

        Args:
            nodes, counts: int64[M], each node once.
        """
        self._place(demand, nodes, counts, 1)
        self._record(demand, nodes, counts)

    def _place(self, demand: Demand, nodes: Int64s, counts: Int64s, sign: int) -> None:
        counts = counts * sign
        self._note_change(nodes)
        self.domain_counts.increment_all(demand.constraints, nodes, counts)
        self.free[nodes] -= demand.requests * counts[:, np.newaxis]
        self._planned_of(demand.potential)[nodes] += demand.counted * counts[:, np.newaxis]
        self._take_other(demand, nodes, counts)

    def _take_other(self, demand: Demand, nodes: Int64s, counts: Int64s) -> None:
        """What pods that are placed take beside resources, or give back where a count is below zero."""
        if demand.group.pod_class.fits_by_amounts:
            return
        self._zones.take(demand, nodes, counts)
        self.take_claimed(demand, nodes, counts)
        ports = demand.group.pod_class.host_ports
        for node, count in zip(nodes.tolist(), counts.tolist(), strict=True) if ports else ():
            held = self.ports.get(node, frozenset())
            self.ports[node] = held.union(ports) if count > 0 else held.difference(ports)

    def _record(self, demand: Demand, nodes: Int64s, counts: Int64s) -> None:
        if self._is_recorded:
            self._done.append(partial(self._place, demand, nodes, counts))

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
        for place, demand in enumerate(demands) if self._is_recorded else ():
            self._record(demand, nodes[place : place + 1], np.array([1]))

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

    def hold(self, demands: Sequence[Demand], commits: Iterable[Commit], sign: int = 1) -> Plan:
        """Takes out room for pods without placing or counting them; with -1: gives it back. Returns itself."""
        for commit in commits:
            self._do(partial(self._hold, demands[commit.demand], commit.node, commit.count * sign))
        return self

    def _hold(self, demand: Demand, node: int, count: int, sign: int) -> None:
        self._add_room(node, demand.requests * -count * sign)
        self._zones.take(demand, np.array([node]), np.array([count * sign]))
        self.take_claimed(demand, np.array([node]), np.array([count * sign]))

    def release(self, demand: Demand, nodes: Int64s, counts: Int64s) -> None:
        """Pods that were placed leave their nodes again."""
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
        for arc in np.nonzero(chosen)[0].tolist() if self._is_recorded else ():
            self._record(demands[classes[arc]], nodes[arc : arc + 1], counts[arc : arc + 1])
        return chosen

    def to_snapshot(self, placed: Iterable[tuple[str, PodSignature]]) -> Snapshot:
        """The snapshot as it is after the commits. A pod counts there for what it counts for under its policy.

        Args:
            placed: node name and kind of each pod that was committed.
        """
        snapshot = self.before
        used = snapshot.allocatable - self.free
        assumed = snapshot.non_zero_requested.copy()
        for planned in self._planned.values():
            assumed += planned[:, :2]
        snapshot_after = snapshot.with_usage(used, assumed, self.ports, snapshot.pod_index.with_changes(placed))
        takers = (*snapshot.takers, *self._devices.takers) if self._devices.takers else snapshot.takers
        storage = self._volumes.to_storage()
        return replace(snapshot_after, numa=self._zones.shared().room, storage=storage, takers=takers)

    def priced(self, number: int) -> Demand:
        """A demand with what each node costs."""
        return self._priced(self.demands[number])

    # --- decisions ---

    def checkpoint(self) -> Checkpoint:
        """To be given to ``roll_back``."""
        self._is_recorded = True
        return Checkpoint(len(self._done), len(self.leaving), len(self.arrivals))

    def roll_back(self, checkpoint: Checkpoint) -> None:
        """Takes back all changes since a checkpoint.

        In a NUMA zone less may be free than before: which pod was the largest there is not remembered.
        """
        while len(self._done) > checkpoint.changes:
            self._done.pop()(-1)

    def since(self, checkpoint: Checkpoint) -> Decisions:
        """What was decided since a checkpoint."""
        leaving = list(self.leaving.items())[checkpoint.leaving :]
        return Decisions(leaving, self.arrivals[checkpoint.arrivals :], self._done[checkpoint.changes :])

    def redo(self, decisions: Decisions) -> None:
        """Decides the same again, after the same changes."""
        for change in decisions.changes:
            self._do(change)

    def _add_room(self, node: int, amounts: Int64s, *, now: bool = True) -> None:
        """Room of a node comes free, or is taken where amounts are below zero; ``now``: before any victim leaves."""
        self.free[node] += amounts
        if not now:
            self._awaited[node] += amounts
        self._note_change(node)

    def _do(self, change: Change) -> None:
        change(1)
        if self._is_recorded:
            self._done.append(change)

    def let_leave(
        self,
        resident: int,
        kind: EvictionKind,
        for_pods: Iterable[str],
        *,
        reason: str = "",
        by_controller: bool = False,
        gain: int = 0,
    ) -> None:
        """A resident leaves that stays so far."""
        why = kind if self.residents.is_running(resident) else None
        leaving = Leaving(why, tuple(for_pods), reason=reason, by_controller=by_controller, gain=gain)
        self._do(partial(self._leave, resident, leaving))

    def _leave(self, resident: int, leaving: Leaving, sign: int) -> None:
        residents, pod = self.residents, self.residents.pods[resident]
        if sign > 0:
            self.leaving[resident] = leaving
        else:
            del self.leaving[resident]
        runs = residents.is_running(resident)
        # A placement is not there yet.
        self._add_room(int(residents.nodes[resident]), residents.usage[resident] * sign, now=not runs)
        self.limits.change(pod.queue, self.limits.of_running(pod.usage) * sign, now=not runs)
        for budget in pod.budgets if runs else ():
            self.budgets[budget] -= sign
        if runs and pod.gang:
            self.leaving_by_gang[pod.gang] += sign

    def reserve_replacement(self, resident: int, node: int, *, is_move: bool) -> None:
        """The replacement of a pod that leaves takes room on another node, which is free now.

        Args:
            is_move: it counts for the limits of moves. One that was preempted moves then.
        """
        leaving = self.leaving[resident]
        kind = EvictionKind.MIGRATION if is_move and leaving.kind is EvictionKind.PREEMPTION else leaving.kind
        self._do(partial(self._replace, resident, leaving, replace(leaving, kind=kind, to=node)))
        if is_move:
            self.count_move(resident)

    def _replace(self, resident: int, before: Leaving, after: Leaving, sign: int) -> None:
        self.leaving[resident] = after if sign > 0 else before
        self._add_room(after.to, self.residents.usage[resident] * -sign)
        # Below a limit it counts with the pod that it replaces, once.
        pod = self.residents.pods[resident]
        self.limits.change(pod.queue, self.limits.of_running(pod.usage) * -sign, now=False)

    def count_move(self, resident: int) -> None:
        """A pod that leaves counts for the limits of moves."""
        self._do(partial(self._count_move, resident))

    def _count_move(self, resident: int, sign: int) -> None:
        self.changes += 1
        for counted in counted_move(self.residents.pods[resident]):
            self.moves[counted] += sign

    def arrive(self, pod: PendingPod, demand: int, node: int) -> None:
        """A waiting pod gets a node."""
        requests, added = self.demands[demand].requests, self.limits.of_waiting(pod)
        asked = requests > 0
        fits_now = bool((requests[asked] <= self.free_now(node)[asked]).all())
        at_once = fits_now and self.limits.allows(pod.queue, added, now=True)
        arrival = Arrival(pod, demand, node, at_once)

        def change(sign: int) -> None:
            if sign > 0:
                self.arrivals.append(arrival)
            else:
                self.arrivals.pop()
            self._count_ruled(arrival, sign)
            self._add_room(node, requests * -sign, now=at_once)
            self.limits.change(pod.queue, added * -sign, now=at_once)

        self._do(change)

    def _count_ruled(self, arrival: Arrival, sign: int) -> None:
        if arrival.pod.signature.constraints is not None:
            self.ruled[arrival.pod.signature] += sign

    def stay(self, resident: int) -> None:
        """A resident that was to leave stays."""
        leaving = self.leaving[resident]
        changes: list[Change] = [partial(self._leave, resident, leaving)]
        if leaving.to >= 0:
            changes.append(partial(self._replace, resident, leaving, leaving))
            if leaving.kind is EvictionKind.MIGRATION:
                changes.append(partial(self._count_move, resident))
        self._do(partial(_take_back, changes))

    def drop_arrivals(self, keys: AbstractSet[str]) -> None:
        """Waiting pods do not come after all."""
        before, left_before = tuple(self.arrivals), dict(self.leaving)

        def change(sign: int) -> None:
            for arrival in before:
                if arrival.pod.key in keys:
                    amounts = self.demands[arrival.demand].requests * sign
                    self._add_room(arrival.node, amounts, now=arrival.at_once)
                    added = self.limits.of_waiting(arrival.pod) * sign
                    self.limits.change(arrival.pod.queue, added, now=arrival.at_once)
                    self._count_ruled(arrival, -sign)
            self.arrivals = [arrival for arrival in before if sign < 0 or arrival.pod.key not in keys]
            for resident, leaving in left_before.items():
                for_pods = tuple(key for key in leaving.for_pods if sign < 0 or key not in keys)
                self.leaving[resident] = replace(leaving, for_pods=for_pods)

        self._do(change)

    # --- what follows ---

    @property
    def arrived(self) -> set[str]:
        """Keys of the waiting pods that get a node."""
        return {arrival.pod.key for arrival in self.arrivals}

    @property
    def changed(self) -> bool:
        """Whether anything was decided."""
        return bool(self.leaving or self.arrivals)

    def snapshot(
        self,
        without: Iterable[int] = (),
        *,
        leavers_stay: bool = False,
        arrivals: Sequence[Arrival] | None = None,
        replaced: bool = True,
    ) -> Snapshot:
        """The cluster with all decisions: without those that leave, with all arrivals and replacements.

        No NUMA zone has more room: which zones they leave is not known. No device is free before its claim says so.

        Args:
            without: residents that are left out too.
            leavers_stay: those that leave are still there.
            arrivals: the waiting pods that have come; None: all.
            replaced: replacements have come.
        """
        if without or leavers_stay or arrivals is not None or not replaced:
            come = self.arrivals if arrivals is None else arrivals
            return self._snapshot_of(without, come, leavers_stay=leavers_stay, replaced=replaced)
        if self._decided is None or self._decided[0] != self.changes:
            self._decided = self.changes, self._snapshot_of((), self.arrivals, leavers_stay=False, replaced=True)
        return self._decided[1]

    def _snapshot_of(
        self, without: Iterable[int], arrivals: Sequence[Arrival], *, leavers_stay: bool, replaced: bool
    ) -> Snapshot:
        residents = self.residents
        if not self.changed and not without and not arrivals:
            return self.before
        change, gone = ClusterChange(self.before, self._coming), [*(() if leavers_stay else self.leaving), *without]
        left_out = frozenset(gone)
        for resident in dict.fromkeys(gone):
            pod_class, node = residents.pods[resident].pod_class, int(residents.nodes[resident])
            # Others of the node may hold the same: pods that bypassed the scheduler, volumes that are shared.
            holds = pod_class.host_ports or pod_class.volumes
            beside = (each for each in residents.on(node) if each not in left_out) if holds else ()
            rest = [residents.pods[each].pod_class for each in beside]
            change.leave(
                residents.pods[resident].signature,
                node,
                residents.usage[resident],
                residents.counted[resident],
                set(pod_class.host_ports).difference(*(each.host_ports for each in rest)),
                set(pod_class.volumes).difference(*(each.volumes for each in rest)),
                # A placement that is taken back takes none: if its pod comes again, then as one that has none.
                None if residents.is_running(resident) else pod_class.devices,
            )
        for resident, leaving in self.leaving.items():
            if replaced and leaving.to >= 0 and resident not in without:
                change.come(residents.pods[resident], leaving.to, residents.usage[resident])
        for arrival in arrivals:
            change.come(arrival.pod, arrival.node, self.demands[arrival.demand].requests)
        return change.snapshot()

    def mounted(self, node: int, without: Collection[int]) -> Volumes:
        """The volumes on a node with all decisions, once these residents have left too.

        A snapshot has the same. This costs the pods of the node and the decisions, and no others.
        """
        pods, gone = self.residents.pods, self.leaving.keys() | set(without)
        here = self.residents.on(node)
        kept = {volume for beside in here if beside not in gone for volume in pods[beside].pod_class.volumes}
        freed = {volume for beside in here if beside in gone for volume in pods[beside].pod_class.volumes} - kept
        own = self.before.storage.mounted.get(self.before.table.nodes[node].name, ())
        come = [
            *(pods[each].pod_class for each, left in self.leaving.items() if left.to == node and each not in without),
            *(arrival.pod.pod_class for arrival in self.arrivals if arrival.node == node),
        ]
        brought = (volume for pod_class in come for volume in pod_class.volumes)
        return (*(volume for volume in own if volume not in freed), *brought)


def _take_back(changes: Sequence[Change], sign: int) -> None:
    """Takes changes back, which were made in their order; with -1: makes them again."""
    for change in changes if sign < 0 else reversed(changes):
        change(-sign)
