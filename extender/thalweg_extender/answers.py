"""Responses to kube-scheduler, from the plan's advice and the request. Pure.

Source: kube-scheduler 1.36 pkg/scheduler/extender.go, schedule_one.go (findNodesThatPassExtenders),
framework/preemption/preemption.go (findCandidates, callExtenders).

Rejected nodes are in FailedAndUnresolvableNodes, never in FailedNodes. kube-scheduler takes FailedNodes as candidates
for preemption; a dry run on a node that its own filters accept ends in "expected at least one victim pod". An eviction
would not help either: it makes no plan and frees no reserved capacity. kube-scheduler retries the pod at the next event
of any kind, so freed capacity is not missed.

Only one node has an entry with the text, because a node in neither map already counts as unresolvable. The pod's
message counts the nodes of each text. With an entry for each node the count would change from call to call.
kube-scheduler would write each change to the pod's status, and each write would queue the pod again: a hot loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final

from flowcore.model.advice import HELD_MESSAGE, UNSEEN_MESSAGE, Advice
from thalweg_extender.wire import (
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriority,
    MetaPod,
    MetaVictims,
)

#: Reason for rejecting a node that kube-scheduler's own filters accept.
INFEASIBLE_MESSAGE: Final = "no room beside the pods that Thalweg is placing"
#: MaxExtenderPriority; kube-scheduler does not check scores.
_MAX_PRIORITY: Final = 10


class FilterOutcome(StrEnum):
    """Outcome of filter for a pod."""

    #: Only the planned node passes.
    STEERED = "steered"
    #: No node passes yet: the pod waits for a plan.
    HELD = "held"
    #: No node passes yet: the watch has not delivered the pod.
    UNKNOWN = "unknown"
    #: kube-scheduler chooses among the nodes that pass; there may be none.
    PASSED = "passed"


def to_filter(advice: Advice, node_names: Sequence[str]) -> tuple[FilterOutcome, list[str], ExtenderFilterResult]:
    """Answer of the verb filter.

    Args:
        advice: the plan's advice for the pod.
        node_names: names of the candidate nodes, in the order of the request.

    Returns:
        Outcome, nodes that pass in the order of the request, and response.
    """
    if not advice.known:
        return _filter_result(FilterOutcome.UNKNOWN, [], node_names[:1], UNSEEN_MESSAGE)
    if advice.node and advice.node in node_names and advice.node not in advice.infeasible_nodes:
        return _filter_result(FilterOutcome.STEERED, [advice.node])
    if advice.hold:
        return _filter_result(FilterOutcome.HELD, [], node_names[:1], HELD_MESSAGE)
    if not advice.infeasible_nodes:
        return _filter_result(FilterOutcome.PASSED, list(node_names))
    infeasible = (
        advice.infeasible_nodes
        if isinstance(advice.infeasible_nodes, AbstractSet)
        else frozenset(advice.infeasible_nodes)
    )
    free = [name for name in node_names if name not in infeasible]
    rejected = [next(name for name in node_names if name in infeasible)] if len(free) < len(node_names) else []
    return _filter_result(FilterOutcome.PASSED, free, rejected, INFEASIBLE_MESSAGE)


def _filter_result(
    outcome: FilterOutcome, passed: list[str], rejected: Sequence[str] = (), why: str = ""
) -> tuple[FilterOutcome, list[str], ExtenderFilterResult]:
    # An empty list, never null: with null kube-scheduler would read whole nodes instead.
    failed = dict.fromkeys(rejected, why)
    return outcome, passed, ExtenderFilterResult(node_names=passed, failed_and_unresolvable_nodes=failed)


def to_prioritize(advice: Advice, node_names: Sequence[str]) -> list[HostPriority]:
    """Answer of the verb prioritize: scores of the candidate nodes that have one; none for an unmanaged pod."""
    if not advice.managed:
        return []
    scores = advice.scores
    return [HostPriority(name, min(max(scores[name], 0), _MAX_PRIORITY)) for name in node_names if name in scores]


def to_preempt(advice: Advice, candidates: Mapping[str, MetaVictims | None]) -> ExtenderPreemptionResult:
    """Answer of the verb preempt: the nodes that kube-scheduler may choose from, with the pods that it then evicts.

    For a managed pod these are the plan's node and victims, whatever candidates there are: kube-scheduler looks the
    node and the pods up by name and UID. No node: it evicts nobody. Where kube-scheduler may choose, the candidates
    stay that violate no PodDisruptionBudget. For pods that no policy steers all candidates stay. A pod that gets a node
    in a moment has nobody evicted.

    A node without victims is never returned: kube-scheduler treats it as an error of the whole answer, and null ends
    its process.
    """
    if advice.spares:
        return ExtenderPreemptionResult({})
    if advice.managed and not advice.may_preempt:
        return ExtenderPreemptionResult(
            {node: MetaVictims([MetaPod(uid) for uid in uids]) for node, uids in advice.victims.items() if uids}
        )
    return ExtenderPreemptionResult(
        {
            node: victims
            for node, victims in candidates.items()
            if victims is not None
            and victims.pods
            and all(pod is not None for pod in victims.pods)
            and not (advice.managed and victims.num_pdb_violations)
        }
    )
