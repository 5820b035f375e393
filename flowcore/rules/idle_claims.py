"""Claims with devices that nobody uses, and that keep a waiting pod from all nodes: they are to be freed.

Source: kube-scheduler plugins/dynamicresources (PostFilter). After each attempt in vain it frees one such claim,
whoever allocated it, and whether that helps or not. Here those are freed without which a node takes the pod, at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.resource_claims import ClaimingPod, ResourceClaim
from flowcore.rules.devices.pod_claims import ClaimRejection, claim_problem, claims_of, named_claims
from flowcore.rules.filters import dynamic_resources, run_filters
from flowcore.rules.filters.registry import FilterRunner, run_filter


@dataclass(frozen=True, slots=True)
class FreedClaims:
    """Claims without whose devices a node takes a pod.

    Attributes:
        claims: namespace and name, in the pod's order.
        node: that takes the pod then.
    """

    claims: tuple[ClaimKey, ...]
    node: str

    @property
    def sentence(self) -> str:
        """What a pod is told."""
        names = " and ".join(f"ResourceClaim {name}" for _, name in self.claims)
        have, are = ("has", "it is") if len(self.claims) == 1 else ("have", "they are")
        return f"{names} {have} devices elsewhere that nobody uses: {are} freed, and then {self.node} takes the pod."


def claims_to_free(
    pod_class: PodClass, signature: PodSignature, snapshot: Snapshot, among: Bools, runner: FilterRunner = run_filter
) -> FreedClaims | None:
    """What is to be freed for a pod that no node takes; None: nothing, it would not help, or a node takes the pod.

    Args:
        snapshot: after the plan.
        among: bool[N], nodes that the pod may have: of the domain of its gang.
        runner: who asks the filters.
    """
    pod, objects = pod_class.devices, snapshot.devices
    if pod is None or not pod.claims:
        return None
    claims = claims_of(pod, objects.claims, objects.classes, objects.extended)
    if isinstance(claims, ClaimRejection):
        return None
    idle = _idle(pod, claims, snapshot)
    if not idle:
        return None
    bare = msgspec.structs.replace(pod_class, devices=None)
    takes = run_filters(bare, snapshot, signature, runner).fits
    if not (takes & among).any() or (run_filters(pod_class, snapshot, signature, runner).fits & among).any():
        return None
    kept_from = {
        claim.name: dynamic_resources.nodes_without_devices((claim,), snapshot)
        for claim in claims
        if claim.name in idle
    }
    left = takes & among
    while left.any():  # once for each set of claims whose devices nodes do not reach
        row = np.argmax(left)
        needed, alike = set[str](), left.copy()
        for name, nodes in kept_from.items():
            alike &= nodes == nodes[row]
            if nodes[row]:
                needed.add(name)
        left &= ~alike
        freed = [
            msgspec.structs.replace(claim, allocation=None, reserved_for=()) if claim.name in needed else claim
            for claim in claims
        ]
        if not needed or any(claim_problem(pod, claim, objects.classes) is not None for claim in freed):
            continue
        if (takes & dynamic_resources.nodes_with_errors(freed, snapshot)).any():
            continue  # the next attempt would end there
        serving = alike & ~dynamic_resources.nodes_without_devices(freed, snapshot)
        if serving.any():
            keys = tuple((claim.namespace, claim.name) for claim in claims if claim.name in needed)
            return FreedClaims(keys, snapshot.table.nodes[int(np.argmax(serving))].name)
    return None


def _idle(pod: ClaimingPod, claims: tuple[ResourceClaim, ...], snapshot: Snapshot) -> set[str]:
    """Names of the claims that have devices, and that nobody uses or is to use but this pod."""
    idle = {
        claim.name
        for claim in claims
        if claim.allocation is not None and not claim.is_extended and set(claim.reserved_for) <= {pod.uid}
    }
    for taker in (*snapshot.devices.takers, *snapshot.takers) if idle else ():
        if taker.pod.namespace == pod.namespace:
            idle -= {claim.name for claim in named_claims(taker.pod, snapshot.devices.claims).values()}
    return idle
