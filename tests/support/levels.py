"""What a plan promises about priorities, checked by the filters and by counts of our own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from msgspec.structs import replace as with_fields
from thalweg.dumps.reader import read_dump

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.policies import Policy
from flowcore.planning.round import Placement, Unplaced, run_one_by_one
from flowcore.questions.scenario import Scenario, ScenarioPlan, plan_scenario
from flowcore.rules.filters import run_filters
from flowcore.rules.reasons.codes import QUEUE_LIMIT, ROOM_HELD

DUMPS = Path(__file__).parents[1] / "core" / "dumps"
#: 2026-11-24T00:00:00Z: the dumps with ages were made for this moment.
NOW = 1_795_478_400.0


def scenario_of(name: str) -> Scenario:
    """A dump of ``tests/core/dumps``; where it has no policy, with one that counts pods, as the claims do."""
    scenario = read_dump((str(DUMPS / f"{name}.json"),), NOW)
    if not scenario.policies:
        scenario.policies["p"] = Policy("p", unscheduled=UnscheduledPrice(per=PricedBy.POD))
    return scenario


@cache
def plan_of(name: str) -> ScenarioPlan:
    """Its plan, made once for all who look at it."""
    return plan_scenario(scenario_of(name), NOW)


def misplaced(planned: ScenarioPlan) -> list[str]:
    """Waiting pods, by key, that a node takes once all pods of lower priorities that the plan places are gone.

    Pods of gangs are left out: their gang is not placed in parts. Pods that others leave for have room of their own.
    """
    result, wrong = planned.result, []
    for level in {each.pod.pod_class.priority for each in result.unplaced}:
        lower = [each for each in result.placements if each.pod.pod_class.priority < level and not each.victims]
        cluster = without(result.after, [each for each in lower if not _crosses(each.pod, planned.policies)])
        waiting = [each for each in result.unplaced if each.pod.pod_class.priority == level]
        wrong += [each.pod.key for each in waiting if may_be_placed(each, planned) and _fits(each.pod, cluster)]
    return sorted(wrong)


def left_out(planned: ScenarioPlan) -> list[str]:
    """Waiting pods, by key, that a node takes beside all that the plan places."""
    result = planned.result
    return [each.pod.key for each in result.unplaced if may_be_placed(each, planned) and _fits(each.pod, result.after)]


def fewer_than_one_by_one(planned: ScenarioPlan) -> dict[int, int]:
    """By priority: how many more pods one by one places, at the highest priority where both differ; {}: not more."""
    if planned.result.evictions:
        return {}
    other = run_one_by_one(planned.before, planned.policies)
    mine, others = (
        Counter(each.pod.pod_class.priority for each in plan.placements) for plan in (planned.result, other)
    )
    for level in sorted(mine.keys() | others.keys(), reverse=True):
        if mine[level] != others[level]:
            return {level: others[level] - mine[level]} if others[level] > mine[level] else {}
    return {}


def younger_before_older(planned: ScenarioPlan) -> list[tuple[str, str]]:
    """Pairs of equal pods of which the older one waits and the younger one is placed."""
    placed: dict[object, PendingPod] = {}
    for each in planned.result.placements:
        if not each.pod.gangs and each.pod.victim is None:
            kind = (each.pod.pod_class, each.pod.signature, each.pod.policy, each.pod.queue)
            youngest = placed.get(kind)
            if youngest is None or each.pod.waiting_since > youngest.waiting_since:
                placed[kind] = each.pod
    pairs = []
    for waiting in planned.result.unplaced:
        pod = waiting.pod
        younger = placed.get((pod.pod_class, pod.signature, pod.policy, pod.queue))
        if younger is not None and not pod.gangs and pod.victim is None and younger.waiting_since > pod.waiting_since:
            pairs.append((pod.key, younger.key))
    return pairs


def evicted_again(scenario: Scenario, planned: ScenarioPlan, later: float = 60.0) -> list[str]:
    """Pods, by key, that the plan places and the next round of the same cluster evicts."""
    placed = {each.pod.key: each.node for each in planned.result.placements}
    gone = {each.pod.key for each in planned.result.evictions}
    for pod in list(scenario.cluster.pods.values()):
        if pod.key in gone:
            scenario.cluster.remove_pod(pod.key)
        elif pod.key in placed:
            node = placed[pod.key]
            pod_class = with_fields(pod.pod_class, node_name=node)
            scenario.cluster.put_pod(
                with_fields(pod, node_name=node, pod_class=pod_class, started=NOW, usage=pod_class.requests)
            )
    again = plan_scenario(scenario, NOW + later)
    return sorted(each.pod.key for each in again.result.evictions if each.pod.key in placed)


def may_be_placed(waiting: Unplaced, planned: ScenarioPlan) -> bool:
    """Whether only room and rules decide.

    The pod has no gang and no victim. It waits for no node, no queue is full, and no room is held for a gang.
    """
    pod, policy = waiting.pod, planned.policies[waiting.pod.policy]
    own_terms = policy.unscheduled.wait_for_cheaper_node or waiting.code in (QUEUE_LIMIT, ROOM_HELD)
    return not pod.gangs and pod.victim is None and not own_terms


def _crosses(pod: PendingPod, policies: Mapping[str, Policy]) -> bool:
    return policies[pod.policy].unscheduled.aging_crosses_priorities


def _fits(pod: PendingPod, cluster: Snapshot) -> bool:
    return bool(run_filters(pod.pod_class, cluster, pod.signature).fits.any())


def without(after: Snapshot, placements: Sequence[Placement]) -> Snapshot:
    """The cluster without some pods that a plan places."""
    places = {node.name: number for number, node in enumerate(after.table.nodes)}
    used, assumed, ports = after.used.copy(), after.non_zero_requested.copy(), dict(after.ports)
    for each in placements:
        node, pod_class = places[each.node], each.pod.pod_class
        used[node] -= after.vector(pod_class.requests)
        assumed[node] = np.maximum(assumed[node] - pod_class.non_zero_requests, 0)
        ports[node] = ports.get(node, frozenset()) - frozenset(pod_class.host_ports)
    removed = [(each.node, each.pod.signature) for each in placements]
    return after.with_usage(used, assumed, ports, after.pod_index.with_changes((), removed))
