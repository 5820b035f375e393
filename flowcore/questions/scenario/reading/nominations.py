"""Rooms that are kept for nominated pods, as kube-scheduler keeps them while victims terminate.

It counts a pod on the node that ``status.nominatedNodeName`` names, for pods of the same or a lower priority. An
operator has reservations for that; a dump has the field, and the pods that terminate there. As with a reservation the
larger of two sums counts on each node: what those that terminate hold, and what the nominated pods need.

Pods that we bind keep such rooms for our own nominations, and for those of others while pods of a lower priority
terminate on the node: a preemption is under way. Any other nomination that others wrote for them is a wish, which
rounds follow (``flowcore.costs.wishes``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.assembly import to_snapshot
from flowcore.cluster.occupancy import Excess
from flowcore.cluster.running import leaving_for
from flowcore.model.pods import Pod
from flowcore.model.resources import PODS
from flowcore.questions.scenario.scenario import GovernedScenario, Scenario
from flowcore.rules.filters import run_filters
from flowcore.rules.filters.dynamic_resources import taker_on
from flowcore.rules.other_pods import Leaver, with_pod, without_pods

#: Pods of a higher priority that are looked at: where there are more, no room is kept for those below them.
_MOST_AHEAD = 500


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """The room of a nominated pod.

    Attributes:
        awaited: pods that terminate on the node and must have left before; (): it has room now.
    """

    pod: PendingPod
    node: str
    awaited: tuple[Pod, ...]

    @property
    def reason(self) -> str:
        """Why the pod is not there yet; "": it has room."""
        if not self.awaited:
            return ""
        keys = [victim.key for victim in self.awaited]
        others = f" and {len(keys) - 1} other{'s' if len(keys) > 2 else ''}" if len(keys) > 1 else ""
        terminate = "terminates" if len(keys) == 1 else "terminate"
        return f"Its room on {self.node} is kept. It waits for {keys[0]}{others}, which {terminate}."


def kept_rooms(scenario: Scenario, governed: GovernedScenario, now: float) -> list[KeptRoom]:
    """The rooms of nominated pods that fit there, once those that terminate there have left, beside more urgent pods.

    A gang keeps them for all of its waiting pods or for none.

    Args:
        now: seconds since the epoch.
    """
    cluster = scenario.cluster
    nominated = {} if scenario.complete else _nominated(scenario, governed)
    if not nominated:
        return []
    rooms = _Rooms(scenario, to_snapshot(cluster, now=now, pending=()))
    units: dict[object, list[Pod]] = {}
    waiting = [pod for pod in scenario.waiting() if not pod.skip_reason]
    lowest = min(pod.pod_class.priority for pod in nominated.values())
    for pod in sorted(waiting, key=lambda pod: (-pod.pod_class.priority, pod.key not in nominated, pod.created)):
        if pod.key in nominated or pod.pod_class.priority > lowest:
            units.setdefault(pod.gang.key if pod.gang is not None and pod.key in nominated else pod.key, []).append(pod)
    ahead = 0
    for pods in units.values():
        if pods[0].key in nominated:
            rooms.keep([governed.pending_pod(pod) for pod in pods], pods)
        else:
            ahead += 1
            if ahead > _MOST_AHEAD:
                break
            rooms.come(governed.pending_pod(pods[0]), {pod.nominated_node for pod in nominated.values()})
    return rooms.kept


def _nominated(scenario: Scenario, governed: GovernedScenario) -> dict[str, Pod]:
    """Nominated pods that may be planned, by key: no pod of a gang of which another one waits without a nomination."""
    waiting = [pod for pod in scenario.waiting() if not pod.skip_reason]
    nominated = {
        pod.key
        for pod in waiting
        if pod.nominated_node in scenario.cluster.nodes
        and pod.replaces is None
        and (
            pod.nominated_node == pod.planned_node
            or not governed.policy_of(pod).delivery.binds
            or leaving_for(scenario.cluster, pod)
        )
    }
    apart = {pod.gang.key for pod in scenario.waiting() if pod.gang is not None and pod.key not in nominated}
    return {pod.key: pod for pod in waiting if pod.key in nominated and (pod.gang is None or pod.gang.key not in apart)}


class _Rooms:
    """Rooms are kept one after the other, the most urgent pod first."""

    def __init__(self, scenario: Scenario, snapshot: Snapshot) -> None:
        self._signature_of = scenario.cluster.counted_signature
        self._before = self._now = self._later = snapshot
        self._awaited: set[str] = set()
        self._coming: list[tuple[PendingPod, int]] = []
        self.kept: list[KeptRoom] = []
        self._terminating: dict[str, list[Pod]] = {}
        for pod in scenario.running():
            if pod.deleting:
                self._terminating.setdefault(pod.node_name, []).append(pod)

    def keep(self, pending: Sequence[PendingPod], pods: Sequence[Pod]) -> None:
        """Keeps the rooms of pods, all or none."""
        later, awaited, kept = self._later, set(self._awaited), list[KeptRoom]()
        for waiting, pod in zip(pending, pods, strict=True):
            row = later.table.index[pod.nominated_node]
            leaving = [
                victim
                for victim in self._terminating.get(pod.nominated_node, ())
                if victim.pod_class.priority <= pod.pod_class.priority
            ]
            for victims in ((), tuple(leaving)):
                more = [victim for victim in victims if victim.key not in awaited]
                gone = without_pods(later, (Leaver.of_bound(each, self._signature_of(each)) for each in more))
                if run_filters(waiting.pod_class, gone, waiting.signature).fits[row]:
                    # Those that others wait for hold its room as well.
                    shared = [victim for victim in leaving if victim.key in awaited]
                    kept.append(KeptRoom(waiting, pod.nominated_node, victims or tuple(shared)))
                    later = _with_room(gone, waiting, row)
                    awaited |= {victim.key for victim in more}
                    break
            else:
                return
        if any(room.awaited for room in kept) and self._fit_elsewhere(pending):
            return
        self._later, self._awaited = later, awaited
        self.kept += kept
        self._now = with_kept_rooms(self._before, self.kept)
        for coming, row in self._coming:
            self._now = _with_room(self._now, coming, row)

    def _fit_elsewhere(self, pending: Sequence[PendingPod]) -> bool:
        """Whether all have room now, one after the other: kube-scheduler looks at the other nodes then."""
        now = self._now
        for pod in pending:
            fits = run_filters(pod.pod_class, now, pod.signature).fits
            if not fits.any():
                return False
            now = _with_room(now, pod, int(np.argmax(fits)))
        return True

    def come(self, pod: PendingPod, avoided: Iterable[str]) -> None:
        """A more urgent pod takes what is free, elsewhere than on some nodes where that is possible."""
        fits = run_filters(pod.pod_class, self._now, pod.signature).fits
        elsewhere = fits.copy()
        elsewhere[[self._now.table.index[node] for node in avoided]] = False
        if fits.any():
            row = int(np.argmax(elsewhere if elsewhere.any() else fits))
            self._now, self._later = _with_room(self._now, pod, row), _with_room(self._later, pod, row)
            self._coming.append((pod, row))


def with_kept_rooms(snapshot: Snapshot, kept: Sequence[KeptRoom]) -> Snapshot:
    """A snapshot in which nominated pods count on their nodes, beside those that terminate there."""
    counted, by_row = snapshot, dict[int, list[KeptRoom]]()
    for room in kept:
        row = snapshot.table.index[room.node]
        by_row.setdefault(row, []).append(room)
        counted = _with_room(counted, room.pod, row)
    used, non_zero = counted.used.copy(), counted.non_zero_requested.copy()
    for row, rooms in by_row.items():
        leaving = {victim.key: victim for room in rooms for victim in room.awaited}
        excess = Excess.of((room.pod.pod_class for room in rooms), leaving.values())
        more = snapshot.vector(excess.amounts)
        more[snapshot.resources.index(PODS)] = excess.pods
        used[row] = snapshot.used[row] + more
        non_zero[row] += (excess.cpu, excess.memory)
    return replace(counted, used=used, non_zero_requested=non_zero)


def _with_room(snapshot: Snapshot, pod: PendingPod, row: int) -> Snapshot:
    counted, devices, needs = (
        with_pod(snapshot, pod.pod_class, pod.signature, row),
        pod.pod_class.devices,
        pod.pod_class.numa,
    )
    if devices is not None:
        counted = replace(counted, takers=(*counted.takers, taker_on(devices, counted.table, row)))
    if needs is not None and counted.numa is not None:
        numa = counted.numa.copy()
        numa.take(needs, np.array([row]), np.array([1]))
        counted = replace(counted, numa=numa)
    return counted
