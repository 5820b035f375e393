"""The pods of a round under the constraints of their policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flowcore.model.constrained import constrained
from flowcore.model.neighbours import Kind
from flowcore.model.policies import Policy
from flowcore.model.snapshot import PendingPod, Snapshot


def under_constraints(snapshot: Snapshot, policies: Mapping[str, Policy]) -> Snapshot:
    """The snapshot with what policies demand among the rules of the pods that wait."""
    if not any(policy.constraints for policy in policies.values()):
        return snapshot
    known: dict[tuple[str, Kind], Kind] = {}

    def held(pod: PendingPod) -> PendingPod:
        policy = policies[pod.policy]
        if not policy.constraints:
            return pod
        kind = known.get((policy.name, pod.kind))
        if kind is None:
            kind = known[policy.name, pod.kind] = constrained(pod.kind, policy)
        return pod if kind is pod.kind else replace(pod, kind=kind)

    return replace(snapshot, pending=tuple(map(held, snapshot.pending)))
