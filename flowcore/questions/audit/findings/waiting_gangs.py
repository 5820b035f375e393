"""Gangs that wait though a plan runs them whole."""

from __future__ import annotations

from collections import Counter

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.amount_text import counted
from flowcore.questions.audit.audited_cluster import AuditedCluster
from flowcore.questions.audit.counted_room import WEIGHT, CountedRoom, RoomPrices
from flowcore.questions.audit.finding import PARTS, AuditFinding, CountedGang, FindingKind, WitnessStep
from flowcore.questions.audit.sentences import do, plan_words
from flowcore.questions.audit.witness import steps_of


def waiting_gangs(cluster: AuditedCluster) -> tuple[AuditFinding, list[WitnessStep]]:
    """The finding and its witness: the plan of all waiting pods, in which gangs are whole or absent."""
    pods_of, gangs = _pods_of_gangs(cluster), list[CountedGang]()
    for name, pods in pods_of.items():
        gangs.append(CountedGang(name, cluster.snapshot.gangs[name].min_placed, [pod.key for pod in pods]))
    result = cluster.keeping_plan
    placed = {placement.pod.key for placement in result.placements}
    runs = sum(len(placed.intersection(gang.pods)) >= gang.needs for gang in gangs)
    steps = steps_of(result, cluster.snapshot, cluster.prepared.policies) if runs else []
    room = _room_of(cluster, pods_of)
    weights = _weights(room, pods_of, gangs)
    bounds = [(_most_gangs(room, prices, pods_of, gangs), prices) for prices in room.prices(weights)]
    at_most, prices = min(bounds, key=lambda bound: bound[0])
    sentence = "no gang waits"
    if gangs:
        outcome = plan_words(runs, at_most, len(gangs), steps, "runs")
        sentence = f"{counted(len(gangs), 'gang')} {do(len(gangs), 'wait')}; {outcome}"
    finding = AuditFinding(
        kind=FindingKind.WAITING_GANGS,
        now=len(gangs),
        at_least=runs,
        at_most=at_most,
        sentence=sentence,
        plan=FindingKind.WAITING_GANGS if steps else "",
        bound=room.bound(prices),
        gangs=gangs,
    )
    return finding, steps


def _pods_of_gangs(cluster: AuditedCluster) -> dict[str, list[PendingPod]]:
    """The waiting pods of each gang that lacks some; slices have theirs from the gang that they are within."""
    gangs = cluster.snapshot.gangs
    pods_of: dict[str, list[PendingPod]] = {
        name: [] for name, gang in gangs.items() if gang.min_placed > 0 and not gang.slice_of
    }
    for pod in cluster.waiting:
        for name in pod.gangs:
            if name in pods_of:
                pods_of[name].append(pod)
    return {name: pods for name, pods in pods_of.items() if pods}


def _room_of(cluster: AuditedCluster, pods_of: dict[str, list[PendingPod]]) -> CountedRoom:
    """The room for pods of gangs, each of them once."""
    pods = {pod.key: pod for members in pods_of.values() for pod in members}
    classes = Counter(pod.pod_class for pod in pods.values())
    return CountedRoom.of(cluster.snapshot, [*classes.items()], cluster.movable)


def _weights(room: CountedRoom, pods_of: dict[str, list[PendingPod]], gangs: list[CountedGang]) -> list[int]:
    """Of a pod of each kind: an equal part of its gang, where several want that kind the mean."""
    total, pods = [0] * len(room.coming), [0] * len(room.coming)
    for gang in gangs:
        for pod in pods_of[gang.name]:
            kind = room.number_of[pod.pod_class]
            total[kind] += WEIGHT // gang.needs
            pods[kind] += 1
    return [max(1, weight // count) for weight, count in zip(total, pods, strict=True)]


def _most_gangs(
    room: CountedRoom, prices: RoomPrices, pods_of: dict[str, list[PendingPod]], gangs: list[CountedGang]
) -> int:
    """No plan runs more gangs whole.

    A gang pays for the cheapest pods that it needs. A pod that several gangs count pays an equal part for each.
    """
    cheapest = [next(iter(room.paid(kind, prices)), None) for kind in room.coming]
    shared = Counter(key for gang in gangs for key in gang.pods)
    gained = 0
    for gang in gangs:
        costs = sorted(
            cost // shared[pod.key]
            for pod in pods_of[gang.name]
            if (cost := cheapest[room.number_of[pod.pod_class]]) is not None
        )
        if len(costs) >= gang.needs:
            gained += max(0, PARTS - sum(costs[: gang.needs]))
    return (gained + room.net_price(prices)) // PARTS
