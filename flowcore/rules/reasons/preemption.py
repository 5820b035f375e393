"""Why no running pod leaves for a waiting one."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, PendingPod, Snapshot
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy, PreemptionMode
from flowcore.model.running_pods import RunningPods
from flowcore.rules.filters import Verdicts, node_resources_fit
from flowcore.rules.reasons.exclusion import way_out


def too_small(pod_class: PodClass, snapshot: Snapshot) -> Bools:
    """bool[N]: nodes that would not hold the pod when they are empty."""
    if node_resources_fit.not_offered(pod_class, snapshot):
        return np.ones(len(snapshot.table.nodes), dtype=np.bool_)
    small: Bools = np.any(snapshot.allocatable < snapshot.vector(pod_class.requests), axis=1)
    return small


def only_lacks_room(pod_class: PodClass, verdicts: Verdicts, snapshot: Snapshot) -> bool:
    """Whether a pod that fits on no node would fit on one with more room, so that evictions may help it."""
    out = way_out(verdicts, too_small(pod_class, snapshot))
    return out is not None and set(out.filters) == {node_resources_fit.NAME}


def why_not_preempting(pod: PendingPod, policy: Policy, now: float) -> str:
    """Why no running pod may leave for a waiting one, whoever runs; "": some may.

    Args:
        policy: that governs it.
        now: seconds since the epoch.
    """
    if not pod.preempts:
        return "its preemptionPolicy is Never"
    if policy.preemption.mode is PreemptionMode.NEVER:
        return f"spec.preemption.mode of policy {policy.name} is Never"
    if now - (pod.waiting_since or now) < policy.preemption.after:
        return f"it has waited for less than spec.preemption.after of policy {policy.name}"
    return ""


def why_nobody_leaves(pod: PendingPod, policy: Policy, running: RunningPods, now: float) -> str:
    """A sentence for a pod that fits on no node and that no plan evicts pods for.

    Args:
        policy: that governs it.
        now: seconds since the epoch.
    """
    if reason := why_not_preempting(pod, policy, now):
        return reason
    lower = [each for each in running.pods if each.priority < pod.pod_class.priority]
    if not lower:
        return "no running pod has a lower priority"
    protected = [(each, [budget for budget in each.budgets if running.budgets.get(budget, 0) <= 0]) for each in lower]
    free = [each for each, budgets in protected if not budgets and not each.unevictable_reason]
    if free:
        return "evictions of pods with a lower priority would not make enough room"
    budgets = sorted({budget for _, budgets in protected for budget in budgets})
    if budgets:
        return f"PodDisruptionBudgets allow no eviction now: {', '.join(budgets)}"
    first = lower[0]
    return f"pods with a lower priority cannot be evicted; {first.key}: {first.unevictable_reason}"
