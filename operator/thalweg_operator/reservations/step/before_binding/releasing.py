"""Devices that pods have no use for any more are given back, and the pods are planned again once that is seen.

What is reserved for a PodGroup stays with it when one of its pods does not come, as with kube-scheduler (Unreserve):
others of them may use it. It is given back once none does (``leftovers``).
"""

from __future__ import annotations

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.model.resource_claims import ResourceClaim
from thalweg_operator.reservations.effects import ReleaseClaims, ReleasedClaim
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger.records.device_claims import Releasing
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
                if claim.group is None
            )
            if refs:
                release(state, ReleaseClaims(refs, ended.pod))


def release(state: State, write: ReleaseClaims) -> None:
    """Gives claims back. Pods of theirs are planned again once that is seen."""
    if write.consumer:
        keys = tuple((claim.namespace, claim.name) for claim in write.claims)
        state.ledger.device_claims.releasing[write.consumer] = Releasing(keys)
    state.effects.append(write)


def answered(state: State, write: ReleaseClaims, answer: Answer) -> None:
    """Claims were given back."""
    releasing = state.ledger.device_claims.releasing
    known = releasing.get(write.consumer)
    if known is None or answer is Answer.RETRYING:
        return
    if answer is Answer.DONE:
        known.is_written = True
        _settle(state, write.consumer)
    else:
        del releasing[write.consumer]
        state.ledger.round_wanted = True


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
    if given.is_written and not any(consumer in claim.reserved_for or is_to_go(claim, consumer) for claim in shown):
        del records.releasing[consumer]
        state.ledger.round_wanted = True
