"""What the condition of a PodGroup says, as kube-scheduler writes it: whether the group has got what it needs.

Source: kube-scheduler schedule_one_podgroup.go (submitPodGroupAlgorithmResult, updatePodGroupCondition).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowcore.model.gang_spec import GroupCondition, PodGroup
from flowcore.model.pods import Pod
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.step.write_checks import pod_to_tell
from thalweg_operator.reservations.waiting_codes import AWAITING_TURN, QUARANTINED

SCHEDULED, UNSCHEDULABLE, SCHEDULER_ERROR = "Scheduled", "Unschedulable", "SchedulerError"
#: Bytes of a message that the API server takes (apimachinery, ValidateCondition).
_MAX_MESSAGE = 32 * 1024


@dataclass(frozen=True, slots=True)
class ToldReason:
    """Why a pod of a group waits, as the pod is told.

    Attributes:
        code: Unschedulable, or a code (waiting_codes.py).
    """

    uid: str
    text: str
    code: str


def group_condition(
    state: State, group: PodGroup, told: Mapping[str, ToldReason], condition_type: str
) -> GroupCondition | None:
    """The condition of a PodGroup; None: there is nothing to say, or it is not ours to say.

    Args:
        told: why its pods wait, by their keys.
        condition_type: of the API version that is written.
    """
    gangs, key = state.cluster.gangs, group.key
    waiting, bound = gangs.members(key)
    succeeded = gangs.succeeded(key)
    if not all(_is_bound_by_us(state, pod) for pods in (waiting, bound, succeeded) for pod in pods.values()):
        return None
    needed, placed = max(1, gangs.state(key).spec.min_member or 0), len(bound) + len(succeeded)
    if placed >= needed:
        message = f"Thalweg placed {placed} pods; the group needs {needed}."
        return GroupCondition(condition_type, "True", SCHEDULED, message, group.generation)
    for pod_key in sorted(told.keys() & waiting.keys()):
        reason = told[pod_key]
        if reason.code != AWAITING_TURN and pod_to_tell(state.cluster, state.ledger, pod_key, reason.uid) is not None:
            cause = SCHEDULER_ERROR if reason.code == QUARANTINED else UNSCHEDULABLE
            message = f"Thalweg: {reason.text}".encode()[:_MAX_MESSAGE].decode(errors="ignore")
            return GroupCondition(condition_type, "False", cause, message, group.generation)
    return None


def _is_bound_by_us(state: State, pod: Pod) -> bool:
    """Whether Thalweg binds the pod. Who places a group's pods says what becomes of the group."""
    policy = state.policy_of(pod)
    return policy is not None and delivery_of(policy).owner is Owner.BINDER
