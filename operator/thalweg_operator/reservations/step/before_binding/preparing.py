"""From a plan to the bindings of pods with claims: these get their volumes and devices, then the pods are bound.

Claims are written one by one, and the API server may refuse any. So the claims of a gang come first, then all of its
bindings; if a pod cannot have its own before any pod of the gang may have a node, the gang ends, and its pods are
planned anew. What is written counts once the watch shows it.

This is the same for all kinds of claims. What a kind needs and how far it is, is in ``volume_steps`` and
``device_steps``; devices are given back where their pod does not come (``releasing``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.model.resource_claims import ResourceClaim
from flowcore.rules.reasons.codes import WAITING_FOR_DEVICES, WAITING_FOR_VOLUMES
from thalweg_operator.reservations.effects import TOLD_AFTER, Allocate, Bind, BindClaim, WakePod, WriteCondition
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.feasibility import is_kube_schedulers_turn
from thalweg_operator.reservations.ledger.records.devices.device_turns import TURN_SECONDS
from thalweg_operator.reservations.ledger.reservation import NEVER, Owner, Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.gangs_under_way import has_begun
from thalweg_operator.reservations.step.before_binding import device_steps, releasing, volume_steps
from thalweg_operator.reservations.step.before_binding.progress import ClaimsState, Progress
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.step.write_checks import bind_problem
from thalweg_operator.reservations.waiting_codes import BACKING_OFF


def is_needed(reservation: Reservation) -> bool:
    """Whether a pod that we bind needs something before."""
    return reservation.owner is Owner.BINDER and bool(reservation.volumes or reservation.device_claims)


def begin(state: State, keys: Sequence[str], group: str = "") -> None:
    """Asks for what the claims of planned pods get. The pods are bound together once all have it.

    Args:
        keys: of the pods; some of them may need nothing.
        group: its name; "": one pod by itself.
    """
    cluster, ledger = state.cluster, state.ledger
    for key in keys:
        reservation = ledger.reservations[key]
        ledger.change(
            key,
            phase=Phase.PREPARING,
            bound_with=group,
            is_ready=not is_needed(reservation),
            volumes_shown=(),
            volumes_written=NEVER,
            volumes_told="",
            devices_asked_for=False,
            generation=cluster.generation,
            waits_since=state.now if reservation.volumes else NEVER,
        )
    for key in keys:
        held = ledger.reservations.get(key)
        if held is None or held.phase is not Phase.PREPARING or held.is_ready:
            continue  # others had all that they need, or cannot have it
        state.effects += volume_steps.writes(cluster, held)
        _ask_for_devices(state, held)
        held = ledger.reservations.get(key)
        if held is not None and held.phase is Phase.PREPARING:
            _look_at(state, held)  # some of it may be there since before a restart


def _ask_for_devices(state: State, reservation: Reservation) -> None:
    """Has the claims of a pod written, once it is the binder's turn and kube-scheduler chooses no devices there."""
    ledger, turns, key = state.ledger, state.ledger.device_turns, reservation.pod.key
    if not reservation.device_claims:
        return
    writes = list(device_steps.writes(state.cluster, reservation))
    if writes:
        turn = turns.turn(key)
        if turn is None and turns.may_begin(reservation.pod, reservation.node):
            turns.begin(reservation.pod, reservation.node, reservation.id, state.now)
            turn = turns.turn(key)
        if turn is None or turn.reservation != reservation.id:
            turns.line.add(reservation.pod)  # an earlier one has its turn until its claims are given back
            return
        if is_kube_schedulers_turn(state, reservation.node):
            return
    taken = device_steps.taken(state.cluster, ledger, reservation)
    if taken is not None:
        # What an operator before this one wrote is given back.
        _give_up(state, ledger.change(key, devices_asked_for=taken.is_written), taken)
        return
    if writes:
        turns.write(key, state.now)
    else:
        turns.leave(reservation.pod, reservation.id)
    ledger.change(key, devices_asked_for=True)
    state.effects += writes


def take_turns(state: State) -> None:
    """Time passed: claims are written that waited for that, turns end, and pods are woken that one kept off."""
    ledger, turns = state.ledger, state.ledger.device_turns
    turns.forget(state.now)
    _end_turns(state)
    for key in list(turns.pods):
        turn, reservation = turns.turn(key), ledger.reservations.get(key)
        if turn is None or reservation is None or turn.reservation != reservation.id:
            continue  # it went with another one, or its claims are being given back
        if turn.until <= state.now and reservation.phase is Phase.PREPARING:
            problem = f"its claims could not be allocated on {reservation.node} within {TURN_SECONDS:g} s"
            _give_up(state, reservation, ClaimsState(Progress.FAILED, problem))
        elif not reservation.devices_asked_for:
            _ask_for_devices(state, reservation)
    for key in turns.next_in_line():
        waiting = ledger.reservations.get(key)
        if waiting is not None:  # else it went with another one
            _ask_for_devices(state, waiting)
    for key in turns.let_in():
        pod = state.cluster.waiting.get(key)
        if pod is not None:
            # What woke it came before its node was open.
            state.effects.append(WakePod(pod, unseen=False))


def _end_turns(state: State) -> None:
    """Ends turns of reservations that have ended, once what they wrote is given back, or that takes too long."""
    ledger, turns = state.ledger, state.ledger.device_turns
    for key in list(turns.pods):
        turn, reservation = turns.turn(key), ledger.reservations.get(key)
        if turn is None or (
            reservation is not None and reservation.id == turn.reservation and reservation.phase is Phase.PREPARING
        ):
            continue
        if turn.until + TURN_SECONDS <= state.now or not ledger.device_claims.is_releasing(turn.pod):
            turns.end(key)


def answered(state: State, write: Allocate | BindClaim, answer: Answer, reason: str) -> None:
    """Claims of a pod are written, or they cannot be."""
    known = state.ledger.reservations.get(write.pod.key)
    if known is None or known.id != write.reservation or known.phase is not Phase.PREPARING:
        return
    match answer:
        case Answer.DONE:
            if isinstance(write, Allocate):
                known = state.ledger.change(write.pod.key, devices_written=True)
            else:
                known = state.ledger.change(write.pod.key, volumes_written=state.now)
            if known.waits_since == NEVER:
                known = state.ledger.change(write.pod.key, waits_since=state.now)
            _look_at(state, known)
        case Answer.REFUSED:
            steps = device_steps if isinstance(write, Allocate) else volume_steps
            _give_up(state, known, ClaimsState(Progress.FAILED, steps.refusal(write, reason)))
        case Answer.UNWANTED:
            _end(state, known)


def go_on(state: State, keys: Collection[str]) -> None:
    """The watch shows something that these pods may wait for."""
    for key in sorted(keys):
        reservation = state.ledger.reservations.get(key)
        if reservation is not None and reservation.phase is Phase.PREPARING:
            _look_at(state, reservation)


def device_claim_changed(
    state: State, key: ClaimKey, before: ResourceClaim | None, after: ResourceClaim | None
) -> None:
    """The watch shows a device claim; None: it is gone."""
    ledger, records = state.ledger, state.ledger.device_claims
    users = sorted(records.users.get(key, ()))
    records.claim_changed(before, after)
    for user in users:
        reservation = ledger.reservations.get(user)
        if reservation is None or reservation.phase is not Phase.PREPARING:
            continue
        loss = device_steps.loss(reservation, before, after)
        if loss:
            _give_up(state, reservation, ClaimsState(Progress.FAILED, loss))
        else:
            _look_at(state, reservation)
    if before is not None:
        releasing.claim_changed(state, key)


def time_passed(state: State) -> None:
    """Ends what takes too long, and what is not to be bound any more."""
    cluster, ledger = state.cluster, state.ledger
    for key in sorted(ledger.preparing):
        reservation = ledger.reservations.get(key)
        if reservation is None or reservation.phase is not Phase.PREPARING:
            continue  # it went with another one
        if not _stands(state, reservation):
            _end(state, reservation)
            continue
        late = volume_steps.overdue(cluster, reservation, state.now)
        if late:
            state.volumes_late(reservation.pod, volume_steps.unbound(cluster, reservation), late)
            _end(state, reservation)
            continue
        message = device_steps.overdue(cluster, reservation, state.now, state.device_timeout)
        if message:
            _give_up(state, reservation, ClaimsState(Progress.FAILED, message))
            continue
        _nominate(state, reservation)
        _remind(state, reservation)


def _nominate(state: State, reservation: Reservation) -> None:
    """Writes the node of a pod that waits for others to act on its claims: autoscalers read it.

    Mostly they have acted within a moment, and the write costs the API server as much as any other for the pod. It is
    cleared where the pod does not come.

    Source: kube-scheduler schedule_one.go (bindingCycle), which writes it for each pod with claims before PreBind.
    """
    cluster, since = state.cluster, max(reservation.waits_since, reservation.volumes_written)
    pod, is_lasting = cluster.waiting[reservation.pod.key], since != NEVER and state.now - since >= TOLD_AFTER
    if not is_lasting or reservation.write or pod.nominated_node == reservation.node:
        return
    # Else it waits for writes of ours, which one more would only delay.
    if len(reservation.volumes_shown) == len(reservation.volumes) and device_steps.has_claims(cluster, reservation):
        state.write_nomination(pod)


def _remind(state: State, reservation: Reservation) -> None:
    """Tells a pod that it waits for its volumes, and writes again what the watch does not show."""
    cluster, ledger, key = state.cluster, state.ledger, reservation.pod.key
    message = volume_steps.waiting_message(cluster, reservation, state.now)
    if message and message != reservation.volumes_told:
        reservation = ledger.change(key, volumes_told=message)
        state.effects.append(WriteCondition(reservation.pod, message, WAITING_FOR_VOLUMES))
    if volume_steps.is_unseen(reservation, state.now):
        reservation = ledger.change(key, volumes_written=NEVER)
        state.effects += volume_steps.writes(cluster, reservation)


def settle(state: State) -> None:
    """To be called at the end of each step: groups that lost a pod are looked at, and what pods had comes free."""
    ledger = state.ledger
    lost = ledger.bound_together.lost
    while lost:
        name, is_required = lost.popitem()
        _look_at_rest(state, name, is_required=is_required)
    releasing.release_ended(state)
    ended, ledger.nominated_in_vain = ledger.nominated_in_vain, []
    for reservation in ended:
        state.clear_ended(reservation)


def _look_at(state: State, reservation: Reservation) -> None:
    """Binds a pod, and those that are bound with it, if all have what they need."""
    cluster, ledger, key = state.cluster, state.ledger, reservation.pod.key
    volumes = volume_steps.claims_state(cluster, reservation)
    devices = device_steps.claims_state(cluster, ledger, reservation)
    for claims in (volumes, devices):
        if claims.progress not in (Progress.PENDING, Progress.READY):
            _give_up(state, reservation, claims)
            return
    if devices.is_written:
        ledger.device_turns.leave(reservation.pod, reservation.id)
    known = reservation.volumes_shown, reservation.is_ready, reservation.waits_since
    shown, is_ready = volume_steps.shown(cluster, reservation), volumes.progress is devices.progress is Progress.READY
    waits_since = state.now if reservation.waits_since == NEVER and devices.is_written else reservation.waits_since
    if (shown, is_ready, waits_since) != known:
        reservation = ledger.change(key, volumes_shown=shown, is_ready=is_ready, waits_since=waits_since)
    if devices.progress is Progress.PENDING and devices.message:
        state.effects.append(WriteCondition(reservation.pod, devices.message, WAITING_FOR_DEVICES))
    if reservation.is_ready:
        _bind_group(state, reservation)


def _stands(state: State, reservation: Reservation) -> bool:
    """Whether a pod is still to be bound by us: its node is there, it does not go, and its policy says so."""
    current = state.cluster.waiting.get(reservation.pod.key)
    if current is None or current.blocked_reason or reservation.node not in state.cluster.nodes:
        return False
    if not device_steps.is_of_its_group(current, reservation):
        return False
    return state.is_ours_to_bind(current)


def _preparing_with(state: State, name: str) -> list[Reservation]:
    """The pods of a group that are not being bound yet."""
    reservations = state.ledger.reservations
    keys = sorted(state.ledger.bound_together.members.get(name, ()))
    return [reservations[key] for key in keys if reservations[key].phase is Phase.PREPARING]


def _group_of(state: State, reservation: Reservation) -> list[Reservation]:
    """The pods that are bound together with one, itself among them, as far as they are not being bound yet."""
    return _preparing_with(state, reservation.bound_with) if reservation.bound_with else [reservation]


def _bind_group(state: State, reservation: Reservation) -> None:
    """Binds pods that all have what they need."""
    cluster, ledger = state.cluster, state.ledger
    if ledger.ends or reservation.bound_with in ledger.bound_together.unready or not reservation.is_ready:
        return  # at the end the next leader takes them up
    group = _group_of(state, reservation)
    writes = [Bind(member.pod, member.node, member.generation) for member in group]
    for member, write in zip(group, writes, strict=True):
        if not _stands(state, member) or bind_problem(cluster, ledger, write, retry=True):
            _end(state, member)  # the cluster changed while claims got what they need
            return
    for write in writes:
        ledger.change(write.pod.key, phase=Phase.BINDING, waits_since=NEVER)
        state.effects.append(write)


def _give_up(state: State, reservation: Reservation, claims: ClaimsState) -> None:
    """A pod cannot have what was planned: it pauses, or tries other nodes, and is planned anew."""
    pod = reservation.pod
    if claims.progress is Progress.TAKEN:
        backoff.conflicted(state.ledger, pod, state.now)
    elif claims.progress is Progress.NODE_REFUSED:
        state.node_rejected(pod, reservation.node)
        if backoff.is_rejected_often(state.ledger, pod):
            state.pod_refused(pod, claims.message)  # a provisioner that refuses every node
        else:
            state.effects.append(WriteCondition(pod, claims.message, BACKING_OFF))
    else:
        state.pod_refused(pod, claims.message)
    _end(state, reservation)


def _end(state: State, reservation: Reservation) -> None:
    """Ends a reservation, and those of all that are nothing without it."""
    cluster, ledger = state.cluster, state.ledger
    gang = reservation.pod.gang
    alone = reservation.optional or (gang is not None and has_begun(cluster, ledger, gang.key))
    for member in [reservation] if alone else _group_of(state, reservation):
        ledger.release(member.pod.key, member.pod.uid)


def _look_at_rest(state: State, name: str, *, is_required: bool) -> None:
    """A pod left a group, perhaps since it is gone: whoever is nothing without it leaves too.

    Args:
        is_required: whether the plan places the others with it, or not at all.
    """
    cluster, ledger = state.cluster, state.ledger
    rest = _preparing_with(state, name)
    if is_required and any(member.pod.gang is None for member in rest):
        for member in rest:  # nothing but the plan holds them together
            ledger.release(member.pod.key, member.pod.uid)
        return
    for member in rest:
        if bind_problem(cluster, ledger, Bind(member.pod, member.node, member.generation), retry=True):
            _end(state, member)
            return
    if rest:
        _bind_group(state, rest[0])
