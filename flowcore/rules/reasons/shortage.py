"""What waiting pods lack: the resources that are short on the node that lacks least, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.model.amount_text import short_amount
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.resources import PODS
from flowcore.rules.filters import node_resources_fit, run_filters
from flowcore.rules.filters.registry import FilterRunner, run_filter


class Lack(NamedTuple):
    """A resource that is short on a node.

    Attributes:
        amount: how much the node lacks for one pod, in milli-cores of cpu, else in whole units.
    """

    resource: str
    amount: int

    @property
    def amount_text(self) -> str:
        """The amount for people, never too little: 500m, 1.5Gi."""
        return short_amount(self.resource, self.amount, round_up=True)


def shortage(pods: Iterable[PendingPod], after: Snapshot, runner: FilterRunner = run_filter) -> tuple[Lack, ...]:
    """What a group of waiting pods lacks: of pods alike what the best node lacks for the next one of them.

    The best node is that which lacks the smallest part of what is asked for, of those that only room keeps the pod
    from. Pods of a group take the room that there is before this is asked, so a gang that fits in part lacks what the
    rest of it lacks.

    Args:
        pods: of a gang or a workload.
        after: the snapshot beside which they wait.
        runner: who asks the filters.

    Returns:
        each resource once, with the largest amount of all kinds of pods; (): something else than room keeps them out.
    """
    kinds = Counter((pod.pod_class, pod.signature) for pod in pods)
    lacks: dict[str, int] = {}
    for (pod_class, signature), count in kinds.items():
        of_kind, after = _of_kind(pod_class, signature, count, after, runner)
        for lack in of_kind:
            lacks[lack.resource] = max(lack.amount, lacks.get(lack.resource, 0))
    return tuple(Lack(resource, amount) for resource, amount in lacks.items())


def _of_kind(
    pod_class: PodClass, signature: PodSignature, count: int, after: Snapshot, runner: FilterRunner
) -> tuple[Sequence[Lack], Snapshot]:
    """What the pods of a kind lack, and the snapshot with those of them that have room."""
    verdicts = run_filters(pod_class, after, signature, runner)
    room = np.where(verdicts.fits, node_resources_fit.counts(pod_class, after), 0)
    taken = np.clip(count - (np.cumsum(room) - room), 0, room)
    after = replace(after, used=after.used + taken[:, None] * after.vector(pod_class.requests))
    others = {name for name, _ in verdicts.by_filter} - {node_resources_fit.NAME}
    open_nodes = np.flatnonzero(~verdicts.rejected_by(others))
    if int(taken.sum()) >= count or not len(open_nodes):
        return (), after
    return lacking(pod_class, after, best_node(pod_class, after, open_nodes)), after


def best_node(pod_class: PodClass, snapshot: Snapshot, nodes: Int64s) -> int:
    """The row of the node, among these, that lacks the smallest part of what a pod asks for."""
    wanted = snapshot.vector(pod_class.requests)
    short = np.maximum(wanted - snapshot.free[nodes], 0) / np.maximum(wanted, 1)
    return int(nodes[short.max(axis=1).argmin()])


def lacking(pod_class: PodClass, snapshot: Snapshot, row: int) -> list[Lack]:
    """What one node lacks for a pod, as far as NodeResourcesFit judges it."""
    requests, wanted = dict(pod_class.requests), snapshot.vector(pod_class.requests)
    left = node_resources_fit.left_to_devices(pod_class, snapshot)
    short = (wanted - snapshot.free[row]).tolist()
    lacks = [
        Lack(name, short[column])
        for column, name in enumerate(snapshot.resources)
        if short[column] > 0 and wanted[column] > 0 and not (name in left and left[name][row])
    ]
    return lacks + [Lack(name, requests[name]) for name in node_resources_fit.not_offered(pod_class, snapshot)]


def lacks_by_pod(unplaced: Iterable[tuple[PendingPod, str]], after: Snapshot) -> dict[str, str]:
    """What pods lack that a plan leaves, in words, by key; no entry for those that something else keeps out.

    Args:
        unplaced: those that room keeps out, each with its reason. Pods of a gang, or alike, with one reason are a
            group.
        after: the snapshot with the plan carried out.
    """
    groups: dict[object, list[PendingPod]] = {}
    for pod, reason in unplaced:
        alike = pod.gangs[:1] or (pod.pod_class, pod.signature)
        groups.setdefault((alike, reason), []).append(pod)
    words = ((pods, lacks_in_words(shortage(pods, after))) for pods in groups.values())
    return {pod.key: lack for pods, lack in words if lack for pod in pods}


def lacks_in_words(lacks: Sequence[Lack]) -> str:
    """What is short and by how much, as in "nvidia.com/gpu (best node lacks 2)"; "" for no lack."""
    if not lacks:
        return ""
    if len(lacks) == 1:
        return f"{_name(lacks[0])} (best node lacks {lacks[0].amount_text})"
    amounts = [f"{each.amount_text} {_name(each)}" for each in lacks]
    return f"{_joined([_name(each) for each in lacks])} (best node lacks {_joined(amounts)})"


def _joined(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _name(lack: Lack) -> str:
    return "pod slots" if lack.resource == PODS else lack.resource
