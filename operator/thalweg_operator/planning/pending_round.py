"""A round that was asked for: its request, and what becomes of the waiting pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from thalweg_operator.planning.round_request import PlanningInput
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest
from thalweg_operator.reservations.events import UnplacedPod
from thalweg_operator.reservations.waiting_codes import AWAITING_TURN, BACKING_OFF, QUARANTINED, blocked_code


@dataclass(slots=True)
class PendingRound:
    """A request and its pods.

    Attributes:
        pods: the pods of ``request.pending``, in this order.
        blocked: pods that may not be planned, each with its policy.
        paused: pods that pause, for example since a write for them was refused.
        backing_off: pods that the quarantine leaves out for now, with the reason.
        awaiting_turn: pods of ``deferred`` that get the condition that they wait for their turn.
        deferred: pods whose turn comes later, each with its policy.
        resting: pods that were planned in vain, and nothing has helped them since, each with its policy.
        by_turns: whether turns of namespaces chose the pods.
        has_more: whether other pods wait for the next round.
    """

    request: RoundRequest
    planning_input: PlanningInput
    pods: list[Pod]
    blocked: list[tuple[Pod, Policy]] = field(default_factory=list)
    paused: list[Pod] = field(default_factory=list)
    backing_off: list[UnplacedPod] = field(default_factory=list)
    awaiting_turn: list[UnplacedPod] = field(default_factory=list)
    deferred: Sequence[tuple[Pod, Policy]] = ()
    resting: Sequence[tuple[Pod, Policy]] = ()
    by_turns: bool = False
    has_more: bool = False

    @property
    def left_as_they_are(self) -> Sequence[tuple[Pod, Policy]]:
        """Pods about which what an earlier round found still holds, each with its policy."""
        return [*self.deferred, *self.resting]

    @property
    def unplanned(self) -> list[Policy]:
        """The policies of pods that are no part of the request."""
        return [
            *(policy for _, policy in self.blocked),
            *(unplaced.policy for unplaced in self.backing_off),
            *(policy for _, policy in self.left_as_they_are),
        ]

    def waiting(self, reply: RoundReply | None) -> Iterator[tuple[Pod, str]]:
        """The pods that wait after the round, each with the code of its reason."""
        if reply is not None:
            yield from ((self.pods[index], reply.codes[reason]) for index, reason in reply.unplaced)
        yield from ((unplaced.pod, QUARANTINED) for unplaced in self.backing_off)
        yield from ((pod, AWAITING_TURN) for pod, _ in self.left_as_they_are)
        yield from ((pod, blocked_code(pod)) for pod, _ in self.blocked)
        yield from ((pod, BACKING_OFF) for pod in self.paused)
