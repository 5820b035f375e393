"""The limits of FlowQueues that keep waiting pods out, raised by exactly what these pods ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from flowcore.model.pods import Pod
from flowcore.model.resources import PODS
from flowcore.questions.diagnosis.fixes.proposals.filter_proposals import Proposal
from flowcore.questions.scenario import Scenario, ScenarioPlan
from flowcore.questions.scenario.hypothetical.changes import RaiseQueueLimit
from flowcore.rules.reasons.codes import QUEUE_LIMIT


def queue_limits(scenario: Scenario, plan: ScenarioPlan, pods: Sequence[Pod]) -> Iterator[Proposal]:
    """One proposal that raises every limit that these pods would pass; none where no limit keeps any of them out."""
    keys = {pod.key for pod in pods}
    if not any(each.code == QUEUE_LIMIT and each.pod.key in keys for each in plan.result.unplaced):
        return
    queues, namespaces = scenario.cluster.queues, scenario.cluster.namespaces
    held: dict[str, Counter[str]] = {}

    def count(queue: str, pod: Pod) -> None:
        for name in queues.tree.path(queue) if queue in queues.tree.queues else ():
            held.setdefault(name, Counter()).update({PODS: 1, **dict(pod.pod_class.requests)})

    evicted = {each.pod.key for each in plan.result.evictions if not each.to}
    for pod in scenario.running():
        if pod.node_name in scenario.cluster.nodes and pod.key not in evicted:
            count(queues.of(pod, namespaces), pod)
    for placement in plan.result.placements:
        count(placement.pod.queue, scenario.cluster.waiting[placement.pod.key])
    for pod in pods:
        count(queues.of(pod, namespaces), pod)
    changes = []
    for name in dict.fromkeys(each for pod in pods for each in _path(scenario, queues.of(pod, namespaces))):
        for resource, limit in queues.tree.queues[name].limit:
            needed = held[name][resource]
            if needed > limit:
                changes.append(RaiseQueueLimit(name, resource, needed))
    if changes:
        yield tuple(changes)


def _path(scenario: Scenario, queue: str) -> tuple[str, ...]:
    tree = scenario.cluster.queues.tree
    return tree.path(queue) if queue in tree.queues else ()
