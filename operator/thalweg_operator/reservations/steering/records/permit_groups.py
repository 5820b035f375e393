"""Groups of gated pods: the gates of a group open together.

The pods of an atomic group wait behind our gate until each required one is ready, wave by wave: reserved, or nominated
where kube-scheduler needs that. These pods are a permit group, as of the Permit plugins of kube-scheduler. Then all
gates of the permit group open. If a required pod is lost before that, the whole atomic group is planned anew. Until its
nominations are withdrawn nothing of the atomic group is planned: its remaining pods would look like a gang that has
started.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flowcore.model.pods import Pod
from thalweg_operator.reservations.ledger.reservation import PermitKey


@dataclass(slots=True)
class _PermitGroup:
    """Keys of all pods, of the required pods, of the required pods that are not ready; and the pods that are."""

    members: set[str] = field(default_factory=set)
    required: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    ready: dict[str, Pod] = field(default_factory=dict)


class PermitGroups:
    """All permit groups. One is forgotten when its gates open."""

    def __init__(self) -> None:
        self._groups: dict[PermitKey, _PermitGroup] = {}
        #: Keys of pods whose nominations are being withdrawn, and their atomic group.
        self._withdrawing: dict[str, str] = {}

    def join(self, group_key: PermitKey, key: str, *, optional: bool) -> None:
        """A pod joins a permit group. The others do not wait for an optional pod."""
        group = self._groups.setdefault(group_key, _PermitGroup())
        group.members.add(key)
        if not optional:
            group.required.add(key)
            group.missing.add(key)

    def ready(self, group_key: PermitKey | None, pod: Pod) -> list[Pod]:
        """Pods whose gates may open now that this pod is ready; the pod itself if it is in no permit group."""
        group = None if group_key is None else self._groups.get(group_key)
        if group_key is None or group is None:
            return [pod]
        group.ready[pod.key] = pod
        return self._complete(group_key, group, pod.key)

    def bound(self, group_key: PermitKey | None, key: str) -> list[Pod]:
        """Pods whose gates may open now that this pod is bound. The pod leaves its permit group."""
        group = None if group_key is None else self._groups.get(group_key)
        if group_key is None or group is None:
            return []
        group.members.discard(key)
        group.ready.pop(key, None)
        return self._complete(group_key, group, key)

    def _complete(self, group_key: PermitKey, group: _PermitGroup, key: str) -> list[Pod]:
        group.missing.discard(key)
        if group.missing:
            return []
        del self._groups[group_key]
        return list(group.ready.values())

    def lost(self, group_key: PermitKey | None, key: str) -> list[str]:
        """Keys of pods to give up because this one is lost: all of its atomic group whose gates are still closed."""
        self._withdrawing.pop(key, None)
        group = None if group_key is None else self._groups.get(group_key)
        if group_key is None or group is None or key not in group.members:
            return []
        group.members.discard(key)
        if key not in group.required:
            group.ready.pop(key, None)
            if not group.members:
                del self._groups[group_key]
            return []
        plan = (group_key.plan, group_key.atomic_group)
        siblings = [group for group in self._groups if (group.plan, group.atomic_group) == plan]
        return sorted(member for group in siblings for member in self._groups.pop(group).members)

    def withdraw(self, group_key: PermitKey, key: str) -> None:
        """The nomination of a pod is being withdrawn, until the pod is ``lost``."""
        self._withdrawing[key] = group_key.atomic_group

    def is_withdrawing(self, atomic_group: str) -> bool:
        """Whether nominations of an atomic group are being withdrawn."""
        return atomic_group in self._withdrawing.values()
