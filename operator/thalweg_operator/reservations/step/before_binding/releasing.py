"""Devices that pods have no use for any more are given back, and the pods are planned again once that is seen."""

from __future__ import annotations

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.model.resource_claims import ResourceClaim
from thalweg_operator.reservations.effects import ReleaseClaims, ReleasedClaim
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger.records.device_claims import ReleasingPod
from thalweg_operator.reservations.step.state import State


def release_ended(state: State) -> None:
    """What pods had whose reservations ended in this step is given back, unless somebody bound them."""
    cluster, ledger = state.cluster, state.ledger
    for ended in ledger.device_claims.take_ended():
        pod = cluster.pods.get(ended.pod.key)
        is_bound = pod is not None and pod.uid == ended.pod.uid and bool(pod.node_name)
        if not (is_bound or ledger.ends):
            refs = tuple(
                ReleasedClaim(claim.namespace, claim.name, claim.uid, is_extended=bool(claim.requests))
                for claim in ended.device_claims
            )
            release(state, ReleaseClaims(refs, ended.pod))


def release(state: State, write: ReleaseClaims) -> None:
    """Gives claims back. A pod of theirs is planned again once that is seen."""
    if write.pod is not None:
        keys = tuple((claim.namespace, claim.name) for claim in write.claims)
        state.ledger.device_claims.releasing[write.pod.key] = ReleasingPod(write.pod.uid, keys)
    state.effects.append(write)


def answered(state: State, write: ReleaseClaims, answer: Answer) -> None:
    """Claims were given back."""
    releasing = state.ledger.device_claims.releasing
    known = None if write.pod is None else releasing.get(write.pod.key)
    if write.pod is None or known is None or known.uid != write.pod.uid or answer is Answer.RETRYING:
        return
    if answer is Answer.DONE:
        known.is_written = True
        _settle(state, write.pod.key)
    else:
        del releasing[write.pod.key]
        state.ledger.round_wanted = True


def claim_changed(state: State, key: ClaimKey) -> None:
    """The watch shows a claim, or that it is gone."""
    releasing = state.ledger.device_claims.releasing
    for name in [name for name, given in releasing.items() if key in given.claims]:
        _settle(state, name)


def is_to_go(claim: ResourceClaim, pod: str) -> bool:
    """Whether a claim is one that we made for the extended resources of the pod of this uid, and nobody uses it."""
    return claim.is_extended and claim.is_ours and claim.controller == pod and not claim.reserved_for


def _settle(state: State, name: str) -> None:
    """A pod may be planned again once no claim that it gave back names it, or was made for it alone."""
    records, claims = state.ledger.device_claims, state.cluster.devices.claims
    given = records.releasing[name]
    shown = [claims[key] for key in given.claims if key in claims]
    if given.is_written and not any(given.uid in claim.reserved_for or is_to_go(claim, given.uid) for claim in shown):
        del records.releasing[name]
        state.ledger.round_wanted = True
