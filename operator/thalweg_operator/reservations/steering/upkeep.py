"""What time and changed policies do to nominations."""

from __future__ import annotations

from flowcore.model.advice import UNSEEN_MESSAGE
from flowcore.model.policies import Steering
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import WakePod
from thalweg_operator.reservations.ledger.feasibility import holds
from thalweg_operator.reservations.ledger.reservation import Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.lone_pods import PRICES_HOLD, unasked
from thalweg_operator.reservations.steering.nomination_events import HIT_RATE_WEIGHT, PROVISIONING_SECONDS
from thalweg_operator.reservations.steering.nominations import (
    UNANNOUNCED,
    begin_waves,
    check,
    check_later,
    forget_node_changes,
    give_up,
    is_too_early,
    may_lack,
    nomination_of,
    nominations,
    wake,
    withdraw,
)
from thalweg_operator.reservations.steering.plans import nominate_reserved
from thalweg_operator.reservations.steering.state import SteeringState

#: Seconds after which a nomination that kube-scheduler does not follow is withdrawn; without volumes to provision.
_FOLLOW_SECONDS = 60.0
#: Seconds after which a nomination without a question from kube-scheduler is looked at.
_OVERDUE_SECONDS = 5.0
#: Longest pause in seconds between two wakes of a pod that our watch had not shown; pauses double up to it.
_LONGEST_UNSEEN = 60.0
#: Seconds between two rules whose pods are searched for the answers to come.
_READ_SECONDS = 1.0
#: Seconds between two looks at all nominations.
_SWEEP_SECONDS = 5.0


def time_passed(state: SteeringState) -> None:
    """Does what is due: checks, wakes, waves; every few seconds a look at everything."""
    records, now = state.nominations, state.now
    for key in [key for key, due in records.checks.items() if due <= now]:
        del records.checks[key]
        check(state, key)
    _wake_unseen(state)
    records.waves.end_overdue(now, records.last_question)
    begin_waves(state)
    nominate_reserved(state)
    unasked(state)
    if now - records.last_read >= _READ_SECONDS:
        records.last_read = now
        table = records.node_table.of(state.cluster.nodes)
        records.rules_to_read.read_one(state.cluster.occupancy.pod_index, table)
    if now - records.last_sweep >= _SWEEP_SECONDS:
        records.last_sweep = now
        state.ledger.in_flight.settle(now)
        forget_node_changes(state)
        records.counted_pods.forget()  # what it knows of pods that are gone
        records.hit_rate += HIT_RATE_WEIGHT * (1.0 - records.hit_rate)  # waiting is worth another try now and then
        _sweep(state)
        if records.has_prices or records.arrivals:
            records.keep_prices({pod.pod_class for pod in state.cluster.waiting.values()}, now - PRICES_HOLD)


def policies_changed(state: SteeringState) -> None:
    """Other policies are in force: what they do not steer is not nominated, and what they do not hold is woken."""
    _withdraw_ungoverned(state)
    _wake_ungoverned(state)


def _sweep(state: SteeringState) -> None:
    """Withdraws nominations that kube-scheduler does not follow, or whose room is gone."""
    for before in nominations(state.ledger):
        # By now its gang may want more pods, or nobody may have bound the one that was let through.
        may_lack(state, state.cluster.pods[before.pod.key])
        reservation = nomination_of(state.ledger, before.pod.key)
        if reservation is None or reservation.id != before.id:
            continue  # given up with a pod before it
        if reservation.phase not in (Phase.QUEUED, Phase.WITHDRAWING):
            _sweep_nomination(state, reservation)


def _sweep_nomination(state: SteeringState, reservation: Reservation) -> None:
    key = reservation.pod.key
    pod = state.cluster.pods.get(key)
    if pod is None:
        return
    if reservation.phase is Phase.RESERVED:
        # A gate that does not open, its own or another one of its group, must not keep the room for ever.
        is_shut_in = pod.gated and state.now - reservation.since > _FOLLOW_SECONDS
        if is_shut_in or not holds(state.cluster, state.ledger, key):
            if pod.nominated_node:
                withdraw(state, pod)  # an equal pod took the place that it was nominated for
            else:
                give_up(state, key, "expired")
        return
    record = state.ledger.known_record(pod)
    if record is not None and record.refused_early and not is_too_early(state, reservation):
        # kube-scheduler erases no nomination of a pod that may not preempt: nothing else tells it to try again.
        record.refused_early = False
        wake(state, pod)
    patience = PROVISIONING_SECONDS if pod.claims_volumes else _FOLLOW_SECONDS
    waited = state.now - reservation.since
    # A pod that passed may be bound in spite of all that.
    is_overdue = reservation.phase is Phase.NOMINATED and waited > _OVERDUE_SECONDS
    if waited > patience or (is_overdue and not holds(state.cluster, state.ledger, key)):
        withdraw(state, pod)
    elif is_overdue and pod.nominated_node != reservation.node:
        # Mostly two nominations of one pod that came in another order than they were sent.
        check_later(state, key, 0.0)


def _wake_unseen(state: SteeringState) -> None:
    """Wakes pods that sleep in kube-scheduler because our watch was late: by now it shows them.

    Mostly kube-scheduler has asked again already: its own status write queues the pod once more.
    """
    wakes = state.nominations.unseen_wakes
    for key in [key for key, due in wakes.items() if due <= state.now]:
        del wakes[key]
        pod = state.cluster.waiting.get(key)
        if pod is not None and UNSEEN_MESSAGE in pod.unschedulable_message:
            record = state.ledger.record(pod)
            record.wake_pause = min(2 * record.wake_pause, _LONGEST_UNSEEN)
            wakes[key] = state.now + record.wake_pause
            state.effects.append(WakePod(pod, unseen=True))


def _withdraw_ungoverned(state: SteeringState) -> None:
    """A pod that no policy steers any more is not to be nominated."""
    for before in nominations(state.ledger):
        key = before.pod.key
        reservation, pod = nomination_of(state.ledger, key), state.cluster.pods.get(key)
        if reservation is None or reservation.id != before.id:
            continue  # given up with a pod before it
        if pod is None or reservation.phase in (Phase.PASSED, Phase.WITHDRAWING):
            continue
        policy = state.policy_of(pod)
        if policy is not None and delivery_of(policy).steered:
            continue
        if reservation.phase in UNANNOUNCED:
            give_up(state, key, "expired")
        elif policy is not None:
            withdraw(state, pod)


def _wake_ungoverned(state: SteeringState) -> None:
    """A pod that no policy holds any more is to be tried again."""
    for key, record in state.ledger.pending.items():
        pod = state.cluster.waiting.get(key)
        if record.held_at is None or pod is None or pod.uid != record.uid:
            continue
        policy = state.policy_of(pod)
        if policy is None or delivery_of(policy).owner is None or policy.steering is Steering.PREFER:
            wake(state, pod)
