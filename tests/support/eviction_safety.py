"""What must hold of every plan with evictions, whatever the cluster.

Each check reads the snapshot and the plan only, carries the plan out in its order, and asks every filter at each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import msgspec
from support.safety import check_gangs

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.indexes.queue_index import QueueTree
from flowcore.costs.shares.additions import added_by
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import HostPort, PodClass
from flowcore.model.policies import (
    DuringExecution,
    Policy,
    PreemptionMode,
    ReschedulingMode,
    ReschedulingReason,
)
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import EvictionKind, RunningPod
from flowcore.planning.problem.result import Eviction, Placement
from flowcore.planning.round import RoundResult
from flowcore.rules.filters import run_filters


class Carried:
    """A cluster in which a plan is carried out step by step."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        assert snapshot.running is not None
        self._there: list[tuple[str, str, PodClass, PodSignature]] = []
        self._used = snapshot.used.copy()
        self._gone: list[RunningPod] = []
        self._running = {pod.key: pod for pod in snapshot.running.pods}
        self._tree = QueueTree(() if snapshot.queues is None else snapshot.queues.queues)
        self._held: Counter[tuple[str, str]] = Counter()
        for name, usage in {} if snapshot.queues is None else snapshot.queues.usage.items():
            self._count(name, usage.used, 1)

    def _count(self, queue: str, amounts: Amounts, sign: int) -> None:
        for above in self._tree.path(queue) if queue in self._tree.queues else ():
            for resource, amount in amounts:
                self._held[above, resource] += sign * amount

    def come_to_queue(self, pod: PendingPod) -> None:
        """A pod counts for its queue and for those above it, and none of what it adds passes a limit."""
        added = added_by(pod)
        self._count(pod.queue, added, 1)
        for above in self._tree.path(pod.queue) if pod.queue in self._tree.queues else ():
            for resource, limit in self._tree.queues[above].limit:
                if dict(added).get(resource):
                    assert self._held[above, resource] <= limit, f"{pod.key} passes the limit of {above}: {resource}"

    def now(self, without: Iterable[RunningPod] = ()) -> Snapshot:
        """The cluster as it is, but for some pods."""
        snapshot, gone = self._snapshot, [*self._gone, *without]
        used = self._used.copy()
        for pod in without:
            used[snapshot.table.index[pod.node]] -= snapshot.vector(pod.usage)
        ports: dict[int, frozenset[HostPort]] = dict(snapshot.ports)
        left = {pod.uid for pod in gone}
        for pod in gone:
            at = snapshot.table.index[pod.node]
            others = {
                port
                for other in self._running.values()
                if other.node == pod.node and other.uid not in left
                for port in other.pod_class.host_ports
            }
            ports[at] = ports.get(at, frozenset()) - (frozenset(pod.pod_class.host_ports) - others)
        index = PodIndex(snapshot.pod_index.namespaces)
        for signature, node, count in snapshot.pod_index.counts():
            index.change(signature, node, count)
        for pod in gone:
            index.change(pod.signature, pod.node, -1)
        for node, _, pod_class, signature in self._there:
            at = snapshot.table.index[node]
            ports[at] = ports.get(at, frozenset()) | frozenset(pod_class.host_ports)
            index.change(signature, node, 1)
        return snapshot.with_usage(used, snapshot.non_zero_requested, ports, index)

    def check_fits(self, key: str, node: str, pod_class: PodClass, signature: PodSignature, now: Snapshot) -> None:
        """Every filter lets a pod in."""
        verdicts = run_filters(pod_class, now, signature)
        at = now.table.index[node]
        assert verdicts.fits[at], f"{key} on {node}: {verdicts.of_node(at)}"

    def come(self, key: str, node: str, pod_class: PodClass, signature: PodSignature) -> None:
        """A pod takes its room."""
        self._used[self._snapshot.table.index[node]] += self._snapshot.vector(pod_class.requests)
        self._there.append((node, key, pod_class, signature))

    def leave(self, pod: RunningPod, *, is_replaced: bool = False) -> None:
        """A pod is gone; ``is_replaced``: its replacement, which has a node, counts for its queue."""
        assert pod not in self._gone, f"{pod.key} leaves twice"
        if not is_replaced:
            self._count(pod.queue, (*pod.usage, ("pods", 1)), -1)
        self._used[self._snapshot.table.index[pod.node]] -= self._snapshot.vector(pod.usage)
        self._gone.append(pod)


def check_evictions(snapshot: Snapshot, result: RoundResult, policies: Mapping[str, Policy]) -> None:
    """All that holds of any plan with evictions."""
    assert snapshot.running is not None
    check_order(snapshot, result)
    check_victims(snapshot, result, policies)
    check_budgets(snapshot, result)
    check_gangs(snapshot, result)
    check_gangs_leave_whole(snapshot, result)
    check_nobody_leaves_in_vain(snapshot, result)
    check_nobody_leaves_for_lower(snapshot, result)
    check_moves(snapshot, result, policies)


def check_order(snapshot: Snapshot, result: RoundResult) -> None:
    """All filters pass at each step, and the plan counts right."""
    after = carry_out(snapshot, result.placements, result.evictions)
    assert (result.after.used == after.used).all(), "usage is miscounted afterwards"


def carry_out(snapshot: Snapshot, placements: Iterable[Placement], evictions: Iterable[Eviction]) -> Snapshot:
    """Placements without victims, then reserved replacements, then evictions, then the others; all filters pass."""
    carried = Carried(snapshot)
    for placement in placements:
        if not placement.victims:
            _place(carried, placement, carried.now())
    leavers = list(evictions)
    for each in leavers:
        if each.to:
            _reserve(carried, each)
    for each in leavers:
        carried.leave(each.pod, is_replaced=bool(each.to))
    for placement in placements:
        if placement.victims:
            _place(carried, placement, carried.now())
    return carried.now()


def _reserve(carried: Carried, eviction: Eviction) -> None:
    pod, node = eviction.pod, eviction.to
    carried.check_fits(pod.key, node, pod.pod_class, pod.signature, carried.now(without=[pod]))
    assert node != pod.node, f"{pod.key} moves to its own node"
    carried.come(pod.key, node, msgspec.structs.replace(pod.pod_class, requests=pod.usage), pod.signature)


def _place(carried: Carried, placement: Placement, now: Snapshot) -> None:
    pod = placement.pod
    carried.check_fits(pod.key, placement.node, pod.pod_class, pod.signature, now)
    carried.come_to_queue(pod)
    carried.come(pod.key, placement.node, pod.pod_class, pod.signature)


def check_victims(snapshot: Snapshot, result: RoundResult, policies: Mapping[str, Policy]) -> None:
    """Victims have a strictly lower priority than all they leave for, may be evicted, and somebody waits for each."""
    pending = {pod.key: pod for pod in snapshot.pending}
    placed = {placement.pod.key: placement for placement in result.placements}
    evicted = [each.pod.key for each in result.evictions]
    assert len(evicted) == len(set(evicted)), "a pod is evicted twice"
    for placement in result.placements:
        assert set(placement.victims) <= set(evicted), "a placement waits for a pod that stays"
    for each in result.evictions:
        assert not each.pod.unevictable_reason, f"{each.pod.key}: {each.pod.unevictable_reason}"
        assert each.for_pods or each.gain or each.kind is EvictionKind.RULE, f"{each.pod.key} leaves for nobody"
        assert not (each.for_pods and each.gain), f"{each.pod.key} leaves for gain and for others"
        for key in each.for_pods:
            assert key in placed, f"{each.pod.key} leaves for {key}, which has no node"
            pod = pending[key]
            if each.kind is EvictionKind.PREEMPTION:
                assert each.pod.priority < pod.pod_class.priority, f"{each.pod.key} leaves for {key}"
            if each.kind is EvictionKind.RECLAIM:
                assert each.pod.priority <= pod.pod_class.priority, f"{each.pod.key} leaves for {key}"
                assert pod.queue, f"{each.pod.key} leaves for {key}, which has no queue"
                assert each.pod.queue not in ("", pod.queue), f"{each.pod.key} leaves for {key} of queue {pod.queue}"
            if each.kind in (EvictionKind.PREEMPTION, EvictionKind.RECLAIM):
                assert pod.preempts, f"{each.pod.key} leaves for {key}, which preempts nobody"
                assert policies[pod.policy].preemption.mode is PreemptionMode.LOWER_PRIORITY


def check_budgets(snapshot: Snapshot, result: RoundResult) -> None:
    """No PodDisruptionBudget loses more pods than it allows."""
    assert snapshot.running is not None
    lost = Counter(budget for each in result.evictions if not each.by_controller for budget in each.pod.budgets)
    for budget, count in lost.items():
        assert count <= snapshot.running.budgets.get(budget, 0), f"{budget} loses {count}"


def check_gangs_leave_whole(snapshot: Snapshot, result: RoundResult) -> None:
    """A gang keeps as many pods as it needs, or loses all of them."""
    assert snapshot.running is not None
    lost = Counter(each.pod.gang for each in result.evictions if each.pod.gang)
    for name, count in lost.items():
        gang = snapshot.running.gangs[name]
        left = gang.running - count
        assert not left or (left >= gang.min_member and not gang.whole), f"{name} loses {count} of {gang.running}"


def check_nobody_leaves_in_vain(snapshot: Snapshot, result: RoundResult) -> None:
    """No victim could have stayed with the rest of the plan as it is."""
    for each in result.evictions:
        if each.pod.gang or each.gain or each.kind is EvictionKind.RULE:
            continue
        assert not _holds(snapshot, *_without(result, {each.pod.key})), f"{each.pod.key} leaves in vain"


def check_nobody_leaves_for_lower(snapshot: Snapshot, result: RoundResult) -> None:
    """Nobody is preempted who could stay if those waited that it may not leave for, nor moves for these alone."""
    together: dict[str, list[Eviction]] = {}
    for each in result.evictions:
        if each.for_pods:
            together.setdefault(each.pod.gang or each.pod.key, []).append(each)
    for name, leaving in together.items():
        beside, rest = _without(result, {each.pod.key for each in leaving})
        above = {
            placement.pod.key
            for placement in result.placements
            if any(_may_leave_for(each, placement) for each in leaving)
        }
        gangs = {each.atomic_group for each in result.placements if each.pod.key in above} - {""}
        above |= {each.pod.key for each in result.placements if each.atomic_group in gangs}  # they are nothing alone
        staying = [placement for placement in beside if placement.pod.key in above]
        if not _holds(snapshot, staying, rest):
            continue
        assert any(each.kind is EvictionKind.MIGRATION for each in leaving), f"{name} is preempted for pods below it"
        lower = [placement for placement in result.placements if placement.pod.key not in above]
        staying = [placement for placement in beside if placement.pod.key not in above]
        needed = _holds(snapshot, lower, result.evictions) and not _holds(snapshot, staying, rest)
        assert not needed, f"{name} moves for pods below it"


def _without(result: RoundResult, staying: Collection[str]) -> tuple[list[Placement], list[Eviction]]:
    """The placements and evictions of a plan in which some stay; nobody waits for these."""
    placements = [
        replace(placement, victims=tuple(key for key in placement.victims if key not in staying))
        for placement in result.placements
    ]
    return placements, [each for each in result.evictions if each.pod.key not in staying]


def _holds(snapshot: Snapshot, placements: Iterable[Placement], evictions: Iterable[Eviction]) -> bool:
    try:
        carry_out(snapshot, placements, evictions)
    except AssertionError:
        return False
    return True


def _may_leave_for(eviction: Eviction, placement: Placement) -> bool:
    """Or one above it that preempts nobody comes at once: it takes its room before it."""
    pod, priority = placement.pod, placement.pod.pod_class.priority
    if eviction.kind is EvictionKind.PREEMPTION:
        return (pod.preempts or not placement.victims) and eviction.pod.priority < priority
    return eviction.pod.priority <= priority


def check_moves(snapshot: Snapshot, result: RoundResult, policies: Mapping[str, Policy]) -> None:
    """Only what a policy lets go is moved or leaves for a rule, within its limits; a move has a reserved place."""
    moved = [each for each in result.evictions if each.kind in (EvictionKind.MIGRATION, EvictionKind.RULE)]
    counted: Counter[tuple[str, str]] = Counter()
    for each in moved:
        pod = each.pod
        if each.kind is EvictionKind.RULE:
            assert pod.during_execution is not DuringExecution.IGNORE
            assert each.to or pod.during_execution is DuringExecution.EVICT, f"{pod.key} is replaced nowhere"
        else:
            assert each.to, f"{pod.key} is moved nowhere"
            assert not pod.immovable_reason, f"{pod.key} is moved: {pod.immovable_reason}"
            rescheduling = policies[pod.policy].rescheduling
            reason = ReschedulingReason.GAIN if each.gain else ReschedulingReason.WAITING_PODS
            assert rescheduling.moves_for(reason, (ReschedulingMode.ACT,))
            assert not each.gain or each.gain >= rescheduling.min_gain
        counted.update([("policy", pod.policy), ("node", pod.node), ("ns", pod.namespace), ("owner", pod.owner)])
    for each in moved:
        limits = policies[each.pod.policy].rescheduling
        assert counted["policy", each.pod.policy] <= limits.per_round
        assert counted["node", each.pod.node] <= limits.per_node
        assert counted["ns", each.pod.namespace] <= limits.per_namespace
        assert counted["owner", each.pod.owner] <= limits.per_owner
