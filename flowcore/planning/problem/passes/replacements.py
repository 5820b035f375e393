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
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.resources import Amounts
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import NOTHING_DECIDED, Candidate, Decided
from flowcore.planning.problem.placements.cluster_change import ClusterChange
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.problem.result import Placement, Unplaced
from flowcore.rules.filters import run_filters
from flowcore.rules.reasons.codes import REPLACEMENT


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
        placements, unplaced, change = [], [], _TakenPlaces(snapshot)
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


class _TakenPlaces:
    """The cluster with new pods in their places and with victims that have not left yet.

    Attributes:
        successor_by_victim: keys of victims and of the pods that take their places.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, self._change = snapshot, ClusterChange(snapshot)
        self.successor_by_victim: dict[str, str] = {}

    def apply(self, pod: PendingPod, victim: Victim) -> None:
        """The pod has the place of its victim."""
        row, pod_class = self._snapshot.table.index[victim.node], pod.pod_class
        more = np.maximum(self._snapshot.vector(pod_class.requests) - self._row(victim.usage), 0)
        counted = np.maximum(np.array(pod_class.non_zero_requests) - victim.non_zero_usage, 0)
        self._change.come(pod, row, more, counted)
        added, removed = self._change.index_changes
        removed.append((victim.node, victim.signature))
        if not victim.has_left:
            added.append((victim.node, msgspec.structs.replace(victim.signature, deleting=True)))
            self.successor_by_victim[victim.key] = pod.key

    def with_both(self, pending: tuple[PendingPod, ...]) -> Snapshot:
        """The snapshot with both: of each resource the larger request counts."""
        is_changed = bool(self._change.index_changes[0])
        return replace(self._change.snapshot() if is_changed else self._snapshot, pending=pending)

    def without(self, victim: Victim) -> Snapshot | None:
        """The snapshot without one more victim and with no pod in its place; None: its node does not exist."""
        row = self._snapshot.table.index.get(victim.node)
        if row is None:
            return None
        change = ClusterChange(self._change.snapshot())
        # Where a sum was capped it is unknown what is left without the victim.
        usage = np.where(change.used[row] < MAX_AMOUNT, self._row(victim.usage), 0)
        change.leave(victim.signature, row, usage, victim.non_zero_usage, victim.host_ports, victim.volumes)
        return change.snapshot()

    def _row(self, usage: Amounts) -> Int64s:
        """int64[R]: what a victim uses, of the resources of the snapshot."""
        names = self._snapshot.resources
        return self._snapshot.vector(tuple((name, amount) for name, amount in usage if name in names))


def _without_victim(pod: PendingPod, victim: Victim, change: _TakenPlaces) -> Snapshot | str:
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
