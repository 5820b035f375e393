"""What is remembered of a running pod that is to leave its node for others."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import msgspec

from flowcore.model.pods import Pod
from thalweg_operator.reservations.effects import Departure
from thalweg_operator.reservations.ledger.reservation import NEVER

#: Seconds after which an eviction that came to nothing is asked for again.
RETRY_SECONDS = 5.0


class Stage(Enum):
    """How far the eviction of a victim has come."""

    #: Nothing was asked of the API server.
    PLANNED = "planned"
    #: A dry run is under way.
    CHECKING = "checking"
    #: The API server would evict the pod.
    CHECKED = "checked"
    #: The eviction is asked for.
    ASKED = "asked"


@dataclass(slots=True)
class VictimRecord:
    """One running pod that is to leave; times are seconds of the monotonic clock.

    Attributes:
        pod: as it is now.
        departure: why it leaves.
        to: the node that the plan has for its replacement; "": none. A pod that is moved leaves only while the room
            there is reserved.
        for_pods: keys of the pods that wait for its room.
        asked: when the eviction was last asked for.
        leaves: the API server evicts it, or another victim of the same pods: it leaves too, whatever changes.
        leaving_since: when it was first seen to be deleted; None: it is not.
        problem: why the API server does not evict it.
        reason: why it leaves, for people; "": the departure says it.
        generation: of the cluster, when its eviction was planned; for those whose rule does not hold.
    """

    pod: Pod
    departure: Departure
    to: str = ""
    for_pods: set[str] = field(default_factory=set)
    stage: Stage = Stage.PLANNED
    asked: float = NEVER
    leaves: bool = False
    leaving_since: float | None = None
    problem: str = ""
    reason: str = ""
    generation: int = 0

    @property
    def is_leaving(self) -> bool:
        """Whether it leaves for sure."""
        return self.leaves or self.pod.deleting


class UnevictablePod(msgspec.Struct, frozen=True, gc=False):
    """A running pod that is not to be evicted now.

    Attributes:
        reason: the API server's.
        until: end of its pause, by the monotonic clock.
        tries: how often its eviction was refused.
    """

    reason: str
    until: float
    tries: int
