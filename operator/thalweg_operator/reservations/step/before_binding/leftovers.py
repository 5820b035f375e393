"""Allocations of ours that nobody uses: an operator ended between its writes, or one of them was lost.

Ours are those that the API server remembers as written by Thalweg. Such a claim is left over while all that reserve it
are pods that wait, are bound by us, and have no reservation. The next round may take it up; what it does not take comes
free. Pods that are gone, or were never known, are the affair of Kubernetes' controller.

A claim that we made for the extended resources of a pod is left over likewise, with devices or without. It is deleted:
what the pod gets from the next plan may be offered by its node.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import ResourceClaim
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import ReleaseClaims, ReleasedClaim
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.step.before_binding.releasing import release
from thalweg_operator.reservations.step.state import State

#: Seconds after which an allocation that nobody uses is freed.
IDLE_SECONDS: Final = 10.0


def free_leftovers(state: State) -> None:
    """Frees what was left over for long enough."""
    records, left = state.ledger.device_claims, _leftovers(state)
    records.idle_since = {key: records.idle_since.get(key, state.now) for key in left}
    pods: dict[str, tuple[Pod, list[ReleasedClaim]]] = {}
    for key, consumers in left.items():
        if state.now - records.idle_since[key] < IDLE_SECONDS:
            continue
        records.idle_since[key] = state.now  # should that fail
        claim = state.cluster.devices.claims[key]
        ref = ReleasedClaim(*key, claim.uid, is_extended=claim.is_extended)
        for pod in consumers:
            pods.setdefault(pod.key, (pod, []))[1].append(ref)
        if not consumers:
            release(state, ReleaseClaims((ref,)))
    for pod, refs in pods.values():
        release(state, ReleaseClaims(tuple(refs), pod))


def _leftovers(state: State) -> dict[ClaimKey, list[Pod]]:
    """Claims that have what we allocated and nobody uses, by key, each with the pods that reserve it."""
    candidates = {
        key: claim
        for key, claim in state.cluster.devices.claims.items()
        if claim.is_ours and (claim.allocation or (claim.is_extended and not claim.is_being_deleted))
    }
    if not candidates:
        return {}
    waiting = {
        pod.uid: pod for pod in state.cluster.waiting.values() if pod.pod_class.devices is not None or pod.extended
    }
    return {
        key: [waiting[uid] for uid in _users(claim, waiting)]
        for key, claim in candidates.items()
        if _is_left(state, claim, waiting)
    }


def _users(claim: ResourceClaim, waiting: Container[str]) -> tuple[str, ...]:
    """Uids of the pods that reserve a claim, or for which it was made before it was reserved."""
    is_made = claim.is_extended and not claim.reserved_for and claim.controller in waiting
    return (claim.controller,) if is_made else claim.reserved_for


def _is_left(state: State, claim: ResourceClaim, waiting: dict[str, Pod]) -> bool:
    ledger = state.ledger
    if (claim.namespace, claim.name) in ledger.device_claims.users:
        return False
    for uid in _users(claim, waiting):
        pod = waiting.get(uid)
        if pod is None or pod.key in ledger.reservations or pod.key in ledger.device_claims.releasing:
            return False
        policy = state.policy_of(pod)
        if policy is None or delivery_of(policy).owner is not Owner.BINDER:
            return False
    return True
