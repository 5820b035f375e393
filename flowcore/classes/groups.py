"""From pending pods to groups of interchangeable ones.

Source: seeds "equivalence class"; the class is what scheduling reads (option 1 of that document), not the owner:
pods of one owner with different requests must not share a verdict (camsas/firmament, poseidon#171).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowcore.filters.inter_pod_affinity import Domain
from flowcore.model.pods import PodClass
from flowcore.model.snapshot import PendingPod


@dataclass(frozen=True, slots=True)
class Group:
    """Pods of one class under one policy, the longest waiting first.

    Within a group pods are interchangeable, so those that waited longest are placed first.
    """

    pod_class: PodClass
    policy: str
    avoid: tuple[Domain, ...]
    pods: tuple[PendingPod, ...]


def group(pending: Iterable[PendingPod]) -> tuple[Group, ...]:
    """Groups in the order of their first pod; the same pods always give the same groups."""
    found: dict[tuple[PodClass, str, tuple[Domain, ...]], list[PendingPod]] = {}
    for pod in pending:
        found.setdefault((pod.pod_class, pod.policy, pod.avoid), []).append(pod)
    return tuple(
        Group(pod_class, policy, avoid, tuple(sorted(pods, key=lambda p: (p.created, p.key))))
        for (pod_class, policy, avoid), pods in found.items()
    )
