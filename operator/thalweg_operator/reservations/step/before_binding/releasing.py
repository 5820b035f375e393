"""Devices that pods have no use for any more are given back, and the pods are planned again once that is seen.

What is reserved for a PodGroup stays with it when one of its pods does not come, as with kube-scheduler (Unreserve):
others of them may use it. It is given back once none does (``leftovers``). What the watch does not show yet may be
written late, after another pod got the same devices: that is given back at once, and no pod of the group is planned
before. So are devices that are not ready, since those that failed or took too long would be waited for again, and
devices that others took before: the next plan would take them for the group's own.
"""

from __future__ import annotations

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.model.resource_claims import PlannedClaim, ResourceClaim
from thalweg_operator.reservations.effects import ReleaseClaims, ReleasedClaim, ReleasingGroup
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger.records.devices.device_claims import Releasing
from thalweg_operator.reservations.step.state import State


def release_ended(state: State) -> None:
    """What pods had whose reservations ended in this step is given back, unless somebody bound them."""
    cluster, ledger = state.cluster, state.ledger
    for ended in ledger.device_claims.take_ended():
        pod = cluster.pods.get(ended.pod.key)
        is_bound = pod is not None and pod.uid == ended.pod.uid and bool(pod.node_name)
        if not (is_bound or ledger.ends):
            own = tuple(_ref(claim) for claim in ended.device_claims if claim.group is None)
            if own:
                release(state, ReleaseClaims(own, ended.pod))
            pending = tuple(_ref(claim) for claim in ended.device_claims if _is_pending(state, claim))
            gang = ended.pod.gang
            group = next((claim.group for claim in ended.device_claims if claim.group is not None), None)
            if pending and gang is not None and group is not None:
                release(state, ReleaseClaims(pending, ended.pod, ReleasingGroup(gang.key, group.uid)))


def _ref(claim: PlannedClaim) -> ReleasedClaim:
    return ReleasedClaim(claim.namespace, claim.name, claim.uid, is_extended=bool(claim.requests))


def _is_pending(state: State, planned: PlannedClaim) -> bool:
    """Whether a claim is planned for a PodGroup, and not shown to be reserved for that with devices to be used."""
    group, shown = planned.group, state.cluster.devices.claims.get(planned.key)
    if group is None or shown is None or shown.uid != planned.uid:
        return False
    if group.uid not in shown.reserved_for or shown.awaited or shown.failure:
        return True
    return any(state.ledger.device_claims.had_twice((planned,), state.cluster.devices))


def release(state: State, write: ReleaseClaims) -> None:
    """Gives claims back. Pods of theirs are planned again once that is seen."""
    if write.consumer:
        given = state.ledger.device_claims.releasing.setdefault(write.consumer, Releasing())
        given.claims = tuple(dict.fromkeys((*given.claims, *_keys(write))))
        given.writes += 1
    state.effects.append(write)


def _keys(write: ReleaseClaims) -> tuple[ClaimKey, ...]:
    return tuple((claim.namespace, claim.name) for claim in write.claims)


def answered(state: State, write: ReleaseClaims, answer: Answer) -> None:
    """Claims were given back."""
    known = state.ledger.device_claims.releasing.get(write.consumer)
    if known is None or answer is Answer.RETRYING:
        return
    known.writes -= 1
    if answer is not Answer.DONE:
        kept = _keys(write)
        known.claims = tuple(key for key in known.claims if key not in kept)
    _settle(state, write.consumer)


def claim_changed(state: State, key: ClaimKey) -> None:
    """The watch shows a claim, or that it is gone."""
    releasing = state.ledger.device_claims.releasing
    for consumer in [consumer for consumer, given in releasing.items() if key in given.claims]:
        _settle(state, consumer)


def is_to_go(claim: ResourceClaim, pod: str) -> bool:
    """Whether a claim is one that we made for the extended resources of the pod of this uid, and nobody uses it."""
    return claim.is_extended and claim.is_ours and claim.controller == pod and not claim.reserved_for


def _settle(state: State, consumer: str) -> None:
    """Pods may be planned again once no claim that was given back names them, or was made for them alone."""
    records, claims = state.ledger.device_claims, state.cluster.devices.claims
    given = records.releasing[consumer]
    shown = [claims[key] for key in given.claims if key in claims]
    if not given.writes and not any(consumer in claim.reserved_for or is_to_go(claim, consumer) for claim in shown):
        del records.releasing[consumer]
        state.ledger.round_wanted = True
