"""Kinds of workload and their penalties, compiled into the constraints of their pending pods."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.pod_index import PodSignature
from flowcore.model.workload_kinds import with_kind
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.problem import Problem


class CompileWorkloadKinds(Pass):
    """Adds its kind, and what it costs beside others, to the inter-pod constraints of each governed pod."""

    def apply(self, problem: Problem) -> Problem:
        """Pods with kinds."""
        policies = problem.policies
        if not any(_reads_kinds(policy.cost) for policy in policies.values()):
            return problem
        known: dict[tuple[str, PodSignature], PodSignature] = {}

        def compiled(pod: PendingPod) -> PendingPod:
            cost = policies[pod.policy].cost
            if not _reads_kinds(cost):
                return pod
            signature = known.get((pod.policy, pod.signature))
            if signature is None:
                signature = with_kind(pod.signature, cost.kinds, cost.interference)
                known[pod.policy, pod.signature] = signature
            return pod if signature is pod.signature else msgspec.structs.replace(pod, signature=signature)

        snapshot = problem.snapshot
        return problem.with_snapshot(replace(snapshot, pending=tuple(map(compiled, snapshot.pending))))


def _reads_kinds(cost: CostPolicy) -> bool:
    return cost.interference is not None or cost.machines is not None
