"""CompositePodGroups of Kubernetes (KEP-6012): groups of PodGroups, and of CompositePodGroups.

Source: k8s.io/api scheduling/v1alpha3 CompositePodGroup.
"""

from __future__ import annotations

import msgspec


class CompositeKey(msgspec.Struct, frozen=True, gc=False, order=True):
    """What tells a CompositePodGroup from all others."""

    namespace: str
    name: str

    @property
    def display_name(self) -> str:
        """As users know it."""
        return f"CompositePodGroup {self.namespace}/{self.name}"


class CompositeGroup(msgspec.Struct, frozen=True, gc=False):
    """A CompositePodGroup.

    Attributes:
        parent: name of the CompositePodGroup of the same namespace that it belongs to; "": of none.
        min_groups: how many of its groups run at once, or none; 1: each runs by itself (so does policy basic).
        topology_key: all of its pods are on nodes with one value of this label; "": no such rule.
        evicted_whole: the running pods of all of its groups are evicted together or not at all (``disruptionMode``).
        priority: of all of its pods, in place of their own; None: its groups have their own.
        preempts: whether pods may be evicted for its pods; None: its groups have their own policy.
    """

    key: CompositeKey
    parent: str = ""
    min_groups: int = 1
    topology_key: str = ""
    evicted_whole: bool = False
    priority: int | None = None
    preempts: bool | None = None

    @property
    def parent_key(self) -> CompositeKey | None:
        """The key of its parent; None: it has none."""
        return CompositeKey(self.key.namespace, self.parent) if self.parent else None
