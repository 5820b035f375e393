"""What becomes of nominations when pods change, kube-scheduler was answered, or a write was answered."""

from __future__ import annotations

from flowcore.model.advice import UNSEEN_MESSAGE
from flowcore.model.constraint_limits import all_or_none
from flowcore.model.pods import Pod
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import (
    ClearNomination,
    CountNomination,
    Log,
    Nominate,
    OpenGate,
    RequestRound,
)
from thalweg_operator.reservations.events import Answer, SchedulerAnswered, SchedulerAsks, WriteAnswered
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.step import Step
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.advise import watched_pod
from thalweg_operator.reservations.steering.lone_pods import was_asked
from thalweg_operator.reservations.steering.nominations import (
    BINDING_GRACE,
    GRACE,
    check_later,
    ended,
    expect_question,
    give_up,
    is_nomination,
    is_too_early,
    nominate,
    nomination_of,
    open_gate,
    open_gates,
    pass_wave,
    was_tried,
    withdraw,
)
from thalweg_operator.reservations.steering.shifts import Place, saving_on

#: kube-scheduler provisions volumes for ten minutes at most.
PROVISIONING_SECONDS = 660.0
#: Seconds from an answer that lets a pod pass to its binding, if that comes at all; without volumes to provision.
_PASSING_SECONDS = 10.0
#: Seconds after which a pod is woken that was held because our watch had not shown it.
_UNSEEN_SECONDS = 1.0
#: Weight of the newest question in the hit rate.
HIT_RATE_WEIGHT = 0.05


# --- pods ---


def pod_changed(step: Step, key: str, before: Reservation | None) -> None:
    """A pod changed that is or was nominated, has a reservation, or was held because our watch had not shown it.

    Args:
        step: the step.
        key: of the pod.
        before: its reservation until then.
    """
    pod, reservation = step.cluster.pods.get(key), step.ledger.reservations.get(key)
    if pod is not None and UNSEEN_MESSAGE in pod.unschedulable_message:
        _expect_question(step, pod)
    if before is not None and is_nomination(before) and (reservation is None or reservation.id != before.id):
        _nomination_ended(step, pod, before)
    if pod is None or reservation is None:
        return
    if reservation.owner is Owner.OTHERS:
        if pod.gated:
            open_gate(step, pod)  # the author of that nomination waits for it
    elif is_nomination(reservation):
        _follow(step, pod, reservation)
    elif reservation.phase is Phase.NOMINATED and step.ledger.nominations.started:
        # We wrote the nomination before a restart, or before the policy changed.
        _adopt(step, pod)


def _expect_question(step: Step, pod: Pod) -> None:
    """Unless kube-scheduler asks again, the pod is woken."""
    wakes = step.ledger.nominations.unseen_wakes
    if pod.key not in wakes:
        wakes[pod.key] = step.now + _UNSEEN_SECONDS
        step.ledger.record(pod).wake_pause = _UNSEEN_SECONDS


def _nomination_ended(step: Step, pod: Pod | None, reservation: Reservation) -> None:
    key, is_bound = reservation.pod.key, pod is not None and bool(pod.node_name)
    if is_bound:
        open_gates(step, step.ledger.nominations.permit_groups.bound(reservation.group, key))
    ended(step, reservation)
    if pod is not None and is_bound:
        step.effects.append(CountNomination("bound" if pod.node_name == reservation.node else "elsewhere"))
    pass_wave(step, key)


def _follow(step: Step, pod: Pod, reservation: Reservation) -> None:
    books, key, phase = step.ledger.nominations, pod.key, reservation.phase
    if phase is Phase.QUEUED:
        place_key = books.places.place_key(key)
        if place_key is not None and not place_key.fits(pod):
            books.places.remove(key)
    elif phase is Phase.RESERVED:
        place_key = books.places.place_key(key)
        if was_tried(pod) or place_key is None or not place_key.fits(pod):
            nominate(step, pod)  # it sleeps now, or no other pod is like it any more
    elif pod.nominated_node == reservation.node:
        if not reservation.rejected:
            books.checks.pop(key, None)
    elif pod.planned_node == reservation.node or phase is Phase.WITHDRAWING:
        is_binding = phase is Phase.PASSED and not reservation.rejected
        check_later(step, key, BINDING_GRACE if is_binding else GRACE)


def adopt_nominations(step: Step) -> None:
    """Takes over the nominations of an earlier process. Called once, when cluster and policies are known."""
    step.ledger.nominations.started = True
    for key, reservation in list(step.ledger.reservations.items()):
        pod_changed(step, key, reservation)


def _adopt(step: Step, pod: Pod) -> None:
    step.ledger.change(pod.key, since=step.now)
    policy = step.policy_of(pod)
    if policy is not None and not delivery_of(policy).steered:
        withdraw(step, pod)
    elif pod.gated and (pod.gang is not None or (policy is not None and all_or_none(pod.labels, policy))):
        withdraw(step, pod)  # the other pods may not have come as far: it is planned anew, with them
    elif pod.gated:
        open_gate(step, pod)


# --- kube-scheduler ---


def scheduler_asks(step: Step, event: SchedulerAsks) -> None:
    """kube-scheduler asks about a new pod, and waits for its first round where it gets no place before."""
    pod = watched_pod(step.cluster, event.extender_pod)
    if pod is None:
        return
    step.ledger.nominations.last_question = step.now
    if was_asked(step, pod, event.nodes):
        return
    record = step.ledger.known_record(pod)
    if record is None or record.plannable_since is None:  # else its round is under way
        step.effects.append(RequestRound(at_once=True, asked=True))


def scheduler_answered(step: Step, event: SchedulerAnswered) -> None:
    """kube-scheduler was answered."""
    asked, advice, steered = event.extender_pod, event.advice, event.outcome == "steered"
    pod = watched_pod(step.cluster, asked)
    if pod is None:
        return
    ledger, key, now = step.ledger, pod.key, step.now
    books = ledger.nominations
    books.unseen_wakes.pop(key, None)
    until = now + (PROVISIONING_SECONDS if pod.unbindable_reason else _PASSING_SECONDS)
    ledger.in_flight.let_through(pod, frozenset(event.passed), until)
    reservation = nomination_of(ledger, key)
    if reservation is not None and advice.node and reservation.crowded != (advice.node in advice.infeasible_nodes):
        reservation = ledger.change(key, crowded=not reservation.crowded)
    if reservation is not None and reservation.phase is Phase.QUEUED and not steered:
        reservation = None
    if reservation is not None or event.outcome == "held":
        books.last_question = now
    if reservation is not None and reservation.phase is Phase.RESERVED:
        books.hit_rate += HIT_RATE_WEIGHT * ((1.0 if steered else 0.0) - books.hit_rate)
    too_early = event.outcome == "held" and reservation is not None and is_too_early(step, reservation)
    if event.outcome == "held":
        record = ledger.record(pod)
        record.held_at, record.refused_node = now, "" if too_early else asked.nominated
        record.refused_early = too_early and reservation is not None and asked.nominated == reservation.node
    elif (known := ledger.known_record(pod)) is not None:
        known.held_at = None
    if reservation is not None and steered:
        _passed(step, reservation, Place(advice.node, advice.holder))
        return
    if reservation is not None and asked.nominated == reservation.node:
        if reservation.crowded:
            withdraw(step, pod)
        elif not too_early:
            # It knew of the nomination and asks about other nodes: its own filters reject this one.
            ledger.change(key, rejected=True)
            check_later(step, key, GRACE)
    if event.outcome == "held":
        _held(step, pod, reservation, asked.nominated)


def _passed(step: Step, reservation: Reservation, place: Place) -> None:
    key, ledger = reservation.pod.key, step.ledger
    ledger.nominations.forget_place(key)
    if place.node != reservation.node and place.holder in ledger.reservations:
        _take(step, reservation, place)
    if reservation.phase not in (Phase.PASSED, Phase.WITHDRAWING):
        ledger.change(key, phase=Phase.PASSED, since=step.now)
    pass_wave(step, key)


def _held(step: Step, pod: Pod, before: Reservation | None, nominated: str) -> None:
    if before is None:
        _clear_foreign(step, pod, nominated)
        return
    reservation = step.ledger.reservations[pod.key]
    if reservation.phase is Phase.RESERVED or (reservation.phase is Phase.PASSED and not reservation.rejected):
        # It sleeps now, and the nomination wakes it. Or it came upon the node by itself, and that attempt failed: once
        # it knows of the node, its next attempt is conclusive.
        nominate(step, pod)


def _clear_foreign(step: Step, pod: Pod, nominated: str) -> None:
    """Somebody else nominated the pod, and kube-scheduler refuses that node: it does not always clear it itself."""
    reservation, record = step.ledger.reservations.get(pod.key), step.ledger.record(pod)
    if (
        reservation is not None
        and reservation.phase is Phase.FOREIGN
        and nominated == reservation.node
        and record.clearing != reservation.id
    ):
        record.clearing = reservation.id
        step.effects.append(ClearNomination(pod, reservation.id))


def _take(step: Step, before: Reservation, place: Place) -> None:
    """A pod goes to another node than planned. If it takes the place of an equal pod, this one gets its place.

    A wave belongs to the place, and so does a saving but for what the pods prefer.
    """
    ledger, books, key, other = step.ledger, step.ledger.nominations, before.pod.key, place.holder
    held = ledger.reservations[other]
    ledger.shift(key, place.node, swapped=place.node == held.node)
    if other == key:
        return
    ledger.shift(other, before.node, swapped=True)
    policy = step.policy_of(before.pod)
    name = policy.name if policy is not None else ""
    ledger.change(key, wave=held.wave, saving=saving_on(ledger, before.pod, name, held))
    ledger.change(other, wave=before.wave, saving=saving_on(ledger, held.pod, name, before))
    books.waves.exchange(before.pod, held.pod)
    place_key = books.places.place_key(other)
    phase = Phase.QUEUED if before.phase is Phase.QUEUED else Phase.RESERVED
    if held.phase is not phase:
        ledger.change(other, phase=phase, since=step.now)
    if place_key is not None:
        books.forget_place(other)
        expect_question(step, other, place_key)


# --- writes ---


def write_answered(step: Step, event: WriteAnswered) -> None:
    """A write to a pod was answered."""
    write, answer, reason = event.write, event.answer, event.reason
    pod, ledger = write.pod, step.ledger
    record, reservation = ledger.known_record(pod), nomination_of(ledger, pod.key)
    match write:
        case OpenGate() if answer is Answer.RETRYING:
            text = f"the API server refused to remove its scheduling gate: {reason}"
            ledger.record(pod).opening_refused = True
            step.pod_refused(pod, text, steered=True)
        case _ if answer is Answer.RETRYING:
            return
        case Nominate():
            if reservation is not None and (reservation.id, reservation.write) == (write.reservation, write.write):
                ledger.change(pod.key, writing=False)
                _nominate_answered(step, pod, reservation, answer, reason)
        case ClearNomination():
            if reservation is not None and reservation.id == write.reservation:
                ledger.change(pod.key, clearing=False)
                # Where there was nothing to clear, no change of the pod will be seen.
                check_later(step, pod.key, BINDING_GRACE)
            elif record is not None and record.clearing == write.reservation:
                record.clearing = 0
        case OpenGate():
            if record is not None and record.opening == write.reservation:
                record.opening, record.opening_refused = None, False


def _nominate_answered(step: Step, pod: Pod, reservation: Reservation, answer: Answer, reason: str) -> None:
    if answer is Answer.DONE and reservation.phase is not Phase.WITHDRAWING:
        open_gates(step, step.ledger.nominations.permit_groups.nominated(reservation.group, pod))
    elif answer is Answer.REFUSED and reservation.phase is Phase.NOMINATED and not reservation.rejected:
        fields = (("pod", pod.key), ("node", reservation.node), ("problem", reason))
        step.effects.append(Log("not nominated", fields))
        # The API server does not judge the node: it would refuse another node too.
        give_up(step, pod.key, "refused")
        text = f"the API server refused to nominate node {reservation.node} for it: {reason}"
        step.pod_refused(pod, text, steered=True)
