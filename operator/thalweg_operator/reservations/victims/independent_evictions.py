"""Pods that leave though no waiting pod waits for their room: a rule does not hold, or they fit another node better.

Each goes by itself. A pod whose replacement is to have a place leaves only while that place is reserved. A pod that
another controller is about to evict is not evicted here: only the place of its replacement is reserved.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.model.pods import Pod
from flowcore.planning.plan_document import PlanEviction
from thalweg_operator.reservations.effects import Departure, Evict
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.victim_record import RETRY_SECONDS, Stage, VictimRecord
from thalweg_operator.reservations.victims.moves import Move
from thalweg_operator.reservations.victims.replacements import (
    breaks_rule_yet,
    place_key,
    release_place,
    reserve_place,
    stays,
)
from thalweg_operator.reservations.victims.state import VictimsState


def plan_evictions(state: VictimsState, evictions: Sequence[PlanEviction], generation: int) -> None:
    """Takes over the evictions of a plan that no placement waits for.

    Args:
        generation: of the cluster, when the plan was asked for.
    """
    cluster, ledger = state.cluster, state.ledger
    for eviction in evictions:
        victim = cluster.pods.get(eviction.key)
        if (
            victim is None
            or victim.uid != eviction.uid
            or not stays(cluster, victim)
            or victim.key in ledger.victims
            or place_key(victim) in ledger.reservations
            or victim.key in state.moves.without_place
        ):
            continue
        departure = Departure(eviction.kind)
        is_rule = departure is Departure.RULE and not eviction.by_controller
        if is_rule and not breaks_rule_yet(cluster, victim, generation):
            continue
        record = VictimRecord(victim, departure, eviction.to, reason=eviction.reason, generation=generation)
        if eviction.by_controller:
            reserve_place(state, victim, eviction, generation)
        elif eviction.to:
            reserve_place(state, victim, eviction, generation, [record])
        elif departure is Departure.RULE:
            policy = state.policy_of(victim)
            if policy is None:
                continue
            state.moves.without_place[victim.key] = record
            state.moves.past[place_key(victim)] = Move(victim, policy, departure, left=state.now)


def look_after_evictions(state: VictimsState) -> None:
    """Asks for the evictions, and forgets those that are done."""
    moves = state.moves
    for key, record in list(moves.without_place.items()):
        if not stays(state.cluster, record.pod):
            del moves.without_place[key]
        elif not is_independent_eviction(state, record.pod):
            _forget(state, record.pod)
    for record in _records(state):
        if state.ledger.ends and record.stage is not Stage.ASKED:
            continue
        is_due = record.stage is not Stage.ASKED or state.now - record.asked >= RETRY_SECONDS
        if is_due and record.pod.uid not in state.evicting and stays(state.cluster, record.pod):
            record.stage, record.asked = Stage.ASKED, state.now
            state.evict(Evict(record.pod, _message(record), record.departure))


def _records(state: VictimsState) -> list[VictimRecord]:
    placed = [state.ledger.victims.get(move.victim.key) for move in state.moves.awaited.values()]
    alone = [record for record in placed if record is not None and record.for_pods == {place_key(record.pod)}]
    return [*alone, *state.moves.without_place.values()]


def _message(record: VictimRecord) -> str:
    message = f"Evicted from node {record.pod.node_name}"
    message += f": {record.reason}." if record.reason else "."
    if record.to:
        message += f" Room for its replacement is reserved on node {record.to}."
    return message


def is_independent_eviction(state: VictimsState, pod: Pod) -> bool:
    """Whether a pod without a place for its replacement is still to be evicted."""
    cluster = state.cluster
    record, current = state.moves.without_place.get(pod.key), cluster.pods.get(pod.key)
    return (
        record is not None
        and current is not None
        and record.pod.uid == pod.uid == current.uid
        and breaks_rule_yet(cluster, current, record.generation)
    )


def eviction_answered(state: VictimsState, write: Evict, answer: Answer, reason: str) -> bool:
    """Takes the answer of an eviction. Returns whether it was one of these. A refused pod stays for a while."""
    ledger, key = state.ledger, place_key(write.pod)
    record = ledger.victims.get(write.pod.key)
    placed = record is not None and record.pod.uid == write.pod.uid and record.for_pods == {key}
    known = state.moves.without_place.get(write.pod.key)
    if not placed and (known is None or known.pod.uid != write.pod.uid):
        return False
    if answer in (Answer.REFUSED, Answer.RETRYING):
        backoff.eviction_refused(ledger, write.pod.uid, reason, state.now)
        if placed:
            release_place(state, key, "dropped")
        else:
            _forget(state, write.pod)
    return True


def _forget(state: VictimsState, victim: Pod) -> None:
    del state.moves.without_place[victim.key]
    state.moves.past.pop(place_key(victim), None)
