"""A plan with evictions in the making: who leaves, who comes, what is free; every decision can be taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.running_pods import EvictionKind, RunningPod
from flowcore.model.volumes import ClaimVolume, Disk, Volumes
from flowcore.planning.evictions.residents import Residents
from flowcore.planning.problem.demands.demands import Demand
from flowcore.rules.filters.dynamic_resources import taker_on
from flowcore.rules.volumes import ComingVolumes


@dataclass(slots=True)
class Leaving:
    """A resident that leaves.

    Attributes:
        kind: why; None: a placement that is taken back.
        for_pods: keys of the pods that it leaves for.
        to: the node where its replacement goes; -1: none.
        reason, by_controller, gain: see Eviction.
    """

    kind: EvictionKind | None
    for_pods: list[str] = field(default_factory=list)
    to: int = -1
    reason: str = ""
    by_controller: bool = False
    gain: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A waiting pod that gets a node.

    Attributes:
        demand: number of its demand in the problem.
        at_once: the room is free without anybody leaving.
    """

    pod: PendingPod
    demand: int
    node: int
    at_once: bool


class Checkpoint(NamedTuple):
    """How much was decided: decisions that can be taken back, residents that leave, waiting pods that come."""

    decisions: int
    leaving: int
    arrivals: int


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions in an order in which they can be made again."""

    leaving: tuple[tuple[int, Leaving], ...]
    arrivals: tuple[Arrival, ...]


class EvictionState:
    """The decisions so far: pods that leave, pods that arrive, and the capacity that is free with both.

    Attributes:
        free: int64[N, R], free once all victims have left and all arrivals have come.
        free_now: int64[N, R], free before any victim leaves; arrivals that wait for no victim are counted, and all
            replacements.
        leaving: by number of the resident.
        arrivals: in the order of the decisions.
        budgets: evictions that each PodDisruptionBudget allows beyond those decided.
        leaving_by_gang: how many running pods of each gang leave.
        moves: how many moves there are by policy, node, namespace and owner, ("policy", name) and so on, and by
            ``share_key``.
        changes: how many decisions there were, those included that took others back.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        free: Int64s,
        residents: Residents,
        demands: tuple[Demand, ...],
        priced: Callable[[Demand], Demand] = lambda demand: demand,
    ) -> None:
        """``free``: int64[N, R], after the plan so far. ``snapshot``: the same, with nothing pending.

        Args:
            priced: gives the costs of demands that no node had room for; asked only where pods of them get one.
        """
        self._snapshot, self.residents, self.demands, self._priced = snapshot, residents, demands, priced
        self.free, self.free_now = free.copy(), free.copy()
        self.leaving: dict[int, Leaving] = {}
        self.arrivals: list[Arrival] = []
        self.budgets: Counter[str] = Counter(residents.running.budgets)
        self.leaving_by_gang: Counter[str] = Counter()
        self.moves: Counter[tuple[str, str]] = Counter()
        self.changes = 0
        #: int64[N], the number of each node's last change.
        self._changed_at = np.zeros(len(self.free), dtype=np.int64)
        self._undo: list[Callable[[], None]] = []
        self._volumes = ComingVolumes(snapshot.storage, snapshot.table)
        #: The number of changes, and the cluster with all decisions then.
        self._decided: tuple[int, Snapshot] | None = None

    def priced(self, number: int) -> Demand:
        """A demand with what each node costs."""
        return self._priced(self.demands[number])

    # --- decisions ---

    def checkpoint(self) -> Checkpoint:
        """To be given to ``roll_back``."""
        return Checkpoint(len(self._undo), len(self.leaving), len(self.arrivals))

    def roll_back(self, checkpoint: Checkpoint) -> None:
        """Takes back all decisions since a checkpoint."""
        while len(self._undo) > checkpoint.decisions:
            self._undo.pop()()

    def decisions_since(self, checkpoint: Checkpoint) -> Decisions:
        """All decisions since a checkpoint."""
        leaving = list(self.leaving.items())[checkpoint.leaving :]
        return Decisions(
            tuple((resident, replace(left, for_pods=list(left.for_pods))) for resident, left in leaving),
            tuple(self.arrivals[checkpoint.arrivals :]),
        )

    def replay(self, decisions: Decisions) -> None:
        """Decides the same again."""
        for resident, leaving in decisions.leaving:
            self.leave_again(resident, leaving)
        for arrival in decisions.arrivals:
            self.arrive(arrival.pod, arrival.demand, arrival.node)

    def release(self, node: int, amounts: Int64s) -> None:
        """Room of a node that was held comes free, int64[R]."""
        self._add_room(node, amounts)
        self._undo.append(lambda: self._add_room(node, -amounts))

    def _add_room(self, node: int, amounts: Int64s, *, now: bool = True) -> None:
        """Room of a node comes free, or is taken where amounts are below zero; ``now``: before any victim leaves."""
        self.free[node] += amounts
        if now:
            self.free_now[node] += amounts
        self.changes += 1
        self._changed_at[node] = self.changes

    def changed_since(self, changes: int) -> Int64s:
        """Numbers of the nodes whose room has changed since there were so many ``changes``; below zero: all nodes."""
        return np.nonzero(self._changed_at > changes)[0]

    def version(self, node: int) -> int:
        """Another number after each change on a node."""
        return int(self._changed_at[node])

    def let_leave(
        self,
        resident: int,
        kind: EvictionKind,
        for_pods: Iterable[str],
        *,
        reason: str = "",
        by_controller: bool = False,
    ) -> None:
        """A resident leaves that stays so far."""
        residents, pod = self.residents, self.residents.pods[resident]
        node, usage = int(residents.nodes[resident]), residents.usage[resident]
        runs = residents.is_running(resident)
        self.leaving[resident] = Leaving(
            kind if runs else None, list(for_pods), reason=reason, by_controller=by_controller
        )
        self._add_room(node, usage, now=not runs)  # a placement is not there yet
        if runs:
            self._count(pod.budgets, pod.gang, -1)

        def undo() -> None:
            del self.leaving[resident]
            self._add_room(node, -usage, now=not runs)
            if runs:
                self._count(pod.budgets, pod.gang, 1)

        self._undo.append(undo)

    def _count(self, budgets: Iterable[str], gang: str, sign: int) -> None:
        for budget in budgets:
            self.budgets[budget] += sign
        if gang:
            self.leaving_by_gang[gang] -= sign

    def reserve_replacement(self, resident: int, node: int, *, is_move: bool) -> None:
        """The replacement of a pod that leaves takes room on another node, which is free now."""
        leaving, usage = self.leaving[resident], self.residents.usage[resident]
        leaving.to = node
        self._add_room(node, -usage)

        def undo() -> None:
            self._add_room(node, usage)
            leaving.to = -1

        self._undo.append(undo)
        if is_move:
            self.count_move(resident)

    def count_move(self, resident: int) -> None:
        """A pod that leaves counts for the limits of moves."""
        counted = _counted_move(self.residents.pods[resident])
        self.moves.update(counted)
        self.changes += 1

        def undo() -> None:
            self.moves.subtract(counted)
            self.changes += 1

        self._undo.append(undo)

    def arrive(self, pod: PendingPod, demand: int, node: int) -> None:
        """A waiting pod gets a node."""
        requests = self.demands[demand].requests
        asked = requests > 0
        at_once = bool((requests[asked] <= self.free_now[node][asked]).all())
        self.arrivals.append(Arrival(pod, demand, node, at_once))
        self._add_room(node, -requests, now=at_once)

        def undo() -> None:
            self.arrivals.pop()
            self._add_room(node, requests, now=at_once)

        self._undo.append(undo)

    def stay(self, resident: int) -> None:
        """A resident that was to leave stays; this cannot be rolled back."""
        leaving = self.leaving.pop(resident)
        residents, pod = self.residents, self.residents.pods[resident]
        node, usage = int(residents.nodes[resident]), residents.usage[resident]
        self._add_room(node, -usage, now=not residents.is_running(resident))
        if leaving.to >= 0:
            self._add_room(leaving.to, usage)
            if leaving.kind is EvictionKind.MIGRATION:
                self.moves.subtract(_counted_move(pod))
        if residents.is_running(resident):
            self._count(pod.budgets, pod.gang, 1)
        self._undo.clear()

    def drop_arrivals(self, keys: AbstractSet[str]) -> None:
        """Waiting pods do not come after all; this cannot be rolled back."""
        for arrival in self.arrivals:
            if arrival.pod.key in keys:
                self._add_room(arrival.node, self.demands[arrival.demand].requests, now=arrival.at_once)
        self.arrivals = [arrival for arrival in self.arrivals if arrival.pod.key not in keys]
        for leaving in self.leaving.values():
            leaving.for_pods = [key for key in leaving.for_pods if key not in keys]
        self._undo.clear()

    def leave_again(self, resident: int, leaving: Leaving) -> None:
        """Undoes ``stay``."""
        self.let_leave(resident, leaving.kind or EvictionKind.PREEMPTION, leaving.for_pods)
        if leaving.to >= 0:
            self.reserve_replacement(resident, leaving.to, is_move=leaving.kind is EvictionKind.MIGRATION)

    # --- what follows ---

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
        residents, before = self.residents, self._snapshot
        if not self.changed and not without and not arrivals:
            return before
        nodes = before.table.nodes
        gone = list(dict.fromkeys([*(() if leavers_stay else self.leaving), *without]))
        left_out = frozenset(gone)
        placed: list[tuple[str, PodSignature]] = []
        used, assumed = before.used.copy(), before.non_zero_requested.copy()
        ports = dict(before.ports)
        numa = before.numa
        # A placement that is taken back takes no devices: if its pod comes again, then as one that has none.
        back = (residents.pods[resident].pod_class.devices for resident in gone if not residents.is_running(resident))
        revoked = {devices for devices in back if devices is not None}
        takers = [taker for taker in before.takers if not revoked or taker.pod not in revoked]
        freed: dict[int, set[ClaimVolume | Disk]] = {}
        coming: list[tuple[Volumes, str]] = []
        removed: list[tuple[str, PodSignature]] = []
        for resident in gone:
            pod, node = residents.pods[resident], int(residents.nodes[resident])
            used[node] -= residents.usage[resident]
            assumed[node] = np.maximum(assumed[node] - residents.counted[resident], 0)
            removed.append((nodes[node].name, pod.signature))
            if pod.pod_class.host_ports or pod.pod_class.volumes:
                # Others of the node may hold the same: pods that bypassed the scheduler, volumes that are shared.
                rest = [residents.pods[beside].pod_class for beside in residents.on(node) if beside not in left_out]
                held = {port for each in rest for port in each.host_ports}
                ports[node] = ports.get(node, frozenset()) - (frozenset(pod.pod_class.host_ports) - held)
                if pod.pod_class.volumes:
                    mounted = {volume for each in rest for volume in each.volumes}
                    freed.setdefault(node, set()).update(set(pod.pod_class.volumes) - mounted)

        def add(pod_class: PodClass, signature: PodSignature, node: int, amounts: Int64s) -> None:
            used[node] += amounts
            assumed[node] += np.array(pod_class.non_zero_requests, dtype=np.int64)
            if pod_class.host_ports:
                ports[node] = ports.get(node, frozenset()) | frozenset(pod_class.host_ports)
            placed.append((nodes[node].name, signature))
            if pod_class.devices is not None:
                takers.append(taker_on(pod_class.devices, before.table, node))
            if pod_class.volumes:
                coming.append((pod_class.volumes, nodes[node].name))
            nonlocal numa
            if pod_class.numa is not None and numa is not None:
                numa = numa if numa is not before.numa else numa.copy()
                numa.take(pod_class.numa, np.array([node]), np.array([1]))

        for resident, leaving in self.leaving.items():
            if replaced and leaving.to >= 0 and resident not in without:
                pod = residents.pods[resident]
                add(pod.pod_class, pod.signature, leaving.to, residents.usage[resident])
        for arrival in arrivals:
            add(arrival.pod.pod_class, arrival.pod.signature, arrival.node, self.demands[arrival.demand].requests)
        changed = before.with_usage(used, assumed, ports, before.pod_index.with_changes(placed, removed))
        storage = self._with_volumes(coming, freed)
        changed = replace(changed, storage=storage, numa=numa)
        return changed if takers == list(before.takers) else replace(changed, takers=tuple(takers))

    def node_name(self, node: int) -> str:
        """The name of a node."""
        return self._snapshot.table.nodes[node].name

    def mounted(self, node: int, without: Collection[int]) -> Volumes:
        """The volumes on a node with all decisions, once these residents have left too.

        A snapshot has the same. This costs the pods of the node and the decisions, and no others.
        """
        pods, gone = self.residents.pods, self.leaving.keys() | set(without)
        here = self.residents.on(node)
        kept = {volume for beside in here if beside not in gone for volume in pods[beside].pod_class.volumes}
        freed = {volume for beside in here if beside in gone for volume in pods[beside].pod_class.volumes} - kept
        own = self._snapshot.storage.mounted.get(self.node_name(node), ())
        come = [
            *(pods[each].pod_class for each, left in self.leaving.items() if left.to == node and each not in without),
            *(arrival.pod.pod_class for arrival in self.arrivals if arrival.node == node),
        ]
        brought = (volume for pod_class in come for volume in pod_class.volumes)
        return (*(volume for volume in own if volume not in freed), *brought)

    def _with_volumes(
        self, coming: Sequence[tuple[Volumes, str]], freed: Mapping[int, AbstractSet[ClaimVolume | Disk]]
    ) -> Storage:
        """The storage once pods have come to nodes, and volumes of others are not mounted any more, by row."""
        storage, before = self._volumes.storage(coming), self._snapshot.storage.mounted
        mounted: dict[str, Volumes] = {}
        for row, volumes in freed.items():
            name = self._snapshot.table.nodes[row].name
            own = before.get(name, ())
            brought = storage.mounted.get(name, ())[len(own) :]
            mounted[name] = (*(volume for volume in own if volume not in volumes), *brought)
        return storage.with_mounted(mounted)


def _counted_move(pod: RunningPod) -> list[tuple[str, str]]:
    return [
        ("policy", pod.policy),
        ("node", pod.node),
        ("namespace", pod.namespace),
        ("owner", pod.owner),
        share_key(pod),
    ]


def share_key(pod: RunningPod) -> tuple[str, str]:
    """What counts the moves of a namespace's pods under one policy."""
    return "share", f"{pod.policy}/{pod.namespace}"
