"""Whom waiting pods would displace: the priority that suffices, or the running pods to evict."""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.diagnosis.fixes.replanning import Outcome
from flowcore.model.pods import Pod
from flowcore.scenario import Scenario, ScenarioPlan
from flowcore.scenario.changes import Change, EvictPods, SetPriority

#: Users may give pods no higher priority (HighestUserDefinablePriority of apis/scheduling).
_HIGHEST = 1_000_000_000


def highest_priority(scenario: Scenario, pods: Sequence[Pod]) -> int:
    """One above every pod that these could displace; their own priority where there is none."""
    own = max(pod.pod_class.priority for pod in pods)
    mine = {pod.key for pod in pods}
    others = (pod for pod in scenario.cluster.pods.values() if not pod.terminal and pod.key not in mine)
    return max(own, min(_HIGHEST, max((pod.pod_class.priority for pod in others), default=own - 1) + 1))


def sufficient_priority(scenario: Scenario, pods: Sequence[Pod], outcome: Outcome) -> int:
    """The lowest priority that displaces the same pods.

    Args:
        outcome: with the highest priority.
    """
    own = max(pod.pod_class.priority for pod in pods)
    displaced = (*outcome.loses, *outcome.moves)
    return max(own, *(scenario.cluster.pods[key].pod_class.priority for key in displaced), -(2**31)) + 1


def at_priority(pods: Sequence[Pod], priority: int) -> tuple[Change, ...]:
    """The pods with a priority."""
    return tuple(SetPriority(pod.key, priority) for pod in pods)


def eviction_of_victims(before: ScenarioPlan, outcome: Outcome) -> tuple[Change, ...]:
    """Evicts whoever leaves in a plan beyond those that leave anyway; () where nobody does."""
    anyway = {eviction.pod.key for eviction in before.result.evictions}
    victims = [each.pod.key for each in outcome.plan.result.evictions if each.pod.key not in anyway]
    return (EvictPods(sorted(victims)),) if victims else ()
