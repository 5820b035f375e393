"""Gangs whose controller makes more pods once they run: they do not start where those would find no room now.

Each class of pods is judged by itself, with the pods of the gang that are like them, and with those of other gangs of
the namespace that go first or run already. Else two leaders would start where the workers of only one have room. Gangs
of other namespaces do not count: nobody keeps somebody else waiting. What is not judged: room that other pods take,
and rules between pods. So less is asked than is needed, and no room is kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.pods import PodClass
from flowcore.rules.filters import run_filters
from flowcore.rules.filters.node_resources_fit import count_fitting

#: Classes of pods to come that a round judges. Each is a question to all filters about all nodes.
_MOST_CLASSES = 64


def without_gangs_before_room(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a reason at each gang whose pods to come have no room."""
    asking = [gang for gang in snapshot.gangs.values() if gang.to_come and not gang.unschedulable_reason]
    if not asking:
        return snapshot
    members: dict[str, list[PendingPod]] = {gang.name: [] for gang in asking}
    for pod in snapshot.pending:
        for name in pod.gangs:
            if name in members:
                members[name].append(pod)
    rooms, own_rooms = dict[PodClass, int](), dict[PodClass, int]()
    #: What gangs of each namespace take that go first.
    taken: dict[str, Counter[PodClass]] = {}
    gangs = dict(snapshot.gangs)
    for gang in sorted(asking, key=lambda each: _order(each, members[each.name])):
        pods = members[gang.name]
        if not pods:
            continue  # they are in another part of the pods, such as those that are only observed
        # All members are needed only where there are no more than that.
        alike = Counter(_as_judged(pod.pod_class) for pod in pods) if len(pods) == gang.min_placed else Counter()
        before = taken.setdefault(pods[0].key.partition("/")[0], Counter())
        reason = _reason(gang, alike, before, snapshot, rooms)
        if reason:
            gangs[gang.name] = msgspec.structs.replace(gang, unschedulable_reason=reason)
        elif _may_start(gang, pods, snapshot, own_rooms):
            before.update(alike)
            for later in gang.to_come:
                before[_as_judged(later.pod_class)] += later.count
    return replace(snapshot, gangs=gangs)


def _order(gang: Gang, members: list[PendingPod]) -> tuple[int, float, str]:
    """Gangs of a higher priority go first, then older ones."""
    priority = max((pod.pod_class.priority for pod in members), default=0)
    return -priority, min((pod.waiting_since for pod in members), default=0.0), gang.name


def _reason(
    gang: Gang, alike: Counter[PodClass], before: Counter[PodClass], snapshot: Snapshot, rooms: dict[PodClass, int]
) -> str:
    """Why a gang waits for room of its pods to come; "" where it does not.

    Args:
        alike: its own pods.
        before: pods of gangs that go first.
    """
    for later in gang.to_come:
        pod_class = _as_judged(later.pod_class)
        if pod_class not in rooms:
            if len(rooms) == _MOST_CLASSES:
                return ""
            rooms[pod_class] = _room(pod_class, snapshot)
        others = before[pod_class] + later.owed
        free = max(0, rooms[pod_class] - alike[pod_class] - others)
        if free < later.count:
            beside = f", beside {others} of other gangs" if others else ""
            return f"{gang.name}: {later.count} pods come once it runs, and {free} of them have room now{beside}"
    return ""


def _may_start(gang: Gang, members: list[PendingPod], snapshot: Snapshot, rooms: dict[PodClass, int]) -> bool:
    """Whether its own pods may have room now. Else it goes before nobody: its room may never come.

    Devices that they claim are not looked for: that is the costly part of a round, with limits of its own.
    """
    count = 0
    classes = Counter(msgspec.structs.replace(pod.pod_class, devices=None) for pod in members)
    for pod_class, pods in classes.items():
        if pod_class not in rooms:
            if len(rooms) == _MOST_CLASSES:
                return True
            rooms[pod_class] = _room(pod_class, snapshot)
        count += min(pods, rooms[pod_class])
    return count >= gang.min_placed


def _as_judged(pod_class: PodClass) -> PodClass:
    """A class by what is judged: pods of a template have no priority yet."""
    return msgspec.structs.replace(pod_class, priority=0, volumes=(), images=(), preferred_affinity=(), data=())


def _room(pod_class: PodClass, snapshot: Snapshot) -> int:
    """How many pods of a class fit on the nodes now, if nothing else comes."""
    fits = run_filters(pod_class, snapshot).fits
    return int(count_fitting(snapshot.vector(pod_class.requests), snapshot.free[fits]).sum())
