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
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import Pod, PodClass, Toleration
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
    return replace(pod, node_name=node, pod_class=replace(pod.pod_class, node_name=node), started=NOW - 900)


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
    fits = run_filters(replace(moved.pod_class, node_name=""), room, signature).fits
    return bool(fits[after.table.index[change.node]])
