"""What a plan decides: which pods are placed, which leave their nodes, and which come in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.running_pods import EvictionKind, RunningPod


@dataclass(frozen=True, slots=True)
class Commit:
    """``count`` pods of demand number ``demand`` to node number ``node``."""

    demand: int
    node: int
    count: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """A resident that leaves.

    Attributes:
        kind: why; None: a placement that is taken back.
        for_pods: keys of the pods that it leaves for.
        to: the node where its replacement goes; -1: none.
        reason, by_controller, gain: see Eviction.
    """

    kind: EvictionKind | None
    for_pods: tuple[str, ...] = ()
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
    """How far a plan is: changes that can be taken back, residents that leave, waiting pods that come."""

    changes: int
    leaving: int
    arrivals: int


#: Makes a change of a plan with 1, and takes it back with -1.
Change = Callable[[int], None]


class Decisions(NamedTuple):
    """What was decided since a checkpoint: who leaves, by number, who comes, and all changes in their order."""

    leaving: Sequence[tuple[int, Leaving]]
    arrivals: Sequence[Arrival]
    changes: Sequence[Change]


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


def placed_counts(commits: Iterable[Commit], demands: int) -> list[int]:
    """How many pods commits place of each of so many demands."""
    placed = [0] * demands
    for commit in commits:
        placed[commit.demand] += commit.count
    return placed


def pods_by_node(commits: Iterable[Commit]) -> dict[int, dict[int, int]]:
    """For each demand that commits place, how many of its pods on each node."""
    placed: dict[int, dict[int, int]] = {}
    for commit in commits:
        pods = placed.setdefault(commit.demand, {})
        pods[commit.node] = pods.get(commit.node, 0) + commit.count
    return placed
