"""Is a plan right? Counted anew from the snapshot's objects, without the code under test.

A fast plan that breaks a rule is worth nothing, so every row of the engine's table is checked, outside of the measured
time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.model.snapshot import PendingPod, Snapshot
from flowcore.rounds import RoundResult

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]
#: A pod and the position of its node, in the order of placing.
Placed = tuple[PendingPod, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a recheck found.

    Attributes:
        broken: what is wrong with the plan, in words.
        fitting: pods left out that a node still has room for.
    """

    broken: tuple[str, ...]
    fitting: int

    def __str__(self) -> str:
        if self.broken:
            return f"NO: {'; '.join(self.broken)}"
        return f"yes, but {self.fitting} more fit" if self.fitting else "yes"


class Checker:
    """One snapshot, read once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._labels = [dict(node.labels) for node in snapshot.table.nodes]
        self._allowed: dict[PodClass, Bools] = {}
        self._wanted: dict[PodClass, Int64s] = {}

    def allowed(self, pod_class: PodClass) -> Bools:
        """bool[N]: nodes that taints, node selector and required node affinity let the class use."""
        found = self._allowed.get(pod_class)
        if found is None:
            nodes = self.snapshot.table.nodes
            found = np.array(
                [_may_use(pod_class, node, labels) for node, labels in zip(nodes, self._labels, strict=True)],
                dtype=np.bool_,
            )
            self._allowed[pod_class] = found
        return found

    def wanted(self, pod_class: PodClass) -> Int64s:
        """int64[R]: what a pod takes, one of ``pods`` too."""
        found = self._wanted.get(pod_class)
        if found is None:
            names = self.snapshot.resources
            found = np.zeros(len(names), dtype=np.int64)
            for name, amount in (*pod_class.requests, ("pods", 1)):
                found[names.index(name)] += amount
            self._wanted[pod_class] = found
        return found

    def free(self, placed: Iterable[Placed] = ()) -> Int64s:
        """int64[N, R]: what is left once these are placed."""
        free: Int64s = self.snapshot.allocatable - self.snapshot.used
        for (pod_class, at), count in Counter((pod.pod_class, at) for pod, at in placed).items():
            free[at] -= self.wanted(pod_class) * count
        return free

    def fits(self, pod_class: PodClass, free: Int64s) -> Bools:
        """bool[N]: allowed nodes with room for one pod."""
        wanted = self.wanted(pod_class)
        return self.allowed(pod_class) & ((free >= wanted) | (wanted == 0)).all(axis=1)

    def placed(self, result: RoundResult) -> list[Placed]:
        """A plan's placements with their nodes' positions."""
        index = {node.name: at for at, node in enumerate(self.snapshot.table.nodes)}
        return [(placement.pod, index[placement.node]) for placement in result.placements]

    def check(self, result: RoundResult) -> Verdict:
        """All that a plan must keep to."""
        placed = self.placed(result)
        broken = []
        planned = Counter([pod.key for pod, _ in placed] + [left.pod.key for left in result.left])
        if planned != Counter(pod.key for pod in self.snapshot.pending):
            broken.append("not each pod once")
        free = self.free(placed)
        touched = sorted({at for _, at in placed})
        if over := int((free[touched] < 0).any(axis=1).sum()):
            broken.append(f"{over} nodes overcommitted")
        pairs = Counter((pod.pod_class, at) for pod, at in placed)
        if wrong := sum(count for (pod_class, at), count in pairs.items() if not self.allowed(pod_class)[at]):
            broken.append(f"{wrong} pods on nodes that a filter rejects")
        fitting = 0
        for pod_class, count in Counter(left.pod.pod_class for left in result.left).items():
            fitting += count if self.fits(pod_class, free).any() else 0
        return Verdict(tuple(broken), fitting)


def _may_use(pod_class: PodClass, node: Node, labels: Mapping[str, str]) -> bool:
    if node.unschedulable or node.problem:
        return False
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            each.key in ("", taint.key)
            and each.effect in ("", taint.effect)
            and (each.operator == "Exists" or (each.key == taint.key and each.value == taint.value))
            for each in pod_class.tolerations
        ):
            return False
    return _meets(pod_class, node, labels)


def _meets(pod_class: PodClass, node: Node, labels: Mapping[str, str]) -> bool:
    """Node selector and required node affinity."""
    if any(labels.get(key) != value for key, value in pod_class.node_selector):
        return False
    terms = pod_class.required_affinity
    return terms is None or any(_matches(term, node, labels) for term in terms)


def _matches(term: NodeSelectorTerm, node: Node, labels: Mapping[str, str]) -> bool:
    if not term.expressions and not term.fields:
        return False
    return all(_holds(each, labels.get(each.key)) for each in term.expressions) and all(
        _holds(each, node.name) for each in term.fields
    )


_HOLDS: Mapping[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: value is not None and int(value) > int(values[0]),
    "Lt": lambda value, values: value is not None and int(value) < int(values[0]),
}


def _holds(requirement: Requirement, value: str | None) -> bool:
    return _HOLDS[requirement.operator](value, requirement.values)
