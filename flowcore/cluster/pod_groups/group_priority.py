"""The priority and preemption policy of a PodGroup, which count for its pods in place of their own.

Source: kube-scheduler framework/preemption/util.go (GetPodPriority), types.go (newPodGroupPreemptor).
"""

from __future__ import annotations

import msgspec

from flowcore.api.base import Interner
from flowcore.model.gang_spec import GangSpec
from flowcore.model.pods import Pod


def with_group_priority(pod: Pod, group: GangSpec, intern: Interner) -> Pod:
    """A pod as its group has it; the pod itself where the group says nothing else.

    Args:
        intern: keeps one copy of the classes that are made.
    """
    if group.priority not in (None, pod.pod_class.priority):
        pod_class = msgspec.structs.replace(pod.pod_class, priority=group.priority)
        pod = msgspec.structs.replace(pod, pod_class=intern(pod_class))
    if group.preempts not in (None, pod.preempts):
        pod = msgspec.structs.replace(pod, preempts=group.preempts)
    return pod


def changes_priority(group: GangSpec, before: GangSpec) -> bool:
    """Whether pods of a group may have another priority or preemption policy than before."""
    return (group.priority, group.preempts) != (before.priority, before.preempts)
