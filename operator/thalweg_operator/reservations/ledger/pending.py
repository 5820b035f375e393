"""What is remembered of a waiting pod beside its reservation. It is forgotten when the pod waits no more."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec


class RejectedNode(msgspec.Struct, frozen=True, gc=False):
    """A node that kube-scheduler's filters rejected for the pod.

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
        held_at, refused_node: when kube-scheduler was last answered with no node, and the nominated node that its own
            filters refused for good in this attempt; None: it does not sleep for that.
        refused_early: its own filters refused the nominated node then, and may let it pass a little later.
        unplaced: a round had no node for it, or left it out.
        may_choose: kube-scheduler may choose a node: the plan has none, and the policy prefers only.
        opening: reservation for which its gate is being opened, 0 for none; None: it is not being opened.
        opening_refused: the API server refuses to open its gate, and is asked again with pauses.
        clearing: reservation of somebody else's nomination that is being cleared; 0: none.
        wake_pause: seconds until it is woken again that was held before our watch showed it.
    """

    uid: str
    plannable_since: float | None = None
    backoff_until: float = 0.0
    backoff_tries: int = 0
    rejected_nodes: dict[str, RejectedNode] = field(default_factory=dict)
    held_at: float | None = None
    refused_node: str = ""
    refused_early: bool = False
    unplaced: bool = False
    may_choose: bool = False
    opening: int | None = None
    opening_refused: bool = False
    clearing: int = 0
    wake_pause: float = 0.0
