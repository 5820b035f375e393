"""Codes of reasons why a pod waits, beside ``flowcore.rules.reasons.codes``, and what conditions say."""

from __future__ import annotations

from typing import Final

from flowcore.model.pods import Pod
from flowcore.rules.filters import dynamic_resources
from flowcore.rules.filters.registry import IN_ORDER
from flowcore.rules.reasons.codes import CODES, NO_NODES, WAITING_FOR_DEVICES, WAITING_FOR_VOLUMES

#: The pod is being deleted.
TERMINATING: Final = "Terminating"
#: Scheduling gates are closed that are not ours.
GATED: Final = "Gated"
#: A field or an annotation of the pod cannot be read.
INVALID: Final = "Invalid"
#: This engine does not plan such pods.
UNSUPPORTED: Final = "Unsupported"
#: The binder may not bind a pod behind our gate: the gate is being opened.
GATE_OPENING: Final = "GateOpening"
#: A write for the pod was refused, or kube-scheduler is at its node: it pauses.
BACKING_OFF: Final = "BackingOff"
#: Pods that are evicted for it must leave first.
WAITING_FOR_VICTIMS: Final = "WaitingForVictims"
#: Rounds with the pod failed.
QUARANTINED: Final = "Quarantined"
#: Pods of its namespace cost much time, or made rounds fail, and are planned in parts.
AWAITING_TURN: Final = "AwaitingTurn"

ALL_CODES: Final = CODES | {
    TERMINATING, GATED, INVALID, UNSUPPORTED, GATE_OPENING, BACKING_OFF,
    WAITING_FOR_VICTIMS, WAITING_FOR_DEVICES, WAITING_FOR_VOLUMES, QUARANTINED, AWAITING_TURN,
}  # fmt: skip
"""All values of the label ``reason`` of the metrics."""

#: The condition's reason that makes cluster autoscalers add nodes (core/v1 PodReasonUnschedulable).
UNSCHEDULABLE: Final = "Unschedulable"
#: Reasons of conditions of pods that no node takes as the cluster is.
NO_NODE_TAKES_IT: Final = frozenset({UNSCHEDULABLE, NO_NODES, *(each.name for each in IN_ORDER)})


def blocked_code(pod: Pod) -> str:
    """The code of a pod that no round may plan."""
    if pod.deleting:
        return TERMINATING
    if pod.held_by_gates:
        return GATED
    if pod.blocked_reason:
        return INVALID
    if pod.unsupported_reason:
        return UNSUPPORTED
    return dynamic_resources.NAME if pod.awaits_claim else GATE_OPENING


def condition_reason(code: str, *, more_nodes_help: bool) -> str:
    """The reason of the condition PodScheduled: the code, unless more nodes may help."""
    return UNSCHEDULABLE if more_nodes_help else code
