"""Which PodGroups belong together by CompositePodGroups, and why some cannot be placed.

Of a CompositePodGroup with the policy ``gang`` at least ``minGroupCount`` groups are there, or none. One of the policy
basic needs one of its groups, so by itself it keeps nothing together. What a group has counts only if what is above
it has what it needs. Source: kube-scheduler gangscheduling.go (isCPGTreeReady, getMinCount), schedule_one_podgroup.go
(completeCompositePodGroupAlgorithmResultMap).

A change costs what it concerns, and of a tree that is too large to be placed a part of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

import msgspec

from flowcore.model.composite_groups import CompositeGroup, CompositeKey
from flowcore.model.gang_spec import MAX_GANGS_IN_GROUP, GangKey, GangSpec, GroupTree, PodGroup

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
            tree = self._tree(above)
        except _Refused as refused:
            return msgspec.structs.replace(group.spec, group=()), f"{group.key.display_name}: {refused}"
        spec = msgspec.structs.replace(group.spec, group=())
        if tree is not None:  # a basic group of it, too, is there once it has a pod
            gangs, least = tuple(sorted(tree.all_gangs)), max(1, spec.min_member or 0)
            spec = msgspec.structs.replace(spec, group=gangs, tree=tree, min_member=least)
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

    def evicted_with(self, group: PodGroup) -> CompositeKey | None:
        """The highest CompositePodGroup above a PodGroup whose pods are evicted together; None: none is.

        Source: kube-scheduler framework/preemption/types.go (getHighestAllAncestor).
        """
        try:
            above = self._above(group) if group.parent else []
        except _Refused:
            return None
        return next((composite.key for composite in reversed(above) if composite.evicted_whole), None)

    def _tree(self, above: list[CompositeGroup]) -> GroupTree | None:
        """What a PodGroup that is below these is placed with; None: it is by itself."""
        for composite in above:
            exist = len(self._pod_groups.get(composite.key, ())) + len(self._composites.get(composite.key, ()))
            if exist < composite.min_groups:
                raise _Refused(f"{composite.key.display_name}: {exist} of {composite.min_groups} groups exist")
        # One that needs one group and has no topology keeps nothing together.
        root = next((each for each in reversed(above) if each.min_groups > 1 or each.topology_key), None)
        if root is None:
            return None
        size = 0
        for key in self._below(root.key):
            size += 1 + len(self._pod_groups.get(key, ()))
            if size > MAX_GANGS_IN_GROUP:
                raise _Refused(f"{root.key.display_name} has more than {MAX_GANGS_IN_GROUP} groups")
        return self._tree_of(root, _MAX_ABOVE)

    def _tree_of(self, root: CompositeGroup, levels: int) -> GroupTree:
        """A CompositePodGroup with what is below it, as deep as any may be."""
        below = (self.objects[key] for key in sorted(self._composites.get(root.key, ()))) if levels > 1 else ()
        return GroupTree(
            root.key.display_name,
            root.min_groups,
            tuple(sorted(self._pod_groups.get(root.key, ()))),
            tuple(self._tree_of(composite, levels - 1) for composite in below),
            root.topology_key,
        )

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
