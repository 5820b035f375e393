"""Which of two fixes comes first: by what they do to others, by what they give up, then by how much they change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
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

#: Stands for devices that claims get; no resource has such a name.
_CLAIMED = "(claimed)"


class Rank(NamedTuple):
    """The smaller, the cheaper.

    Attributes:
        mends_none: 0 where a mistake is mended, else 1.
        opens_pools: whether it opens nodes with devices to pods that ask for none: 0 to 2.
        left: how many of the pods wait on.
        losers: how many pods lose their places.
        priorities: theirs, from the highest down.
        breaks_rules: 1 where it gives up a rule that a user wrote, else 0.
        moves: how many pods run on on another node.
        size: how much is changed.
    """

    mends_none: int
    opens_pools: int
    left: int
    losers: int
    priorities: tuple[int, ...]
    breaks_rules: int
    moves: int
    size: float


def rank(scenario: Scenario, pods: Sequence[Pod], changes: Sequence[Change], outcome: PlanDifference) -> Rank:
    """The rank of changes that were planned.

    Args:
        pods: to place, as they are.
    """
    losers = (scenario.cluster.pods[key].pod_class.priority for key in outcome.loses)
    return Rank(
        int(not any(isinstance(change, ReplaceNodeLabel) for change in changes)),
        max((_opens_pools(change, scenario, pods, outcome) for change in changes), default=0),
        outcome.left([pod.key for pod in pods]),
        len(outcome.loses),
        tuple(sorted(losers, reverse=True)),
        max((_breaks_rules(change, scenario, pods) for change in changes), default=0),
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


def _breaks_rules(change: Change, scenario: Scenario, pods: Sequence[Pod]) -> int:
    """1 where it gives up a rule of a pod or of a pool of nodes that a user wrote on purpose, else 0."""
    match change:
        case DropNodeSelector() | DropPodRules() | RemoveTaint() | Request():
            return 1
        case ReplaceDeviceSelector() | DropDeviceConstraint() | CountDevices():
            return 1
        case Tolerate():
            return int(not _is_asked_for(_tainted(change, scenario), scenario, pods))
        case _:
            return 0


def _tainted(change: Tolerate, scenario: Scenario) -> list[Node]:
    taint = (change.key, change.value, change.effect)
    nodes = scenario.cluster.nodes.values()
    return [node for node in nodes if any((each.key, each.value, each.effect) == taint for each in node.taints)]


def _devices(nodes: Sequence[Node], scenario: Scenario) -> set[str]:
    """Extended resources that nodes offer: their names have a domain. Devices that are claimed count as one more."""
    devices = {name for node in nodes for name, amount in node.allocatable if "/" in name and amount > 0}
    names = {node.name for node in nodes}
    slices = scenario.cluster.devices.slices.values()
    return devices | {_CLAIMED} if any(each.reach.node_name in names for each in slices) else devices


def _asked_devices(pods: Sequence[Pod]) -> set[str]:
    """The same that pods ask for, beside other resources."""
    asked = {name for pod in pods for name, _ in pod.pod_class.requests}
    return asked | {_CLAIMED} if any(pod.pod_class.devices is not None for pod in pods) else asked


def _spare_devices(node: Node, scenario: Scenario, pods: Sequence[Pod]) -> bool:
    """Whether a node has devices that no pod asks for."""
    devices = _devices([node], scenario)
    return bool(devices) and devices.isdisjoint(_asked_devices(pods))


def _is_asked_for(nodes: Sequence[Node], scenario: Scenario, pods: Sequence[Pod]) -> bool:
    """Whether the pods ask for what sets nodes apart: their devices, or a label that no other node has."""
    apart = {node.name for node in nodes}
    others = {label for node in scenario.cluster.nodes.values() if node.name not in apart for label in node.labels}
    labels = {label for node in nodes for label in node.labels} - others
    return not _devices(nodes, scenario).isdisjoint(_asked_devices(pods)) or any(
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
        case Tolerate() | Uncordon() | ReplaceNodeLabel():
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
