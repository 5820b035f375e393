"""Which PodGroups belong together by CompositePodGroups, and why some cannot be placed.

Of a CompositePodGroup with the policy ``gang`` all groups are placed together, or none: at least ``minGroupCount`` are
there then. One of the policy ``basic`` keeps nothing together. Source: kube-scheduler gangscheduling.go
(isCPGTreeReady).

A change costs what it concerns, and of a tree that is too large to be placed a part of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

import msgspec

from flowcore.model.composite_groups import CompositeGroup, CompositeKey
from flowcore.model.gang_spec import MAX_GANGS_IN_GROUP, GangKey, GangSpec, PodGroup

_C = TypeVar("_C")
#: Most CompositePodGroups above a PodGroup (WorkloadMaxTreeDepth, of which the PodGroup is one level).
_MAX_ABOVE = 3


class _Refused(Exception):
    """Why the pods of a PodGroup cannot be placed."""


class CompositeGroups:
    """CompositePodGroups and what belongs to them.

    Attributes:
        objects: by key.
    """

    def __init__(self) -> None:
        self.objects: dict[CompositeKey, CompositeGroup] = {}
        #: PodGroups and CompositePodGroups that name a parent, whether that exists or not.
        self._pod_groups: dict[CompositeKey, dict[GangKey, None]] = {}
        self._composites: dict[CompositeKey, dict[CompositeKey, None]] = {}

    def put(self, key: CompositeKey, composite: CompositeGroup | None) -> None:
        """Takes a CompositePodGroup; None: it is gone."""
        before = self.objects.pop(key, None)
        if before is not None and before.parent_key is not None:
            _discard(self._composites, before.parent_key, key)
        if composite is not None:
            self.objects[key] = composite
            if composite.parent_key is not None:
                self._composites.setdefault(composite.parent_key, {})[key] = None

    def put_group(self, group: PodGroup, before: PodGroup | None) -> None:
        """Takes a PodGroup that came or changed."""
        if before is not None:
            self.drop_group(before)
        if group.parent:
            self._pod_groups.setdefault(_parent_of(group), {})[group.key] = None

    def drop_group(self, group: PodGroup) -> None:
        """A PodGroup is gone."""
        if group.parent:
            _discard(self._pod_groups, _parent_of(group), group.key)

    def below(self, key: CompositeKey) -> list[GangKey]:
        """The PodGroups of a CompositePodGroup, also where that is not there."""
        return [group for composite in self._below(key) for group in self._pod_groups.get(composite, ())]

    def beside(self, group: PodGroup) -> list[GangKey]:
        """The PodGroups that may be placed together with one."""
        return self._around(_parent_of(group)) if group.parent else []

    def concerned(self, key: CompositeKey) -> list[GangKey]:
        """The PodGroups that a change of a CompositePodGroup is about."""
        return [*self.below(key), *self._around(key)]

    def _around(self, key: CompositeKey) -> list[GangKey]:
        """The PodGroups of each CompositePodGroup from one upwards; of a tree that is too large some."""
        around: list[GangKey] = []
        above: CompositeKey | None = key
        for _ in range(_MAX_ABOVE):
            if above is None:
                break
            of_one: list[GangKey] = []
            for composite in islice(self._below(above), MAX_GANGS_IN_GROUP + 2):
                of_one += islice(self._pod_groups.get(composite, ()), MAX_GANGS_IN_GROUP + 2 - len(of_one))
            around += of_one
            composite_above = self.objects.get(above)
            above = None if composite_above is None else composite_above.parent_key
        return around

    def spec_of(self, group: PodGroup) -> tuple[GangSpec, str]:
        """What a PodGroup needs with what is above it, and why it cannot be placed; "": it can."""
        if not group.parent:
            return group.spec, ""
        try:
            above = self._above(group)
            together = self._together(above)
        except _Refused as refused:
            return msgspec.structs.replace(group.spec, group=()), f"{group.key.display_name}: {refused}"
        spec = msgspec.structs.replace(group.spec, group=together if len(together) > 1 else ())
        if together:  # a basic group of it, too, is there once it has a pod
            spec = msgspec.structs.replace(spec, min_member=max(1, spec.min_member or 0))
        return _with_priority(spec, above[-1]), ""

    def urgency_of(self, group: PodGroup) -> GangSpec:
        """A PodGroup's terms with the priority and preemption policy of the root above it."""
        if not group.parent:
            return group.spec
        try:
            return _with_priority(group.spec, self._above(group)[-1])
        except _Refused:
            return group.spec

    def priority_said_by(self, group: PodGroup) -> str:
        """What has the priority that counts for a PodGroup's pods, as users know it; "": they have their own."""
        try:
            root = self._above(group)[-1] if group.parent else None
        except _Refused:
            root = None
        if root is not None and root.priority is not None:
            return root.key.display_name
        return "" if group.spec.priority is None else group.key.display_name

    def _above(self, group: PodGroup) -> list[CompositeGroup]:
        """The CompositePodGroups above a PodGroup, its parent first."""
        above: list[CompositeGroup] = []
        key: CompositeKey | None = _parent_of(group)
        while key is not None:
            if any(composite.key == key for composite in above):
                raise _Refused(f"{key.display_name} is above itself")
            if len(above) == _MAX_ABOVE:
                raise _Refused(f"more than {_MAX_ABOVE} CompositePodGroups are above it")
            composite = self.objects.get(key)
            if composite is None:
                raise _Refused(f"{key.display_name} does not exist, or cannot be read")
            above.append(composite)
            key = composite.parent_key
        return above

    def _together(self, above: list[CompositeGroup]) -> tuple[GangKey, ...]:
        """The PodGroups that are placed together with one that is below these; (): it is by itself."""
        for composite in above:
            if composite.topology_key:
                name = composite.key.display_name
                raise _Refused(f"{name} has a topology, which Thalweg does not plan for several groups")
        gangs = [composite for composite in above if composite.min_groups is not None]
        if gangs != above[: len(gangs)]:
            raise _Refused(f"{above[0].key.display_name} is basic, within one that is not")
        if not gangs:
            return ()
        together: list[GangKey] = []
        for count, key in enumerate(self._below(gangs[-1].key), start=1):
            composite = self.objects[key]
            pod_groups, composites = self._pod_groups.get(key, {}), self._composites.get(key, {})
            exist = len(pod_groups) + len(composites)
            if composite.min_groups is None:
                raise _Refused(f"{key.display_name} is basic, within one that is not")
            if count + len(together) + len(pod_groups) > MAX_GANGS_IN_GROUP:
                raise _Refused(f"{gangs[-1].key.display_name} has more than {MAX_GANGS_IN_GROUP} groups")
            if exist < composite.min_groups:
                raise _Refused(f"{key.display_name}: {exist} of {composite.min_groups} groups exist")
            together += pod_groups
        return tuple(sorted(together))

    def _below(self, key: CompositeKey) -> Iterator[CompositeKey]:
        """A CompositePodGroup and those below it, each once, as deep as any may be."""
        seen: set[CompositeKey] = set()
        levels: list[Iterator[CompositeKey]] = [iter((key,))]
        while levels:
            this = next(levels[-1], None)
            if this is None:
                levels.pop()
            elif this not in seen:
                seen.add(this)
                yield this
                if len(levels) < _MAX_ABOVE:
                    levels.append(iter(self._composites.get(this, ())))


def _parent_of(group: PodGroup) -> CompositeKey:
    return CompositeKey(group.key.namespace, group.parent)


def _with_priority(spec: GangSpec, root: CompositeGroup) -> GangSpec:
    priority = spec.priority if root.priority is None else root.priority
    preempts = spec.preempts if root.preempts is None else root.preempts
    return msgspec.structs.replace(spec, priority=priority, preempts=preempts)


def _discard(children: dict[CompositeKey, dict[_C, None]], parent: CompositeKey, child: _C) -> None:
    del children[parent][child]
    if not children[parent]:
        del children[parent]
