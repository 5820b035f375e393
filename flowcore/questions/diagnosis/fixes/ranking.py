"""Which of two fixes comes first: the one that costs people less.

A mistake is mended first, and a node is uncordoned, which costs nobody anything. Then come what places most, what
nobody loses by, and what asks least of people: a move, a smaller request, a rule, new nodes, a pool of others, a
higher priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.questions.diagnosis.fixes.proposals.closed_pools import asked_devices, devices
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.alternatives.replanning import PlanDifference
from flowcore.questions.scenario.hypothetical.changes import (
    AddNodes,
    Change,
    CountDevices,
    DropDeviceConstraint,
    DropNodeSelector,
    DropPodRules,
    EvictPods,
    HonorTaints,
    MovePod,
    RaiseCap,
    RaiseQueueLimit,
    RemoveTaint,
    ReplaceDeviceSelector,
    ReplaceNodeLabel,
    Request,
    SetPriority,
    Tolerate,
    Uncordon,
)


class Rank(NamedTuple):
    """The smaller, the cheaper.

    Attributes:
        asks_much: 0 where a mistake is mended, 1 where nodes are uncordoned and nobody loses a place, else 2.
        opens_pools: whether it opens nodes with devices to pods that ask for none: 0 to 2.
        left: how many of the pods wait on.
        losers: how many pods lose their places.
        priorities: theirs, from the highest down.
        sort: how much it asks of people (``_sort``).
        moves: how many pods run on on another node.
        size: how much is changed.
    """

    asks_much: int
    opens_pools: int
    left: int
    losers: int
    priorities: tuple[int, ...]
    sort: int
    moves: int
    size: float


def rank(scenario: Scenario, pods: Sequence[Pod], changes: Sequence[Change], outcome: PlanDifference) -> Rank:
    """The rank of changes that were planned.

    Args:
        pods: to place, as they are.
    """
    losers = (scenario.cluster.pods[key].pod_class.priority for key in outcome.loses)
    return Rank(
        _asks_much(changes, outcome),
        max((_opens_pools(change, scenario, pods, outcome) for change in changes), default=0),
        outcome.left([pod.key for pod in pods]),
        len(outcome.loses),
        tuple(sorted(losers, reverse=True)),
        max((_sort(change, scenario, pods) for change in changes), default=0),
        len(outcome.moves),
        size(changes, pods),
    )


def others_that_come(pods: Sequence[Pod], outcome: PlanDifference) -> list[str]:
    """Keys of other pods that come to nodes which the changes open."""
    wanted = {pod.key for pod in pods}
    return [key for key in outcome.comes if key not in wanted]


def _opens_pools(change: Change, scenario: Scenario, pods: Sequence[Pod], outcome: PlanDifference) -> int:
    """2: pods come to nodes with devices that they do not ask for; 1: to such a node that others want; 0: neither."""
    if isinstance(change, RemoveTaint):
        if others_that_come(pods, outcome):
            return 2
        return int(_spare_devices(scenario.cluster.nodes[change.node], scenario, pods))
    if isinstance(change, Tolerate):
        return 2 * any(_spare_devices(node, scenario, pods) for node in _tainted(change, scenario))
    return 0


def _asks_much(changes: Sequence[Change], outcome: PlanDifference) -> int:
    if any(isinstance(change, ReplaceNodeLabel) for change in changes):
        return 0
    return 1 if not outcome.loses and all(isinstance(change, Uncordon) for change in changes) else 2


def _sort(change: Change, scenario: Scenario, pods: Sequence[Pod]) -> int:
    """How much a change asks of people.

    0: nothing that somebody wrote; 1: a move; 2: less of an amount; 3: a rule less; 4: new nodes; 5: a pool of
    others; 6: that others leave.
    """
    match change:
        case Uncordon() | ReplaceNodeLabel():
            return 0
        case Tolerate():
            return 0 if _is_asked_for(_tainted(change, scenario), scenario, pods) else 5
        case RemoveTaint():
            return 5
        case MovePod():
            return 1
        case Request() | CountDevices():
            return 2
        case AddNodes():
            return 4
        case SetPriority() | EvictPods():
            return 6
        case _:
            return 3


def _tainted(change: Tolerate, scenario: Scenario) -> list[Node]:
    taint = (change.key, change.value, change.effect)
    nodes = scenario.cluster.nodes.values()
    return [node for node in nodes if any((each.key, each.value, each.effect) == taint for each in node.taints)]


def _spare_devices(node: Node, scenario: Scenario, pods: Sequence[Pod]) -> bool:
    """Whether a node has devices that no pod asks for."""
    offered = devices([node], scenario.cluster.devices.slices.values())
    return bool(offered) and offered.isdisjoint(asked_devices(pods))


def _is_asked_for(nodes: Sequence[Node], scenario: Scenario, pods: Sequence[Pod]) -> bool:
    """Whether the pods ask for what sets nodes apart: their devices, or a label that no other node has."""
    apart = {node.name for node in nodes}
    others = {label for node in scenario.cluster.nodes.values() if node.name not in apart for label in node.labels}
    labels = {label for node in nodes for label in node.labels} - others
    offered = devices(nodes, scenario.cluster.devices.slices.values())
    return not offered.isdisjoint(asked_devices(pods)) or any(
        each in labels for pod in pods for each in pod.pod_class.node_selector
    )


def size(changes: Sequence[Change], wanted: Sequence[Pod]) -> float:
    """How much is changed: the more, the larger. The same change of many pods counts once."""
    pods = {pod.key: pod for pod in wanted}
    sizes: dict[bytes, float] = {}
    for change in changes:
        same = msgspec.structs.replace(change, pod="") if hasattr(change, "pod") and change.pod in pods else change
        sizes[msgspec.json.encode(same)] = _size(change, pods)
    return sum(sizes.values())


def _size(change: Change, pods: dict[str, Pod]) -> float:
    match change:
        case Tolerate() | Uncordon() | ReplaceNodeLabel() | HonorTaints():
            return 1.0
        case Request():
            asked = dict(pods[change.pod].pod_class.requests).get(change.resource, 0)
            return 1.0 + 2.0 * (1.0 - change.amount / asked if asked else 0.0)
        case DropNodeSelector() | DropPodRules() | RaiseCap() | RaiseQueueLimit() | SetPriority():
            return 2.0
        case ReplaceDeviceSelector() | DropDeviceConstraint() | CountDevices():
            return 2.0
        case MovePod() | RemoveTaint():
            return 3.0
        case EvictPods():
            return 3.0 + len(change.pods)
        case AddNodes():
            return 4.0 + change.count
        case _:
            raise TypeError(f"no fix makes the change {type(change).__name__}")
