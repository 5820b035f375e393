"""What is decided about pods that leave their nodes, and about those that come to nodes in their place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.running_pods import EvictionKind, RunningPod


@dataclass(slots=True)
class Leaving:
    """A resident that leaves.

    Attributes:
        kind: why; None: a placement that is taken back.
        for_pods: keys of the pods that it leaves for.
        to: the node where its replacement goes; -1: none.
        reason, by_controller, gain: see Eviction.
    """

    kind: EvictionKind | None
    for_pods: list[str] = field(default_factory=list)
    to: int = -1
    reason: str = ""
    by_controller: bool = False
    gain: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A waiting pod that gets a node.

    Attributes:
        demand: number of its demand in the problem.
        at_once: the room is free without anybody leaving.
    """

    pod: PendingPod
    demand: int
    node: int
    at_once: bool


class Checkpoint(NamedTuple):
    """How much was decided: decisions that can be taken back, residents that leave, waiting pods that come."""

    decisions: int
    leaving: int
    arrivals: int


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions in an order in which they can be made again."""

    leaving: tuple[tuple[int, Leaving], ...]
    arrivals: tuple[Arrival, ...]


def counted_move(pod: RunningPod) -> list[tuple[str, str]]:
    """What the move of a pod counts for."""
    return [
        ("policy", pod.policy),
        ("node", pod.node),
        ("namespace", pod.namespace),
        ("owner", pod.owner),
        share_key(pod),
    ]


def share_key(pod: RunningPod) -> tuple[str, str]:
    """What counts the moves of a namespace's pods under one policy."""
    return "share", f"{pod.policy}/{pod.namespace}"
