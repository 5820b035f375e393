"""Which waiting pods the limits of their queues let in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs.shares.limit_room import LimitRoom
from flowcore.costs.shares.shares import Shares, urgencies_of
from flowcore.model.gangs import Gang
from flowcore.rules.topology.connected_components import connected_components


def held_back(snapshot: Snapshot, fitting: Callable[[], Mapping[str, bool]]) -> dict[str, str]:
    """Pods that wait because of a limit, by key, and a sentence that says so.

    Pods larger than every node come last. Others get what a limit leaves by priority; of one priority those first
    that have room on a node, then those that are due to their queue, then the longest waiting. A gang gets it for all
    pods that it needs, or not at all. Gangs that share pods count as one.

    Args:
        fitting: whether some node has room for each pod now, by key; asked only where a limit is short.
    """
    if snapshot.queues is None or not any(queue.limit for queue in snapshot.queues.queues):
        return {}
    shares = Shares(snapshot)
    room = LimitRoom(shares)
    concerned = {name for name in shares.tree.queues if len(room.rows(name))}
    pods = [pod for pod in snapshot.pending if pod.queue in concerned]
    if not room.lacking(pods):
        return {}
    fits = fitting()

    def rank(pod: PendingPod) -> tuple[bool, int, bool]:
        # Pods larger than every node come last: they would keep room from others and never use it.
        return not shares.fits_a_node(pod), -pod.pod_class.priority, not fits.get(pod.key, False)

    pods.sort(key=lambda pod: (*rank(pod), pod.came))
    # What a limit leaves is for others than those that wait anyhow.
    units = [unit for unit in _units(pods, snapshot) if not _cannot_be_placed(unit, snapshot.gangs)]
    urgencies = urgencies_of(shares, (pod for unit in units for pod in unit if pod.queue in concerned))
    units.sort(key=lambda unit: min((*rank(pod), -urgencies[pod.key]) for pod in unit if pod.queue in concerned))
    reasons: dict[str, str] = {}
    for unit in units:
        needed, others = _needed(unit, snapshot.gangs)
        lacking = room.lacking(needed)
        if lacking:
            text = _sentence(lacking, needed)
            reasons.update((pod.key, text) for pod in unit)
            continue
        room.take(needed)
        for pod in others:
            if lacking := room.lacking([pod]):
                reasons[pod.key] = _sentence(lacking, [pod])
            else:
                room.take([pod])
    return reasons


def let_in_by_limits(snapshot: Snapshot) -> Callable[[Sequence[PendingPod]], bool]:
    """Whether the limits of queues leave enough for some pods beside those that were let in by earlier questions."""
    if snapshot.queues is None or not any(queue.limit for queue in snapshot.queues.queues):
        return lambda _: True
    room = LimitRoom(Shares(snapshot))

    def let_in(pods: Sequence[PendingPod]) -> bool:
        is_enough = room.lacking(pods) is None
        if is_enough:
            room.take(pods)
        return is_enough

    return let_in


def _cannot_be_placed(unit: Sequence[PendingPod], gangs: Mapping[str, Gang]) -> bool:
    """Whether a gang of a unit waits whatever room there is, and so all of it does."""
    return any(gangs[name].unschedulable_reason for pod in unit for name in pod.gangs if name in gangs)


def _units(pods: Sequence[PendingPod], snapshot: Snapshot) -> list[list[PendingPod]]:
    """What is let in as a whole, in the order of the first pod: gangs that belong together, or a pod by itself."""
    alone = {pod.key for pod in pods if not pod.gangs}
    members = [pod for pod in snapshot.pending if pod.gangs]
    keys = [
        {("gang", name) for name in pod.gangs}
        | {
            ("group", gang.atomic_group)
            for name in pod.gangs
            if (gang := snapshot.gangs.get(name)) and gang.atomic_group
        }
        for pod in members
    ]
    unit_of: dict[str, list[PendingPod]] = {}
    for component in connected_components(keys):
        unit = [members[index] for index in component]
        unit_of.update((pod.key, unit) for pod in unit)
    units: list[list[PendingPod]] = []
    seen: set[str] = set()
    for pod in pods:
        if pod.key not in seen:
            unit = [pod] if pod.key in alone else unit_of[pod.key]
            seen.update(each.key for each in unit)
            units.append(unit)
    return units


def _needed(unit: Sequence[PendingPod], gangs: Mapping[str, Gang]) -> tuple[list[PendingPod], list[PendingPod]]:
    """The pods that a unit needs, and the others; a pod by itself is needed."""
    if not unit[0].gangs:
        return list(unit), []
    order = sorted(unit, key=lambda pod: (-pod.pod_class.priority, pod.came))
    needed: dict[str, PendingPod] = {}
    for name in sorted({name for pod in unit for name in pod.gangs}):
        gang = gangs.get(name)
        members = [pod for pod in order if name in pod.gangs]
        least = len(members) if gang is None else max(0, gang.min_placed)
        needed.update((pod.key, pod) for pod in members[:least])
    return list(needed.values()), [pod for pod in order if pod.key not in needed]


def _sentence(lacking: tuple[str, str], pods: Sequence[PendingPod]) -> str:
    whom = "it" if len(pods) == 1 else f"the {len(pods)} pods that its gang needs"
    queue, resource = lacking
    return f"The limit of FlowQueue {queue} leaves too little {resource} for {whom}."
