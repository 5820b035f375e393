"""The priority and preemption policy of a PodGroup, which count for its pods in place of their own.

Source: kube-scheduler framework/preemption/util.go (GetPodPriority), types.go (newPodGroupPreemptor).
"""

from __future__ import annotations

import msgspec

from flowcore.api.base import Interner
from flowcore.model.gang_spec import GangSpec
from flowcore.model.pods import Pod, PodClass


class GroupPriority:
    """Gives pods the priority and the preemption policy of their group.

    Args:
        intern: keeps one copy of the classes that are made.
    """

    def __init__(self, group: GangSpec, intern: Interner) -> None:
        self._group, self._intern = group, intern
        #: The classes of its pods, which are few, each with the same class at the priority of the group.
        self._classes: dict[PodClass, PodClass] = {}

    def of(self, pod: Pod) -> Pod:
        """A pod as its group has it; the pod itself where the group says nothing else."""
        priority, preempts = self._group.priority, self._group.preempts
        if priority not in (None, pod.pod_class.priority):
            pod_class = self._classes.get(pod.pod_class)
            if pod_class is None:
                pod_class = self._intern(msgspec.structs.replace(pod.pod_class, priority=priority))
                self._classes[pod.pod_class] = pod_class
            pod = msgspec.structs.replace(pod, pod_class=pod_class)
        return pod if preempts in (None, pod.preempts) else msgspec.structs.replace(pod, preempts=preempts)


def changes_priority(group: GangSpec, before: GangSpec) -> bool:
    """Whether pods of a group may have another priority or preemption policy than before."""
    return (group.priority, group.preempts) != (before.priority, before.preempts)
