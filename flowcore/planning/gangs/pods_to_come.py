"""Gangs whose controller makes more pods once they run: they do not start where those would find no room now.

Each class of pods is judged by itself, with the pods of the gang that are like them, and with those of other gangs of
the namespace that go first or run already. Else two leaders would start where the workers of only one have room. Gangs
of other namespaces do not count: nobody keeps somebody else waiting. What is not judged: room that other pods take,
and rules between pods. So less is asked than is needed, and no room is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.costs.shares.queue_admission import let_in_by_limits
from flowcore.model.gangs import Gang
from flowcore.model.pods import PodClass
from flowcore.rules.filters import run_filters
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.reasons.kept_domains import nodes_of_domain
from flowcore.rules.topology.domains import Domains

#: Classes of pods to come that a round judges. Each is a question to all filters about all nodes.
_MOST_CLASSES = 64


def without_gangs_before_room(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a reason at each gang whose pods to come have no room."""
    asking = [gang for gang in snapshot.gangs.values() if gang.to_come and not gang.unschedulable_reason]
    if not asking:
        return snapshot
    slices: dict[str, list[Gang]] = {gang.name: [] for gang in asking}
    for gang in snapshot.gangs.values():
        if gang.slice_of in slices:
            slices[gang.slice_of].append(gang)
    members: dict[str, list[PendingPod]] = {part.name: [] for gang in asking for part in (gang, *slices[gang.name])}
    for pod in snapshot.pending:
        for name in pod.gangs:
            if name in members:
                members[name].append(pod)
    rooms, starting = dict[PodClass, int](), _Starting(snapshot)
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
        elif starting.may_start([(part, members[part.name]) for part in (gang, *slices[gang.name])]):
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
            rooms[pod_class] = int(_room(pod_class, snapshot).sum())
        others = before[pod_class] + later.owed
        free = max(0, rooms[pod_class] - alike[pod_class] - others)
        if free < later.count:
            beside = f", beside {others} of other gangs" if others else ""
            return f"{gang.name}: {later.count} pods come once it runs, and {free} of them have room now{beside}"
    return ""


class _Starting:
    """Which gangs may start now. The others go before nobody: what they wait for may never come."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._let_in = let_in_by_limits(snapshot)
        self._rooms: dict[PodClass, Int64s] = {}

    def may_start(self, parts: Sequence[tuple[Gang, Sequence[PendingPod]]]) -> bool:
        """Whether a gang may have room now, in a domain if it must be in one, within the limits of queues.

        Devices that its pods claim are not looked for: that is the costly part of a round, with limits of its own.

        Args:
            parts: the gang and its slices, each with its pods. Slices that are placed after it do not matter.
        """
        (gang, members), *_ = parts
        may_fit = all(self._may_fit(part, pods) for part, pods in parts if not part.unschedulable_reason)
        return may_fit and self._let_in(members[: gang.min_placed])

    def _may_fit(self, gang: Gang, members: Sequence[PendingPod]) -> bool:
        table = self._snapshot.table
        domains = Domains.unordered(gang.topology_key, table) if gang.topology_key else Domains.whole(table)
        nodes = nodes_of_domain(gang, table) if gang.topology_key and gang.domain else domains.labelled
        room = np.zeros(domains.count + 1, dtype=np.int64)
        for pod_class, count in Counter(
            msgspec.structs.replace(pod.pod_class, devices=None) for pod in members
        ).items():
            if pod_class not in self._rooms:
                if len(self._rooms) == _MOST_CLASSES:
                    return True
                self._rooms[pod_class] = _room(pod_class, self._snapshot)
            room += np.minimum(domains.totals(np.where(nodes, self._rooms[pod_class], 0)), count)
        return int(room.max()) >= gang.min_placed


def _as_judged(pod_class: PodClass) -> PodClass:
    """A class by what is judged: pods of a template have no priority yet."""
    return msgspec.structs.replace(pod_class, priority=0, volumes=(), images=(), preferred_affinity=(), data=())


def _room(pod_class: PodClass, snapshot: Snapshot) -> Int64s:
    """int64[N]: how many pods of a class fit on each node now, if nothing else comes."""
    fits = run_filters(pod_class, snapshot).fits
    return np.where(fits, count_fitting(snapshot.vector(pod_class.requests), snapshot.free), 0)
