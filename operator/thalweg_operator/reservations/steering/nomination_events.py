"""What becomes of nominations when pods change, kube-scheduler was answered, or a write was answered."""

from __future__ import annotations

from flowcore.model.advice import UNSEEN_MESSAGE, ExtenderPod
from flowcore.model.constraint_limits import all_or_none
from flowcore.model.pods import Pod
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import (
    ClearNomination,
    CountHeld,
    CountNomination,
    Log,
    Nominate,
    OpenGate,
    ReleaseClaims,
    RequestRound,
    WakePod,
)
from thalweg_operator.reservations.events import Answer, SchedulerAnswered, SchedulerAsks, WriteAnswered
from thalweg_operator.reservations.ledger.feasibility import is_binders_turn
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.advise import (
    awaits_help,
    awaits_plan,
    is_shown,
    is_taken_back,
    watched_pod,
)
from thalweg_operator.reservations.steering.gangs_under_way import bound_elsewhere, lacks_others
from thalweg_operator.reservations.steering.lone_pods import reserve_when_asked
from thalweg_operator.reservations.steering.nominations import (
    BINDING_GRACE,
    GRACE,
    UNANNOUNCED,
    check_later,
    end_wake,
    ended,
    expect_question,
    give_up,
    is_asked,
    is_too_early,
    is_tried_with_its_group,
    is_woken_instead,
    may_lack,
    must_nominate,
    nominate,
    nomination_of,
    open_gate,
    open_gates,
    pass_wave,
    wake_reserved,
    was_tried,
    withdraw,
)
from thalweg_operator.reservations.steering.shifts import Place, read_for_moves_later, saving_on
from thalweg_operator.reservations.steering.state import SteeringState

#: kube-scheduler provisions volumes for ten minutes at most.
PROVISIONING_SECONDS = 660.0
#: Seconds from an answer that lets a pod pass to its binding, if that comes at all; without volumes to provision.
_PASSING_SECONDS = 10.0
#: Seconds after which a pod is woken that was held because our watch had not shown it.
_UNSEEN_SECONDS = 1.0
#: Seconds within which a pod that was planned in vain before is answered, after a plan or without one.
ASKED_SECONDS = 0.2
#: Weight of the newest question in the hit rate.
HIT_RATE_WEIGHT = 0.05


# --- pods ---


def pod_changed(state: SteeringState, key: str, before: Reservation | None) -> None:
    """A pod changed that is or was nominated, has a reservation, or was held because our watch had not shown it.

    Args:
        key: of the pod.
        before: its reservation until then.
    """
    pod, reservation = state.cluster.pods.get(key), state.ledger.reservations.get(key)
    if pod is not None and UNSEEN_MESSAGE in pod.unschedulable_message:
        _expect_question(state, pod)
    if before is not None and before.is_nomination and (reservation is None or reservation.id != before.id):
        _nomination_ended(state, pod, before)
    if pod is None or reservation is None:
        return
    if reservation.owner is Owner.OTHERS:
        if pod.gated:
            open_gate(state, pod)  # the author of that nomination waits for it
    elif reservation.is_nomination:
        _follow(state, pod, reservation)
    elif reservation.phase is Phase.NOMINATED and state.nominations.started:
        # We wrote the nomination before a restart, or before the policy changed.
        _adopt(state, pod)


def _expect_question(state: SteeringState, pod: Pod) -> None:
    """Has the pod woken unless kube-scheduler asks again."""
    wakes = state.nominations.unseen_wakes
    if pod.key not in wakes:
        wakes[pod.key] = state.now + _UNSEEN_SECONDS
        state.ledger.record(pod).wake_pause = _UNSEEN_SECONDS


def _nomination_ended(state: SteeringState, pod: Pod | None, reservation: Reservation) -> None:
    key, is_bound = reservation.pod.key, pod is not None and bool(pod.node_name)
    if is_bound:
        open_gates(state, state.nominations.permit_groups.bound(reservation.group, key))
    ended(state, reservation)
    if pod is not None and is_bound:
        is_as_planned = pod.node_name == reservation.node
        state.effects.append(CountNomination("bound" if is_as_planned else "elsewhere"))
        if not is_as_planned:
            bound_elsewhere(state, pod, reservation.node)
    pass_wave(state, key)


def _follow(state: SteeringState, pod: Pod, reservation: Reservation) -> None:
    records, key, phase = state.nominations, pod.key, reservation.phase
    if pod.deleting:
        may_lack(state, pod)
        if phase in UNANNOUNCED:
            give_up(state, key, "expired")  # kube-scheduler does not ask about it any more
    elif phase is Phase.QUEUED:
        place_key = records.places.place_key(key)
        if place_key is not None and not place_key.fits(pod):
            records.places.remove(key)
    elif phase is Phase.RESERVED:
        place_key = records.places.place_key(key)
        if place_key is None and pod.gated:
            return  # the other pods of its permit group are not ready
        is_asleep = was_tried(pod) and key not in records.woken and not is_asked(state, pod)
        if place_key is None or not place_key.fits(pod) or (is_asleep and not is_tried_with_its_group(pod)):
            nominate(state, pod)  # or no other pod is like it any more
        elif is_asleep:
            wake_reserved(state, pod)
    elif pod.nominated_node == reservation.node:
        if not reservation.rejected:
            records.checks.pop(key, None)
    elif pod.planned_node == reservation.node or phase is Phase.WITHDRAWING:
        is_binding = phase is Phase.PASSED and not reservation.rejected
        check_later(state, key, BINDING_GRACE if is_binding else GRACE)


def adopt_nominations(state: SteeringState) -> None:
    """Takes over the nominations of an earlier process. Called once, when cluster and policies are known."""
    state.nominations.started = True
    for key, reservation in list(state.ledger.reservations.items()):
        pod_changed(state, key, reservation)


def _adopt(state: SteeringState, pod: Pod) -> None:
    state.ledger.change(pod.key, since=state.now)
    policy = state.policy_of(pod)
    if policy is not None and not delivery_of(policy).steered:
        withdraw(state, pod)
    elif pod.gated and (pod.gang is not None or (policy is not None and all_or_none(pod.labels, policy))):
        withdraw(state, pod)  # the other pods may not have come as far: it is planned anew, with them
    elif pod.gang is not None and lacks_others(state, pod):
        withdraw(state, pod)  # likewise: the places of the others were not written down
    elif pod.gated:
        open_gate(state, pod)


# --- kube-scheduler ---


def scheduler_asks(state: SteeringState, event: SchedulerAsks) -> None:
    """kube-scheduler asks about a pod that is new, or that something may have helped, and may wait for its round."""
    pod = watched_pod(state.cluster, event.extender_pod)
    if pod is None:
        return
    state.nominations.last_question = state.now
    if not is_shown(state.cluster, event.extender_pod):
        return  # a round before the watch shows the rest of its gang would be in vain
    if awaits_help(state, event.extender_pod) and not awaits_plan(state.cluster, state.ledger, event.extender_pod):
        _note_asked(state, pod, until=state.now + ASKED_SECONDS)
        if state.nominations.under_way.helped != state.ledger.helped.total:  # else its round is under way
            state.effects.append(RequestRound(helped=True))
        return
    if reserve_when_asked(state, pod, event.nodes):
        return
    record = state.ledger.known_record(pod)
    if record is None or record.plannable_since is None:  # else its round is under way
        state.effects.append(RequestRound(at_once=True, asked=True))


def _note_asked(state: SteeringState, pod: Pod, until: float) -> None:
    """Until when kube-scheduler waits for an answer about a pod, and so about those that it tries with it."""
    pods = [pod]
    if pod.gang is not None and is_tried_with_its_group(pod):
        pods += state.cluster.gangs.members(pod.gang.key)[0].values()
    for waiting in pods:
        state.ledger.record(waiting).asked_until = until


def scheduler_answered(state: SteeringState, event: SchedulerAnswered) -> None:
    """kube-scheduler was answered."""
    asked, advice, steered = event.extender_pod, event.advice, event.outcome == "steered"
    pod = watched_pod(state.cluster, asked)
    if pod is None:
        return
    ledger, key, now = state.ledger, pod.key, state.now
    records = state.nominations
    records.unseen_wakes.pop(key, None)
    end_wake(state, pod)
    if event.outcome == "held":
        state.effects.append(CountHeld(_cause(state, asked, nomination_of(ledger, key))))
    until = now + (PROVISIONING_SECONDS if pod.claims_volumes else _PASSING_SECONDS)
    if ledger.in_flight.is_let_through(key) and not event.passed:
        may_lack(state, pod)  # the attempt in which it was let through has failed
    ledger.in_flight.let_through(pod, frozenset(event.passed), until)
    if pod.pod_class.devices is not None:
        ledger.device_turns.attempts.let_through(pod, frozenset(event.passed), now)
        _keep_off(state, pod, event)
    reservation = nomination_of(ledger, key)
    if reservation is not None and advice.node and reservation.crowded != (advice.node in advice.infeasible_nodes):
        reservation = ledger.change(key, crowded=not reservation.crowded)
    if reservation is not None and reservation.phase is Phase.QUEUED and not steered:
        records.woken.discard(key)  # it sleeps again
        reservation = None
    if reservation is not None or event.outcome == "held":
        records.last_question = now
    if reservation is not None and reservation.phase is Phase.RESERVED:
        records.hit_rate += HIT_RATE_WEIGHT * ((1.0 if steered else 0.0) - records.hit_rate)
    too_early = event.outcome == "held" and reservation is not None and is_too_early(state, reservation)
    if event.outcome == "held":
        record = ledger.record(pod)
        record.held_at, record.refused_node = now, "" if too_early else asked.nominated
        record.refused_early = too_early and reservation is not None and asked.nominated == reservation.node
    if (known := ledger.known_record(pod)) is not None:
        if known.asked_until:
            _note_asked(state, pod, until=0.0)
        if event.outcome != "held":
            known.held_at = None
    if reservation is not None and steered:
        _passed(state, reservation, Place(advice.node, advice.holder))
        return
    if reservation is not None and asked.nominated == reservation.node:
        if reservation.crowded:
            withdraw(state, pod)
        elif not too_early and not is_taken_back(state, pod, reservation):
            # It knew of the nomination and asks about other nodes: its own filters reject this one.
            ledger.change(key, rejected=True)
            records.forget_place(key)  # the refusal is about this node: nobody exchanges it now
            check_later(state, key, GRACE)
    if event.outcome == "held":
        _held(state, pod, reservation, asked.nominated)


def _keep_off(state: SteeringState, pod: Pod, event: SchedulerAnswered) -> None:
    """Remembers from which nodes the binder's turn kept a pod with claims that got none."""
    nomination, turns = nomination_of(state.ledger, pod.key), state.ledger.device_turns
    planned = () if nomination is None else (nomination.node,)
    nodes = () if event.passed else (*event.advice.infeasible_nodes, *planned)
    turns.keep_off(pod.key, frozenset(node for node in nodes if is_binders_turn(state, pod, node)), state.now)


def _cause(state: SteeringState, asked: ExtenderPod, nomination: Reservation | None) -> str:
    """Why an attempt comes to nothing."""
    if nomination is not None:
        return "elsewhere"
    return "unplanned" if awaits_plan(state.cluster, state.ledger, asked) else "waiting"


def _passed(state: SteeringState, reservation: Reservation, place: Place) -> None:
    key, ledger = reservation.pod.key, state.ledger
    state.nominations.forget_place(key)
    if place.node != reservation.node and place.holder in ledger.reservations:
        _take(state, reservation, place)
    if reservation.phase not in (Phase.PASSED, Phase.WITHDRAWING):
        ledger.change(key, phase=Phase.PASSED, since=state.now, passed_at=state.now, passed_again=False)
    else:
        ledger.change(key, passed_at=state.now, passed_again=True)
    pass_wave(state, key)


def _held(state: SteeringState, pod: Pod, before: Reservation | None, nominated: str) -> None:
    if before is None:
        _clear_foreign(state, pod, nominated)
        return
    reservation = state.ledger.reservations[pod.key]
    if reservation.phase is Phase.RESERVED or (reservation.phase is Phase.PASSED and not reservation.rejected):
        if is_woken_instead(state, reservation):
            state.ledger.change(pod.key, retries=reservation.retries + 1)
            state.nominations.woken.add(pod.key)
            state.effects.append(WakePod(pod, unseen=False))
            return
        read_for_moves_later(state, pod)
        # It sleeps now, and the nomination wakes it. Or it came upon the node by itself, and that attempt failed: once
        # it knows of the node, its next attempt is conclusive.
        nominate(state, pod)


def _clear_foreign(state: SteeringState, pod: Pod, nominated: str) -> None:
    """Another component nominated the pod, and kube-scheduler refuses that node: it does not always clear it itself."""
    reservation, record = state.ledger.reservations.get(pod.key), state.ledger.record(pod)
    if (
        reservation is not None
        and reservation.phase is Phase.FOREIGN
        and nominated == reservation.node
        and record.clearing != reservation.id
        and not is_binders_turn(state, pod, reservation.node)
    ):
        record.clearing = reservation.id
        state.effects.append(ClearNomination(pod, reservation.id))


def _take(state: SteeringState, before: Reservation, place: Place) -> None:
    """A pod goes to another node than planned. If it takes the place of an equal pod, this one gets its place.

    A wave belongs to the place, and so does a saving but for what the pods prefer.
    """
    ledger, records, key, holder = state.ledger, state.nominations, before.pod.key, place.holder
    held, place_key = ledger.reservations[holder], records.place_key(holder)
    ledger.shift(key, place.node, swapped=place.node == held.node)
    if place.node != held.node:
        ledger.helped.free(held.node, asks=False)
    if holder == key:
        return
    ledger.shift(holder, before.node, swapped=True)
    policy = state.policy_of(before.pod)
    name = policy.name if policy is not None else ""
    ledger.change(key, wave=held.wave, saving=saving_on(state, before.pod, name, held))
    ledger.change(holder, wave=before.wave, saving=saving_on(state, held.pod, name, before))
    records.waves.exchange(before.pod, held.pod)
    if place_key is None:
        return  # kube-scheduler was at it: in its next attempt it is told of that place
    phase = Phase.QUEUED if before.phase is Phase.QUEUED else Phase.RESERVED
    if held.phase is not phase:
        ledger.change(holder, phase=phase, since=state.now)
    pod = state.cluster.pods[holder]
    if phase is Phase.RESERVED and must_nominate(state, pod, ledger.reservations[holder], place_key):
        nominate(state, pod)
        return
    is_woken = holder in records.woken
    records.forget_place(holder)
    if is_woken:
        records.woken.add(holder)  # kube-scheduler comes to it anyway
    expect_question(state, holder, place_key)


# --- writes ---


def write_answered(state: SteeringState, event: WriteAnswered) -> None:
    """A write to a pod was answered."""
    write, answer, reason = event.write, event.answer, event.reason
    if isinstance(write, ReleaseClaims):
        return  # of claims
    pod, ledger = write.pod, state.ledger
    record, reservation = ledger.known_record(pod), nomination_of(ledger, pod.key)
    match write:
        case OpenGate() if answer is Answer.RETRYING:
            text = f"the API server refused to remove its scheduling gate: {reason}"
            ledger.record(pod).opening_refused = True
            state.pod_refused(pod, text, steered=True)
        case _ if answer is Answer.RETRYING:
            return
        case Nominate():
            if reservation is not None and (reservation.id, reservation.write) == (write.reservation, write.write):
                ledger.change(pod.key, writing=False)
                _nominate_answered(state, pod, reservation, answer, reason)
        case ClearNomination():
            if reservation is not None and reservation.id == write.reservation:
                ledger.change(pod.key, clearing=False)
                # Where there was nothing to clear, no change of the pod will be seen.
                check_later(state, pod.key, BINDING_GRACE)
            elif record is not None and record.clearing == write.reservation:
                record.clearing = 0
        case OpenGate():
            if record is not None and record.opening == write.reservation:
                record.opening, record.opening_refused = None, False


def _nominate_answered(state: SteeringState, pod: Pod, reservation: Reservation, answer: Answer, reason: str) -> None:
    if answer is Answer.DONE and reservation.phase is not Phase.WITHDRAWING:
        open_gates(state, state.nominations.permit_groups.ready(reservation.group, pod))
    elif answer is Answer.REFUSED and reservation.phase is Phase.NOMINATED and not reservation.rejected:
        fields = (("pod", pod.key), ("node", reservation.node), ("problem", reason))
        state.effects.append(Log("not nominated", fields))
        # The API server does not judge the node: it would refuse another node too.
        give_up(state, pod.key, "refused")
        text = f"the API server refused to nominate node {reservation.node} for it: {reason}"
        state.pod_refused(pod, text, steered=True)
