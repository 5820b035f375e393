"""Messages to victims and to the pods that wait for them.

A pod's author may read its conditions and Events. Of pods of other namespaces these have the UID, as kube-scheduler
writes it of a preemptor, and no names of budgets. The operator's log has the names.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.model.pods import Pod
from thalweg_operator.reservations.effects import Departure
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.victim_record import VictimRecord
from thalweg_operator.reservations.victims.replacements import place_key

#: Names in a message.
_MAX_NAMED = 3


def named(pod: Pod, namespace: str) -> str:
    """Name of a pod in messages to pods of a namespace."""
    return pod.key if pod.namespace == namespace else f"pod {pod.uid}"


def eviction_message(ledger: Ledger, record: VictimRecord) -> str:
    """Message to a victim."""
    pods = [ledger.reservations[key].pod for key in sorted(record.for_pods)]
    names = joined([named(pod, record.pod.namespace) for pod in pods])
    if record.departure is Departure.REPLACEMENT:
        message = f"{names} replaces this pod."
    elif record.departure is Departure.PREEMPTION:
        # kube-scheduler's words (framework/preemption/executor.go).
        message = f"Preempted by {joined([f'pod {pod.uid}' for pod in pods])} on node {record.pod.node_name}"
    else:
        message = f"Evicted from node {record.pod.node_name} for {names}."
    place = ledger.reservations.get(place_key(record.pod))
    if place is not None:
        message = f"{message.removesuffix('.')}. Room for its replacement is reserved on node {place.node}."
    return message


def disruption_message(ledger: Ledger, record: VictimRecord) -> str:
    """Message of a victim's condition DisruptionTarget; "": that of its Event."""
    if record.departure is not Departure.PREEMPTION:
        return ""
    scheduler = ledger.reservations[min(record.for_pods)].pod.scheduler_name
    return f"{scheduler}: preempting to accommodate a higher priority pod"


def preemptors(record: VictimRecord) -> str:
    """For whom a victim leaves, for the log."""
    return joined(sorted(record.for_pods))


def waiting_message(pod: Pod, records: Sequence[VictimRecord]) -> str:
    """Message to a pod that waits for these victims."""
    names = [named(record.pod, pod.namespace) for record in records]
    if len(records) == 1:
        return f"Waiting for {names[0]} to terminate on {records[0].pod.node_name}."
    return f"Waiting for {len(records)} pods to terminate: {joined(names)}."


def refusal(pod: Pod, victim: Pod, reason: str) -> str:
    """Message to a pod whose victim the API server does not evict, with the reason."""
    if victim.namespace != pod.namespace:
        reason = "the API server refuses it"
    return f"{named(victim, pod.namespace)}: {reason}"


def joined(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
