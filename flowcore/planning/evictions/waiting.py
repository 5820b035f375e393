"""Pods that wait after the first part of a round, by themselves or as atomic groups, the most important first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.problem.result import Placement, RoundResult
from flowcore.planning.problem.waiting import waiting_demands

#: Placements that may get other nodes.
_FEW_PODS = 8


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pods that found no node.

    Attributes:
        priority: the lowest of its pods.
        price: of leaving the dearest of them.
        demands: number of the demand, and its pods in their order.
        group: number of the atomic group that is placed as a whole; -1: each pod by itself.
        needs_domain: whether a gang of that group must be in one domain and has yet to choose it.
        beside: number of the waiting group that does without these pods, which are nothing without it; -1: none.
    """

    priority: int
    price: float
    demands: tuple[tuple[int, tuple[PendingPod, ...]], ...]
    group: int = -1
    needs_domain: bool = False
    beside: int = -1


def waiting_after(problem: Problem, result: RoundResult) -> list[Waiting]:
    """The pods that a result leaves, but for those that no node will ever do for, and those that claims are freed for.

    Source: kube-scheduler apis/config/v1/default_plugins.go (DynamicResources comes before DefaultPreemption).
    """
    groups, waiting = problem.atomic_groups, list[Waiting]()
    unplaced = {each.pod.key: each.price for each in result.unplaced if not each.frees}
    placed_groups = {each.atomic_group for each in result.placements if each.atomic_group}
    members, optional = (dict[int, dict[int, list[PendingPod]]]() for _ in range(2))
    for index, demand in enumerate(problem.demands):
        alone = []
        for place, pod in enumerate(demand.group.pods):
            if pod.key not in unplaced:
                continue
            group = int(groups.group_of[index][place])
            if group < 0 or groups.all[group].name in placed_groups:
                alone.append(pod)
            else:
                of_group = members if bool(groups.needed[index][place]) else optional
                of_group.setdefault(group, {}).setdefault(index, []).append(pod)
        if alone:
            price = max(unplaced[pod.key] for pod in alone) / demand.weight
            waiting.append(Waiting(demand.group.pod_class.priority, price, ((index, tuple(alone)),)))
    for number, demands in members.items():
        atomic_group = groups.all[number]
        if atomic_group.unschedulable_reason or sum(map(len, demands.values())) < atomic_group.size:
            continue
        entries = tuple((demand, tuple(demands[demand])) for demand in problem.by_size if demand in demands)
        priority = min(problem.demands[demand].group.pod_class.priority for demand, _ in entries)
        price = max(unplaced[pod.key] / problem.demands[index].weight for index, pods in entries for pod in pods)
        waiting.append(Waiting(priority, price, entries, number, atomic_group.needs_domain))
        # Beside a gang that chooses its domain here they wait until it has one.
        for index, pods in optional.get(number, {}).items() if atomic_group.any_domain else ():
            price = max(unplaced[pod.key] for pod in pods) / problem.demands[index].weight
            priority = problem.demands[index].group.pod_class.priority
            waiting.append(Waiting(priority, price, ((index, tuple(pods)),), beside=number))
    waiting.sort(key=lambda entry: (-entry.priority, -entry.price))
    return waiting


def waiting_again(problem: Problem, placements: Iterable[Placement], demand_of: Mapping[str, int]) -> list[Waiting]:
    """Pods of placements that are taken back: gangs first, each as a whole, and of each the most important.

    Args:
        demand_of: number of the demand of each pod, by key.
    """
    alone, members = list[Waiting](), dict[int, dict[int, list[PendingPod]]]()
    for placement in placements:
        pod, number = placement.pod, demand_of[placement.pod.key]
        if placement.atomic_group and not placement.optional:
            group = problem.atomic_groups.number_of(problem.demands, number, pod)
            members.setdefault(group, {}).setdefault(number, []).append(pod)
        else:
            alone.append(Waiting(pod.pod_class.priority, 0.0, ((number, (pod,)),)))
    gangs = []
    for group, demands in members.items():
        entries = tuple((number, tuple(demands[number])) for number in problem.by_size if number in demands)
        priority = min(problem.demands[number].group.pod_class.priority for number in demands)
        # One that was in a domain is kept to it: ``restrict_to_gang_domains``.
        gangs.append(Waiting(priority, 0.0, entries, group))
    return sorted((*gangs, *alone), key=lambda entry: -entry.priority)


def restrict_to_gang_domains(problem: Problem, result: RoundResult) -> tuple[Demand, ...]:
    """The demands; where a result places pods of a gang in a topology domain, all of its pods are kept to it."""
    snapshot, demands = problem.snapshot, [demand.with_leavers() for demand in problem.demands]
    if not any(gang.topology_key for gang in snapshot.gangs.values()):
        return tuple(demands)
    homes = {name: placement.node for placement in result.placements for name in placement.pod.gangs}
    for number in range(len(demands)):
        for name in demands[number].group.pods[0].gangs:
            gang = snapshot.gangs.get(name)
            if gang is not None and gang.topology_key and name in homes:
                codes = snapshot.table.column(gang.topology_key).codes
                demands[number] = demands[number].restricted_to(codes == codes[snapshot.table.index[homes[name]]])
    return tuple(demands)


def affordable(
    problem: Problem, candidate: Candidate, waiting: list[Waiting], demands: Sequence[Demand]
) -> tuple[list[Waiting], tuple[Demand, ...]]:
    """Pods for which running pods may leave, and demands kept to the nodes that cost less than to wait.

    A pod whose policy lets it wait for a cheaper node evicts no pod for a node that costs more than its price of
    waiting. A node costs what one more pod would pay there now; when others have left, it costs at most that. A pod of
    a group pays less than the mean price of the group.

    Args:
        demands: those of the problem, or some of them on fewer nodes.
    """
    kept_demands = list(demands)
    if not waiting_demands(problem):
        return waiting, tuple(kept_demands)
    affordable_waiting = []
    limits: dict[int, float] = {}
    for waiter in waiting:
        mean = None if waiter.group < 0 else problem.atomic_groups.all[waiter.group].mean_price
        kept = []
        for number, pods in waiter.demands:
            if not demands[number].waits:
                kept.append((number, pods))
                continue
            if demands[number].is_of_minimums:
                continue  # what a pod costs depends on those that its network needs beside it
            demand = priced(problem, demands[number])
            prices = dict(zip((pod.key for pod in demand.group.pods), demand.prices.tolist(), strict=True))
            cost = demand.arc + candidate.capacity.next_increase(demand)
            cheapest = float(np.where(demand.allowed, cost, np.inf).min(initial=np.inf))
            worth = tuple(pod for pod in pods if (prices[pod.key] if mean is None else mean) > cheapest)
            if worth:
                kept.append((number, worth))
                limit = min(prices[pod.key] for pod in worth) if mean is None else mean
                limits[number] = min(limits.get(number, np.inf), limit)
                kept_demands[number] = kept_demands[number].restricted_to(cost < limits[number])
        if kept and (mean is None or [len(pods) for _, pods in kept] == [len(pods) for _, pods in waiter.demands]):
            affordable_waiting.append(replace(waiter, demands=tuple(kept)))
    return affordable_waiting, tuple(kept_demands)


def may_change_places(problem: Problem, result: RoundResult, candidate: Candidate) -> bool:
    """Whether all placements of a result may get other nodes where others leave: they are few, and plain.

    Not with gangs, queues, networks, volumes, devices or NUMA zones, with pods that replace others or wait for a
    cheaper node, and with policies whose age crosses priorities.
    """
    placed = {each.pod.key for each in result.placements}
    elsewhere = candidate.held is not None or candidate.decided.before is not None
    if len(placed) > _FEW_PODS or elsewhere or problem.atomic_groups.all or problem.snapshot.queues is not None:
        return False
    of_round = [(demand, pod) for demand in problem.demands for pod in demand.group.pods if pod.key in placed]
    return len(of_round) == len(placed) and not any(
        pod.victim is not None
        or pod.pod_class.volumes
        or pod.pod_class.devices is not None
        or (pod.pod_class.numa is not None and problem.snapshot.numa is not None)
        or demand.policy.unscheduled.aging_crosses_priorities
        or demand.waits
        or demand.is_of_minimums
        for demand, pod in of_round
    )
