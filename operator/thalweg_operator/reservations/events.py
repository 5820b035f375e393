"""What may happen: everything that changes cluster or ledger is one of these events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.cluster.kinds import Store
from flowcore.model.advice import Advice, ExtenderPod
from flowcore.model.gang_parents import ParentKey
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Policy
from flowcore.model.resource_claims import PlannedClaim
from flowcore.model.selectors import Labels
from flowcore.model.volumes import VolumeChoice
from flowcore.planning.plan_document import PlanEviction
from thalweg_operator.reservations.effects import Write


class _Event(msgspec.Struct, frozen=True, gc=False):
    """Base of all events."""


# --- the watches ---


class NodePut(_Event, frozen=True, gc=False):
    """A node came or changed."""

    node: Node


class NodeRemoved(_Event, frozen=True, gc=False):
    """A node is gone."""

    name: str


class PodPut(_Event, frozen=True, gc=False):
    """A pod came or changed."""

    pod: Pod


class PodRemoved(_Event, frozen=True, gc=False):
    """A pod is gone."""

    key: str


class NamespaceSet(_Event, frozen=True, gc=False):
    """A namespace has these labels; None: it is gone."""

    name: str
    labels: Labels | None


class ObjectSet(_Event, frozen=True, gc=False):
    """An object of another kind came or changed; None: it is gone.

    Attributes:
        store: the row of the object's kind.
        key: of the object in that store.
    """

    store: Store[Any, Any]
    key: Any
    value: Any


class ParentsFollowed(_Event, frozen=True, gc=False):
    """Of which kinds the parents of gangs are known, or are about to be listed.

    Attributes:
        kinds: as ``ObjectKind.qualified``.
        gone: parents of these kinds that pods name, and that do not exist as far as can be known.
    """

    kinds: frozenset[str]
    gone: frozenset[ParentKey] = frozenset()


# --- plans ---


class PlannedPlacement(msgspec.Struct, frozen=True, gc=False):
    """One placement of a plan.

    Attributes:
        pod: as it was planned.
        policy: that it was planned by.
        wave: chain and wave (``flowcore.planning.problem.result.Placement``).
        atomic_group: name of the group that is placed as a whole, or not at all; "" for pods by themselves.
        optional: whether the group does without this pod.
        victims: running pods that must leave before it comes, beside the pod that it replaces.
        waits: whether it has victims, or another pod of its atomic group has.
        saving: by how much the cost falls if the pod leaves the node; None: unknown.
        device_claims: what each claim to devices of a pod that we bind has or gets; None: one of them gets nothing.
        volumes: what each claim of it that waits for its first consumer is to get.
    """

    pod: Pod
    policy: Policy
    node: str
    wave: tuple[int, int]
    atomic_group: str
    optional: bool
    victims: tuple[PlanEviction, ...] = ()
    waits: bool = False
    saving: int | None = None
    device_claims: tuple[PlannedClaim, ...] | None = ()
    volumes: tuple[VolumeChoice, ...] = ()


class PlanAsked(_Event, frozen=True, gc=False):
    """A plan was asked for.

    Attributes:
        pods: that it is to place, each with its policy.
        keeps_room: whether room is kept for a gang.
        looked_at: keys of the new pods that were there when it was decided which pods these are, and that it is to
            place or has nothing for; None: all.
        helped: the ledger's number of steps that may have helped pods, then; None: that of now.
        defers: whether pods that it could place wait for a later plan.
    """

    pods: Sequence[tuple[Pod, Policy]]
    keeps_room: bool = False
    looked_at: frozenset[str] | None = None
    helped: int | None = None
    defers: bool = False


class PlanMade(_Event, frozen=True, gc=False):
    """A part of a plan. A plan is carried out in bursts, so that other events have their turn between them.

    Attributes:
        number: of the plan's round.
        generation: of the cluster, when the plan was asked for.
        atomic_groups: names of those of the whole plan.
        first, last: whether the plan begins with this part, and ends with it.
        evictions: running pods that leave though no placement waits for their room.
        keeps_room: whether the plan keeps room for a gang.
    """

    number: int
    generation: int
    placements: Sequence[PlannedPlacement]
    atomic_groups: Sequence[str] = ()
    first: bool = True
    last: bool = True
    evictions: Sequence[PlanEviction] = ()
    keeps_room: bool = False


class UnplacedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that the plan in hand has no node for.

    Attributes:
        reason: a sentence for the pod.
        condition: the reason of its condition PodScheduled: Unschedulable, or a code (waiting_codes.py).
        planned: whether a round looked at it and found no node; False: no round is planned with it for now.
        retried: whether the next round plans it at once, and may evict others for it.
        frees: keys of its claims that are to be freed, since it can have devices elsewhere then.
    """

    pod: Pod
    policy: Policy
    reason: str
    condition: str
    planned: bool = True
    retried: bool = False
    frees: tuple[ClaimKey, ...] = ()


class PodsUnplaced(_Event, frozen=True, gc=False):
    """Pods of a round that got no node."""

    pods: Sequence[UnplacedPod]


class PodsBlocked(_Event, frozen=True, gc=False):
    """Pods, and the policies that govern them, that no round may plan."""

    pods: Sequence[tuple[Pod, Policy]]


class PricesPlanned(_Event, frozen=True, gc=False):
    """What nodes cost one more pod of a class after the plan in hand, each of whose pods has its reservation.

    Attributes: see ``PlannedPrices``.
    """

    pod_class: PodClass
    policy: str
    positions: Mapping[str, int]
    base: int
    step: int
    codes: Sequence[int]
    tolerance: int
    generation: int


class PricesUnknown(_Event, frozen=True, gc=False):
    """The plan in hand has pods of a class, and no prices for one more: those of an older plan hold no more."""

    pod_class: PodClass
    policy: str


class GateUnneeded(_Event, frozen=True, gc=False):
    """No plan will come for a pod that waits behind our gate."""

    pod: Pod


# --- kube-scheduler, writes, time ---


class SchedulerAsks(_Event, frozen=True, gc=False):
    """kube-scheduler asks about a new pod. If it gets no place now, it is answered after its first round.

    Attributes:
        nodes: those that it asks about.
    """

    extender_pod: ExtenderPod
    nodes: Sequence[str]


class SchedulerAnswered(_Event, frozen=True, gc=False):
    """kube-scheduler was answered what filter says of a pod.

    Attributes:
        outcome: steered (to the node that the advice names), held, or passed (to any of ``passed``).
        advice: what was advised.
    """

    extender_pod: ExtenderPod
    outcome: str
    passed: Sequence[str]
    advice: Advice


class Answer(Enum):
    """What became of a write."""

    DONE = "done"
    #: It will never be carried out.
    REFUSED = "refused"
    #: The API server refused it. It will be tried again.
    RETRYING = "retrying"
    #: It was not wanted any more, and not sent.
    UNWANTED = "unwanted"
    #: It may have been carried out, or may be yet: it is being sent, or its answer is lost. Of bindings alone.
    UNCERTAIN = "uncertain"


class WriteAnswered(_Event, frozen=True, gc=False):
    """A write was answered.

    Attributes:
        reason: the API server's, where it refused the write; for a binding "" where it says nothing of the pod.
    """

    write: Write
    answer: Answer
    reason: str = ""


class PoliciesChanged(_Event, frozen=True, gc=False):
    """Other policies are accepted.

    Attributes:
        accepted: all of them, without the built-in default.
        networks: names of the cost models that draw a network.
    """

    accepted: tuple[Policy, ...]
    networks: frozenset[str] = frozenset()


class Synced(_Event, frozen=True, gc=False):
    """Cluster and policies are known for the first time; what is nominated already is taken up."""


class TimePassed(_Event, frozen=True, gc=False):
    """Some time passed; to be told a few times a second."""


ObjectEvent: TypeAlias = NodePut | NodeRemoved | PodPut | PodRemoved | NamespaceSet | ObjectSet | ParentsFollowed
PlanEvent: TypeAlias = PlanAsked | PlanMade | PodsUnplaced | PodsBlocked | PricesPlanned | PricesUnknown | GateUnneeded
SchedulerEvent: TypeAlias = SchedulerAsks | SchedulerAnswered
Event: TypeAlias = ObjectEvent | PlanEvent | SchedulerEvent | WriteAnswered | PoliciesChanged | Synced | TimePassed
