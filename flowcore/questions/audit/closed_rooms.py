"""Who closed the room of pods that wait though a plan runs them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from flowcore.model.pods import Pod
from flowcore.model.regret import ClosedRoom, ClosingReason
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.round import Placement, RoundResult
from flowcore.questions.audit.audited_cluster import AuditedCluster


def closed_rooms(cluster: AuditedCluster, urgent: Collection[str]) -> list[ClosedRoom]:
    """The rooms of all pods that the witnesses run, those that were closed last first.

    Of the pods that leave for those that wait, the one that was placed first closed the room: beside it and what stays
    there is not enough, whether the others leave or not. Pods that come all or not at all have one room.

    Args:
        urgent: keys of the pods that wait by inverted priorities; others are of the plan in which everything goes on
            running.
    """
    pods = cluster.scenario.cluster.pods
    rooms = [*_closed_in(cluster.keeping_plan, {pod.key for pod in cluster.waiting}, pods)]
    if urgent:
        rooms += _closed_in(cluster.evicting_plan, urgent, pods)
    return sorted(rooms, key=lambda room: (-room.placed, room.waiting))


def placed_at(pod: Pod) -> float:
    """When a pod was placed, in seconds since the epoch, as its kubelet says; until then, when it was created."""
    return pod.started or pod.created


def _closed_in(plan: RoundResult, counted: Collection[str], pods: dict[str, Pod]) -> Iterator[ClosedRoom]:
    leaving = {eviction.pod.key: eviction for eviction in plan.evictions}
    together: dict[tuple[str, str], list[Placement]] = {}
    for placement in plan.placements:
        key = "" if placement.atomic_group else placement.pod.key
        together.setdefault((placement.atomic_group, key), []).append(placement)
    for placements in together.values():
        waiting = [placement.pod.key for placement in placements if placement.pod.key in counted]
        if not waiting:
            continue
        victims = [pods[key] for placement in placements for key in placement.victims if key in leaving]
        if not victims:
            yield ClosedRoom(waiting=min(waiting), pods=len(waiting), reason=ClosingReason.OPEN_ROOM)
            continue
        first = min(victims, key=lambda pod: (placed_at(pod), pod.key))
        moves = leaving[first.key].kind is EvictionKind.MIGRATION
        yield ClosedRoom(
            waiting=min(waiting),
            pods=len(waiting),
            reason=ClosingReason.FRAGMENTATION if moves else ClosingReason.PRIORITY_INVERSION,
            pod=first.key,
            scheduler=first.scheduler_name,
            node=first.node_name,
            to=leaving[first.key].to if moves else "",
            placed=placed_at(first),
        )
