"""Why no running pod leaves for a waiting one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, PendingPod, Snapshot
from flowcore.model.pod_index import AffinityMatch
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy, PreemptionMode
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.rules.filters import Verdicts, dynamic_resources, node_resources_fit, run_filters
from flowcore.rules.other_pods import Leaver, without_pods
from flowcore.rules.reasons.exclusion import way_out

#: Most pods of which each is asked whether it may stay.
_MOST_SPARED = 32


def too_small(pod_class: PodClass, snapshot: Snapshot) -> Bools:
    """bool[N]: nodes that would not hold the pod when they are empty."""
    if node_resources_fit.not_offered(pod_class, snapshot):
        return np.ones(len(snapshot.table.nodes), dtype=np.bool_)
    lacking: Bools = snapshot.allocatable < snapshot.vector(pod_class.requests)
    for name, nodes in node_resources_fit.left_to_devices(pod_class, snapshot).items():
        if name in snapshot.resources:
            lacking[nodes, snapshot.resources.index(name)] = False
    small: Bools = np.any(lacking, axis=1)
    return small


def only_lacks_room(pod_class: PodClass, verdicts: Verdicts, snapshot: Snapshot) -> bool:
    """Whether a pod that fits on no node would fit on one with more room or devices, so that evictions may help it."""
    out = way_out(verdicts, too_small(pod_class, snapshot))
    if out is None or not out.filters:
        return False
    return set(out.filters) <= {node_resources_fit.NAME, dynamic_resources.NAME}


def why_not_preempting(pod: PendingPod, policy: Policy, now: float) -> str:
    """Why no running pod may leave for a waiting one, whoever runs; "": some may.

    Args:
        policy: that governs it.
        now: seconds since the epoch.
    """
    if pod.waits_for_leavers:
        return "pods with a lower priority leave already on the node that it is nominated for"
    if not pod.preempts:
        return "its preemptionPolicy is Never"
    if policy.preemption.mode is PreemptionMode.NEVER:
        return f"spec.preemption.mode of policy {policy.name} is Never"
    if now - (pod.waiting_since or now) < policy.preemption.after:
        return f"it has waited for less than spec.preemption.after of policy {policy.name}"
    return ""


class Evictions(NamedTuple):
    """Running pods of a lower priority without which a waiting pod would fit.

    Attributes:
        partners: keys of pods of a lower priority that it must run beside: preemption thinks them away, too.
    """

    node: str
    pods: tuple[RunningPod, ...]
    partners: tuple[str, ...] = ()


def evictions_that_help(pod: PendingPod, running: RunningPods, snapshot: Snapshot) -> Evictions | None:
    """Evictions by which filters would take a waiting pod; None: it fits nowhere even if all that might leave had left.

    Only pods with a lower priority that may be evicted now are looked at, whatever the rules of preemption make of it.

    Args:
        snapshot: beside which it waits.
    """
    lower = [each for each in _lower(pod, running) if not _is_protected(each, running)]
    signature, namespaces = pod.signature, snapshot.pod_index.namespaces
    affinity = signature.constraints.affinity if signature.constraints is not None else ()
    match = AffinityMatch(affinity)
    partners = [each for each in lower if affinity and match.includes(each.signature, namespaces)]
    others = [each for each in lower if each not in partners] if partners else lower

    def fits_without(pods: Iterable[RunningPod]) -> Bools:
        return run_filters(pod.pod_class, without_pods(snapshot, map(Leaver.of, pods)), signature).fits

    for leaving, stay in ((lower, ()), (others, partners)):
        fits = fits_without(leaving)
        if not fits.any():
            continue
        row = int(np.flatnonzero(fits)[0])
        node = snapshot.table.nodes[row].name
        on_node = [each for each in leaving if each.node == node]
        needed = on_node if fits_without(on_node)[row] else list(leaving)
        for spared in sorted(needed[:_MOST_SPARED], key=lambda each: -each.priority):
            rest = [each for each in needed if each is not spared]
            if fits_without(rest)[row]:
                needed = rest
        return Evictions(node, tuple(needed), tuple(each.key for each in stay))
    return None


def why_nobody_leaves(pod: PendingPod, policy: Policy, running: RunningPods, now: float, snapshot: Snapshot) -> str:
    """A sentence for a pod that fits on no node and that no plan evicts pods for.

    Args:
        policy: that governs it.
        now: seconds since the epoch.
        snapshot: beside which it waits.
    """
    if reason := why_not_preempting(pod, policy, now):
        return reason
    lower = _lower(pod, running)
    if not lower:
        return "no running pod has a lower priority"
    if not all(_is_protected(each, running) for each in lower):
        return _why_not_these(evictions_that_help(pod, running, snapshot))
    budgets = sorted({budget for each in lower for budget in _used_up(each, running)})
    if budgets:
        return f"PodDisruptionBudgets allow no eviction now: {', '.join(budgets)}"
    first = lower[0]
    return f"pods with a lower priority cannot be evicted; {first.key}: {first.unevictable_reason}"


def _why_not_these(evictions: Evictions | None) -> str:
    if evictions is None:
        return "evictions of pods with a lower priority would not make enough room"
    keys = [each.key for each in evictions.pods]
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    without = f"without {keys[0]}{more} it would fit on {evictions.node}"
    if evictions.partners:
        return f"preemption would take {evictions.partners[0]}, which it must run beside, away first; {without}"
    return f"the rules of preemption allow none that the plan has found; {without}"


def _lower(pod: PendingPod, running: RunningPods) -> list[RunningPod]:
    return [each for each in running.pods if each.priority < pod.pod_class.priority]


def _used_up(pod: RunningPod, running: RunningPods) -> list[str]:
    """PodDisruptionBudgets that protect a pod now."""
    return [budget for budget in pod.budgets if running.budgets.get(budget, 0) <= 0]


def _is_protected(pod: RunningPod, running: RunningPods) -> bool:
    return bool(pod.unevictable_reason) or bool(_used_up(pod, running))
