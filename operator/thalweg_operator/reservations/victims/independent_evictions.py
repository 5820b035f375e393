"""Pods that leave though no waiting pod waits for their room: a rule does not hold, or they fit another node better.

Each goes by itself. A pod whose replacement is to have a place leaves only while that place is reserved. A pod that
another controller is about to evict is not evicted here: only the place of its replacement is reserved.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod
from thalweg_operator.reservations.effects import Departure, Evict
from thalweg_operator.reservations.events import Answer, PlannedEviction
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.step import Step
from thalweg_operator.reservations.ledger.victim_record import RETRY_SECONDS, Stage, VictimRecord
from thalweg_operator.reservations.victims import unevictable
from thalweg_operator.reservations.victims.moves import Move
from thalweg_operator.reservations.victims.replacements import (
    breaks_rule_yet,
    place_key,
    release_place,
    reserve_place,
    stays,
)


def plan_evictions(step: Step, evictions: Sequence[PlannedEviction], generation: int) -> None:
    """Takes over the evictions of a plan that no placement waits for.

    Args:
        generation: of the cluster, when the plan was asked for.
    """
    cluster, ledger = step.cluster, step.ledger
    for eviction in evictions:
        victim = cluster.pods.get(eviction.key)
        if (
            victim is None
            or victim.uid != eviction.uid
            or not stays(cluster, victim)
            or victim.key in ledger.victims
            or place_key(victim) in ledger.reservations
            or victim.key in ledger.moves.without_place
        ):
            continue
        is_rule = eviction.departure is Departure.RULE and not eviction.by_controller
        if is_rule and not breaks_rule_yet(cluster, victim, generation):
            continue
        record = VictimRecord(victim, eviction.departure, eviction.to, reason=eviction.reason, generation=generation)
        if eviction.by_controller:
            reserve_place(step, victim, eviction, generation)
        elif eviction.to:
            reserve_place(step, victim, eviction, generation, [record])
        elif eviction.departure is Departure.RULE:
            policy = step.policy_of(victim)
            if policy is None:
                continue
            ledger.moves.without_place[victim.key] = record
            ledger.moves.past[place_key(victim)] = Move(victim, policy.name, eviction.departure, left=step.now)


def look_after_evictions(step: Step) -> None:
    """Asks for the evictions, and forgets those that are done."""
    books = step.ledger.moves
    for key, record in list(books.without_place.items()):
        if not stays(step.cluster, record.pod):
            del books.without_place[key]
        elif not is_independent_eviction(step.cluster, step.ledger, record.pod):
            _forget(step.ledger, record.pod)
    for record in _records(step.ledger):
        if step.ledger.ends and record.stage is not Stage.ASKED:
            continue
        is_due = record.stage is not Stage.ASKED or step.now - record.asked >= RETRY_SECONDS
        if is_due and record.pod.uid not in step.ledger.evicting and stays(step.cluster, record.pod):
            record.stage, record.asked = Stage.ASKED, step.now
            step.evict(Evict(record.pod, _message(record), record.departure))


def _records(ledger: Ledger) -> list[VictimRecord]:
    placed = [ledger.victims.get(move.victim.key) for move in ledger.moves.awaited.values()]
    alone = [record for record in placed if record is not None and record.for_pods == {place_key(record.pod)}]
    return [*alone, *ledger.moves.without_place.values()]


def _message(record: VictimRecord) -> str:
    message = f"Evicted from node {record.pod.node_name}"
    message += f": {record.reason}." if record.reason else "."
    if record.to:
        message += f" Room for its replacement is reserved on node {record.to}."
    return message


def is_independent_eviction(cluster: Cluster, ledger: Ledger, pod: Pod) -> bool:
    """Whether a pod without a place for its replacement is still to be evicted."""
    record, current = ledger.moves.without_place.get(pod.key), cluster.pods.get(pod.key)
    return (
        record is not None
        and current is not None
        and record.pod.uid == pod.uid == current.uid
        and breaks_rule_yet(cluster, current, record.generation)
    )


def eviction_answered(step: Step, write: Evict, answer: Answer, reason: str) -> bool:
    """An eviction was answered; whether it was one of these. If it is refused, the pod stays for a while."""
    ledger, key = step.ledger, place_key(write.pod)
    record = ledger.victims.get(write.pod.key)
    placed = record is not None and record.pod.uid == write.pod.uid and record.for_pods == {key}
    known = ledger.moves.without_place.get(write.pod.key)
    if not placed and (known is None or known.pod.uid != write.pod.uid):
        return False
    if answer in (Answer.REFUSED, Answer.RETRYING):
        unevictable.refused(ledger, write.pod.uid, reason, step.now)
        if placed:
            release_place(step, key, "dropped")
        else:
            _forget(ledger, write.pod)
    return True


def _forget(ledger: Ledger, victim: Pod) -> None:
    del ledger.moves.without_place[victim.key]
    ledger.moves.past.pop(place_key(victim), None)
