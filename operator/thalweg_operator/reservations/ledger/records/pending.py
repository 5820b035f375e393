"""What is remembered of waiting pods beside their reservations, and of atomic groups that wait for victims.

The record of a pod is forgotten when the pod waits no more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from flowcore.model.volumes import Claim


class RejectedNode(msgspec.Struct, frozen=True, gc=False):
    """A node that kube-scheduler's filters rejected for the pod, or for which no volume was provisioned.

    Attributes:
        until: end of the pause of this pod and node, by the monotonic clock.
        generation: of the cluster, when it was rejected. A node that changed since is tried at once.
        tries: how often it was rejected.
    """

    until: float
    generation: int
    tries: int


@dataclass(slots=True)
class PendingRecord:
    """What is remembered of one waiting pod; times are seconds of the monotonic clock.

    Attributes:
        plannable_since: when it could first be planned, by the wall clock; None: no round has asked.
        backoff_until, backoff_tries: end of its pause, and how often a write for it was refused.
        rejected_nodes: by name.
        late_claims, late_tries: its volume claims that were not bound in time, as they were then, and how often that
            happened in a row. Nobody leaves for it while they stay so.
        held_at, refused_node: when kube-scheduler was last answered with no node, and the nominated node that its own
            filters refused for good in this attempt; None: it does not sleep for that.
        asked_until: until when its answer waits for a plan, at most.
        refused_early: its own filters refused the nominated node then, and may let it pass a little later.
        unplaced: a round had no node for it, or left it out.
        may_choose: kube-scheduler may choose a node: the plan has none, and the policy prefers only.
        opening: reservation for which its gate is being opened, 0 for none; None: it is not being opened.
        opening_refused: the API server refuses to open its gate, and is asked again with pauses.
        clearing: number of the reservation of a foreign nomination that is being cleared; 0: none.
        wake_pause: seconds until it is woken again that was held before our watch showed it.
    """

    uid: str
    plannable_since: float | None = None
    backoff_until: float = 0.0
    backoff_tries: int = 0
    rejected_nodes: dict[str, RejectedNode] = field(default_factory=dict)
    late_claims: tuple[Claim, ...] = ()
    late_tries: int = 0
    held_at: float | None = None
    refused_node: str = ""
    asked_until: float = 0.0
    refused_early: bool = False
    unplaced: bool = False
    may_choose: bool = False
    opening: int | None = None
    opening_refused: bool = False
    clearing: int = 0
    wake_pause: float = 0.0


@dataclass(slots=True)
class WaitingGroup:
    """One atomic group that waits: no pod is evicted for it, and none of its pods comes, unless it is whole.

    Attributes:
        members: keys of its pods with a reservation that waits.
        required: keys of the pods that it needs.
        lost: how many of those have lost their reservation.
        leaving: how many victims of its pods leave for sure; a victim of two pods counts twice.
    """

    members: set[str] = field(default_factory=set)
    required: set[str] = field(default_factory=set)
    lost: int = 0
    leaving: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every required pod waits."""
        return self.lost == 0

    def add(self, key: str, *, optional: bool) -> None:
        """A pod has its reservation."""
        self.members.add(key)
        if not optional:
            self.required.add(key)

    def leave(self, key: str, *, confirmed: bool) -> None:
        """A pod waits no more: a round has confirmed its place, or its reservation ended."""
        self.members.discard(key)
        if confirmed:
            self.required.discard(key)
        elif key in self.required:
            self.lost += 1
