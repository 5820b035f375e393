"""Clusters of running pods that one policy governs, and the checked plan of a round."""

from __future__ import annotations

from typing import Any

import msgspec
from support.eviction_clusters import snapshot as known_cluster
from support.eviction_safety import check_evictions
from support.model import amounts, node

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN, DuringExecution, Policy, ReschedulingPolicy
from flowcore.model.running_pods import EvictionKind
from flowcore.model.selectors import LabelSelector
from flowcore.planning.round import RoundResult, run_round

#: Seconds since the epoch at which rounds take place.
NOW = 1000.0
IN_A = PodClass(requests=amounts(1000), node_selector=(("zone", "a"),))
ANYWHERE = PodClass(requests=amounts(1000))
BUDGET = DisruptionBudget("default", "web", LabelSelector())


def in_zone(name: str, zone: str, cpu: int = 4000, **fields: Any) -> Node:
    return node(name, cpu, labels=(("zone", zone),), **fields)


def runs(name: str, on: str, pod_class: PodClass = IN_A, **fields: Any) -> Pod:
    """A running pod of a controller; further words are fields of Pod."""
    known: dict[str, Any] = {"owner": "web", "created": 1.0, "usage": pod_class.requests} | fields
    return Pod("default", name, f"uid-{name}", pod_class, node_name=on, **known)


def policy(mode: DuringExecution, **limits: int) -> Policy:
    """The built-in policy with this mode and limits."""
    return msgspec.structs.replace(BUILT_IN, during_execution=mode, rescheduling=ReschedulingPolicy(**limits))


def cluster(
    nodes: list[Node],
    pods: list[Pod],
    governed_by: Policy,
    pending: tuple[PendingPod, ...] = (),
    budgets: tuple[DisruptionBudget, ...] = (),
) -> Snapshot:
    return known_cluster(nodes, pods, pending, budgets, governed_by, now=NOW)


def planned(snapshot: Snapshot, governed_by: Policy) -> RoundResult:
    """The plan, checked step by step."""
    policies = {governed_by.name: governed_by}
    result = run_round(snapshot, policies)
    check_evictions(snapshot, result, policies)
    return result


def leaving(nodes: list[Node], pods: list[Pod], governed_by: Policy, **more: Any) -> dict[str, str]:
    """Name and new node of each pod that leaves for a rule."""
    evictions = planned(cluster(nodes, pods, governed_by, **more), governed_by).evictions
    assert {each.kind for each in evictions} <= {EvictionKind.RULE}
    return {each.pod.key.partition("/")[2]: each.to for each in evictions}
