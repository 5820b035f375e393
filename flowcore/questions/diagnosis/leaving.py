"""Pods whose room waits for running pods that leave."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.model.pods import Pod
from flowcore.questions.diagnosis.answers import WhyKind
from flowcore.questions.diagnosis.finding import Finding, UnplacedCase
from flowcore.questions.diagnosis.lists import listed
from flowcore.questions.scenario import Scenario
from flowcore.rules.other_pods import Leaver, without_pods

_NEXT = "Wait until they have left. If one does not terminate, look at its finalizers and its grace period."


def waits_for_victims(scenario: Scenario, node: str, victims: Sequence[str]) -> Finding:
    """For a pod that has a node once others have left."""
    begun = [key for key in victims if (pod := scenario.cluster.pods.get(key)) is not None and pod.deleting]
    text = (
        f"Its room is on {node}, once {listed(victims)} {_has(victims)} left." if victims else f"Its room is on {node}."
    )
    state = f"{len(begun)} of them {'is' if len(begun) == 1 else 'are'} terminating." if begun else ""
    return Finding(WhyKind.VICTIMS_LEAVING, text, (state,) if state else (), _NEXT)


def waits_for_terminating(pod: UnplacedCase) -> Finding | None:
    """For a pod that would fit beside the plan but for pods that are terminating; None: it would not."""
    # Their room is kept for the pods that wait for them.
    awaiting = (*pod.scenario.awaiting.values(), *pod.plan.awaiting.values())
    awaited = {key for room in awaiting for key in room.victims}
    leaving = [
        running
        for running in pod.scenario.running()
        if (running.deleting or running.key in pod.scenario.cluster.leaving) and running.key not in awaited
    ]
    if not leaving:
        return None
    after, signature_of = pod.plan.result.after, pod.scenario.cluster.counted_signature

    def fits_without(pods: list[Pod]) -> Bools:
        return pod.verdicts(without_pods(after, (Leaver.of_bound(each, signature_of(each)) for each in pods))).fits

    possible = np.flatnonzero(fits_without(leaving))
    if not len(possible):
        return None
    node = after.table.nodes[int(possible[0])].name
    on_node = [running for running in leaving if running.node_name == node]
    # Pods of other nodes may keep it out too, by rules between pods.
    enough = on_node and fits_without(on_node)[possible[0]]
    who = [running.key for running in (on_node if enough else leaving)]
    terminating = "it is" if len(who) == 1 else "they are"
    evidence = f"It fits on {node} once {listed(who)} {_has(who)} left: {terminating} terminating."
    return Finding(WhyKind.VICTIMS_LEAVING, pod.unplaced.reason, (evidence,), _NEXT)


def _has(keys: Sequence[str]) -> str:
    return "has" if len(keys) == 1 else "have"
