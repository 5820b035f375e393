"""What is done before pods are bound: their claims get their volumes. A gang's pods are bound once all have theirs.

What is written for a claim is not undone where its pod does not come after all: the PersistentVolume controller or the
provisioner may have begun. The pod is planned anew, by what the watch shows then: to a node that reaches the volume. So
nothing has to be remembered beyond the process: who leads next plans the pod as this one would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from thalweg_operator.reservations.effects import Bind, BindClaim, WriteCondition
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.step.plan_in_hand import Reserved
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.step.volume_steps import Progress, claims_state, unwritten
from thalweg_operator.reservations.step.write_checks import bind_problem
from thalweg_operator.reservations.waiting_codes import BACKING_OFF

#: Seconds that claims have to be bound in, as kube-scheduler gives them (bindTimeoutSeconds).
BINDING_SECONDS = 600.0


def groups_to_prepare(state: State, placed: Iterable[Reserved]) -> set[str]:
    """Groups that are bound together: a pod of them that we bind needs something before."""
    reservations = state.ledger.reservations
    return {reserved.group for reserved in placed if reserved.group and reservations[reserved.pod.key].volumes}


def begin(state: State, key: str, group: str) -> None:
    """A reservation of ours is handed on: its claims get their volumes, and its pod is bound then.

    Args:
        key: of the pod.
        group: names those that are bound together; "": it is by itself.
    """
    ledger = state.ledger
    reservation = ledger.change(
        key,
        phase=Phase.PREPARING,
        generation=state.cluster.generation,
        waits_since=state.now,
        bound_with=group,
        shown=(),
        is_ready=False,
    )
    for choice in unwritten(state.cluster, reservation):
        state.effects.append(BindClaim(reservation.pod, reservation.node, reservation.id, choice))


def go_on(state: State, keys: Collection[str]) -> None:
    """Something changed that pods in phase PREPARING wait for, or their groups are whole: whoever may be is bound."""
    for key in sorted(keys):
        reservation = state.ledger.reservations.get(key)
        if reservation is not None and reservation.phase is Phase.PREPARING:
            _look_at(state, reservation)


def _look_at(state: State, reservation: Reservation) -> None:
    ledger, key = state.ledger, reservation.pod.key
    claims = claims_state(state.cluster, reservation)
    if claims.progress in (Progress.FAILED, Progress.REFUSED):
        _release_for(state, reservation, claims.reason, is_node_refused=claims.progress is Progress.REFUSED)
        return
    is_ready = claims.progress is Progress.READY
    if (claims.shown, is_ready) != (reservation.shown, reservation.is_ready):
        reservation = ledger.change(key, shown=claims.shown, is_ready=is_ready)
    members = _members(state, reservation)
    if reservation.bound_with in ledger.broken_groups:
        _release_all(state, members)
    elif is_ready and all(member.is_ready for member in members):
        _bind(state, members)


def _bind(state: State, members: list[Reservation]) -> None:
    writes = [Bind(member.pod, member.node, member.generation) for member in members]
    for write in writes:
        if bind_problem(state.cluster, state.ledger, write, retry=True):
            _release_all(state, members)  # the place is not as planned
            return
    for write in writes:
        state.ledger.change(write.pod.key, phase=Phase.BINDING)
        state.effects.append(write)


def _members(state: State, reservation: Reservation) -> list[Reservation]:
    """Those that are bound together with a reservation, itself among them."""
    ledger = state.ledger
    if not reservation.bound_with:
        return [reservation]
    members = (ledger.reservations[key] for key in sorted(ledger.bound_together[reservation.bound_with]))
    return [member for member in members if member.phase is Phase.PREPARING]


def _release_for(state: State, reservation: Reservation, reason: str, *, is_node_refused: bool = False) -> None:
    """A pod does not come to its node, and is told why; nor do those that are bound together with it."""
    pod = reservation.pod
    _release_all(state, _members(state, reservation))
    text = f"its volumes were not bound: {reason}"
    if is_node_refused:
        state.node_rejected(pod, reservation.node)  # other nodes are tried at once
        state.effects.append(WriteCondition(pod, text, BACKING_OFF))
    else:
        state.pod_refused(pod, text)


def _release_all(state: State, members: list[Reservation]) -> None:
    for member in members:
        state.ledger.release(member.pod.key, member.pod.uid)


def answered(state: State, write: BindClaim, answer: Answer, reason: str) -> None:
    """A write for a claim was answered. Where it is done, the watch shows the rest."""
    reservation = state.ledger.reservations.get(write.pod.key)
    if answer is Answer.REFUSED and reservation is not None and reservation.id == write.reservation:
        text = f'persistentvolumeclaim "{write.choice.name}": {reason}'
        _release_for(state, reservation, text)


def time_passed(state: State) -> None:
    """Ends what takes too long, and what cannot become whole."""
    ledger = state.ledger
    for group in sorted(ledger.broken_groups):
        _release_all(state, [ledger.reservations[key] for key in sorted(ledger.bound_together[group])])
    for key in sorted(ledger.preparing):
        reservation = ledger.reservations.get(key)
        if reservation is None:
            continue  # it ended together with another one
        if reservation.node not in state.cluster.nodes:
            _release_all(state, _members(state, reservation))
        elif state.now - reservation.waits_since > BINDING_SECONDS:
            awaited = claims_state(state.cluster, reservation).reason
            reason = f"{awaited}, {BINDING_SECONDS / 60:.0f} minutes after that was asked for"
            _release_for(state, reservation, reason)


def is_prepared(reservation: Reservation, group: str, groups: Collection[str]) -> bool:
    """Whether a pod is to be prepared before it is bound: it needs something, or another pod of its group does."""
    return reservation.owner is Owner.BINDER and (bool(reservation.volumes) or group in groups)
