"""What is to be done outside: the shell carries effects out and hands the answers of writes back as events."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from flowcore.model.gang_spec import GangKey
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import PlannedClaim
from flowcore.model.running_pods import EvictionKind
from flowcore.model.volumes import VolumeChoice


class _Effect(msgspec.Struct, frozen=True, gc=False):
    """Base of all effects."""


# --- writes: each is answered (events.WriteAnswered) ---


class Bind(_Effect, frozen=True, gc=False):
    """Bind a pod to the node of its reservation.

    Attributes:
        generation: of the cluster, when the binding was asked for.
    """

    pod: Pod
    node: str
    generation: int


class Allocate(_Effect, frozen=True, gc=False):
    """Give the device claims of a pod their devices, and reserve them for the pod or its PodGroup: before it is bound.

    Attributes:
        reservation: ``Reservation.id``.
        claims: in the pod's order.
    """

    pod: Pod
    node: str
    reservation: int
    claims: tuple[PlannedClaim, ...]


class ReleasedClaim(_Effect, frozen=True, gc=False):
    """A device claim. Another one of its name has another uid.

    Attributes:
        uid: "": it may have been made for the extended resources of its pod, or not.
        is_extended: it was made for extended resources of a pod: of no use to anybody else, it is deleted.
        is_in_the_way: it keeps a pod of ours from all nodes: it comes free whoever allocated it.
    """

    namespace: str
    name: str
    uid: str
    is_extended: bool = False
    is_in_the_way: bool = False


class ReleasingGroup(_Effect, frozen=True, gc=False):
    """A PodGroup that reserves claims, none of whose pods uses them."""

    key: GangKey
    uid: str


class ReleaseClaims(_Effect, frozen=True, gc=False):
    """Device claims are not reserved for a pod any more; what we allocated and nobody else reserves comes free.

    So does what is in the way of a pod.

    Attributes:
        pod: whose claims they are; what was asked for this pod is written before. None: of no pod alone.
        group: the PodGroup that reserves them in place of its pods; None: none does.
    """

    claims: tuple[ReleasedClaim, ...]
    pod: Pod | None = None
    group: ReleasingGroup | None = None

    @property
    def consumer(self) -> str:
        """The uid of whom they are not reserved for any more; "": of nobody."""
        if self.group is not None:
            return self.group.uid
        return "" if self.pod is None else self.pod.uid


class BindClaim(_Effect, frozen=True, gc=False):
    """Give a volume claim of a pod what was chosen for it on the node of the pod's reservation: before it is bound.

    Attributes:
        reservation: ``Reservation.id``.
    """

    pod: Pod
    node: str
    reservation: int
    choice: VolumeChoice


class Nominate(_Effect, frozen=True, gc=False):
    """Nominate a node for a pod.

    Attributes:
        reservation: ``Reservation.id``.
        write: number of the nomination among those of its reservation; only the newest one counts.
    """

    pod: Pod
    node: str
    reservation: int
    write: int


class ClearNomination(_Effect, frozen=True, gc=False):
    """Clear a pod's nomination, ours or a foreign one, while this reservation is there."""

    pod: Pod
    reservation: int


class OpenGate(_Effect, frozen=True, gc=False):
    """Remove our scheduling gate from a pod.

    Attributes:
        reservation: of the pod when this was asked for; 0: it had none. Another plan since then decides anew.
    """

    pod: Pod
    reservation: int


class WakePod(_Effect, frozen=True, gc=False):
    """Change a pod so that kube-scheduler tries it again.

    Attributes:
        unseen: it was held because our watch had not shown it.
    """

    pod: Pod
    unseen: bool


class Departure(StrEnum):
    """Why a running pod is evicted."""

    PREEMPTION = EvictionKind.PREEMPTION
    MIGRATION = EvictionKind.MIGRATION
    RULE = EvictionKind.RULE
    RECLAIM = EvictionKind.RECLAIM
    #: A new pod names it in its annotation.
    REPLACEMENT = "Replacement"
    #: Its gang is partially placed for too long.
    PARTIAL_GANG = "PartialGang"


class Evict(_Effect, frozen=True, gc=False):
    """Evict a running pod, through the Eviction API.

    Attributes:
        message: a sentence for the pod's Event.
        condition: the message of its condition DisruptionTarget; "": the same.
        departure: why it leaves.
        dry_run: only ask whether the API server would evict it.
        gang: the partial gang that is ended by this; None: there is none.
        preemptors: keys of the pods that it leaves for, for the log: they may be of other namespaces.
    """

    pod: Pod
    message: str
    departure: Departure
    condition: str = ""
    dry_run: bool = False
    gang: GangKey | None = None
    preemptors: str = ""


# --- the rest is not answered ---


#: Seconds after which a pod is told why it waits: what it waits for is often there by then.
TOLD_AFTER = 0.5


class WriteCondition(_Effect, frozen=True, gc=False):
    """Tell a pod why it waits.

    Attributes:
        reason: a sentence.
        condition: the reason of its condition PodScheduled: Unschedulable, or a code (waiting_codes.py).
        steered: kube-scheduler is to bind it.
        after: seconds; it is told only if it waits for that long.
    """

    pod: Pod
    reason: str
    condition: str
    steered: bool = False
    after: float = TOLD_AFTER


class RequestRound(_Effect, frozen=True, gc=False):
    """A round may place more, or must look at something.

    Attributes:
        at_once: a pod began to wait, or its place is there.
        asked: kube-scheduler waits for the plan of a pod.
        helped: kube-scheduler asks about a pod that the last plan had no node for: what came since lets it in.
        freed: nodes that gave up room.
    """

    at_once: bool = False
    asked: bool = False
    helped: bool = False
    freed: tuple[str, ...] = ()


class ReconcileGates(_Effect, frozen=True, gc=False):
    """Other policies are in force: tell the API server which new pods to gate."""


class CountPlacement(_Effect, frozen=True, gc=False):
    """What became of a placement of a plan: observed, reserved, dropped or contended; priced: it needed no plan."""

    outcome: str


class CountMove(_Effect, frozen=True, gc=False):
    """What became of the place of a replacement: reserved, replaced, dropped or expired."""

    outcome: str


class CountNomination(_Effect, frozen=True, gc=False):
    """What became of a nomination: bound, elsewhere, erased, rejected, refused or expired."""

    outcome: str


class CountHeld(_Effect, frozen=True, gc=False):
    """Why kube-scheduler was answered with no node: unplanned, elsewhere or waiting."""

    cause: str


class Log(_Effect, frozen=True, gc=False):
    """A line of the log, at level info."""

    event: str
    fields: tuple[tuple[str, str], ...]


Write: TypeAlias = Bind | Allocate | ReleaseClaims | BindClaim | Nominate | ClearNomination | OpenGate | WakePod | Evict
Effect: TypeAlias = (
    Write
    | WriteCondition
    | RequestRound
    | ReconcileGates
    | CountPlacement
    | CountMove
    | CountNomination
    | CountHeld
    | Log
)
