"""Pods that take the place of running ones: decided before the rest of a round.

Source: Fleet's Replaces, figures 4 and 5 of the seed: the new pod is connected to the old one's node alone, the old one
to nothing. The new pod is judged by every filter for the cluster without the one that leaves. If all agree, the
place is its own; if not, it waits and the old one stays.

The old one is there until it has left, which may take long, so the rest of the round gets nothing of what comes free:

- of each resource the larger of both counts as taken, and the host ports of both;
- for rules of others the new one counts as there, as everything that was planned does, and the old one as a pod that is
  being deleted, which is what kube-scheduler will see: anti-affinity and affinity find it until it is gone, spread
  counts it no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from flowcore.classes import VerdictCache
from flowcore.costs import CostModel
from flowcore.costs.model import Load
from flowcore.filters import judge
from flowcore.model.neighbours import Kind
from flowcore.model.policies import Policy
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.resources import Amounts
from flowcore.model.snapshot import Int64s, PendingPod, Replaced, Snapshot, assumed_amounts
from flowcore.rounds.demands import Demand, demands_of
from flowcore.rounds.plan import Left, Placement, RoundResult


@dataclass(frozen=True, slots=True)
class Replacements:
    """What was decided, and what is left to plan.

    Attributes:
        rest: the snapshot that the rest of the round is planned on.
    """

    placements: tuple[Placement, ...]
    left: tuple[Left, ...]
    rest: Snapshot

    def with_rest(self, result: RoundResult) -> RoundResult:
        """The plan of the rest with these put before it; its bound holds for plans that replace the same pods."""
        if not self.placements and not self.left:
            return result
        cost = sum(each.price for each in self.placements) + sum(each.price for each in self.left)
        return replace(
            result,
            placements=(*self.placements, *result.placements),
            left=(*self.left, *result.left),
            cost=result.cost + cost,
            lower_bound=result.lower_bound + cost,
        )


def replace_first(
    snapshot: Snapshot,
    policies: Mapping[str, Policy],
    models: Mapping[str, CostModel],
    cache: VerdictCache | None = None,
) -> Replacements:
    """Decides all pending pods that are to take the place of others, the dearest to leave first.

    Args:
        cache: what is remembered of earlier rounds, and asked about this snapshot.
    """
    waiting = tuple(pod for pod in snapshot.pending if pod.replaces is not None)
    if not waiting:
        return Replacements((), (), snapshot)
    others = tuple(pod for pod in snapshot.pending if pod.replaces is None)
    demands = demands_of(replace(snapshot, pending=waiting), Load.of(snapshot), policies, models, cache)
    turns = [
        (-int(price), pod.created, pod.key, pod, pod.replaces, demand)
        for demand in demands
        for pod, price in zip(demand.group.pods, demand.prices, strict=True)
        if pod.replaces is not None  # as all of them
    ]
    placements, left, change = [], [], _Change(snapshot)
    for price, _, _, pod, old, demand in sorted(turns, key=lambda turn: turn[:3]):
        found = _place(pod, old, change)
        if isinstance(found, str):
            left.append(Left(pod, found, -price))
            continue
        placements.append(Placement(pod, old.node, _price(demand, found, found.table.index[old.node])))
        change.make(pod, old)
    return Replacements(tuple(placements), tuple(left), change.with_both(others))


class _Change:
    """The cluster as it is with those that come and those that have not left yet.

    Attributes:
        taken: who leaves, and whose place that is then.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._used, self._assumed, self._ports = snapshot.used.copy(), snapshot.assumed.copy(), dict(snapshot.ports)
        self._come: list[tuple[str, Kind]] = []
        self._gone: list[tuple[str, Kind]] = []
        self.taken: dict[str, str] = {}

    def make(self, pod: PendingPod, old: Replaced) -> None:
        """One has its place."""
        at, requests = self._snapshot.table.index[old.node], pod.pod_class.requests
        self._used[at] += np.maximum(self._snapshot.vector(requests) - self._row(old.usage), 0)
        self._assumed[at] += np.maximum(_assumed(requests) - _assumed(old.usage), 0)
        if pod.pod_class.host_ports:
            self._ports[at] = self._ports.get(at, frozenset()) | frozenset(pod.pod_class.host_ports)
        self._come.append((old.node, pod.kind))
        self._gone.append((old.node, old.kind))
        if not old.left:
            self._come.append((old.node, msgspec.structs.replace(old.kind, leaving=True)))
            self.taken[old.key] = pod.key

    def with_both(self, pending: tuple[PendingPod, ...]) -> Snapshot:
        """Of each resource the larger of both taken."""
        snapshot = self._snapshot
        if not self._come:
            return replace(snapshot, pending=pending)
        neighbours = snapshot.neighbours.plus(self._come, self._gone)
        return replace(snapshot.with_usage(self._used, self._assumed, self._ports, neighbours), pending=pending)

    def without(self, old: Replaced) -> Snapshot | None:
        """One more gone, nobody in its place; None: its node is not there."""
        snapshot = self._snapshot
        at = snapshot.table.index.get(old.node)
        if at is None:
            return None
        used, assumed, ports = self._used.copy(), self._assumed.copy(), dict(self._ports)
        # Where sums were capped nobody knows what is left without it.
        used[at] -= np.where(used[at] < MAX_AMOUNT, self._row(old.usage), 0)
        assumed[at] = np.maximum(assumed[at] - _assumed(old.usage), 0)
        if old.host_ports:
            ports[at] = ports.get(at, frozenset()) - frozenset(old.host_ports)
        neighbours = snapshot.neighbours.plus(self._come, [*self._gone, (old.node, old.kind)])
        found = snapshot.with_usage(used, assumed, ports, neighbours)
        return replace(found, storage=snapshot.storage.without(old.node, old.volumes))

    def _row(self, usage: Amounts) -> Int64s:
        """int64[R]: what the pod that leaves holds of what anybody offers or asks for."""
        names = self._snapshot.resources
        return self._snapshot.vector(tuple((name, amount) for name, amount in usage if name in names))


def _assumed(amounts: Amounts) -> Int64s:
    return np.array(assumed_amounts(amounts), dtype=np.int64)


def _place(pod: PendingPod, old: Replaced, change: _Change) -> Snapshot | str:
    """The cluster without the one that leaves, where the new pod may have its place; else why it may not."""
    if old.flaw:
        return old.flaw
    if pod.gangs:
        return f"it belongs to {pod.gangs[0]}, and a pod of a gang cannot take the place of another"
    if old.key in change.taken:
        return f"{change.taken[old.key]} takes the place of {old.key} already"
    without = change.without(old)
    if without is None:
        return f"the pod it replaces, {old.key}, is on node {old.node}, which does not exist"
    verdicts, at = judge(pod.pod_class, without, pod.kind), without.table.index[old.node]
    if verdicts.fits[at]:
        return without
    return f"cannot take the place of {old.key} on node {old.node}: {verdicts.of_node(at)[1]}"


def _price(demand: Demand, without: Snapshot, at: int) -> int:
    there = Load.of(without).at(np.array([at], dtype=np.int64))
    first = np.zeros(1, dtype=np.int64)
    slot = demand.model.slot_costs(there, demand.size[np.newaxis], first, demand.policy.weights)
    return int(demand.arc[at]) + int(slot[0, 0])
