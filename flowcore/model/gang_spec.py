"""Which pods form a gang, and by which rules: membership of a pod, PodGroup objects.

A pod belongs to one gang at most; of several sources on it the first of ``GangSource`` counts.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from flowcore.model.gang_parents import ParentKey
from flowcore.model.hyper_nodes import SubGroup, TierLimit
from flowcore.model.resource_claims import PodClaim

#: Annotations of ours, on pods; the last two on PodGroup objects too. More of them: ``gang_topology``.
GANG = "scheduling.thalweg/gang"
GANG_MIN_MEMBER = "scheduling.thalweg/gang-min-member"
GANG_GROUP = "scheduling.thalweg/gang-group"
GANG_TOPOLOGY = "scheduling.thalweg/gang-topology"
#: Of ours, on pods: they are a gang as the object of their controller says, whatever kinds their policy follows.
GANG_OF_CONTROLLER = "scheduling.thalweg/gang-of-controller"

#: Labels of the coscheduling plugin, the second from before it had a PodGroup of x-k8s.io.
POD_GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
VOLCANO_GROUP = "scheduling.volcano.sh/group-name"
VOLCANO_GROUP_OLDER = "scheduling.k8s.io/group-name"

#: Of LeaderWorkerSets, on their pods: how many are in the group.
GROUP_SIZE = "leaderworkerset.sigs.k8s.io/size"

_KOORDINATOR = "gang.scheduling.koordinator.sh/"
KOORDINATOR_NAME = _KOORDINATOR + "name"
KOORDINATOR_MIN_AVAILABLE = _KOORDINATOR + "min-available"
KOORDINATOR_GROUPS = _KOORDINATOR + "groups"
KOORDINATOR_TIMEOUT = _KOORDINATOR + "waiting-time"

#: Kueue's label of a plain pod's group, and what its pods say of the group. A group that is admitted by its first pod,
#: or that serves, may get its other pods later.
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_FAST_ADMISSION = "kueue.x-k8s.io/pod-group-fast-admission"
KUEUE_SERVING = "kueue.x-k8s.io/pod-group-serving"

#: API version -> type of the condition of a native PodGroup about its scheduling (k8s.io/api scheduling types.go).
SCHEDULED_CONDITIONS = {
    "v1alpha2": "PodGroupScheduled",
    "v1alpha3": "PodGroupInitiallyScheduled",
    "v1beta1": "PodGroupInitiallyScheduled",
}

#: Most gangs in a group, and most bytes of an annotation that names them.
MAX_GANGS_IN_GROUP = 64
MAX_GROUP_BYTES = 4096
#: Most labels of a topology in an annotation: a round looks at each of them on each node.
MAX_TOPOLOGY_LABELS = 8

#: Annotations by which a pod belongs to a gang.
NAMING_ANNOTATIONS = (VOLCANO_GROUP, VOLCANO_GROUP_OLDER, KOORDINATOR_NAME, GANG)

#: Labels by which a pod belongs to a gang.
NAMING_LABELS = (*POD_GROUP_LABELS, KUEUE_GROUP)


class GangSource(StrEnum):
    """Where a gang comes from, in the order in which sources count."""

    #: spec.schedulingGroup.podGroupName and PodGroup of scheduling.k8s.io (KEP-4671).
    NATIVE = "scheduling.k8s.io"
    #: The label and PodGroup of the coscheduling plugin (sigs.k8s.io/scheduler-plugins).
    COSCHEDULING = "scheduling.x-k8s.io"
    #: The annotation and PodGroup of Volcano.
    VOLCANO = "scheduling.volcano.sh"
    #: Annotations of Koordinator; all is said on the pods.
    KOORDINATOR = "gang.scheduling.koordinator.sh"
    #: Annotations of ours; all is said on the pods.
    THALWEG = "scheduling.thalweg"
    #: The label of a plain pod's group and an annotation of Kueue; all is said on the pods.
    KUEUE = "kueue.x-k8s.io"
    #: The controller that makes the pods; its object says all (``flowcore.model.gang_parents``).
    CONTROLLER = "controller"

    @property
    def has_pod_groups(self) -> bool:
        """Whether a PodGroup says what the gang needs, not its pods."""
        return self in (GangSource.NATIVE, GangSource.COSCHEDULING, GangSource.VOLCANO)


class GangKey(msgspec.Struct, frozen=True, gc=False, order=True, cache_hash=True):
    """What tells a gang from all others: a gang lives in one namespace.

    Attributes:
        kind, part: of the parent and which of its gangs, source CONTROLLER (``ParentKey``, ``GangParent``); else "".
    """

    source: GangSource
    namespace: str
    name: str
    kind: str = ""
    part: str = ""

    @property
    def parent(self) -> ParentKey:
        """The object that says how large it is, source CONTROLLER."""
        return ParentKey(self.kind, self.namespace, self.name)

    @property
    def display_name(self) -> str:
        """As users know it: "PodGroup ml/train", "gang ml/train", "JobSet ml/train (workers)"."""
        if self.source is GangSource.CONTROLLER:
            return self.parent.display_name + (f" ({self.part})" if self.part else "")
        what = "PodGroup" if self.source.has_pod_groups else "gang"
        plain = self.source in (GangSource.NATIVE, GangSource.THALWEG)
        return f"{what} {self.namespace}/{self.name}" + ("" if plain else f" of {self.source.value}")


class GangSpec(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a gang needs.

    Attributes:
        min_member: how many of its pods run at once, or none; None: not said.
        topology_key: a label: all of its pods are on nodes with one value of it; "": no such rule. Several labels, with
            ``TOPOLOGY_SEPARATOR`` between them: with one value of each.
        preferred: labels from wide to narrow, levels within each other: its pods go to as few domains of them as will
            do, of the narrowest one first.
        slice_key: as ``topology_key``, for each slice of the gang by itself; "": it has no slices.
        slice_size: how many pods are in a slice, by their ranks; 0: it has no slices.
        group: gangs that are placed all or none of them, this one among them, in order; (): by itself.
        limit: what it says of tiers of HyperNodes; None: nothing, or ``topology_key`` and ``preferred`` have it.
        sub_groups: what is in its slices in place of ranks; (): ranks say it.
        timeout: seconds that it may be there in part, in place of its policy's; None: not said.
        evicted_whole: its running pods are evicted all together or not at all (``disruptionMode`` of PodGroup).
        priority: of all of its pods, in place of their own; None: each has its own.
        preempts: whether pods may be evicted for its pods, in place of their own policy; None: each has its own.
    """

    min_member: int | None = None
    topology_key: str = ""
    group: tuple[GangKey, ...] = ()
    timeout: int | None = None
    evicted_whole: bool = False
    priority: int | None = None
    preempts: bool | None = None
    preferred: tuple[str, ...] = ()
    slice_key: str = ""
    slice_size: int = 0
    limit: TierLimit | None = None
    sub_groups: tuple[SubGroup, ...] = ()

    @property
    def has_slices(self) -> bool:
        """Whether parts of it have a topology of their own."""
        return self.slice_size > 0 or bool(self.sub_groups)

    @property
    def topologies(self) -> tuple[str, ...]:
        """What it and its slices ask for or prefer, in order.

        Pods that exchange nodes of the same domains of all of these change nothing for the gang.
        """
        asked = (self.topology_key, self.slice_key, *(group.key for group in self.sub_groups), *self.preferred)
        return tuple(sorted({topology for topology in asked if topology}))


class GangRef(msgspec.Struct, frozen=True, gc=False):
    """A pod's membership, and what the pod itself says of the gang."""

    key: GangKey
    spec: GangSpec = GangSpec()


class GroupCondition(msgspec.Struct, frozen=True, gc=False):
    """The condition of a PodGroup about its scheduling, as its status has it (metav1.Condition).

    Attributes:
        type: one of ``SCHEDULED_CONDITIONS``.
        status: True or False.
        observed_generation: of the PodGroup that it is about.
    """

    type: str
    status: str
    reason: str
    message: str
    observed_generation: int = 0


class PodGroup(msgspec.Struct, frozen=True, gc=False):
    """A PodGroup object of any source.

    Attributes:
        problem: why it cannot be read; "" when it can.
        parent: name of the CompositePodGroup that it belongs to; "": to none. Of Kubernetes' own source only.
        uid: of Kubernetes' own source and of Volcano's; "" elsewhere.
        claims: those that its pods share, if a feature gate is on (``device_gates``). Of Kubernetes' own source only.
        generation, conditions: of Kubernetes' own source only: who writes the status reads them, and plans do not.
        owner: the uid of its controller, source VOLCANO; "" elsewhere.
        phase: as its status says, source VOLCANO; "": it has none, or is of another source.
    """

    key: GangKey
    spec: GangSpec
    problem: str = ""
    parent: str = ""
    uid: str = ""
    owner: str = ""
    phase: str = ""
    claims: tuple[PodClaim, ...] = ()
    generation: int = 0
    conditions: tuple[GroupCondition, ...] = ()

    @property
    def composite_reason(self) -> str:
        """Why none of its pods is placed or evicted: what is above it is not read; "": nothing is."""
        if not self.parent:
            return ""
        above = f"CompositePodGroup {self.key.namespace}/{self.parent}"
        return f"it belongs to {above}, an alpha kind of Kubernetes 1.37 that Thalweg does not plan yet"

    def plans_as(self, before: PodGroup | None) -> bool:
        """Whether plans cannot tell it from an earlier version of it."""
        read = (self.spec, self.problem, self.parent)
        return before is not None and read == (before.spec, before.problem, before.parent)
