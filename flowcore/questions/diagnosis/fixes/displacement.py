"""Whom waiting pods would displace: the priority that suffices, or the running pods to evict."""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.model.pods import Pod
from flowcore.questions.scenario import Scenario, ScenarioPlan
from flowcore.questions.scenario.alternatives.replanning import PlanDifference
from flowcore.questions.scenario.hypothetical.changes import Change, EvictPods, SetPriority

#: Users may give pods no higher priority (HighestUserDefinablePriority of apis/scheduling).
_HIGHEST = 1_000_000_000


def priority_levels(scenario: Scenario, pods: Sequence[Pod]) -> list[int]:
    """Priorities above the pods' own, each one above some other pod; rising."""
    own, own_keys = max(pod.pod_class.priority for pod in pods), {pod.key for pod in pods}
    others = {
        pod.pod_class.priority for pod in scenario.cluster.pods.values() if not pod.terminal and pod.key not in own_keys
    }
    return sorted({priority + 1 for priority in others if own <= priority < _HIGHEST})


def displaced_priority(scenario: Scenario, outcome: PlanDifference) -> int:
    """The highest priority of the pods that lose or change their places."""
    displaced = (*outcome.loses, *outcome.moves)
    return max((scenario.cluster.pods[key].pod_class.priority for key in displaced), default=-(2**31))


def at_priority(pods: Sequence[Pod], priority: int) -> tuple[Change, ...]:
    """The pods with a priority."""
    return tuple(SetPriority(pod.key, priority) for pod in pods)


def eviction_of_victims(before: ScenarioPlan, outcome: PlanDifference) -> tuple[Change, ...]:
    """Evicts the pods that leave in a plan and do not leave anyway; () if there are none."""
    anyway = {eviction.pod.key for eviction in before.result.evictions}
    # A move for gain makes no room for anybody.
    victims = [each.pod.key for each in outcome.plan.result.evictions if each.pod.key not in anyway and not each.gain]
    return (EvictPods(sorted(victims)),) if victims else ()
