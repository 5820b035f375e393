"""Why no running pod leaves for a waiting one."""

from __future__ import annotations

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.policies import Policy, PreemptionMode
from flowcore.model.running_pods import RunningPods


def why_nobody_leaves(pod: PendingPod, policy: Policy, running: RunningPods, now: float) -> str:
    """A sentence for a pod that fits on no node and that no plan evicts pods for.

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
