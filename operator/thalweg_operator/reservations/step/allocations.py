"""From a plan to the bindings of pods with claims: claims are reserved, devices get ready, then the pods are bound.

Source: kube-scheduler plugins/dynamicresources (Reserve, PreBind, Unreserve). Claims are written one by one, and the
API server may refuse any. So the claims of a gang come first, then all of its bindings; if one claim cannot be had
before any pod of the gang may have a node, all are given back, and the pods are planned anew. What is written counts
once the watch shows it: then it shows too what others wrote before, so that no device is had twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.model.resource_claims import ResourceClaim
from thalweg_operator.reservations.effects import Allocate, Bind, ReleaseClaims, ReleasedClaim, WriteCondition
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.records.claims import ReleasingPod
from thalweg_operator.reservations.ledger.reservation import NEVER, Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.step.write_checks import bind_problem, has_begun, has_claims
from thalweg_operator.reservations.waiting_codes import WAITING_FOR_DEVICES


def begin(state: State, keys: Sequence[str], group: str = "") -> None:
    """Asks for the claims of planned pods, which are bound together once all have them.

    Args:
        group: its name; "": one pod by itself.
    """
    ledger = state.ledger
    for key in keys:
        reservation = ledger.reservations[key]
        ledger.change(
            key,
            phase=Phase.ALLOCATING,
            bound_with=group,
            claims_sent=bool(reservation.claims),
            is_ready=not reservation.claims,
            generation=state.cluster.generation,
            waits_since=NEVER,
        )
    for key in keys:
        held = ledger.reservations.get(key)
        if held is None or held.phase is not Phase.ALLOCATING or not held.claims:
            continue  # the claims of others were all there
        if has_claims(state.cluster, held):
            _look(state, key)  # reserved before a restart
        else:
            state.effects.append(Allocate(held.pod, held.node, held.id, held.claims))


def answered(state: State, write: Allocate, answer: Answer, reason: str) -> None:
    """The claims of a pod are written, or they cannot be had."""
    known = state.ledger.reservations.get(write.pod.key)
    if known is None or known.id != write.reservation or known.phase is not Phase.ALLOCATING:
        return
    match answer:
        case Answer.DONE:
            if known.waits_since == NEVER:
                state.ledger.change(write.pod.key, waits_since=state.now)
            _look(state, write.pod.key)
        case Answer.REFUSED:
            _give_up(state, known, f"its claims could not be reserved for {write.node}: {reason}")
        case Answer.UNWANTED:
            _end(state, known)


def claim_changed(state: State, key: ClaimKey, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
    """The watch shows a claim; None: it is gone."""
    ledger, records = state.ledger, state.ledger.claims
    users = sorted(records.users.get(key, ()))
    planned = [claim for user in users for claim in ledger.reservations[user].claims if claim.key == key]
    records.claim_changed(before, after, planned, state.cluster.generation)
    for user in users:
        reservation = ledger.reservations.get(user)
        if reservation is None or reservation.phase is not Phase.ALLOCATING:
            continue
        was_reserved = before is not None and reservation.pod.uid in before.reserved_for
        if was_reserved and (after is None or reservation.pod.uid not in after.reserved_for):
            _give_up(state, reservation, f"ResourceClaim {'/'.join(key)} is not reserved for it any more")
        else:
            _look(state, user)
    if records.releasing and before is not None:
        for name in [name for name, given in records.releasing.items() if key in given.claims]:
            _settle(state, name)


def look_after_devices(state: State) -> None:
    """Pods whose devices take too long give them back."""
    for key in sorted(state.ledger.claims.allocating):
        reservation = state.ledger.reservations.get(key)
        if reservation is None or reservation.phase is not Phase.ALLOCATING or reservation.is_ready:
            continue
        if reservation.waits_since > NEVER and state.now - reservation.waits_since > state.device_timeout:
            awaited = _awaited(state, reservation) or "the allocation is not shown"
            _give_up(state, reservation, f"devices were not ready within {state.device_timeout:g} s: {awaited}")


def _look(state: State, key: str) -> None:
    """Goes on where the claims of a pod are as planned."""
    ledger = state.ledger
    reservation = ledger.reservations[key]
    if not reservation.claims or not has_claims(state.cluster, reservation):
        return
    claims = [state.cluster.devices.claims[planned.key] for planned in reservation.claims]
    if ledger.claims.taken_since(reservation.claims, reservation.claims_as_of, slices=False):
        backoff.conflicted(ledger, reservation.pod, state.now)
        _end(state, reservation)
        return
    failure = next((claim.failure for claim in claims if claim.failure), "")
    if failure:
        _give_up(state, reservation, f"a device will not get ready: {failure}")
        return
    awaited = _awaited(state, reservation)
    if awaited:
        if reservation.waits_since == NEVER:
            ledger.change(key, waits_since=state.now)
        ledger.change(key, is_ready=False)
        reason = f"its devices on {reservation.node} are not ready: {awaited}"
        state.effects.append(WriteCondition(reservation.pod, reason, WAITING_FOR_DEVICES))
        return
    ledger.change(key, is_ready=True)
    _bind_group(state, ledger.reservations[key])


def _awaited(state: State, reservation: Reservation) -> str:
    """The devices of a pod that are not ready, each with the conditions that it lacks; "": all are."""
    claims = (state.cluster.devices.claims.get(planned.key) for planned in reservation.claims)
    return ", ".join(device for claim in claims if claim is not None for device in claim.awaited)


def _allocating(state: State, reservation: Reservation) -> list[Reservation]:
    """The pods that are bound together with one, itself among them, as far as they are not being bound yet."""
    reservations = state.ledger.reservations
    keys = state.ledger.claims.groups.get(reservation.bound_with, {reservation.pod.key})
    return [reservations[key] for key in sorted(keys) if reservations[key].phase is Phase.ALLOCATING]


def _bind_group(state: State, reservation: Reservation) -> None:
    """Binds pods whose claims are all there."""
    cluster, ledger = state.cluster, state.ledger
    group = _allocating(state, reservation)
    if ledger.ends or not all(member.is_ready for member in group):
        return  # at the end the next leader takes them up
    writes = [Bind(member.pod, member.node, member.generation) for member in group]
    for member, write in zip(group, writes, strict=True):
        if bind_problem(cluster, ledger, write, retry=True):
            _end(state, member)  # the cluster changed while devices got ready
            return
    for member, write in zip(group, writes, strict=True):
        ledger.change(member.pod.key, phase=Phase.BINDING, waits_since=NEVER)
        state.effects.append(write)


def _give_up(state: State, reservation: Reservation, reason: str) -> None:
    """A pod cannot have its claims: it pauses, and is planned anew."""
    state.pod_refused(reservation.pod, reason)
    _end(state, reservation)


def _end(state: State, reservation: Reservation) -> None:
    """Ends a reservation, and those of all that are nothing without it. What they have is given back."""
    cluster, ledger = state.cluster, state.ledger
    gang = reservation.pod.gang
    alone = reservation.optional or (gang is not None and has_begun(cluster, ledger, gang.key))
    group = _allocating(state, reservation)
    for member in [reservation] if alone else group:
        ledger.release(member.pod.key, member.pod.uid)
    rest = [member for member in group if member.pod.key in ledger.reservations]
    if rest:
        _bind_group(state, rest[0])


# --- what is released ---


def settle(state: State) -> None:
    """To be called at the end of each step: gangs that lost a pod are looked at, and what pods had comes free."""
    lost = state.ledger.claims.lost
    while lost:
        _look_at_rest(state, lost.pop())
    _release_ended(state)


def _look_at_rest(state: State, name: str) -> None:
    """A pod left a group, perhaps since it is gone: whoever is nothing without it leaves too."""
    cluster, ledger = state.cluster, state.ledger
    reservations = [ledger.reservations[key] for key in sorted(ledger.claims.groups.get(name, ()))]
    rest = [member for member in reservations if member.phase is Phase.ALLOCATING]
    for member in rest:
        if bind_problem(cluster, ledger, Bind(member.pod, member.node, member.generation), retry=True):
            _end(state, member)
            return
    if rest:
        _bind_group(state, rest[0])


def _release_ended(state: State) -> None:
    """What pods had whose reservations ended in this step is given back, unless somebody bound them."""
    cluster, ledger = state.cluster, state.ledger
    for ended in ledger.claims.take_ended():
        pod = cluster.pods.get(ended.pod.key)
        is_bound = pod is not None and pod.uid == ended.pod.uid and bool(pod.node_name)
        if not (is_bound or ledger.ends):
            refs = tuple(ReleasedClaim(claim.namespace, claim.name, claim.uid) for claim in ended.claims)
            release(state, ReleaseClaims(refs, ended.pod))


def release(state: State, write: ReleaseClaims) -> None:
    """Gives claims back. A pod of theirs is planned again once that is seen."""
    if write.pod is not None:
        keys = tuple((claim.namespace, claim.name) for claim in write.claims)
        state.ledger.claims.releasing[write.pod.key] = ReleasingPod(write.pod.uid, keys)
    state.effects.append(write)


def claims_released(state: State, write: ReleaseClaims, answer: Answer) -> None:
    """Claims were given back."""
    releasing = state.ledger.claims.releasing
    known = None if write.pod is None else releasing.get(write.pod.key)
    if write.pod is None or known is None or known.uid != write.pod.uid or answer is Answer.RETRYING:
        return
    if answer is Answer.DONE:
        known.is_written = True
        _settle(state, write.pod.key)
    else:
        del releasing[write.pod.key]
        state.ledger.round_wanted = True


def _settle(state: State, name: str) -> None:
    """A pod may be planned again once no claim that it gave back names it."""
    records, claims = state.ledger.claims, state.cluster.devices.claims
    given = records.releasing[name]
    if given.is_written and not any(key in claims and given.uid in claims[key].reserved_for for key in given.claims):
        del records.releasing[name]
        state.ledger.round_wanted = True
