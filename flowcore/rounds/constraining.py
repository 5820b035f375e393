"""The pods of a round under the constraints of their policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from flowcore.model.constrained import constrained
from flowcore.model.neighbours import Kind
from flowcore.model.policies import Policy
from flowcore.model.rules import Rules
from flowcore.model.snapshot import PendingPod, Snapshot
from flowcore.rounds.contradictions import Contradiction, contradictions


def under_constraints(snapshot: Snapshot, policies: Mapping[str, Policy]) -> tuple[Snapshot, tuple[Contradiction, ...]]:
    """The snapshot with what policies demand among the rules of waiting pods, and where they contradict themselves.

    Args:
        policies: by name; those of all waiting pods are among them.
    """
    if not any(policy.constraints for policy in policies.values()):
        return snapshot, ()
    against = contradictions(snapshot, policies)
    known: dict[tuple[str, Kind], Kind] = {}

    def held(pod: PendingPod) -> PendingPod:
        policy = policies[pod.policy]
        if not policy.constraints:
            return pod
        kind = known.get((policy.name, pod.kind))
        if kind is None:
            kind = known[policy.name, pod.kind] = _judged(constrained(pod.kind, policy), policy, against)
        return pod if kind is pod.kind else replace(pod, kind=kind)

    return replace(snapshot, pending=tuple(map(held, snapshot.pending))), against


def _judged(kind: Kind, policy: Policy, against: Sequence[Contradiction]) -> Kind:
    """The kind, with the first contradiction that concerns it among its rules."""
    for each in against:
        if each.policy == policy.name and each.concerns(kind.labels):
            rules = msgspec.structs.replace(kind.rules or Rules(), contradiction=each.sentence)
            return msgspec.structs.replace(kind, rules=rules)
    return kind
