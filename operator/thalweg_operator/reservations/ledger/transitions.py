"""How far a reservation has come, and which steps it may take. The docs print this table; a test compares them."""

from __future__ import annotations

from enum import Enum

from thalweg_operator.errors import OperatorError


class Phase(Enum):
    """How far a reservation has come; see ``MEANINGS``."""

    __hash__ = object.__hash__  # that of Enum is a function in Python, and each step of a reservation looks phases up

    AWAITING_VICTIM = "awaiting victim"
    AWAITING_REPLACEMENT = "awaiting replacement"
    HELD = "held"
    PREPARING = "preparing"
    BINDING = "binding"
    PAUSED = "paused"
    QUEUED = "queued"
    RESERVED = "reserved"
    NOMINATED = "nominated"
    PASSED = "passed"
    WITHDRAWING = "withdrawing"
    FOREIGN = "foreign"


MEANINGS: dict[Phase, str] = {
    Phase.AWAITING_VICTIM: "victims hold its place, or that of a pod of its gang, and must leave first",
    Phase.AWAITING_REPLACEMENT: "a running pod leaves its node; its controller's next pod comes here",
    Phase.HELD: "its victims have left, or it replaces a pod that leaves; the place is kept until it is confirmed",
    Phase.PREPARING: "its claims, or those of a pod of its gang, get volumes and devices; then it is bound",
    Phase.BINDING: "our binding is under way",
    Phase.PAUSED: "the API server refused our binding; the pod's gang has begun, so the place is kept for another try",
    Phase.QUEUED: "it waits for its wave",
    Phase.RESERVED: "kube-scheduler is expected to ask about the pod by itself; nobody knows of its node yet",
    Phase.NOMINATED: "its nomination is written or being written",
    Phase.PASSED: "filter let it through; kube-scheduler is binding it",
    Phase.WITHDRAWING: "its nomination is being cleared",
    Phase.FOREIGN: "somebody else nominated the pod",
}


class IllegalTransition(OperatorError):
    """A reservation was to take a step that is not in the table."""


#: From, to (None: it begins, or it ends) -> why.
TRANSITIONS: dict[tuple[Phase | None, Phase | None], str] = {
    (None, Phase.BINDING): "a plan of delivery Binder has a node for the pod",
    (None, Phase.QUEUED): "a plan of delivery Extender has a node for the pod",
    (
        None,
        Phase.AWAITING_VICTIM,
    ): "the pod or its gang is to take the place of running ones; or a restart finds it nominated",
    (None, Phase.AWAITING_REPLACEMENT): "the plan has a node for the replacement of a pod that leaves",
    (None, Phase.HELD): "the pod is the replacement of one that leaves, and its place is reserved",
    (None, Phase.NOMINATED): "the watch shows our nomination, written before a restart",
    (None, Phase.FOREIGN): "the watch shows somebody else's nomination",
    (Phase.AWAITING_VICTIM, Phase.HELD): "all victims are gone or have ended",
    (
        Phase.HELD,
        Phase.BINDING,
    ): "a round confirms the place, or only its room counts, delivery Binder",
    (Phase.HELD, Phase.QUEUED): "a round confirms the place, delivery Extender",
    (Phase.BINDING, Phase.PREPARING): "the pod or another one of its gang has claims, which are to get theirs first",
    (
        Phase.PREPARING,
        Phase.BINDING,
    ): "all claims of the pod and its gang have their volumes, and their devices are ready",
    (Phase.BINDING, Phase.PAUSED): "the API server refuses to bind the pod, and its gang has begun",
    (Phase.PAUSED, Phase.BINDING): "the pause is over",
    (Phase.QUEUED, Phase.RESERVED): "its wave began, or it needs no wave, and kube-scheduler will come to it by itself",
    (Phase.QUEUED, Phase.NOMINATED): "its wave began, or it needs no wave",
    (Phase.QUEUED, Phase.PASSED): "kube-scheduler came upon the node by itself",
    (Phase.RESERVED, Phase.QUEUED): "an equal pod that was asked about before its wave took its place",
    (Phase.RESERVED, Phase.NOMINATED): "kube-scheduler did not come upon the node, or the pod sleeps",
    (Phase.RESERVED, Phase.PASSED): "kube-scheduler came upon the node by itself",
    (Phase.NOMINATED, Phase.QUEUED): "an equal pod that was asked about before its wave took its place",
    (Phase.NOMINATED, Phase.RESERVED): "an equal pod that was not let onto its own node took its place",
    (Phase.NOMINATED, Phase.NOMINATED): "the nomination was erased and is written again",
    (Phase.NOMINATED, Phase.PASSED): "filter let the pod through",
    (Phase.PASSED, Phase.NOMINATED): "the attempt failed; the next one is told of the node",
    (Phase.RESERVED, Phase.WITHDRAWING): "an older nomination for the same node is there, and must not be followed",
    (Phase.NOMINATED, Phase.WITHDRAWING): "nobody follows the nomination, or it must not be followed",
    (Phase.PASSED, Phase.WITHDRAWING): "nobody follows the nomination, or it must not be followed",
    (
        Phase.AWAITING_VICTIM,
        None,
    ): "the pod is not to take that place any more, is gone, or grows where it runs and has its room",
    (
        Phase.AWAITING_REPLACEMENT,
        None,
    ): "the replacement has come, none comes in time, or the pod stays",
    (Phase.HELD, None): "no round confirms the place, or the pod is bound or gone",
    (
        Phase.PREPARING,
        None,
    ): "a claim does not get its volume or device, its gang cannot come, or the pod is bound or gone",
    (Phase.BINDING, None): "the pod is seen bound or gone, the API server will not bind it, or its gang cannot come",
    (Phase.PAUSED, None): "the place is not as planned, the gang has not begun after all, or the pod is bound or gone",
    (Phase.QUEUED, None): "the placement does not hold any more, or the pod is bound or gone",
    (
        Phase.RESERVED,
        None,
    ): "the room is taken, a gate stays shut, its gang lacks a pod, the policy changed, or the pod is bound or gone",
    (Phase.NOMINATED, None): "the pod is bound or gone, or its node was rejected",
    (Phase.PASSED, None): "the pod is bound or gone, or its node was rejected",
    (Phase.WITHDRAWING, None): "the watch shows the nomination cleared, or the pod is bound or gone",
    (Phase.FOREIGN, None): "somebody else's nomination is gone, or the pod is bound or gone",
}


def check_transition(pod: str, before: Phase | None, after: Phase | None) -> None:
    """Raises unless the reservation of a pod, by its key, may take this step.

    Raises:
        IllegalTransition: the step is not in the table.
    """
    if (before, after) not in TRANSITIONS:
        raise IllegalTransition(f"pod {pod}: its reservation may not go from {_name(before)} to {_name(after)}")


def _name(phase: Phase | None) -> str:
    return "nothing" if phase is None else phase.value


def phases_table() -> str:
    """The phases as the docs print them."""
    rows = (f"| {phase.value} | {meaning} |" for phase, meaning in MEANINGS.items())
    return "\n".join(("| phase | meaning |", "|---|---|", *rows))


def transitions_table() -> str:
    """The transitions as the docs print them."""
    rows = (f"| {_name(before)} | {_name(after)} | {why} |" for (before, after), why in TRANSITIONS.items())
    return "\n".join(("| from | to | why |", "|---|---|---|", *rows))
