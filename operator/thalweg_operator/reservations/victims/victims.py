"""Pods that take the room of running ones: the victims are evicted, and leave only when the pods can start.

A pod with victims has a reservation in phase AWAITING_VICTIM, and so has every pod of its atomic group: they wait as
one group. Here the victims of a group are evicted. Where there are several, the API server is first asked whether it
would evict each of them but one; that one is evicted then, and the others once the API server has done it. If it
refuses one of these questions, or that eviction, none leaves. What is not wanted any more is given up; also where a
node, or what runs there, is no longer what the pod was planned with: then the victims stay, and the next round judges
again.
Once all victims of a group have left and their devices are free, its places are kept (HELD) and its pods come into a
round again, which judges them by every filter as things are then; only then are they bound, or nominated for good.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.replaced_pod import forbidden_reason, victim_key
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy, PreemptionMode
from flowcore.rules.reasons.codes import REPLACEMENT
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import Departure, Evict, Nominate, WriteCondition
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.feasibility import holds, may_come
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import NEVER, Owner, Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.ledger.victim_record import RETRY_SECONDS, Stage, VictimRecord
from thalweg_operator.reservations.victims import messages
from thalweg_operator.reservations.victims.independent_evictions import is_independent_eviction
from thalweg_operator.reservations.victims.moves import MOVES
from thalweg_operator.reservations.victims.replacements import is_place_kept, place_key
from thalweg_operator.reservations.victims.state import VictimsState
from thalweg_operator.reservations.volume_needs import needed
from thalweg_operator.reservations.waiting_codes import WAITING_FOR_VICTIMS

#: Seconds that a pod waits for its victims before its condition says so: its nomination does, and most wait no longer.
LEAVE_WITHIN = 2.0
#: Seconds that the API server may take to evict the victims before the room is given back for a while.
EVICTION_TIMEOUT = 60.0
#: Seconds beyond its grace period that a preempted pod may take to terminate.
TERMINATION_SLACK = 30.0
#: Seconds that it may take at most, however long its grace period.
LONGEST_TERMINATION = 600.0


def go_on(state: VictimsState, keys: Iterable[str]) -> None:
    """Takes the next step for these pods and their groups: victims are asked about, or evicted.

    What is not wanted any more, or takes too long, is given up.

    Args:
        keys: of pods with a reservation that waits for victims, or is held.
    """
    ledger = state.ledger
    chosen = sorted(keys)
    for key in chosen:
        reservation = ledger.reservations.get(key)
        if reservation is None:
            continue  # given up with its group
        if not is_whole(ledger, reservation) or not may_take_place(state, reservation):
            give_up(state, reservation)
    ledger.round_wanted |= bool(settle(state, chosen))
    for members in _awaiting(state, chosen):
        _wait(state, members)


def look_after_victims(state: VictimsState) -> None:
    """Looks at all pods that wait, for what time and other pods change."""
    for reservation, reason in state.freed_devices.overdue(state.ledger.reservations, state.now):
        state.pod_refused(reservation.pod, reason, _code(state.ledger, reservation), steered=_is_steered(reservation))
        give_up(state, reservation)
    go_on(state, state.ledger.awaiting | state.ledger.held)
    backoff.forget_unevictable(state.ledger, state.now)


def victim_left(state: VictimsState, key: str) -> list[str]:
    """A victim is gone or has ended; keys of the pods that waited for it.

    Args:
        key: of a pod that is a victim and that the cluster still has.
    """
    record = state.ledger.victims[key]
    waited = state.ledger.victim_left(key)
    waiting = [state.ledger.reservations[name] for name in waited]
    state.freed_devices.victim_left(record.pod, state.cluster.devices.claims, waiting, state.now)
    if record.stage is Stage.ASKED and not record.leaves:
        _others_follow(state, waited)
    return waited


def settle(state: VictimsState, keys: Iterable[str]) -> list[str]:
    """Keeps the places of groups whose victims have all left, and returns the keys of their pods.

    Args:
        keys: of pods that wait, or waited just now.
    """
    ledger = state.ledger
    held: list[str] = []
    if state.is_delivering:
        return held  # more of a group may come, with victims of its own; the next look settles what is left
    for members in _awaiting(state, keys):
        if any(member.victims or state.freed_devices.waits(member) for member in members):
            continue
        if not all(may_come(state.cluster, ledger, member) for member in members):
            continue
        for member in members:
            if member.pod.grows:
                release(state, member)  # the kubelet does the rest
                continue
            ledger.change(member.pod.key, phase=Phase.HELD)
            held.append(member.pod.key)
    return held


def _awaiting(state: VictimsState, keys: Iterable[str]) -> Iterator[list[Reservation]]:
    """The reservations of pods that wait for victims, each group once, but no group of which more pods may come.

    What is given up meanwhile is left out.
    """
    ledger, seen = state.ledger, set[str]()
    for key in sorted(keys):
        if key in ledger.awaiting and key not in seen:
            members = ledger.members_of(ledger.reservations[key])
            seen.update(member.pod.key for member in members)
            if not (state.is_delivering and members[0].waiting_group and members[0].waits_since == NEVER):
                yield members


def give_up(state: VictimsState, reservation: Reservation) -> None:
    """Ends a reservation that waits for victims, or is held: a group as a whole, unless it does without the pod."""
    for waiting in [reservation] if reservation.optional else state.ledger.members_of(reservation):
        release(state, waiting)


def release(state: VictimsState, reservation: Reservation) -> None:
    """Ends a reservation that waits for victims, or is held; its nomination, if it has one, is cleared."""
    state.moves.discard(reservation.pod.key)
    state.ledger.release(reservation.pod.key, reservation.pod.uid)
    state.clear_ended(reservation)


def _wait(state: VictimsState, members: list[Reservation]) -> None:
    ledger, now = state.ledger, state.now
    records = _records(ledger, members)
    for reservation in members:
        if reservation.waits_since == NEVER:
            ledger.change(reservation.pod.key, waits_since=now)
            _tell(state, reservation, "")
    for record in records:
        if record.pod.deleting and record.leaving_since is None:
            record.leaving_since = now
        if _is_stuck(record, now):
            _cannot_leave(state, record, f"it did not terminate within {_patience(record):.0f} s", refused=False)
            return
    staying = [record for record in records if not record.pod.deleting]
    if not staying:
        return  # they will go
    lost = next((record.to for record in staying if _has_lost_place(state, record)), "")
    if lost:
        _not_in_time(state, members, f"the place on node {lost} for its replacement is not kept any more")
        return
    if now - max(ledger.reservations[member.pod.key].waits_since for member in members) > EVICTION_TIMEOUT:
        why = next((record.problem for record in staying if record.problem), "the API server does not answer")
        _not_in_time(state, members, why)
        return
    short = "" if _any_leaves(ledger, members[0]) else _short_budget(state, staying)
    if not short:
        _ask(state, members, staying)
        return
    for record in staying:
        if record.problem != short:
            record.problem = short
            for key in sorted(record.for_pods):
                _tell(state, ledger.reservations[key], short)


def _short_budget(state: VictimsState, staying: Sequence[VictimRecord]) -> str:
    """Which budget lets some of the pods that are replaced together leave now, and not all of them; "": none.

    The dry run of each would pass. A budget that lets nobody leave is the API server's to name.
    """
    budgets = state.cluster.budgets
    replaced = [record.pod for record in staying if record.departure is Departure.REPLACEMENT]
    counts = Counter(
        key for pod in replaced for key in budgets.of(pod) if pod.name not in budgets.objects[key].disrupted
    )
    for key, count in sorted(counts.items()):
        allowed = budgets.objects[key].allowed
        if 0 < allowed < count:
            return f"PodDisruptionBudget {key} lets {allowed} of {count} pods leave"
    return ""


def _ask(state: VictimsState, members: list[Reservation], staying: list[VictimRecord]) -> None:
    """Asks whether all may leave but the first; then for that one; and for the others once that one leaves."""
    ledger, now = state.ledger, state.now
    leaves = _any_leaves(ledger, members[0])
    is_asked = any(record.stage is Stage.ASKED and not record.leaves for record in staying)
    if ledger.ends and not (leaves or is_asked):
        return
    is_nominated = _are_nominated(state, members)
    unknown = [record for record in staying if record.stage in (Stage.PLANNED, Stage.CHECKING)]
    first = _first(state, unknown)
    others = [record for record in unknown if record is not first]
    for record in others:
        if now - record.asked >= RETRY_SECONDS:
            record.stage, record.asked = Stage.CHECKING, now
            if record.pod.uid not in state.checking:
                state.evict(_eviction(ledger, record, dry_run=True))
    if others or not is_nominated:
        return
    for record in staying:
        if record.stage is Stage.ASKED:
            is_due = now - record.asked >= RETRY_SECONDS
        else:
            is_due = record.leaves or (first in (None, record) and not is_asked)
        if is_due:
            record.stage, record.asked = Stage.ASKED, now
            if record.pod.uid not in state.evicting:
                state.evict(_eviction(ledger, record, dry_run=False))


def _first(state: VictimsState, records: Sequence[VictimRecord]) -> VictimRecord | None:
    """Which of these is to be evicted first: the one that is refused most likely, since nobody has left yet then."""

    def order(record: VictimRecord) -> tuple[int, float, str]:
        budgets, refused = state.cluster.budgets, state.ledger.unevictable.get(record.pod.uid)
        allowed = (budgets.objects[key].allowed for key in budgets.of(record.pod))
        return 0 if refused is None else -refused.tries, min(allowed, default=math.inf), record.pod.key

    return min(records, key=order, default=None)


def _others_follow(state: VictimsState, keys: Iterable[str]) -> None:
    """A victim of these pods leaves. So do the others of those groups in which it was the first one."""
    for members in _awaiting(state, keys):
        records = _records(state.ledger, members)
        if all(record.stage in (Stage.CHECKED, Stage.ASKED) or record.pod.deleting for record in records):
            for record in records:
                state.ledger.victim_leaves(record)
        _wait(state, members)


def _are_nominated(state: VictimsState, members: list[Reservation]) -> bool:
    """Whether the nominations of pods that wait were answered; those that are not written yet are written.

    Autoscalers and kube-scheduler must know that room comes free for a pod. After a restart so must we, or others would
    be evicted for it.
    """
    answered = True
    for reservation in members:
        if reservation.pod.grows or _replaces(reservation, state.ledger):
            continue  # it has its node, or its annotation says it
        if reservation.write == 0:
            state.write_nomination(reservation.pod)
        answered &= not state.ledger.reservations[reservation.pod.key].writing
    return answered


def nomination_lost(state: VictimsState, key: str) -> None:
    """The nomination that we wrote for a pod that waits was cleared: it is written again."""
    reservation = state.ledger.reservations[key]
    if reservation.write and not reservation.writing:
        state.write_nomination(reservation.pod)


def nomination_answered(state: VictimsState, write: Nominate) -> None:
    """The nomination of a pod that waits was answered. Refused or not, its victims may go now."""
    reservation = state.ledger.reservations.get(write.pod.key)
    if reservation is not None and (reservation.id, reservation.write) == (write.reservation, write.write):
        state.ledger.change(write.pod.key, writing=False)
        go_on(state, [write.pod.key])


def _eviction(ledger: Ledger, record: VictimRecord, *, dry_run: bool) -> Evict:
    return Evict(
        record.pod,
        messages.eviction_message(ledger, record),
        record.departure,
        messages.disruption_message(ledger, record),
        dry_run,
        preemptors=messages.preemptors(record),
    )


def eviction_answered(state: VictimsState, write: Evict, answer: Answer, reason: str) -> None:
    """An eviction of a victim, or its dry run, was answered."""
    record = state.ledger.victims.get(write.pod.key)
    if record is None or record.pod.uid != write.pod.uid:
        return
    if write.dry_run and record.stage is Stage.CHECKING and answer in (Answer.DONE, Answer.UNWANTED):
        record.stage = Stage.CHECKED if answer is Answer.DONE else Stage.PLANNED
        go_on(state, record.for_pods)
    elif answer is Answer.DONE and not write.dry_run and record.stage is Stage.ASKED and not record.leaves:
        state.ledger.victim_leaves(record)
        _others_follow(state, record.for_pods)
    if answer not in (Answer.REFUSED, Answer.RETRYING):
        return
    if record.departure is Departure.REPLACEMENT:
        # The place is named: the pod waits for it, for some time.
        if is_eviction_wanted(state, write):
            record.problem = reason
            for key in sorted(record.for_pods):
                _tell(state, state.ledger.reservations[key], reason)
    else:
        _cannot_leave(state, record, reason)


def _cannot_leave(state: VictimsState, record: VictimRecord, reason: str, *, refused: bool = True) -> None:
    """A victim does not leave: those that wait for it are planned anew, without it.

    Args:
        refused: the reason is the API server's.
    """
    ledger = state.ledger
    backoff.eviction_refused(ledger, record.pod.uid, reason, state.now)
    for key in sorted(record.for_pods):
        reservation = ledger.reservations.get(key)
        if reservation is None:
            continue  # given up with its group
        pod, victim = reservation.pod, record.pod
        if refused:
            problem = messages.refusal(pod, victim, reason)
        else:
            problem = f"{messages.named(victim, pod.namespace)}: {reason}"
        _tell(state, reservation, problem)
        give_up(state, reservation)


def _not_in_time(state: VictimsState, members: list[Reservation], why: str) -> None:
    """Pauses the pods: the API server evicts none of their victims."""
    for reservation in members:
        text = f"{_waits(state.ledger, reservation)} {_not_now(why)}"
        state.pod_refused(reservation.pod, text, _code(state.ledger, reservation), steered=_is_steered(reservation))
    for reservation in members:
        if reservation.pod.key in state.ledger.awaiting:
            give_up(state, reservation)


def _is_stuck(record: VictimRecord, now: float) -> bool:
    """Whether a preempted pod takes too long to terminate. A pod that is replaced is waited for, however long."""
    return (
        record.departure is not Departure.REPLACEMENT
        and record.leaving_since is not None
        and now - record.leaving_since > _patience(record)
    )


def _patience(record: VictimRecord) -> float:
    """Seconds that a preempted pod may take to terminate."""
    return min(record.pod.grace_period + TERMINATION_SLACK, LONGEST_TERMINATION)


def _records(ledger: Ledger, members: Iterable[Reservation]) -> list[VictimRecord]:
    """The victims of these reservations, by key."""
    return [ledger.victims[key] for key in sorted({key for member in members for key in member.victims})]


def is_eviction_wanted(state: VictimsState, write: Evict) -> bool:
    """Whether a victim is still to be evicted. Pods may have been planned there once more meanwhile."""
    ledger = state.ledger
    record = ledger.victims.get(write.pod.key)
    if record is None or record.pod.uid != write.pod.uid:
        return is_independent_eviction(state, write.pod)
    if record.stage is not (Stage.CHECKING if write.dry_run else Stage.ASKED):
        return False
    if _has_lost_place(state, record):
        return False
    waiting = [ledger.reservations[key] for key in record.for_pods]
    return any(is_whole(ledger, reservation) and may_take_place(state, reservation) for reservation in waiting)


def _has_lost_place(state: VictimsState, record: VictimRecord) -> bool:
    """Whether a pod that moves has no place any more for its replacement."""
    return record.departure in MOVES and bool(record.to) and not is_place_kept(state, place_key(record.pod))


def may_take_place(state: VictimsState, reservation: Reservation) -> bool:
    """Whether a pod is still to have its place, and by the same delivery."""
    cluster, ledger = state.cluster, state.ledger
    if reservation.phase is Phase.AWAITING_REPLACEMENT:
        return is_place_kept(state, reservation.pod.key)
    pod = cluster.waiting.get(reservation.pod.key)
    if pod is None or pod.uid != reservation.pod.uid or pod.blocked_reason:
        return False
    policy = cluster.policies.of(pod, cluster.namespaces)
    if policy is None or delivery_of(policy).owner is not reservation.owner:
        return False
    records = [ledger.victims[key] for key in reservation.victims]
    if any(record.departure is Departure.REPLACEMENT and record.pod.key != victim_key(pod) for record in records):
        return False
    if reservation.phase is Phase.HELD or (_any_leaves(ledger, reservation) and reservation.node in cluster.nodes):
        return True  # who leaves anyhow is waited for: what then becomes of the place a round says
    if not all(_may_evict(state, record, pod, policy) for record in records):
        return False
    planned = reservation.pod
    return (
        not pod.unsupported_reason
        and (not pod.grows or cluster.lacks_room(pod))
        and (pod.pod_class, pod.signature) == (planned.pod_class, planned.signature)
        and not cluster.node_changed_since(reservation.node, reservation.generation)
        and holds(cluster, ledger, pod.key)
        and _may_have_volumes(cluster, reservation, records)
    )


def _may_have_volumes(cluster: Cluster, reservation: Reservation, records: Sequence[VictimRecord]) -> bool:
    """Whether a pod that we bind still gets its volumes: nobody leaves in vain for one that could not start."""
    if reservation.owner is not Owner.BINDER:
        return True
    leaving = [reservation.pod, *(record.pod for record in records)]
    return needed(cluster, reservation.pod, reservation.node, reservation.volumes, leaving) is not None


def is_whole(ledger: Ledger, reservation: Reservation) -> bool:
    """Whether no required pod of its group has lost its reservation."""
    return not reservation.waiting_group or ledger.waiting_groups[reservation.waiting_group].is_whole


def _any_leaves(ledger: Ledger, reservation: Reservation) -> bool:
    """Whether a victim of the reservation, or of its group, leaves for sure."""
    if reservation.waiting_group:
        return ledger.waiting_groups[reservation.waiting_group].leaving > 0
    return any(ledger.victims[key].is_leaving for key in reservation.victims)


def _may_evict(state: VictimsState, record: VictimRecord, pod: Pod, policy: Policy) -> bool:
    """Whether a victim may still be evicted for this pod."""
    cluster = state.cluster
    victim = record.pod
    match record.departure:
        case Departure.REPLACEMENT:
            return not forbidden_reason(pod, victim, policy, cluster.policies.of(victim, cluster.namespaces))
        case Departure.PREEMPTION:
            lower = victim.pod_class.priority < pod.pod_class.priority
            return lower and pod.preempts and policy.preemption.mode is PreemptionMode.LOWER_PRIORITY
        case Departure.RECLAIM | Departure.PARTIAL_GANG:
            return True  # the round that said so knew all that counts
        case Departure.MIGRATION | Departure.RULE:
            return not record.to or is_place_kept(state, place_key(victim))
        case _:
            assert_never(record.departure)


def _tell(state: VictimsState, reservation: Reservation, problem: str) -> None:
    text = _waits(state.ledger, reservation)
    if problem:
        text += f" {_not_now(problem)}"
    code = _code(state.ledger, reservation)
    after = 0.0 if problem else LEAVE_WITHIN
    state.effects.append(WriteCondition(reservation.pod, text, code, _is_steered(reservation), after))


def _waits(ledger: Ledger, reservation: Reservation) -> str:
    own = [ledger.victims[key] for key in reservation.victims]
    records = own or _records(ledger, ledger.members_of(reservation))
    return messages.waiting_message(reservation.pod, records)


def _not_now(why: str) -> str:
    return f"It cannot be evicted now: {why}"


def _replaces(reservation: Reservation, ledger: Ledger) -> bool:
    return any(ledger.victims[key].departure is Departure.REPLACEMENT for key in reservation.victims)


def _code(ledger: Ledger, reservation: Reservation) -> str:
    return REPLACEMENT if _replaces(reservation, ledger) else WAITING_FOR_VICTIMS


def _is_steered(reservation: Reservation) -> bool:
    return reservation.owner is Owner.STEERING
