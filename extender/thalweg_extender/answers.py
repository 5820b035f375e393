"""What kube-scheduler is told: from what the plan says and what was asked to an answer, values in, values out.

Source: kube-scheduler 1.36 pkg/scheduler/extender.go, schedule_one.go (findNodesThatPassExtenders),
framework/preemption/preemption.go (findCandidates, callExtenders).

Nodes that do not pass are named in FailedAndUnresolvableNodes, never in FailedNodes. Those are candidates for
preemption, and a dry run on a node that in-tree filters let the pod have ends in "expected at least one victim pod".
Nor would an eviction help: neither a plan nor room that is promised to others comes of it. Either way the pod is tried
again at the next event of any kind, so room that comes back is not missed.

One entry carries the text: a node in neither map counts as unresolvable already. The pod's message counts the nodes
under each text; with an entry for each node the count would change from call to call, each change is written to the
pod's status, each such write queues the pod again, and that is a hot loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final

from flowcore.model.guidance import HELD, UNSEEN, Guidance
from thalweg_extender.wire import (
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriority,
    MetaVictims,
)

#: Why a node does not pass that kube-scheduler finds room on.
TAKEN: Final = "no room beside the pods that Thalweg is placing"
#: MaxExtenderPriority; kube-scheduler does not check scores.
_BEST: Final = 10


class Outcome(StrEnum):
    """What filter said of a pod."""

    #: It may go to the node that the plan has for it, and to no other.
    STEERED = "steered"
    #: It may go nowhere yet.
    HELD = "held"
    #: The watch has not shown it, so it may go nowhere yet.
    UNKNOWN = "unknown"
    #: kube-scheduler chooses among the nodes that pass, which may be none.
    PASSED = "passed"


def to_filter(guidance: Guidance, names: Sequence[str]) -> tuple[Outcome, list[str], ExtenderFilterResult]:
    """Which of the nodes asked about pass.

    Args:
        names: node names, as asked.

    Returns:
        What that is, the nodes that pass in the order asked, and the answer.
    """
    if not guidance.known:
        return _filtered(Outcome.UNKNOWN, [], names[:1], UNSEEN)
    if guidance.node and guidance.node in names and guidance.node not in guidance.taken:
        return _filtered(Outcome.STEERED, [guidance.node])
    if guidance.hold:
        return _filtered(Outcome.HELD, [], names[:1], HELD)
    if not guidance.taken:
        return _filtered(Outcome.PASSED, list(names))
    taken = guidance.taken if isinstance(guidance.taken, AbstractSet) else frozenset(guidance.taken)
    free = [name for name in names if name not in taken]
    rejected = [next(name for name in names if name in taken)] if len(free) < len(names) else []
    return _filtered(Outcome.PASSED, free, rejected, TAKEN)


def _filtered(
    outcome: Outcome, passed: list[str], rejected: Sequence[str] = (), why: str = ""
) -> tuple[Outcome, list[str], ExtenderFilterResult]:
    # The list may be empty and must not be null: kube-scheduler would look for whole nodes instead.
    failed = dict.fromkeys(rejected, why)
    return outcome, passed, ExtenderFilterResult(node_names=passed, failed_and_unresolvable_nodes=failed)


def to_prioritize(guidance: Guidance, names: Sequence[str]) -> list[HostPriority]:
    """Scores of the nodes asked about that the plan knows; none for a pod that no policy steers."""
    if not guidance.managed:
        return []
    scores = guidance.scores
    return [HostPriority(name, min(max(scores[name], 0), _BEST)) for name in names if name in scores]


def to_preempt(guidance: Guidance, candidates: Mapping[str, MetaVictims | None]) -> ExtenderPreemptionResult:
    """Which of the nodes may be cleared for the pod, and of whom.

    Nobody is evicted for a pod that a policy steers. For others the candidates stay as they are, but for those without
    any victim: kube-scheduler takes such a candidate in an answer for an error of all, and null ends its process.
    """
    if guidance.managed:
        return ExtenderPreemptionResult({})
    return ExtenderPreemptionResult(
        {
            node: victims
            for node, victims in candidates.items()
            if victims is not None and victims.pods and all(pod is not None for pod in victims.pods)
        }
    )
