"""Pods that take the place of running pods (their victims): decided before the rest of a round.

Source: Fleet's Replaces, figures 4 and 5 of the seed: the new pod is connected to the victim's node alone, the victim
to nothing. All filters judge the new pod in the cluster without its victim. If they agree it gets the place; if not, it
stays pending and the victim stays where it is.

The victim runs until it has terminated, which may take long, so the rest of the round gets nothing of what it frees:

- of each resource the larger request of the two counts as taken, and the host ports of both;
- for constraints of others the new pod counts as running, as every placement does, and the victim as being deleted,
  which is what kube-scheduler will see: affinity and anti-affinity count it until it is gone, spread does not.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot, Victim
from flowcore.costs.model import Load
from flowcore.model.pod_index import PodSignature
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.resource_claims import DeviceTaker
from flowcore.model.resources import Amounts
from flowcore.model.volumes import Volumes
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import NOTHING_DECIDED, Candidate, Decided
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.problem.result import Placement, Unplaced
from flowcore.rules.filters import run_filters
from flowcore.rules.filters.dynamic_resources import taker_on
from flowcore.rules.reasons.codes import REPLACEMENT
from flowcore.rules.volumes import ComingVolumes


class PlaceReplacements(Pass):
    """Decides all pending pods that have a victim, the pod with the highest price first."""

    def __init__(self) -> None:
        self._decided = NOTHING_DECIDED

    def apply(self, problem: Problem) -> Problem:
        """The other pods, in a cluster in which new pods and their victims hold what they need."""
        snapshot = problem.snapshot
        pending = tuple(pod for pod in snapshot.pending if pod.victim is not None)
        if not pending:
            return problem
        others = tuple(pod for pod in snapshot.pending if pod.victim is None)
        replacing = problem.with_snapshot(replace(snapshot, pending=pending))
        queue = [
            (-int(price), pod.created, pod.key, pod, pod.victim, demand)
            for demand in replacing.demands
            for pod, price in zip(demand.group.pods, demand.prices, strict=True)
            if pod.victim is not None  # which is true of all, but the type checker does not know
        ]
        placements, unplaced, change = [], [], _ClusterChange(snapshot)
        for price, _, _, pod, victim, demand in sorted(queue, key=lambda entry: entry[:3]):
            without = _without_victim(pod, victim, change)
            if isinstance(without, str):
                unplaced.append(Unplaced(pod, without, -price, REPLACEMENT, more_nodes_help=False))
                continue
            price_there = _price(priced(replacing, demand), without, without.table.index[victim.node])
            placements.append(Placement(pod, victim.node, price_there))
            change.apply(pod, victim)
        self._decided = Decided(tuple(placements), tuple(unplaced))
        return problem.with_snapshot(change.with_both(others))

    def invert(self, candidate: Candidate) -> Candidate:
        """The candidate with these pods, and what they cost."""
        return candidate.with_decided(self._decided)


class _ClusterChange:
    """The cluster with new pods in their places and with victims that have not left yet.

    Attributes:
        successor_by_victim: keys of victims and of the pods that take their places.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._used, self._assumed, self._ports = (
            snapshot.used.copy(),
            snapshot.non_zero_requested.copy(),
            dict(snapshot.ports),
        )
        #: Which zones the victims leave is not known.
        self._numa = None if snapshot.numa is None else snapshot.numa.copy()
        self._takers = list(snapshot.takers)
        self._coming: list[tuple[Volumes, str]] = []
        self._volumes = ComingVolumes(snapshot.storage, snapshot.table)
        self._added: list[tuple[str, PodSignature]] = []
        self._removed: list[tuple[str, PodSignature]] = []
        self.successor_by_victim: dict[str, str] = {}

    def apply(self, pod: PendingPod, victim: Victim) -> None:
        """The pod has the place of its victim."""
        row, requests = self._snapshot.table.index[victim.node], pod.pod_class.requests
        self._used[row] += np.maximum(self._snapshot.vector(requests) - self._row(victim.usage), 0)
        self._assumed[row] += np.maximum(np.array(pod.pod_class.non_zero_requests) - victim.non_zero_usage, 0)
        if pod.pod_class.host_ports:
            self._ports[row] = self._ports.get(row, frozenset()) | frozenset(pod.pod_class.host_ports)
        if pod.pod_class.numa is not None and self._numa is not None:
            self._numa.take(pod.pod_class.numa, np.array([row]), np.array([1]))
        if pod.pod_class.devices is not None:
            self._takers.append(taker_on(pod.pod_class.devices, self._snapshot.table, row))
        if pod.pod_class.volumes:
            self._coming.append((pod.pod_class.volumes, victim.node))
        self._added.append((victim.node, pod.signature))
        self._removed.append((victim.node, victim.signature))
        if not victim.has_left:
            self._added.append((victim.node, msgspec.structs.replace(victim.signature, deleting=True)))
            self.successor_by_victim[victim.key] = pod.key

    def with_both(self, pending: tuple[PendingPod, ...]) -> Snapshot:
        """The snapshot with both: of each resource the larger request counts."""
        snapshot = self._snapshot
        if not self._added:
            return replace(snapshot, pending=pending)
        pod_index = snapshot.pod_index.with_changes(self._added, self._removed)
        changed = snapshot.with_usage(self._used, self._assumed, self._ports, pod_index)
        storage = self._volumes.storage(self._coming)
        return replace(changed, pending=pending, storage=storage, numa=self._numa, takers=self._all_takers())

    def without(self, victim: Victim) -> Snapshot | None:
        """The snapshot without one more victim and with no pod in its place; None: its node does not exist."""
        snapshot = self._snapshot
        row = snapshot.table.index.get(victim.node)
        if row is None:
            return None
        used, assumed, ports = self._used.copy(), self._assumed.copy(), dict(self._ports)
        # Where a sum was capped it is unknown what is left without the victim.
        used[row] -= np.where(used[row] < MAX_AMOUNT, self._row(victim.usage), 0)
        assumed[row] = np.maximum(assumed[row] - victim.non_zero_usage, 0)
        if victim.host_ports:
            ports[row] = ports.get(row, frozenset()) - frozenset(victim.host_ports)
        pod_index = snapshot.pod_index.with_changes(self._added, [*self._removed, (victim.node, victim.signature)])
        changed = snapshot.with_usage(used, assumed, ports, pod_index)
        storage = self._volumes.storage(self._coming)
        if victim.volumes:
            mounted = storage.mounted.get(victim.node, ())
            left = tuple(volume for volume in mounted if volume not in victim.volumes)
            storage = storage.with_mounted({victim.node: left})
        return replace(changed, storage=storage, numa=self._numa, takers=self._all_takers())

    def _all_takers(self) -> tuple[DeviceTaker, ...]:
        before = self._snapshot.takers
        return tuple(self._takers) if len(self._takers) > len(before) else before

    def _row(self, usage: Amounts) -> Int64s:
        """int64[R]: what a victim uses, of the resources of the snapshot."""
        names = self._snapshot.resources
        return self._snapshot.vector(tuple((name, amount) for name, amount in usage if name in names))


def _without_victim(pod: PendingPod, victim: Victim, change: _ClusterChange) -> Snapshot | str:
    """The cluster without the victim if the new pod may have its place, else why it may not."""
    if victim.unschedulable_reason:
        return victim.unschedulable_reason
    if pod.gangs and not victim.has_left:
        return f"it belongs to {pod.gangs[0]}, and a pod of a gang cannot replace another pod"
    if victim.key in change.successor_by_victim:
        return f"{change.successor_by_victim[victim.key]} already replaces {victim.key}"
    without = change.without(victim)
    if without is None:
        return f"the pod it replaces, {victim.key}, is on node {victim.node}, which does not exist"
    verdicts, row = run_filters(pod.pod_class, without, pod.signature), without.table.index[victim.node]
    if verdicts.fits[row]:
        return without
    does = f"cannot replace {victim.key}" if victim.key else "cannot take the room that is reserved for it"
    return f"{does} on node {victim.node}: {verdicts.of_node(row)[1]}"


def _price(demand: Demand, without: Snapshot, row: int) -> int:
    load = Load.of(without, demand.potential.utilisation).at(np.array([row], dtype=np.int64))
    return int(demand.arc[row]) + int(demand.potential.increase(load, demand.size)[0])
