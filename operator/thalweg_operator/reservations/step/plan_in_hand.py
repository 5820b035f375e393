"""A plan that is being carried out, part by part."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from thalweg_operator.reservations.events import PlannedPlacement
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.steering.nominations import ReservedPlacement


class Reserved(msgspec.Struct, frozen=True, gc=False):
    """A placement with its reservation.

    Attributes:
        signature: as rules between pods see the pod.
        group: what is placed as a whole: the atomic group, or the pods that waited together for victims; "": neither.
        optional: whether the group does without it.
    """

    pod: Pod
    placement: PlannedPlacement
    signature: PodSignature
    owner: Owner
    group: str
    optional: bool


@dataclass(slots=True)
class PlanInHand:
    """A plan that is being carried out.

    Attributes:
        waiting: placements with a reservation that are handed on once the whole plan was seen.
        nominations: placements that kube-scheduler is to bind.
        broken: groups that are not whole any more, and whether that is for kube-scheduler being at a node.
        in_groups: whether any placement belongs to a group, so that nothing is handed on before its end.
        waiting_groups: names of those whose victims have left and whose places this plan confirms.
        awaiting: keys of pods that were handed on just now, and wait for victims.
        dropped: pods whose placements did not hold, each with its policy.
        bound_together: groups whose pods are bound together, after what one of them needs before: keys of their pods.
    """

    waiting: list[Reserved] = field(default_factory=list)
    nominations: list[ReservedPlacement] = field(default_factory=list)
    broken: dict[str, bool] = field(default_factory=dict)
    in_groups: bool = False
    waiting_groups: set[str] = field(default_factory=set)
    awaiting: list[str] = field(default_factory=list)
    dropped: list[tuple[Pod, Policy]] = field(default_factory=list)
    bound_together: dict[str, list[str]] = field(default_factory=dict)
