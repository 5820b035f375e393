"""Policies with delivery Observe: where the plan would have put their pods, beside where another scheduler put them.

The plan answers for the cluster as it is: it is made as if all pods of these policies waited together with those that
do wait. Pods that nothing but their name tells apart are exchanged, so that as few as possible differ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import msgspec

from flowcore.costs import CostModel
from flowcore.model.pods import Pod
from flowcore.model.policies import OBSERVED
from flowcore.questions.scenario.hypothetical.change_pods import to_waiting
from flowcore.questions.scenario.plan import plan_scenario
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.questions.scenario.scenario import GovernedScenario, Scenario


class ObservedPod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that another scheduler placed.

    Attributes:
        node: where it runs.
        planned: where the plan has it; "": it would wait.
        elsewhere: whether the plan has it elsewhere.
        reason: why it would wait.
    """

    pod: str
    policy: str
    node: str
    planned: str
    elsewhere: bool
    reason: str = ""


def compare_observed(scenario: Scenario, now: float, models: Mapping[str, CostModel]) -> list[ObservedPod]:
    """Each running pod of a policy with delivery Observe, in the order of the cluster's pods.

    Pods that stay where they are whatever is planned are left out: those of DaemonSets, and those that are being
    deleted. So are pods that may not be planned, and those that no policy of the cluster governs. Where a pod's data is
    does not count: it is not read of running pods.

    Args:
        now: seconds since the epoch.
        models: cost models by name.
    """
    if all(policy.delivery.acts for policy in scenario.policies.values()):
        return []
    governed = GovernedScenario(scenario)
    chosen = {
        pod.key: pod
        for pod in scenario.running()
        if not (pod.permanent or pod.deleting)
        and pod.node_name in scenario.cluster.nodes
        and governed.governs(pod)
        and not governed.policy_of(pod).delivery.acts
        and governed.policy_of(pod).name != OBSERVED.name
    }
    if not chosen:
        return []
    edits = Edits(scenario)
    try:
        for pod in chosen.values():
            alone = msgspec.structs.replace(to_waiting(pod, now), preempts=False)  # no other pod leaves for them
            edits.put_pod(alone, as_given=True)
        plan = plan_scenario(scenario, now, models)
    finally:
        edits.undo()
    planned = {key: "" for key in chosen if key not in plan.skipped}
    planned |= {each.pod.key: each.node for each in plan.result.placements if each.pod.key in chosen}
    reasons = {each.pod.key: each.reason for each in plan.result.unplaced}
    where = {key: pod.node_name for key, pod in chosen.items()}
    return [
        ObservedPod(key, governed.policy_of(chosen[key]).name, where[key], node, node != where[key], reason)
        for key, (node, reason) in _exchanged(chosen, planned, reasons).items()
    ]


def _exchanged(
    chosen: Mapping[str, Pod], planned: Mapping[str, str], reasons: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Planned node and reason of each planned pod; among equal pods, one that is planned for the node it is on."""
    equal: dict[object, list[str]] = defaultdict(list)
    for key in planned:
        pod = chosen[key]
        equal[pod.pod_class, pod.signature, pod.gang].append(key)
    pairs: dict[str, tuple[str, str]] = {}
    for keys in equal.values():
        left = Counter((planned[key], reasons.get(key, "")) for key in keys)
        others = []
        for key in keys:
            same = (chosen[key].node_name, "")
            if left[same]:
                left[same] -= 1
                pairs[key] = same
            else:
                others.append(key)
        pairs.update(zip(others, left.elements(), strict=True))
    return {key: pairs[key] for key in planned}
