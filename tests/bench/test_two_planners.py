"""The judges of bench/two_planners.py: what they find wrong with a plan, and which of two plans is better."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from harness.recorded.objects import Cluster, NotJudged
from harness.recorded.planners import Leaver, Plan, PlannerProcess
from harness.recorded.rounds import RecordedRound, recorded_rounds
from harness.recorded.safety import problems
from harness.recorded.verdicts import Comparison, judge

Object = dict[str, Any]
MOMENT, BEFORE = "2026-11-29T12:00:00Z", "2026-11-29T10:00:00Z"
HOST = "kubernetes.io/hostname"


def node(name: str, cpu: int, *, pods: int = 10, taint: str = "") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, "zone": name[-1]}},
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {},
        "status": {"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": str(pods)}},
    }


def pod(name: str, cpu: int, on: str = "", priority: int = 0, gang: int = 0, **spec: Any) -> Object:
    """A pod of the app that its name begins with; ``gang``: how many of the app are needed."""
    app = name.partition("-")[0]
    notes = {"scheduling.thalweg/gang": app, "scheduling.thalweg/gang-min-member": str(gang)}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
    container = {"name": "main", "resources": {"requests": {"cpu": str(cpu), "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": BEFORE if on else MOMENT,
            "labels": {"app": app},
            "annotations": notes if gang else {},
            "ownerReferences": [owner],
        },
        "spec": {"containers": [container], "schedulerName": "thalweg", "priority": priority}
        | ({"nodeName": on} if on else {})
        | spec,
        "status": {"phase": "Running", "startTime": BEFORE} if on else {"phase": "Pending"},
    }


def policy(**spec: Any) -> Object:
    spec = {"selects": {"schedulerNames": ["thalweg"]}, "cost": {"weights": {"balance": 0}}} | spec
    return {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "recorded"},
        "spec": spec,
    }


def budget(app: str, allowed: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
    }


def of(*objects: Object, **spec: Any) -> RecordedRound:
    return RecordedRound("a round", "a family", MOMENT, (policy(**spec), *objects))


def plan(placed: Mapping[str, str], *leavers: Leaver, waiting: tuple[str, ...] = (), **more: Any) -> Plan:
    """A plan; names without a namespace. Who leaves for a pod is its victim."""
    victims = {
        f"default/{name}": tuple(each.pod for each in leavers if f"default/{name}" in each.beneficiaries)
        for name in placed
    }
    left = tuple(f"default/{name}" for name in waiting)
    return Plan({f"default/{name}": at for name, at in placed.items()}, victims, left, leavers, **more)


def leaves(name: str, for_whom: str, kind: str = "Preemption", to: str = "", **more: Any) -> Leaver:
    return Leaver(f"default/{name}", kind, (f"default/{for_whom}",) if for_whom else (), to, **more)


def own(kind: str, key: str) -> Object:
    """A rule about the pods of app `w`."""
    term = {"labelSelector": {"matchLabels": {"app": "w"}}, "topologyKey": key}
    if kind == "spread":
        return {"topologySpreadConstraints": [term | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


TWO = (node("a", 4), node("b", 4))
FULL = (node("a", 4), pod("r-0", 4, "a"), pod("w-0", 4, priority=10))
ACT = {"rescheduling": {"mode": "Act"}}
PORT = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
#: What is wrong -> a round, a plan that is right, one that is not, and what is said of it.
FAULTS: dict[str, tuple[RecordedRound, Plan, Plan, str]] = {
    "an overcommitted node": (
        of(*TWO, pod("w-0", 3), pod("w-1", 3)),
        plan({"w-0": "a", "w-1": "b"}),
        plan({"w-0": "a", "w-1": "a"}),
        "a gives 6 of cpu and has 4",
    ),
    "too many pods": (
        of(node("a", 4, pods=1), node("b", 4), pod("w-0", 1), pod("w-1", 1)),
        plan({"w-0": "a", "w-1": "b"}),
        plan({"w-0": "a", "w-1": "a"}),
        "a gives 2 of pods and has 1",
    ),
    "a host port": (
        of(*TWO, pod("w-0", 1, **PORT), pod("w-1", 1, **PORT)),
        plan({"w-0": "a", "w-1": "b"}),
        plan({"w-0": "a", "w-1": "a"}),
        "another pod has its host port",
    ),
    "a taint": (
        of(node("a", 4, taint="dedicated"), node("b", 4), pod("w-0", 1)),
        plan({"w-0": "b"}),
        plan({"w-0": "a"}),
        "may not use a",
    ),
    "a node selector": (
        of(*TWO, pod("w-0", 1, nodeSelector={"zone": "b"})),
        plan({"w-0": "b"}),
        plan({"w-0": "a"}),
        "may not use a",
    ),
    "anti-affinity": (
        of(*TWO, pod("w-0", 1, **own("podAntiAffinity", HOST)), pod("w-1", 1)),
        plan({"w-0": "a", "w-1": "b"}),
        plan({"w-0": "a", "w-1": "a"}),
        "must not both be in a",
    ),
    "affinity": (
        of(*TWO, pod("w-0", 1, "a"), pod("x-0", 1, **own("podAffinity", HOST))),
        plan({"x-0": "a"}),
        plan({"x-0": "b"}),
        "without the pods that it must be near",
    ),
    "spread": (
        of(*TWO, pod("w-0", 1, **own("spread", "zone")), pod("w-1", 1, **own("spread", "zone"))),
        plan({"w-0": "a", "w-1": "b"}),
        plan({"w-0": "a", "w-1": "a"}),
        "zone a has 2, and others have less",
    ),
    "a broken gang": (
        of(*TWO, *(pod(f"w-{at}", 2, gang=3) for at in range(3))),
        plan({"w-0": "a", "w-1": "a", "w-2": "b"}),
        plan({"w-0": "a", "w-1": "a"}, waiting=("w-2",)),
        "gang default/w is not whole: 2 of 3",
    ),
    "a pod that is forgotten": (
        of(*TWO, pod("w-0", 1)),
        plan({}, waiting=("w-0",)),
        plan({}),
        "default/w-0 is in the plan 0 times",
    ),
    "a victim of a higher priority": (
        of(*FULL, node("b", 4), pod("r-1", 4, "b", priority=20)),
        plan({"w-0": "a"}, leaves("r-0", "w-0")),
        plan({"w-0": "b"}, leaves("r-1", "w-0")),
        "default/r-1 of priority 20 leaves for default/w-0 of 10",
    ),
    "a victim in vain": (
        of(*FULL, node("b", 4)),
        plan({"w-0": "b"}),
        plan({"w-0": "b"}, leaves("r-0", "w-0")),
        "default/r-0 leaves in vain",
    ),
    "a budget": (
        of(*FULL, budget("r", 0)),
        plan({}, waiting=("w-0",)),
        plan({"w-0": "a"}, leaves("r-0", "w-0")),
        "PodDisruptionBudget r loses 1 and allows 0",
    ),
    "a pod that may evict nobody": (
        of(*FULL[:2], pod("w-0", 4, priority=10, preemptionPolicy="Never")),
        plan({}, waiting=("w-0",)),
        plan({"w-0": "a"}, leaves("r-0", "w-0")),
        "may evict nobody",
    ),
    "a gang that leaves in part": (
        of(node("a", 4), pod("r-0", 2, "a", gang=2), pod("r-1", 2, "a", gang=2), pod("w-0", 4, priority=10)),
        plan({"w-0": "a"}, leaves("r-0", "w-0"), leaves("r-1", "w-0")),
        plan({"w-0": "a"}, leaves("r-0", "w-0")),
        "gang default/r keeps 1 pods, which is not whole",
    ),
    "a move that no policy allows": (
        of(*FULL, node("b", 4)),
        plan({"w-0": "b"}),
        plan({"w-0": "a"}, leaves("r-0", "w-0", "Migration", "b")),
        "no policy moves them",
    ),
    "a move without room first": (
        of(*TWO, node("c", 2), pod("r-0", 2, "a"), pod("x-0", 3, "b"), pod("w-0", 4), **ACT),
        plan({"w-0": "a"}, leaves("r-0", "w-0", "Migration", "c")),
        plan({"w-0": "a"}, leaves("r-0", "w-0", "Migration", "b")),
        "now: b gives 5 of cpu and has 4",
    ),
    "more moves than a policy allows": (
        of(*TWO, pod("r-0", 1, "a"), pod("r-1", 1, "a"), pod("w-0", 4),
           rescheduling={"mode": "Act", "limits": {"perRound": 1}}),
        plan({"w-0": "b"}),
        plan({"w-0": "a"}, *(leaves(f"r-{at}", "w-0", "Migration", "b") for at in (0, 1))),
        "2 moves perRound",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    """The judge has nothing to say of the right plan, and names what is wrong with the other."""
    this, right, wrong, told = FAULTS[fault]
    cluster = Cluster.of(this)
    assert problems(cluster, right) == []
    assert told in "; ".join(problems(cluster, wrong))


def test_spread_counts_pods_on_nodes_that_the_pod_may_use() -> None:
    """Others are in no domain for it (nodeAffinityPolicy: Honor)."""
    term = {"key": HOST, "operator": "NotIn", "values": ["xa"]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [term]}]}}}  # fmt: skip
    spread = own("spread", "zone") | {"affinity": affinity}
    nodes = (node("xa", 4), node("ya", 4), node("b", 4))
    running = (pod("w-0", 1, "xa"), pod("w-1", 1, "ya"), pod("w-2", 1, "b"))
    cluster = Cluster.of(of(*nodes, *running, pod("w-3", 1, **spread), pod("w-4", 1, **spread)))
    assert problems(cluster, plan({"w-3": "ya", "w-4": "b"})) == []
    assert problems(cluster, plan({"w-3": "ya"}, waiting=("w-4",))) == []
    wrong = problems(cluster, plan({"w-3": "ya", "w-4": "ya"}))
    assert "zone a has 3, and others have less" in "; ".join(wrong)


def test_a_limit_of_a_queue() -> None:
    """What the pods of a queue use is counted over the cluster."""
    selects = {"namespaceSelector": {"matchLabels": {"team": "red"}}}
    queue = {
        "apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowQueue", "metadata": {"name": "red"},
        "spec": {"limit": {"cpu": "3"}, "selects": selects},
    }  # fmt: skip
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "red"}}}
    cluster = Cluster.of(of(*TWO, queue, space, pod("w-0", 2), pod("w-1", 2)))
    assert problems(cluster, plan({"w-0": "a"}, waiting=("w-1",))) == []
    wrong = problems(cluster, plan({"w-0": "a", "w-1": "b"}))
    assert "queue red uses 4 of cpu, and its limit is 3" in wrong


def test_what_no_judge_knows_is_refused() -> None:
    """Else a rule would go unjudged."""
    with pytest.raises(NotJudged, match="volumes"):
        Cluster.of(of(*TWO, pod("w-0", 1, volumes=[])))


# -- which plan is better ----------------------------------------------------------------------------------------------


def test_a_pod_more_that_waits_breaks_a_rule() -> None:
    """It counts at its level, and the round is listed."""
    this = of(*TWO, pod("w-0", 3), pod("w-1", 3))
    both, one = plan({"w-0": "a", "w-1": "b"}), plan({"w-0": "a"}, waiting=("w-1",))
    comparison = Comparison()
    comparison.add(this, both, one)
    assert comparison.broken_rules() == ["in 1 rounds more pods have no node; there may be none"]
    assert [(each.name, each.why) for each in comparison.worse] == [("a round", "pods without a node")]
    assert judge(this, one, both).by_new_key == 1


def test_a_plan_that_is_not_safe_breaks_a_rule() -> None:
    """Whatever it places."""
    this, right, wrong, _ = FAULTS["an overcommitted node"]
    comparison = Comparison()
    comparison.add(this, right, wrong)
    assert comparison.broken_rules()[0] == "1 plans are not safe; none may be"
    assert comparison.total.unsafe_old == 0


def test_dear_rounds_break_a_rule() -> None:
    """Where all else is equal, at most one in a hundred may be dearer."""
    this = of(*TWO, pod("w-0", 2), pod("w-1", 2))
    apart, together = plan({"w-0": "a", "w-1": "b"}), plan({"w-0": "a", "w-1": "a"})
    few = Comparison()
    for number in range(100):
        few.add(this, apart, together if not number else apart)
    assert few.broken_rules() == []
    few.add(this, apart, together)
    assert few.broken_rules() == ["2 of 101 rounds are dearer by over 0.2%; 1% may be"]
    assert judge(this, together, apart).by_new_key == 1


def test_interference_has_a_price() -> None:
    """What kinds cost beside each other is counted both ways."""
    kinds = [{"name": each, "pods": {"matchLabels": {"app": each}}} for each in "wx"]
    beside = [{"kind": "w", "beside": "x", "penalty": 900}, {"kind": "x", "beside": "w", "penalty": 50}]
    cost = {"kinds": kinds, "interference": {"penalties": beside}}
    this = of(node("a", 40), node("b", 1), pod("w-0", 1), pod("x-0", 1), cost=cost)
    quiet = of(node("a", 40), node("b", 1), pod("w-0", 1), pod("x-0", 1))
    apart, together = plan({"w-0": "a", "x-0": "b"}), plan({"w-0": "a", "x-0": "a"})
    assert judge(quiet, apart, together).by_new_key == 1
    assert judge(this, apart, together).by_new_key == -1


def test_a_victim_waits_at_its_level() -> None:
    """By the one key: the old one counted only who waited. With a new node a victim is not lost."""
    this = of(*FULL, node("b", 2), pod("x-0", 2, "b"), **ACT)
    stays, leaving = plan({}, waiting=("w-0",)), plan({"w-0": "a"}, leaves("r-0", "w-0"))
    assert judge(this, stays, leaving).by_new_key == 1  # the higher level decides
    roomy = of(*FULL, node("b", 4), **ACT)
    moved = plan({"w-0": "a"}, leaves("r-0", "w-0", "Migration", "b"))
    verdict = judge(roomy, moved, leaving)
    assert (verdict.by_new_key, verdict.why, verdict.more_wait) == (-1, "pods without a node", True)
    assert judge(roomy, moved, plan({"w-0": "b"})).why == "moves"


# -- planners and rounds -----------------------------------------------------------------------------------------------


def test_a_planner_plans_round_after_round() -> None:
    """One process, by the command that every version has; the judges find nothing wrong."""
    this, right, _, _ = FAULTS["a broken gang"]
    with PlannerProcess(sys.executable) as planner:
        comparison = Comparison()
        for each in (this, of(*FULL)):
            found = planner.plan(each)
            comparison.add(each, found, replace(found))
        assert set(planner.plan(this).placed) == set(right.placed)
    assert (comparison.total.rounds, comparison.total.equal, comparison.worse) == (2, 2, [])


def test_the_recorded_rounds_can_be_judged() -> None:
    """There are 400, each with its name, and each is known to the judges. No policy has a field that leaves."""
    rounds = list(recorded_rounds())
    assert len({each.name for each in rounds}) == len(rounds) == 400
    for each in rounds:
        cluster = Cluster.of(each)
        assert cluster.waiting or cluster.running
        assert cluster.policy["cost"].keys() <= {"weights", "kinds", "interference"}
        assert "perStrandedGPU" not in cluster.policy.get("rescheduling", {})


def test_a_search_may_find_the_same_victims_twice() -> None:
    """They are as good as each other: a round in which a search did so ended with an error."""
    (chosen,) = [each for each in recorded_rounds() if each.name == "tens of nodes: moves, urgent, budgets, seed 3"]
    with PlannerProcess(sys.executable) as planner:
        assert planner.plan(chosen).placed
