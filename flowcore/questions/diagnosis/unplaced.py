"""Why a plan leaves a pod: from the code of its reason to the kind of answer, with evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flowcore.questions.diagnosis.answers import WhyKind
from flowcore.questions.diagnosis.finding import Finding, UnplacedCase
from flowcore.questions.diagnosis.gangs import gang_incomplete, gang_without_room
from flowcore.questions.diagnosis.leaving import waits_for_terminating
from flowcore.questions.diagnosis.nothing_fits import nothing_fits
from flowcore.questions.diagnosis.policy_terms import cheaper_to_wait, constraint_decides, network_decides, queue_limit
from flowcore.questions.diagnosis.room_taken import room_taken
from flowcore.questions.diagnosis.too_few_domains import too_few_domains
from flowcore.rules.reasons import codes


def why_unplaced(pod: UnplacedCase) -> Finding:
    """Why a pod that is up for planning gets no node."""
    known = _BY_CODE.get(pod.unplaced.code)
    if known is not None:
        return known(pod)
    return (
        waits_for_terminating(pod)
        or network_decides(pod)
        or constraint_decides(pod)
        or too_few_domains(pod)
        or room_taken(pod)
        or nothing_fits(pod)
    )


def _room_held(pod: UnplacedCase) -> Finding:
    return Finding(
        WhyKind.ROOM_TAKEN,
        pod.unplaced.reason,
        next="Wait until that gang is placed or its turn ends (spec.gangs.holdRoomFor of its policy).",
    )


def _room_goes_to_others(pod: UnplacedCase) -> Finding:
    return (
        too_few_domains(pod)
        or room_taken(pod)
        or Finding(WhyKind.ROOM_TAKEN, pod.unplaced.reason, next="Give it a priority as high, or add room.")
    )


def _replacement(pod: UnplacedCase) -> Finding:
    return Finding(
        WhyKind.BLOCKED,
        pod.unplaced.reason,
        next="Mend the annotation scheduling.thalweg/replaces, or free room on the node of the pod that it replaces.",
    )


def _network(pod: UnplacedCase) -> Finding:
    drawn = f"The network is drawn in spec.network of policy {pod.policy.name}."
    if pod.governed.policies[pod.policy.name].network is None:
        drawn = f"The network is drawn by the cost model {pod.policy.cost.model} of policy {pod.policy.name}."
    return Finding(WhyKind.CONSTRAINT, pod.unplaced.reason, (drawn,), "Look at the arcs that begin at this pod.")


#: What is known from the code alone. Codes of filters are not here.
_BY_CODE: Mapping[str, Callable[[UnplacedCase], Finding]] = {
    codes.NO_NODES: nothing_fits,
    codes.GANG_INCOMPLETE: gang_incomplete,
    codes.GANG_WITHOUT_ROOM: gang_without_room,
    codes.ROOM_HELD: _room_held,
    codes.REPLACEMENT: _replacement,
    codes.QUEUE_LIMIT: queue_limit,
    codes.ROOM_TAKEN: _room_goes_to_others,
    codes.NETWORK_REFUSED: _network,
    codes.NETWORK_UNSCHEDULED: _network,
    codes.CHEAPER_TO_WAIT: cheaper_to_wait,
}
