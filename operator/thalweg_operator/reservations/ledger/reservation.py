"""One placement that is on its way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import msgspec

from flowcore.model.pods import Pod
from flowcore.model.resource_claims import PlannedClaim
from flowcore.model.volumes import ClaimKey, VolumeChoice
from thalweg_operator.reservations.ledger.transitions import Phase

#: A time before all others.
NEVER = -math.inf


class Owner(Enum):
    """Which part of the operator owns a reservation."""

    #: A binding of ours is on its way.
    BINDER = "binder"
    #: We nominate, kube-scheduler binds.
    STEERING = "steering"
    #: Another component nominated: kube-scheduler for a pod that preempted, an autoscaler.
    OTHERS = "others"


@dataclass(frozen=True, slots=True)
class PermitKey:
    """Names a permit group: the pods of an atomic group that one plan puts in one wave."""

    plan: int
    atomic_group: str
    wave: int


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """A pod that is expected on a node and not yet seen bound; every later round counts it.

    Attributes:
        id: no other reservation of the ledger has it.
        phase: how far it has come.
        victims: keys of the pods that must leave before it comes and have not left yet (``Ledger.victims``).
        waiting_group: name of the atomic group that waits for victims as a whole; "": it waits by itself, or not.
        optional: the group does without it.
        generation: of the cluster, when it was planned there.
        taken_up: an earlier process planned it there: a round has to judge the place.
        waits_since: since when it waits for its victims, or for what it needs before its binding.
        since: when its nomination came into its phase, by the monotonic clock; NEVER: it is not watched yet.
        group: of pods whose gates open together; None: no gate holds the pod back, or it is by itself.
        passed_at: when filter last let the pod through; NEVER: it did not.
        passed_again: whether it had let the pod through before, and that attempt came to nothing.
        wave: chain and wave of a nomination.
        retries: how often an erased nomination was written again, or the place was kept after a refused binding.
        maybe_bound: its binding may have been carried out; the watch does not show it yet.
        write: nominations written so far; only the last one counts.
        writing: that one is on its way to the API server.
        clearing: that the nomination is cleared is on its way to the API server.
        saving: by how much the plan's cost falls if it leaves its node; None: unknown.
        crowded: kube-scheduler asked about the node, and we kept the pod off it for the sake of others.
        rejected: kube-scheduler knew of the nomination and asked about other nodes: its filters reject this one.
        volumes: what the volume claims of a pod that we bind get before its binding.
        volumes_shown: keys of those claims of which the watch has shown what we wrote.
        volumes_written: when what we wrote for them was last answered; NEVER: it was not, or is being written again.
        volumes_told: what the pod was last told of the volumes that it waits for.
        device_claims: what the device claims of a pod that we bind have or get there.
        devices_asked_for: writes of these were asked for, and may have been carried out.
        devices_written: all of these writes are done.
        bound_with: names the pods that are bound once all have what they need before; "": it is by itself.
        is_ready: it has what it needs before its binding.
    """

    pod: Pod
    node: str
    owner: Owner
    phase: Phase
    id: int
    victims: tuple[str, ...] = ()
    waiting_group: str = ""
    optional: bool = False
    generation: int = 0
    taken_up: bool = False
    waits_since: float = NEVER
    since: float = NEVER
    passed_at: float = NEVER
    passed_again: bool = False
    group: PermitKey | None = None
    wave: tuple[int, int] = (0, 0)
    retries: int = 0
    maybe_bound: bool = False
    write: int = 0
    writing: bool = False
    clearing: bool = False
    saving: int | None = None
    crowded: bool = False
    rejected: bool = False
    volumes: tuple[VolumeChoice, ...] = ()
    volumes_shown: tuple[ClaimKey, ...] = ()
    volumes_written: float = NEVER
    volumes_told: str = ""
    device_claims: tuple[PlannedClaim, ...] = ()
    devices_asked_for: bool = False
    devices_written: bool = False
    bound_with: str = ""
    is_ready: bool = False

    @property
    def is_nomination(self) -> bool:
        """Whether kube-scheduler is being steered to it: its plan is whole, or it was adopted after a restart."""
        return self.owner is Owner.STEERING and self.since > NEVER
