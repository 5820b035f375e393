"""A running pod that another node takes: where it left, a waiting pod has room."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec
import numpy as np

from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.questions.diagnosis.fixes.proposals.waiting_pods import Judge, Wanted
from flowcore.questions.scenario import GovernedScenario, Scenario
from flowcore.questions.scenario.hypothetical.changes import MovePod
from flowcore.rules.filters.node_ports import clash

#: Nodes on which pods are looked at, and pods for which another node is looked for.
_MAX_NODES, _MAX_PODS = 64, 24


def moves(
    scenario: Scenario, wanted: Wanted, judge: Judge, running: RunningPods, leaving: Collection[str]
) -> Iterator[MovePod]:
    """Moves of one pod each, the least important and smallest pods first.

    Only pods whose controller creates them anew are moved, and none that a PodDisruptionBudget protects now.

    Args:
        running: pods that run now.
        leaving: keys of the pods that leave in the plan.
    """
    snapshot, governed = judge.snapshot, GovernedScenario(scenario)
    requests = snapshot.vector(wanted.pod.pod_class.requests)
    asked = requests > 0
    open_nodes = judge.fits(wanted.without_requests())
    short = np.maximum(requests - snapshot.free, 0)[:, asked] / requests[asked]
    order = np.argsort(np.where(open_nodes, short.max(axis=1), np.inf), kind="stable")[:_MAX_NODES]
    names = {snapshot.table.nodes[position].name: position for position in order.tolist() if open_nodes[position]}
    movable: list[tuple[int, float, str, RunningPod, int]] = []
    for pod in running.pods:
        position = names.get(pod.node, -1)
        if position < 0 or pod.key in leaving or not _may_move(scenario, pod, running):
            continue
        usage = snapshot.vector(pod.usage)
        fits = bool((snapshot.free[position][asked] + usage[asked] >= requests[asked]).all())
        ports = wanted.pod.pod_class.host_ports
        in_the_way = bool((short[position] > 0).any()) or any(
            clash((port,), pod.pod_class.host_ports) for port in ports
        )
        if fits and in_the_way:
            movable.append((pod.priority, float((usage[asked] / requests[asked]).max()), pod.key, pod, position))
    movable.sort(key=lambda candidate: candidate[:3])
    for _, _, key, pod, position in movable[:_MAX_PODS]:
        alone = msgspec.structs.replace(scenario.cluster.pods[key], pod_class=pod.pod_class)
        policy = governed.policy_of(alone)
        elsewhere = judge.fits(Wanted(alone, with_policy_constraints(alone.signature, policy), (key,), policy))
        elsewhere[position] = False
        if elsewhere.any():
            free = judge.snapshot.free / np.maximum(judge.snapshot.allocatable, 1)
            roomiest = int(np.argmax(np.where(elsewhere, free.min(axis=1), -np.inf)))
            yield MovePod(key, snapshot.table.nodes[roomiest].name)


def _may_move(scenario: Scenario, pod: RunningPod, running: RunningPods) -> bool:
    known = scenario.cluster.pods[pod.key]
    return (
        bool(pod.owner)
        and not known.permanent
        and not pod.gang
        and not pod.unevictable_reason
        and not known.immovable_reason
        and not known.pod_class.volumes
        and all(running.budgets.get(budget, 0) > 0 for budget in pod.budgets)
    )
