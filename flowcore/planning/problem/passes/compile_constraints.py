"""The constraints and the default spread of policies, compiled into the constraints of their pending pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.default_spread import NO_SPREAD
from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import Policy
from flowcore.planning.problem.contradictions import Contradiction, contradictions
from flowcore.planning.problem.passes.idle_spread import SpreadInRound
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.problem import Problem
from flowcore.planning.saying import Say, unguarded


class CompileConstraints(Pass):
    """Adds what a policy demands and prefers to the inter-pod constraints of each pod that it governs."""

    def apply(self, problem: Problem) -> Problem:
        """Pods with more constraints, and the contradictions among those."""
        return problem.with_snapshot(*compile_constraints(problem.snapshot, problem.policies, problem.say))


def compile_constraints(
    snapshot: Snapshot, policies: Mapping[str, Policy], say: Say = unguarded
) -> tuple[Snapshot, tuple[Contradiction, ...]]:
    """The snapshot with pending pods whose constraints include their policy's, and the contradictions of policies.

    Args:
        policies: by name; those of all pending pods are among them.
        say: computes the contradictions.
    """
    constrained = any(policy.constraints for policy in policies.values())
    if not constrained and all(policy.cost.default_spread == NO_SPREAD for policy in policies.values()):
        return snapshot, ()
    contradictory: tuple[Contradiction, ...] = ()
    if constrained:
        contradictory = say(
            "How policies exclude their own pods", partial(contradictions, snapshot, policies), contradictory
        )
    spread = SpreadInRound(snapshot)
    known: dict[tuple[str, PodSignature], PodSignature] = {}

    def with_constraints(pod: PendingPod) -> PendingPod:
        signature = known.get((pod.policy, pod.signature))
        if signature is None:
            policy = policies[pod.policy]
            signature = with_policy_constraints(pod.signature, policy, snapshot.pod_index.services)
            signature = spread.without_idle(_with_contradiction(signature, policy, contradictory))
            known[pod.policy, pod.signature] = signature
        return pod if signature is pod.signature else msgspec.structs.replace(pod, signature=signature)

    return replace(snapshot, pending=tuple(map(with_constraints, snapshot.pending))), contradictory


def _with_contradiction(
    signature: PodSignature, policy: Policy, known_contradictions: Sequence[Contradiction]
) -> PodSignature:
    """The signature with the first contradiction that concerns it."""
    for known in known_contradictions:
        if known.policy == policy.name and known.concerns(signature.labels):
            before = signature.constraints or InterPodConstraints()
            constraints = msgspec.structs.replace(before, contradiction=known.sentence)
            return msgspec.structs.replace(signature, constraints=constraints)
    return signature
