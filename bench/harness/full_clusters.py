"""Drawn clusters of tens of nodes that are nearly full, with pods that fit only if others leave or move."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from flowcore.cluster.cluster import Cluster
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.questions.scenario import Scenario
from harness.drawn_pods import drawn_pod, started

_GI = 2**30
_CPU = 16_000
_APPS = tuple("abcdef")


@dataclass(frozen=True)
class FullShape:
    """What is drawn.

    Attributes:
        priorities, running: of the pods that wait, and of those that run.
        asked: what waits, as a share of the cpu of all nodes.
        used: how full a node is at least.
        budgets: whether PodDisruptionBudgets let only some pods of an app leave.
        gang: pods of a gang; 1: no gangs.
    """

    priorities: Sequence[int] = (1000,)
    running: Sequence[int] = (0, 10, 20)
    asked: float = 0.2
    used: float = 0.95
    budgets: bool = False
    gang: int = 1


def draw_full(seed: int, shape: FullShape) -> Scenario:
    """A cluster of 10 to 40 nodes."""
    draw = random.Random(f"{seed} {shape}")
    cluster = Cluster()
    cluster.set_namespace("default", ())
    nodes, number = draw.randint(10, 40), 0
    for place in range(nodes):
        name = f"n{place}"
        amounts = (("cpu", _CPU), ("memory", 64 * _GI), ("pods", 110))
        cluster.put_node(Node(name, name, (), allocatable=amounts))
        left, kept = _CPU, int(_CPU * draw.uniform(0, 1 - shape.used))
        while left - kept >= 500:
            cpu = draw.choice([size for size in (500, 1000, 2000, 4000) if size <= left - kept])
            pod = _pod(draw, f"r{number}", cpu, draw.choice(shape.running), draw.choice((1, 1, 2, 3)))
            cluster.put_pod(started(draw, pod, name))
            left, number = left - cpu, number + 1
    asked, group = int(nodes * _CPU * shape.asked), 0
    while asked > 0:
        cpu, priority = 1000 * draw.choice((1, 2, 3, 4, 6, 8)), draw.choice(shape.priorities)
        for member in range(shape.gang):
            cluster.put_pod(_pod(draw, f"w{group}-{member}", cpu, priority, 1, _gang(f"g{group}", shape.gang)))
        asked, group = asked - cpu * shape.gang, group + 1
    for app in _APPS if shape.budgets else ():
        selector = LabelSelector((Requirement("app", "In", (app,)),))
        budget = DisruptionBudget("default", f"b-{app}", selector, draw.randint(0, nodes // 4))
        cluster.set_disruption_budget(budget.key, budget)
    return Scenario(cluster)


def _gang(name: str, size: int) -> GangRef | None:
    if size == 1:
        return None
    return GangRef(GangKey(GangSource.THALWEG, "default", name), GangSpec(min_member=size))


def _pod(draw: random.Random, name: str, cpu: int, priority: int, memory: int, gang: GangRef | None = None) -> Pod:
    """A pod; ``memory``: GiB for each cpu."""
    requests = (("cpu", cpu), ("memory", memory * cpu * _GI // 1000))
    return drawn_pod(draw, name, PodClass(requests, priority=priority), _APPS, gang=gang)
