"""Small drawn clusters with pods that wait, and every change that could place one of them: the truth about fixes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

from msgspec.structs import replace

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.cluster.cluster import Cluster
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.constraints import Conflict
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import ANY_ADDRESS, HostPort, Pod, PodClass, Toleration
from flowcore.model.policies import Policy, Selects
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.questions.diagnosis.fixes.ranking import Rank, rank
from flowcore.questions.scenario import GovernedScenario, Scenario, ScenarioPlan
from flowcore.questions.scenario.alternatives.replanning import Replanning
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import (
    AddNodes,
    Change,
    DropNodeSelector,
    DropPodRules,
    EvictPods,
    MovePod,
    RaiseCap,
    RemoveTaint,
    Request,
    SetPriority,
    Tolerate,
    Uncordon,
)
from flowcore.rules.filters import run_filters
from flowcore.rules.other_pods import Leaver, without_pods

NOW = 1_000_000.0
#: Millicores and Mi: every amount is a multiple, so that the requests that are tried are all that matter.
CPU_STEP, MEMORY_STEP = 500, 512 * 2**20
_TAINTS = (Taint("dedicated", "db", "NoSchedule"), Taint("gpu", "", "NoExecute"))
_WEB = LabelSelector((Requirement("app", "In", ("web",)),))
_PRIORITIES = (0, 0, 10, 100)
#: Of a node that no fix opens to the drawn pods.
CONTROL_PLANE = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")
_GPU = "nvidia.com/gpu"
_SPARE = Taint("spare", "", "NoSchedule")
CAP = "few"
POLICY = "p"


def draw_scenario(seed: int) -> Scenario:
    """One to three nodes, up to six running pods, one to three that wait."""
    draw = random.Random(seed)
    cluster = Cluster()
    for at in range(draw.randint(1, 3)):
        cluster.put_node(_node(draw, f"n{at}"))
    cluster.set_namespace("default", ())
    room = {name: dict(node.allocatable) for name, node in cluster.nodes.items()}
    for at in range(draw.randint(0, 6)):
        pod = _pod(draw, f"r{at}", running=True)
        name = draw.choice(list(room))
        if all(room[name][resource] >= amount for resource, amount in pod.pod_class.requests):
            for resource, amount in pod.pod_class.requests:
                room[name][resource] -= amount
            cluster.put_pod(_on(pod, name))
    for at in range(draw.randint(1, 3)):
        cluster.put_pod(_pod(draw, f"w{at}", running=False))
    scenario = Scenario(cluster)
    if draw.random() < 0.3:
        cap = Conflict(CAP, _WEB, draw.choice(("kubernetes.io/hostname", "zone")))
        everybody = Selects(("default-scheduler",))
        scenario.policies[POLICY] = Policy(POLICY, selects=everybody, constraints=(cap,))
    return scenario


def draw_ruled_scenario(seed: int) -> Scenario:
    """The same with a spare node, host ports, few pod slots, a control plane, GPUs, and rules of pods."""
    draw, scenario = random.Random(seed), draw_scenario(seed)
    cluster = scenario.cluster
    for node in list(cluster.nodes.values()):
        amounts, taints = dict(node.allocatable), node.taints
        if draw.random() < 0.3:
            amounts["pods"] = max(1, sum(pod.node_name == node.name for pod in scenario.running()))
        if draw.random() < 0.15:
            amounts[_GPU], taints = 2, (*taints, Taint(_GPU, "present", "NoSchedule"))
        elif draw.random() < 0.15:
            taints = (*taints, CONTROL_PLANE)
        cluster.put_node(replace(node, allocatable=tuple(sorted(amounts.items())), taints=taints))
    # Room for running pods, which tolerate its taint, and not for those that wait.
    amounts = {"cpu": CPU_STEP * draw.randint(1, 5), "memory": MEMORY_STEP * 5, "pods": 110}
    labels = (("disk", "hdd"), ("kubernetes.io/hostname", "spare"), ("zone", draw.choice("abc")))
    cluster.put_node(Node("spare", "spare", labels, (_SPARE,), allocatable=tuple(sorted(amounts.items()))))
    for pod in list(cluster.pods.values()):
        pod_class, rules = pod.pod_class, pod.constraints or InterPodConstraints()
        if pod.node_name:
            pod_class = replace(pod_class, tolerations=(Toleration(_SPARE.key, "Exists"),))
        if draw.random() < 0.3:
            pod_class = replace(pod_class, host_ports=(HostPort(ANY_ADDRESS, "TCP", draw.choice((80, 443))),))
        term = AffinityTerm(draw.choice(("zone", "kubernetes.io/hostname")), _WEB, ("default",))
        if draw.random() < 0.15:
            rules = replace(rules, anti_affinity=(term,))
        elif not pod.node_name and draw.random() < 0.2:
            rules = replace(rules, affinity=(term,))
        elif not pod.node_name and draw.random() < 0.2:
            rules = replace(rules, spread=(SpreadConstraint("zone", 1, _WEB),))
        cluster.put_pod(
            replace(pod, pod_class=pod_class, constraints=None if rules == InterPodConstraints() else rules)
        )
    return scenario


def _node(draw: random.Random, name: str) -> Node:
    labels = {"kubernetes.io/hostname": name, "zone": draw.choice("ab"), "disk": draw.choice(("ssd", "hdd"))}
    amounts = {
        "cpu": CPU_STEP * draw.randint(2, 6),
        "memory": MEMORY_STEP * draw.randint(2, 8),
        "pods": draw.choice((110, 110, 3)),
    }
    return Node(
        name,
        name,
        tuple(sorted(labels.items())),
        taints=tuple(taint for taint in _TAINTS if draw.random() < 0.25),
        unschedulable=draw.random() < 0.2,
        allocatable=tuple(sorted(amounts.items())),
    )


def _pod(draw: random.Random, name: str, *, running: bool) -> Pod:
    requests = {"cpu": CPU_STEP * draw.randint(1, 5), "memory": MEMORY_STEP * draw.randint(0, 5)}
    selector = ()
    tolerations: tuple[Toleration, ...] = ()
    rules = None
    if not running:
        if draw.random() < 0.3:
            selector = (("disk", draw.choice(("ssd", "nvme"))),)
        if draw.random() < 0.2:
            tolerations = (Toleration("gpu", "Exists"),)
        if draw.random() < 0.2:
            term = AffinityTerm(draw.choice(("zone", "kubernetes.io/hostname")), _WEB, ("default",))
            rules = InterPodConstraints(anti_affinity=(term,))
    pod_class = PodClass(
        tuple(sorted((resource, amount) for resource, amount in requests.items() if amount)),
        node_selector=selector,
        tolerations=tolerations,
        priority=draw.choice(_PRIORITIES),
    )
    return Pod(
        "default",
        name,
        name,
        pod_class,
        labels=(("app", draw.choice(("web", "db"))),),
        created=NOW - 1000 - draw.randint(0, 100),
        usage=pod_class.requests,
        constraints=rules,
        owner=draw.choice(("set", "set", "")) if running else "",
    )


def _on(pod: Pod, node: str) -> Pod:
    return replace(pod, node_name=node, started=NOW - 900)


def every_change(scenario: Scenario, pod: Pod) -> Iterator[Change]:
    """Every single change of a small cluster that may place a waiting pod."""
    cluster, key = scenario.cluster, pod.key
    running = [each.key for each in scenario.running()]
    yield from (Tolerate(key, taint.key, taint.value, taint.effect) for taint in _TAINTS)
    for node in cluster.nodes.values():
        if node.unschedulable:
            yield Uncordon(node.name)
        yield from (RemoveTaint(node.name, taint.key, taint.effect) for taint in node.taints)
        yield from (AddNodes(count, node.name) for count in (1, 2))
    yield from (DropNodeSelector(key, label) for label, _ in pod.pod_class.node_selector)
    for term in pod.constraints.anti_affinity if pod.constraints is not None else ():
        yield DropPodRules(key, "antiAffinity", term.topology_key)
    for resource, amount in pod.pod_class.requests:
        step = CPU_STEP if resource == "cpu" else MEMORY_STEP
        yield from (Request(key, resource, smaller) for smaller in range(step, amount, step))
    yield from (SetPriority(key, each + 1) for each in set(_PRIORITIES) if each >= pod.pod_class.priority)
    if POLICY in scenario.policies:
        yield from (RaiseCap(POLICY, CAP, value) for value in (2, 3, 4))
    for size in (1, 2):
        yield from (EvictPods(list(chosen)) for chosen in combinations(running, size))
    yield from (MovePod(each, node) for each in running for node in cluster.nodes)


def cheapest(
    scenario: Scenario, plan: ScenarioPlan, pod: Pod, *, pairs: bool = False
) -> tuple[Rank, tuple[Change, ...]] | None:
    """The cheapest of all single changes, or of all pairs of them, that place a pod; None: none does.

    A move that puts a pod where it does not fit is no fix, and who has no controller does not move.
    """
    singles = [
        each
        for each in every_change(scenario, pod)
        if not isinstance(each, MovePod) or _may_move(scenario, plan.result.after, each)
    ]
    replanning = Replanning(scenario, plan, AnswerContext(NOW), 10**9)
    best: tuple[Rank, tuple[Change, ...]] | None = None
    for changes in combinations(singles, 2) if pairs else ((each,) for each in singles):
        outcome = replanning.outcome(changes)
        if outcome is None or pod.key not in outcome.places or bool((outcome.plan.result.after.free < 0).any()):
            continue
        found = rank(scenario, [pod], changes, outcome)
        if best is None or found < best[0]:
            best = found, changes
    return best


def _may_move(scenario: Scenario, after: Snapshot, change: MovePod) -> bool:
    """Whether filters take a running pod on another node, once it has left its own."""
    moved, governed = scenario.cluster.pods[change.pod], GovernedScenario(scenario)
    if not moved.owner or moved.node_name == change.node:
        return False
    room = without_pods(after, [Leaver.of_bound(moved, moved.signature)])
    signature = with_policy_constraints(moved.signature, governed.policy_of(moved))
    fits = run_filters(moved.pod_class, room, signature).fits
    return bool(fits[after.table.index[change.node]])
