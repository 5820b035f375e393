"""Which of two fixes is cheaper: first by what they do to others, then by how much they change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowcore.diagnosis.fixes.replanning import Outcome
from flowcore.model.pods import Pod
from flowcore.scenario import Scenario
from flowcore.scenario.changes import (
    AddNodes,
    Change,
    DropNodeSelector,
    DropPodRules,
    EvictPods,
    MovePod,
    RaiseCap,
    RaiseQueueLimit,
    RemoveTaint,
    Request,
    SetPriority,
    Tolerate,
    Uncordon,
)

#: The smaller, the cheaper: how many of the pods wait on, how many pods lose their places, their priorities from the
#: highest down, how many run on on another node, and how much is changed.
Rank = tuple[int, int, tuple[int, ...], int, float]


def rank(scenario: Scenario, pods: Sequence[Pod], changes: Sequence[Change], outcome: Outcome) -> Rank:
    """The rank of changes that were planned.

    Args:
        pods: to place, as they are.
    """
    losers = (scenario.cluster.pods[key].pod_class.priority for key in outcome.loses)
    left = len({pod.key for pod in pods} - set(outcome.places))
    return left, len(outcome.loses), tuple(sorted(losers, reverse=True)), len(outcome.moves), size(changes, pods)


def size(changes: Sequence[Change], wanted: Sequence[Pod]) -> float:
    """How much is changed: the more, the larger. The same change of many pods counts once."""
    pods = {pod.key: pod for pod in wanted}
    found: dict[bytes, float] = {}
    for change in changes:
        same = msgspec.structs.replace(change, pod="") if hasattr(change, "pod") and change.pod in pods else change
        found[msgspec.json.encode(same)] = _size(change, pods)
    return sum(found.values())


def _size(change: Change, pods: dict[str, Pod]) -> float:
    match change:
        case Tolerate() | Uncordon():
            return 1.0
        case Request():
            asked = dict(pods[change.pod].pod_class.requests).get(change.resource, 0)
            return 1.0 + 2.0 * (1.0 - change.amount / asked if asked else 0.0)
        case DropNodeSelector() | DropPodRules() | RaiseCap() | RaiseQueueLimit() | SetPriority():
            return 2.0
        case MovePod() | RemoveTaint():
            return 3.0
        case EvictPods():
            return 3.0 + len(change.pods)
        case AddNodes():
            return 4.0 + change.count
        case _:
            raise TypeError(f"no fix makes the change {type(change).__name__}")
