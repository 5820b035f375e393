"""Small drawn clusters with rules between pods, in which pods of several priorities wait and others may leave."""

from __future__ import annotations

import random

import numpy as np
from harness.drawn_pods import NOW, drawn_pod, started

from flowcore.cluster.cluster import Cluster
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint, WeightedTerm
from flowcore.model.nodes import Node
from flowcore.model.pods import ANY_ADDRESS, HostPort, Pod, PodClass
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.questions.scenario import Scenario, ScenarioPlan, plan_scenario
from flowcore.rules.filters import run_filters

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
APPS = ("a", "b", "c")
_GI = 2**30


def draw_ruled(seed: int, *, budgets: bool = False) -> Scenario:
    """Two to five nodes in two zones, running pods on them, and three to seven that wait, of priorities 0, 10 and 100.

    A third of the pods have a rule: anti-affinity or spread by host or zone, required or preferred, affinity, a port.
    """
    draw = random.Random(f"{seed} {budgets}")
    cluster = Cluster()
    cluster.set_namespace("default", ())
    for place in range(draw.randint(2, 5)):
        cpu = 1000 * draw.choice((2, 4, 4, 6))
        labels = ((HOST, f"n{place}"), (ZONE, f"z{place % 2}"))
        cluster.put_node(
            Node(f"n{place}", f"n{place}", labels, allocatable=(("cpu", cpu), ("memory", 64 * _GI), ("pods", 110)))
        )
    running = [_pod(draw, f"r{number}", draw.choice((0, 0, 0, 10, 100))) for number in range(draw.randint(2, 12))]
    for pod in running:
        cluster.put_pod(pod)
    for placed in plan_scenario(Scenario(cluster), NOW).result.placements:
        pod = cluster.pods[placed.pod.key]
        cluster.put_pod(started(draw, pod, placed.node))
    for pod in running:
        if not cluster.pods[pod.key].node_name:
            cluster.remove_pod(pod.key)
    for number in range(draw.randint(3, 7)):
        cluster.put_pod(_pod(draw, f"p{number}", draw.choice((0, 0, 10, 10, 100))))
    for app in draw.sample(APPS, draw.randint(0, 2)) if budgets else ():
        budget = DisruptionBudget("default", f"b-{app}", _selects(app), draw.randint(0, 2))
        cluster.set_disruption_budget(budget.key, budget)
    return Scenario(cluster)


def _selects(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


def _pod(draw: random.Random, name: str, priority: int) -> Pod:
    port = (HostPort(ANY_ADDRESS, "TCP", draw.choice((80, 443))),) if draw.random() < 0.1 else ()
    requests = (("cpu", 500 * draw.choice((1, 2, 2, 3, 4, 6))), ("memory", _GI))
    pod_class = PodClass(requests, priority=priority, host_ports=port)
    return drawn_pod(draw, name, pod_class, APPS, constraints=_rules(draw) if draw.random() < 0.4 else None)


def _rules(draw: random.Random) -> InterPodConstraints:
    key, app = draw.choice((HOST, HOST, ZONE)), draw.choice(APPS)
    term = AffinityTerm(key, _selects(app), ("default",))
    spread = SpreadConstraint(key, draw.randint(1, 2), _selects(app))
    return draw.choice(
        (
            InterPodConstraints(anti_affinity=(term,)),
            InterPodConstraints(anti_affinity=(term,)),
            InterPodConstraints(spread=(spread,)),
            InterPodConstraints(affinity=(term,)),
            InterPodConstraints(preferred=(WeightedTerm(-100, term),)),
            InterPodConstraints(soft_spread=(spread,)),
        )
    )


def kept_out_by_lower_ones(planned: ScenarioPlan) -> list[str]:
    """Waiting pods, by key, that some node takes once all of a lower priority have left it.

    Those are running pods, and those that the plan places. Who needs others near is left out: these may be gone then,
    and kube-scheduler looks no further either. So are pods that may not preempt.
    """
    result, after = planned.result, planned.result.after
    running = planned.before.running
    assert running is not None
    gone = {each.pod.key for each in result.evictions}
    wrong = []
    for waiting in result.unplaced:
        constraints, priority = waiting.pod.signature.constraints, waiting.pod.pod_class.priority
        if constraints is not None and (constraints.affinity or constraints.spread):
            continue
        lower = [
            (pod.node, pod.usage, pod.signature, pod.pod_class)
            for pod in running.pods
            if pod.key not in gone and pod.priority < priority
        ]
        lower += [
            (each.node, each.pod.pod_class.requests, each.pod.signature, each.pod.pod_class)
            for each in result.placements
            if each.pod.pod_class.priority < priority
        ]
        used, ports = after.used.copy(), dict(after.ports)
        for node, usage, _, pod_class in lower:
            at = after.table.index[node]
            used[at] -= after.vector(usage)
            ports[at] = ports.get(at, frozenset()) - frozenset(pod_class.host_ports)
        removed = [(node, signature) for node, _, signature, _ in lower]
        assumed = np.zeros_like(after.non_zero_requested)
        emptied = after.with_usage(used, assumed, ports, after.pod_index.with_changes((), removed))
        if run_filters(waiting.pod.pod_class, emptied, waiting.pod.signature).fits.any():
            wrong.append(waiting.pod.key)
    return sorted(wrong)
