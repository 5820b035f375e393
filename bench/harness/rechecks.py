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

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.inter_pod_constraints import SpreadConstraint
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.planning.round import RoundResult

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
    """One snapshot, read once.

    Args:
        running: kinds of running pods, and int64[K] the node of each; asked by constraints on spread.
    """

    def __init__(self, snapshot: Snapshot, running: Iterable[tuple[PodSignature, Int64s]] = ()) -> None:
        self.snapshot = snapshot
        self._running = tuple(running)
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
        planned = Counter([pod.key for pod, _ in placed] + [left.pod.key for left in result.unplaced])
        if planned != Counter(pod.key for pod in self.snapshot.pending):
            broken.append("not each pod once")
        free = self.free(placed)
        touched = sorted({at for _, at in placed})
        if over := int((free[touched] < 0).any(axis=1).sum()):
            broken.append(f"{over} nodes overcommitted")
        pairs = Counter((pod.pod_class, at) for pod, at in placed)
        if wrong := sum(count for (pod_class, at), count in pairs.items() if not self.allowed(pod_class)[at]):
            broken.append(f"{wrong} pods on nodes that a filter rejects")
        if skewed := self.skewed(placed):
            broken.append(f"{skewed} pods beyond their maxSkew")
        fitting = 0
        for (pod_class, kind), count in Counter(
            (left.pod.pod_class, left.pod.signature) for left in result.unplaced
        ).items():
            there = self.fits(pod_class, free) & self._spread_allows(pod_class, kind, placed)
            fitting += count if there.any() else 0
        return Verdict(tuple(broken), fitting)

    def skewed(self, placed: Iterable[Placed]) -> int:
        """Pods that broke a DoNotSchedule constraint of theirs when they were placed.

        Pods of one kind have one class here, and no kind's selector selects another's pods.
        """
        by_kind: dict[PodSignature, list[Placed]] = {}
        for pod, at in placed:
            if pod.signature.constraints is not None:
                by_kind.setdefault(pod.signature, []).append((pod, at))
        broken = 0
        for kind, pods in by_kind.items():
            kept = [True] * len(pods)
            for constraint in kind.constraints.spread if kind.constraints else ():
                domains, counts = self._domains(constraint, kind, pods[0][0].pod_class)
                for i, (_, at) in enumerate(pods):
                    if domains[at] not in counts:
                        kept[i] = False
                        continue
                    counts[domains[at]] += 1
                    kept[i] &= counts[domains[at]] - min(counts.values()) <= constraint.max_skew
            broken += kept.count(False)
        return broken

    def _spread_allows(self, pod_class: PodClass, kind: PodSignature, placed: Iterable[Placed]) -> Bools:
        """bool[N]: where one more pod would keep to its constraints."""
        allows = np.ones(len(self._labels), dtype=np.bool_)
        for constraint in kind.constraints.spread if kind.constraints else ():
            domains, counts = self._domains(constraint, kind, pod_class)
            for pod, at in placed:
                if pod.signature == kind and domains[at] in counts:
                    counts[domains[at]] += 1
            least = min(counts.values(), default=0)
            allows &= np.array(
                [domain in counts and counts[domain] + 1 - least <= constraint.max_skew for domain in domains]
            )
        return allows

    def _domains(
        self, constraint: SpreadConstraint, kind: PodSignature, pod_class: PodClass
    ) -> tuple[list[str], dict[str, int]]:
        """Each node's domain; pods of the kind in each domain that counts, as the round began."""
        domains = [labels.get(constraint.topology_key, "") for labels in self._labels]
        counted = [
            bool(domain) and _meets(pod_class, node, labels)
            for domain, node, labels in zip(domains, self.snapshot.table.nodes, self._labels, strict=True)
        ]
        counts = {domain: 0 for domain, counts_ in zip(domains, counted, strict=True) if counts_}
        for other, nodes in self._running:
            if other == kind:
                for at in nodes.tolist():
                    if counted[at]:
                        counts[domains[at]] += 1
        return domains, counts


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
