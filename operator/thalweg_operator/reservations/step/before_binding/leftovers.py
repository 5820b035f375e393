"""Allocations that nobody uses: ours, after an operator ended between its writes or one was lost, and those in the way.

Ours are those that the API server remembers as written by Thalweg. Such a claim is left over while all that reserve it
are pods that wait, are bound by us, and have no reservation. The next round may take it up; what it does not take comes
free. Pods that are gone, or were never known, are the affair of Kubernetes' controller.

A PodGroup reserves a claim for its pods. It is such a consumer while none of its pods has a node, and those that use
the claim are such pods, at least one. kube-scheduler does so where it finds no room for the group (PodGroupPostFilter).
A group without waiting pods keeps its claims until it is deleted, as with Kubernetes' controller.

A claim that keeps its pod from all nodes, while devices elsewhere would do, is freed whoever allocated it: a round says
which (``flowcore.rules.idle_claims``). It has looked at the claim as it is, so nobody waits for the next one. But pods
that kube-scheduler is placing may be about to reserve it. The write goes by the resource version of a claim that nobody
reserves: who reserves it first keeps it.

A claim that we made for the extended resources of a pod is left over likewise, with devices or without. It is deleted:
what the pod gets from the next plan may be offered by its node.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass
from typing import Final

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import ClaimingPod, ResourceClaim
from flowcore.rules.devices.pod_claims import named_claims
from thalweg_operator.reservations.effects import ReleaseClaims, ReleasedClaim, ReleasingGroup
from thalweg_operator.reservations.step.before_binding.releasing import release
from thalweg_operator.reservations.step.state import State

#: Seconds after which an allocation of ours that nobody uses is freed, and one that a pod is to have elsewhere.
IDLE_SECONDS: Final = 10.0
WANTED_SECONDS: Final = 1.0


def free_leftovers(state: State) -> None:
    """Frees what was left over for long enough."""
    records, wanted = state.ledger.device_claims, _wanted(state)
    left = _leftovers(state, wanted)
    records.idle_since = {key: records.idle_since.get(key, state.now) for key in left}
    given: dict[str, tuple[_Consumer, list[ReleasedClaim]]] = {}
    for key, consumers in left.items():
        if state.now - records.idle_since[key] < (WANTED_SECONDS if key in wanted else IDLE_SECONDS):
            continue
        records.idle_since[key] = state.now  # should that fail
        claim = state.cluster.devices.claims[key]
        ref = ReleasedClaim(*key, claim.uid, is_extended=claim.is_extended, is_in_the_way=key in wanted)
        for consumer in consumers:
            given.setdefault(consumer.uid, (consumer, []))[1].append(ref)
        if not consumers:
            release(state, ReleaseClaims((ref,)))
    for consumer, refs in given.values():
        release(state, ReleaseClaims(tuple(refs), consumer.pod, consumer.group))


@dataclass(frozen=True, slots=True)
class _Consumer:
    """A waiting pod that reserves a claim, or a PodGroup that does so for waiting pods."""

    uid: str
    pod: Pod | None = None
    group: ReleasingGroup | None = None


class _ClaimingPods:
    """The waiting pods that may use claims, by their uids, and by those of their PodGroups."""

    def __init__(self, state: State) -> None:
        self.by_uid: dict[str, Pod] = {}
        self._of_group: dict[str, list[tuple[Pod, ClaimingPod]]] = {}
        for pod in state.cluster.waiting.values():
            devices = pod.pod_class.devices
            if devices is not None or pod.extended:
                self.by_uid[pod.uid] = pod
            if devices is not None and devices.group is not None and devices.group.claims:
                self._of_group.setdefault(devices.group.uid, []).append((pod, devices))

    def sharing(self, group: str, claim: ResourceClaim) -> list[Pod]:
        """The pods that use a claim as this PodGroup."""
        return [pod for pod, devices in self._of_group.get(group, ()) if devices.consumer(claim.name) == group]


def _wanted(state: State) -> set[ClaimKey]:
    """Claims that a round would have freed for pods that still wait for that."""
    records = state.ledger.device_claims
    if not records.wanted:
        return set()
    waiting = {pod.uid: pod for pod in state.cluster.waiting.values()}
    records.wanted = {
        uid: keys for uid, keys in records.wanted.items() if uid in waiting and _is_idle(state, waiting[uid])
    }
    placing = (_claims_of(state, pod) for pod in state.ledger.device_turns.attempts.pods())
    return {key for keys in records.wanted.values() for key in keys}.difference(*placing)


def _claims_of(state: State, pod: Pod) -> set[ClaimKey]:
    devices = pod.pod_class.devices
    if devices is None:
        return set()
    return {(claim.namespace, claim.name) for claim in named_claims(devices, state.cluster.devices.claims).values()}


def _leftovers(state: State, wanted: Collection[ClaimKey]) -> dict[ClaimKey, list[_Consumer]]:
    """Claims that have devices and that nobody uses, by key, each with those that reserve it.

    Args:
        wanted: claims of others that are to be freed, too.
    """
    candidates = {
        key: claim
        for key, claim in state.cluster.devices.claims.items()
        if (claim.is_ours and (claim.allocation or (claim.is_extended and not claim.is_being_deleted)))
        or (key in wanted and claim.allocation)
    }
    if not candidates:
        return {}
    waiting, left = _ClaimingPods(state), dict[ClaimKey, list[_Consumer]]()
    for key, claim in candidates.items():
        if key in state.ledger.device_claims.users:
            continue
        consumers = [_idle_consumer(state, uid, claim, waiting) for uid in _users(claim, waiting.by_uid)]
        idle = [consumer for consumer in consumers if consumer is not None]
        if len(idle) == len(consumers):
            left[key] = idle
    return left


def _users(claim: ResourceClaim, waiting: Container[str]) -> tuple[str, ...]:
    """Uids of those that reserve a claim, or of the pod for which it was made before it was reserved."""
    is_made = claim.is_extended and not claim.reserved_for and claim.controller in waiting
    return (claim.controller,) if is_made else claim.reserved_for


def _idle_consumer(state: State, uid: str, claim: ResourceClaim, waiting: _ClaimingPods) -> _Consumer | None:
    """Who reserves a claim; None: it may use the claim, or it is not for us to say."""
    pod = waiting.by_uid.get(uid)
    if pod is not None:
        return _Consumer(uid, pod) if _is_idle(state, pod) else None
    pods = waiting.sharing(uid, claim)
    gang = pods[0].gang if pods else None
    if gang is None or state.cluster.runs_pod_of(gang.key) or not all(_is_idle(state, each) for each in pods):
        return None
    return _Consumer(uid, group=ReleasingGroup(gang.key, uid))


def _is_idle(state: State, pod: Pod) -> bool:
    """Whether a waiting pod is to be bound by us, and is not on its way to a node."""
    if pod.key in state.ledger.reservations or state.ledger.device_claims.is_releasing(pod):
        return False
    return state.is_ours_to_bind(pod)
