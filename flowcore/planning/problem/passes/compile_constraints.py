"""The constraints and the default spread of policies, compiled into the constraints of their pending pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.constraint_limits import with_policy_constraints, with_policy_spread
from flowcore.model.default_spread import NO_SPREAD
from flowcore.model.inter_pod_constraints import InterPodConstraints, SpreadConstraint
from flowcore.model.pod_index import CONTROLLER, PodSignature, SpreadMatch
from flowcore.model.policies import Policy
from flowcore.planning.problem.contradictions import Contradiction, contradictions
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
    drawn = any(policy.network_rules is not None for policy in policies.values())
    if not constrained and not drawn and all(policy.cost.default_spread == NO_SPREAD for policy in policies.values()):
        return snapshot, ()
    contradictory: tuple[Contradiction, ...] = ()
    if constrained:
        contradictory = say(
            "How policies exclude their own pods", partial(contradictions, snapshot, policies), contradictory
        )
    spread = _SpreadInRound(snapshot)
    known: dict[tuple[str, PodSignature], PodSignature] = {}

    def with_constraints(pod: PendingPod) -> PendingPod:
        signature = known.get((pod.policy, pod.signature))
        if signature is None:
            policy = policies[pod.policy]
            constrain = with_policy_constraints if policy.constraints or policy.network_rules else with_policy_spread
            signature = constrain(pod.signature, policy, snapshot.pod_index.services)
            signature = spread.without_unused_spread(_with_contradiction(signature, policy, contradictory))
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


class _SpreadInRound:
    """What the default spread of waiting pods counts.

    Most controllers have one pod, and pods that no preference tells apart are one group.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """The nodes, and the pods that run and that wait."""
        self._snapshot = snapshot
        self._labelled: dict[str, tuple[bool, bool]] = {}

    def without_unused_spread(self, signature: PodSignature) -> PodSignature:
        """A waiting pod's signature without a default spread that prefers no node: that of a controller's only pod."""
        constraints = signature.constraints
        if constraints is None or not self._is_idle(signature, constraints.soft_spread):
            return signature
        rest = msgspec.structs.replace(constraints, soft_spread=())
        return msgspec.structs.replace(signature, constraints=None if rest == InterPodConstraints() else rest)

    def _is_idle(self, signature: PodSignature, spread: tuple[SpreadConstraint, ...]) -> bool:
        if not spread or not spread[0].is_default or signature.labels[0][0] != CONTROLLER:
            return False
        if self._waiting[signature.labels[0][1]] > 1 or not all(map(self._is_even, spread)):
            return False
        # All of a pod's default constraints count the same pods.
        return not self._snapshot.pod_index.matching_pods(SpreadMatch(signature.namespace, spread[0].selector))

    @cached_property
    def _waiting(self) -> Counter[str]:
        """Waiting pods of each controller."""
        signatures = (pod.signature for pod in self._snapshot.pending)
        return Counter(each.labels[0][1] for each in signatures if each.labels and each.labels[0][0] == CONTROLLER)

    def _is_even(self, constraint: SpreadConstraint) -> bool:
        """Whether all nodes have the label of a constraint, or none has it and that does not matter."""
        key = constraint.topology_key
        if key not in self._labelled:
            labelled = self._snapshot.table.column(key).codes >= 0
            self._labelled[key] = bool(labelled.all()), bool(labelled.any())
        every, some = self._labelled[key]
        return every or not (some or constraint.needs_all_labels)
