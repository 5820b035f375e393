"""The cheapest changes that would place a waiting pod."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.profiles import examples, is_quick
from support.small_fixes import CONTROL_PLANE, CPU_STEP, NOW, cheapest, draw_ruled_scenario, draw_scenario

from flowcore.cluster.cluster import Cluster
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.constraints import Conflict
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.policies import Policy, Selects
from flowcore.model.queues import Queue
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement
from flowcore.questions.diagnosis.answers import Fix
from flowcore.questions.diagnosis.fixes import find_fixes
from flowcore.questions.diagnosis.fixes.ranking import Rank, rank
from flowcore.questions.scenario import GovernedScenario, Scenario, ScenarioPlan, plan_scenario
from flowcore.questions.scenario.alternatives.replanning import Replanning
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.apply_changes import applied
from flowcore.questions.scenario.hypothetical.changes import (
    AddNodes,
    Change,
    DropNodeSelector,
    DropPodRules,
    EvictPods,
    HonorTaints,
    MovePod,
    RaiseCap,
    RaiseQueueLimit,
    RemoveTaint,
    Request,
    SetPriority,
    Tolerate,
    Uncordon,
)
from flowcore.rules.filters import run_filters

CONTEXT = AnswerContext(NOW)
DB = Taint("dedicated", "db", "NoSchedule")
WEB = (("app", "web"),)
HOSTNAME = "kubernetes.io/hostname"
#: Taints of nodes that no fix opens to pods that ask for no GPU.
CLOSED = (CONTROL_PLANE.key, "nvidia.com/gpu")


def node(name: str, cpu: int = 4000, **fields: Any) -> Node:
    labels = ((HOSTNAME, name), *fields.pop("labels", ()))
    allocatable = tuple(sorted({"cpu": cpu, "memory": 2**34, "pods": 110, **fields.pop("more", {})}.items()))
    return Node(name, name, labels, allocatable=allocatable, **fields)


def pod(name: str, cpu: int = 1000, *, on: str = "", namespace: str = "default", owner: str = "", labels: Any = (),
        constraints: InterPodConstraints | None = None, gang: GangRef | None = None, more: Any = None,
        **fields: Any) -> Pod:  # fmt: skip
    """A pod; further words are fields of PodClass."""
    requests = tuple(sorted({"cpu": cpu, **(more or {})}.items()))
    pod_class = PodClass(requests, **fields)
    return Pod(namespace, name, name, pod_class, labels, node_name=on, created=NOW - 100, usage=requests, owner=owner,
               started=NOW - 90 if on else 0.0, constraints=constraints, gang=gang)  # fmt: skip


def scenario(*objects: Node | Pod, policies: tuple[Policy, ...] = ()) -> Scenario:
    cluster = Cluster()
    for each in objects:
        if isinstance(each, Node):
            cluster.put_node(each)
        else:
            cluster.set_namespace(each.namespace, ())
            cluster.put_pod(each)
    return Scenario(cluster, {policy.name: policy for policy in policies})


def fixes(this: Scenario, *keys: str, context: AnswerContext = CONTEXT, **limits: int) -> list[Fix]:
    plan = plan_scenario(this, NOW)
    return find_fixes(this, plan, keys or ("default/w",), context, **limits)


def changes(found: list[Fix]) -> list[list[object]]:
    return [fix.change for fix in found]


def ranked(this: Scenario, plan: ScenarioPlan, waiting: Pod, these: Sequence[Change]) -> Rank:
    """The rank of changes that are planned anew."""
    outcome = Replanning(this, plan, CONTEXT, 1).outcome(these)
    assert outcome is not None
    return rank(this, [waiting], these, outcome)


# -- against every change of small clusters ----------------------------------------------------------------------------


def nodes_after(this: Scenario, plan: ScenarioPlan) -> dict[str, str]:
    """Where each pod is after a plan, counted anew: not as the search counts it."""
    gone = {eviction.pod.key: eviction.to for eviction in plan.result.evictions}
    found = {key: pod.node_name for key, pod in this.cluster.pods.items() if pod.node_name and key not in gone}
    found |= {key: to for key, to in gone.items() if to}
    return found | {placement.pod.key: placement.node for placement in plan.result.placements}


def evicted(fix: Fix) -> set[str]:
    """Keys of the pods that a fix evicts."""
    return {key for change in fix.change if isinstance(change, EvictPods) for key in change.pods}


@pytest.mark.parametrize("draw", [draw_scenario, draw_ruled_scenario])
@settings(max_examples=examples(15))
@given(seed=st.integers(0, 10_000))
def test_every_fix_places_the_pod_and_names_exactly_who_loses(draw: Callable[[int], Scenario], seed: int) -> None:
    """Each fix is made and planned here once more: the pod has a node, `places`, `loses` and `moves` are right."""
    this = draw(seed)
    plan = plan_scenario(this, NOW)
    before = nodes_after(this, plan)
    waiting = set(this.cluster.waiting)
    running = {key: pod.node_name for key, pod in this.cluster.pods.items() if pod.node_name}
    for unplaced in plan.result.unplaced:
        key = unplaced.pod.key
        for fix in find_fixes(this, plan, [key], CONTEXT):
            with applied(this, fix.change, CONTEXT):
                after = nodes_after(this, plan_scenario(this, NOW))
            for each in evicted(fix) & {each.key for each in this.cluster.pods.values() if not each.owner}:
                after.pop(each, None)  # it is planned, and nobody creates it anew
            assert key in after
            assert not any(isinstance(each, Tolerate | RemoveTaint) and each.key in CLOSED for each in fix.change)
            assert set(fix.places) == (after.keys() - before.keys()) & waiting
            assert set(fix.loses) == before.keys() - after.keys()
            stayed = {each for each in running if before.get(each) == running[each]}
            assert set(fix.moves) == {each for each in stayed & after.keys() if after[each] != running[each]}


def test_the_cheapest_fix_is_mostly_found() -> None:
    """Every single change of some clusters is planned: nine times in ten no change is cheaper than the first fix."""
    cheaper, pods = [], 0
    for seed in range(6 if is_quick() else 20):
        this = draw_scenario(seed)
        plan = plan_scenario(this, NOW)
        for unplaced in plan.result.unplaced[:1]:
            waiting = this.cluster.waiting[unplaced.pod.key]
            truth = cheapest(this, plan, waiting)
            if truth is None:
                continue
            pods += 1
            found = find_fixes(this, plan, [waiting.key], CONTEXT)
            if not found or truth[0] < ranked(this, plan, waiting, found[0].change):
                cheaper.append((seed, truth))
    assert pods >= (2 if is_quick() else 5)
    assert len(cheaper) <= max(1, pods // 10), cheaper


@given(st.integers(0, 10_000))
@settings(max_examples=examples(15))
def test_the_amount_to_ask_for_is_exact(seed: int) -> None:
    """With one unit more of the resource no node would take the pod beside the plan."""
    this = draw_scenario(seed)
    plan = plan_scenario(this, NOW)
    governed = GovernedScenario(this)
    for unplaced in plan.result.unplaced:
        pod = this.cluster.waiting[unplaced.pod.key]
        for fix in find_fixes(this, plan, [pod.key], CONTEXT):
            if len(fix.change) == 1 and isinstance(fix.change[0], Request):
                change = fix.change[0]
                requests = {**dict(pod.pod_class.requests), change.resource: change.amount + 1}
                assert requests[change.resource] <= dict(pod.pod_class.requests)[change.resource]
                larger = replace(pod.pod_class, requests=tuple(sorted(requests.items())))
                signature = with_policy_constraints(pod.signature, governed.policy_of(pod))
                assert not run_filters(larger, plan.result.after, signature).fits.any()


def test_the_search_leaves_the_scenario_as_it_was() -> None:
    """The same plan comes out afterwards, pod by pod."""
    this = draw_scenario(68)
    before = plan_scenario(this, NOW)
    order = list(this.cluster.pods), list(this.cluster.waiting), list(this.cluster.nodes)
    find_fixes(this, before, list(this.cluster.waiting), CONTEXT)
    after = plan_scenario(this, NOW)
    assert (list(this.cluster.pods), list(this.cluster.waiting), list(this.cluster.nodes)) == order
    assert after.result.placements == before.result.placements
    assert after.result.unplaced == before.result.unplaced


# -- one sort of change each -------------------------------------------------------------------------------------------


def test_a_taint_is_tolerated_or_removed() -> None:
    """Tolerating changes one pod; removing the taint opens the node to all, so it comes later."""
    found = fixes(scenario(node("a", taints=(DB,)), pod("w")))
    assert changes(found)[:2] == [
        [Tolerate("default/w", "dedicated", "db", "NoSchedule")],
        [RemoveTaint("a", "dedicated", "NoSchedule")],
    ]
    assert found[0].text == "Tolerate the taint dedicated=db:NoSchedule: nobody loses a place."
    assert found[0].places == ["default/w"]


def test_a_cordoned_node_is_uncordoned() -> None:
    """A cordon is a field of the node and a taint; both go."""
    cordon = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    found = fixes(scenario(node("a", unschedulable=True, taints=(cordon,)), pod("w")))
    assert changes(found)[0] == [Uncordon("a")]


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/not-ready",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "ToBeDeletedByClusterAutoscaler",
        "startup-taint.cluster-autoscaler.kubernetes.io/driver",
        "karpenter.sh/disrupted",
        "node.cilium.io/agent-not-ready",
    ],
)
def test_no_state_of_a_node_is_tolerated(key: str) -> None:
    """A node that is not ready, or that an autoscaler takes away, is no place to go to: only a new node helps."""
    broken = Taint(key, "", "NoSchedule")
    assert changes(fixes(scenario(node("a", taints=(broken,)), pod("w")))) == [[AddNodes(1, "a")]]


@pytest.mark.parametrize(
    "asked",
    [
        {"node_selector": (("disk", "ssd"),)},
        {"required_affinity": (NodeSelectorTerm((Requirement("disk", "In", ("ssd",)),)),)},
    ],
)
def test_a_label_is_required_no_more(asked: dict[str, Any]) -> None:
    """By the node selector, and by required node affinity."""
    found = fixes(scenario(node("a"), pod("w", **asked)))
    assert changes(found) == [[DropNodeSelector("default/w", "disk")]]


def test_a_rule_about_other_pods_is_dropped() -> None:
    """Anti-affinity to a pod that runs on the only node: without the rule, or with a second node, it fits."""
    term = AffinityTerm(HOSTNAME, LabelSelector((Requirement("app", "In", ("web",)),)), ("default",))
    waiting = pod("w", constraints=InterPodConstraints(anti_affinity=(term,)))
    found = fixes(scenario(node("a"), pod("r", on="a", labels=WEB), waiting))
    assert [DropPodRules("default/w", "antiAffinity", HOSTNAME)] in changes(found)
    assert [AddNodes(1, "a")] in changes(found)


def test_a_cap_is_raised_by_as_much_as_is_needed() -> None:
    """Two pods are in each domain at most, two are there: three suffice."""
    cap = Conflict("few", LabelSelector((Requirement("app", "In", ("web",)),)), HOSTNAME, 2)
    policy = Policy("p", selects=Selects(("default-scheduler",)), constraints=(cap,))
    there = [pod(f"r{at}", 100, on="a", labels=WEB) for at in range(2)]
    found = fixes(scenario(node("a"), *there, pod("w", labels=WEB), policies=(policy,)))
    assert changes(found)[0] == [RaiseCap("p", "few", 3)]


def test_a_queue_limit_is_raised_by_as_much_as_is_needed() -> None:
    """Two cores are used of the queue's two; the waiting pod asks for one more."""
    this = scenario(node("a"), pod("r", 2000, on="a"), pod("w", 1000))
    this.cluster.queues.put("team", Queue("team", limit=(("cpu", 2000),), pods=LabelSelector()))
    found = fixes(this)
    assert changes(found)[0] == [RaiseQueueLimit("team", "cpu", 3000)]
    assert found[0].text == "Raise the limit of FlowQueue team to 3 of cpu: nobody loses a place."


def test_a_running_pod_moves_where_it_fits_elsewhere() -> None:
    """Nobody loses a place by it, and one pod is disturbed."""
    this = scenario(node("a"), node("b", 1000), pod("r", 1000, on="a", owner="set"), pod("w", 4000))
    found = {type(fix.change[0]): fix for fix in fixes(this, limit=9)}
    assert found[MovePod].change == [MovePod("default/r", "b")]
    assert (found[MovePod].loses, found[MovePod].moves) == ([], ["default/r"])


def test_a_host_port_is_freed_by_a_move() -> None:
    """The pod that holds the port moves to a node where the waiting pod does not fit."""
    port = (HostPort("0.0.0.0", "TCP", 80),)  # noqa: S104 - a value
    this = scenario(node("a"), node("b", 1000), pod("r", on="a", owner="set", host_ports=port),
                    pod("w", 2000, host_ports=port))  # fmt: skip
    assert [MovePod("default/r", "b")] in changes(fixes(this, limit=9))


def test_a_move_frees_a_pod_slot() -> None:
    """The node has room in all but its number of pods."""
    this = scenario(node("a", more={"pods": 1}), node("b", 500), pod("r", 500, on="a", owner="set"), pod("w", 2000))
    assert changes(fixes(this))[0] == [MovePod("default/r", "b")]


def test_a_move_out_of_the_way_of_a_rule() -> None:
    """Anti-affinity, of the waiting pod or of the one that runs, by node; and by zone, also to a third node."""
    term = AffinityTerm(HOSTNAME, LabelSelector((Requirement("app", "In", ("web",)),)), ("default",))
    apart = InterPodConstraints(anti_affinity=(term,))
    small = node("b", 500)
    for there, waiting in (
        (pod("r", 500, on="a", owner="set", labels=WEB), pod("w", 2000, constraints=apart)),
        (pod("r", 500, on="a", owner="set", constraints=apart), pod("w", 2000, labels=WEB)),
    ):
        assert changes(fixes(scenario(node("a"), small, there, waiting)))[0] == [MovePod("default/r", "b")]
    zone = "topology.kubernetes.io/zone"
    by_zone = InterPodConstraints(anti_affinity=(replace(term, topology_key=zone),))
    nodes = [node("a1", labels=((zone, "a"),)), node("a2", 500, labels=((zone, "a"),)),
             node("b", 500, labels=((zone, "b"),))]  # fmt: skip
    there = pod("r", 500, on="a2", owner="set", labels=WEB)
    found = fixes(scenario(*nodes, there, pod("w", 2000, constraints=by_zone)))
    assert changes(found)[0] == [MovePod("default/r", "b")]


def test_a_pod_that_may_not_move_is_not_moved() -> None:
    """One without a controller, one that its annotation keeps, one of a gang; and none to where rules forbid it."""
    waiting = pod("w", 4000)
    assert MovePod not in {type(each[0]) for each in changes(fixes(
        scenario(node("a"), node("b", 1000), pod("r", 1000, on="a"), waiting), limit=9))}  # fmt: skip
    kept = replace(pod("r", 1000, on="a", owner="set"), immovable_reason="its annotation says so")
    assert MovePod not in {type(each[0]) for each in changes(fixes(
        scenario(node("a"), node("b", 1000), kept, waiting), limit=9))}  # fmt: skip


def test_the_cheapest_for_people_comes_first() -> None:
    """Uncordon, then move, then ask for less, then rules, then nodes, then the pools of others, then priority."""
    cordoned = node("cordoned", unschedulable=True)
    objects = (node("a"), cordoned, node("b", 1000), node("db", taints=(DB,)),
               pod("r", 1000, on="a", owner="set", priority=1), pod("w", 4000))  # fmt: skip
    found = [type(fix.change[0]) for fix in fixes(scenario(*objects), limit=9)]
    order = [Uncordon, MovePod, Request, DropNodeSelector, AddNodes, Tolerate, SetPriority]
    assert [each for each in found if each in order] == [each for each in order if each in found]
    assert found[:3] == [Uncordon, MovePod, Request]
    assert {AddNodes, Tolerate} <= set(found)


@pytest.mark.parametrize("role", ["control-plane", "master"])
def test_the_control_plane_is_no_place_for_pods_of_users(role: str) -> None:
    """Neither is its taint tolerated by a fix, nor taken off."""
    taint = Taint(f"node-role.kubernetes.io/{role}", "", "NoSchedule")
    found = fixes(scenario(node("cp", taints=(taint,)), node("a", 500), pod("w", 1000)), limit=9)
    assert found
    assert not {Tolerate, RemoveTaint} & {type(each) for fix in found for each in fix.change}


def test_nodes_with_gpus_are_for_who_asks_for_gpus() -> None:
    """A pod that asks for none is not let in; one that asks for a GPU tolerates the taint."""
    gpu = {"nvidia.com/gpu": 4}
    key = Taint("nvidia.com/gpu", "present", "NoSchedule")
    pool = Taint("pool", "gpu", "NoSchedule")
    for taint in (key, pool):
        nodes = (node("g", taints=(taint,), more=gpu), node("a", 500))
        found = fixes(scenario(*nodes, pod("w", 2000)), limit=9)
        assert not {Tolerate, RemoveTaint} & {type(each) for fix in found for each in fix.change}
        found = fixes(scenario(*nodes, pod("w", 2000, more={"nvidia.com/gpu": 1})))
        assert changes(found)[0] == [Tolerate("default/w", taint.key, taint.value, "NoSchedule")]


def test_tainted_nodes_that_spread_counts_in_vain() -> None:
    """Spread over zones of which one is tainted: to honor taints is gentler than to drop the rule, and comes first."""
    zone = "zone"
    spread = SpreadConstraint(zone, 1, LabelSelector((Requirement("app", "In", ("web",)),)))
    nodes = (node("a", labels=((zone, "a"),)), node("b", labels=((zone, "b"),), taints=(DB,)))
    this = scenario(*nodes, pod("r", 500, on="a", labels=WEB),
                    pod("w", 500, labels=WEB, constraints=InterPodConstraints(spread=(spread,))))  # fmt: skip
    found = fixes(this, limit=9)
    honors, drops = [HonorTaints("default/w", zone)], [DropPodRules("default/w", "spread", zone)]
    assert changes(found).index(honors) < changes(found).index(drops)
    text = next(fix.text for fix in found if fix.change == honors)
    assert text == (
        "Count only nodes whose taints it tolerates (nodeTaintsPolicy: Honor) in its topology spread by zone: "
        "nobody loses a place."
    )


def test_a_priority_says_who_loses() -> None:
    """The priority is one above the pod that leaves; those who lose come after those by which nobody does."""
    this = scenario(node("a"), pod("r", 3000, on="a", priority=5), pod("s", 1000, on="a", priority=50), pod("w", 2000))
    found = fixes(this, limit=9)
    by = {type(fix.change[0]): fix for fix in found}
    assert by[SetPriority].change == [SetPriority("default/w", 6)]
    assert by[SetPriority].loses == ["default/r"]
    assert EvictPods not in by, "it would take its place again: it is more important"
    assert by[SetPriority].text == "Give it priority 6, not 0: default/r loses its place."
    assert [bool(fix.loses) for fix in found] == sorted(bool(fix.loses) for fix in found)


def test_the_priority_of_a_group() -> None:
    """Another priority of its pods would do nothing."""
    key = GangKey(GangSource.NATIVE, "default", "train")
    this = scenario(node("a"), pod("r", 3000, on="a", priority=5), pod("w", 2000, gang=GangRef(key), priority=90))
    this.cluster.put_pod_group(PodGroup(key, GangSpec(min_member=1, priority=0)))
    by = {type(fix.change[0]): fix for fix in fixes(this, limit=9)}
    assert by[SetPriority].text == "Give PodGroup default/train priority 6, not 0: default/r loses its place."


def test_an_eviction_that_helps() -> None:
    """The pod that leaves fits on another node, where the waiting pod does not."""
    this = scenario(node("a"), node("b", 1000), pod("r", 1000, on="a", priority=5, owner="web"), pod("w", 4000))
    found = {type(fix.change[0]): fix for fix in fixes(this, limit=9)}
    assert found[EvictPods].change == [EvictPods(["default/r"])]
    assert (found[EvictPods].loses, found[EvictPods].moves) == ([], ["default/r"])


def test_two_changes_where_no_single_one_helps() -> None:
    """The only node is tainted, and smaller than what the pod asks for."""
    found = fixes(scenario(node("a", taints=(DB,)), pod("w", 8000)))
    assert changes(found)[0] == [
        Tolerate("default/w", "dedicated", "db", "NoSchedule"),
        Request("default/w", "cpu", 4000),
    ]


def test_a_rule_and_a_priority_together() -> None:
    """The only node has a taint, and its one GPU is in use: no pod asks for less than one."""
    gpu = {"nvidia.com/gpu": 1}
    this = scenario(node("a", taints=(DB,), more=gpu), pod("r", on="a", priority=5, more=gpu), pod("w", more=gpu))
    found = {tuple(type(each) for each in fix.change): fix for fix in fixes(this)}
    assert found[Tolerate, SetPriority].loses == ["default/r"]
    assert found[Tolerate, AddNodes].loses == []


# -- gangs and workloads -----------------------------------------------------------------------------------------------


def gang(name: str, size: int, cpu: int = 1000) -> list[Pod]:
    ref = GangRef(GangKey(GangSource.THALWEG, "default", name), GangSpec(size))
    return [pod(f"{name}{at}", cpu, gang=ref) for at in range(size)]


def test_labels_that_nobody_asks_about_make_no_shape() -> None:
    """Each node has a label of its own, such as an instance's id; that of the large one is found among many."""
    small = [node(f"a{at}", 500, labels=(("id", str(at)),)) for at in range(70)]
    large = node("big", 8000, labels=(("id", "x"),))
    found = fixes(scenario(*small, large, pod("r", 8000, on="big"), pod("w", 6000)))
    assert [AddNodes(1, "big")] in changes(found)


def test_a_gang_gets_as_few_nodes_as_suffice() -> None:
    """Six pods of a core need two nodes of four, one of which is there: one more suffices."""
    this = scenario(node("a"), *gang("g", 6))
    found = {type(fix.change[0]): fix for fix in fixes(this, *(f"default/g{at}" for at in range(6)))}
    assert found[AddNodes].change == [AddNodes(1, "a")]
    assert found[AddNodes].places == [f"default/g{at}" for at in range(6)]


def test_a_gang_asks_for_less_all_together() -> None:
    """Six pods share four cores: 666 thousandths each, and not one more."""
    this = scenario(node("a"), *gang("g", 6))
    found = {type(fix.change[0]): fix for fix in fixes(this, *(f"default/g{at}" for at in range(6)))}
    assert found[Request].change == [Request(f"default/g{at}", "cpu", 666) for at in range(6)]
    assert found[Request].text == "Ask for 0.666 of cpu, not 1: nobody loses a place."


def test_a_workload_of_which_some_fit() -> None:
    """To uncordon a node costs nobody anything and comes first; then what places all comes before what places some."""
    pods = [pod(f"w{at}", 3000) for at in range(3)]
    this = scenario(node("a"), node("b", unschedulable=True), node("c", 3000, taints=(DB,)), *pods)
    keys = [each.key for each in plan_scenario(this, NOW).result.unplaced for each in (each.pod,)]
    found = fixes(this, *keys, limit=9)
    assert found[0].text == "Uncordon node b: places 1 of 2, nobody loses a place."
    left = [len(set(keys) - set(fix.places)) for fix in found[1:]]
    assert left == sorted(left)


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_an_asker_learns_no_name_that_they_may_not_read() -> None:
    """Neither in a text, nor in a list, nor in a change; the number of losers is told."""
    this = scenario(node("a"), pod("secret", 4000, on="a", namespace="other", priority=1), pod("w", 2000, priority=0))
    own = AnswerContext(NOW, sees=lambda namespace: namespace == "default")
    found = fixes(this, context=own, limit=9)
    assert "secret" not in repr(found)
    by = {type(fix.change[0]): fix for fix in found}
    assert by[SetPriority].loses == []
    assert by[SetPriority].text == "Give it priority 2, not 0: a pod of another namespace loses its place."
    assert ["other/secret" in fix.text for fix in fixes(this, limit=9)].count(True), "who may see all is told"


def test_an_asker_without_nodes_is_offered_no_change_of_a_node() -> None:
    """They could not make it either."""
    this = scenario(node("hidden", taints=(DB,)), pod("w"))
    found = fixes(this, context=AnswerContext(NOW, nodes=False), limit=9)
    assert changes(found) == [[Tolerate("default/w", "dedicated", "db", "NoSchedule")]]
    assert "hidden" not in repr(found)


@pytest.mark.parametrize("keys", [("default/nobody",), ("default/r",), ("default/placed",), ("default/gated",), ("",)])
def test_nothing_is_fixed_where_nothing_is_left_waiting(keys: tuple[str, ...]) -> None:
    """Unknown, running, planned and blocked pods need no fix that a plan could find."""
    gated = replace(pod("gated"), blocked_reason="it has scheduling gates")
    this = scenario(node("a"), pod("r", on="a"), pod("placed"), gated, pod("w", 9000))
    assert fixes(this, *keys) == []


def test_a_cluster_without_nodes_has_no_fix() -> None:
    """There is no shape that a new node could have."""
    assert fixes(scenario(pod("w"))) == []


@pytest.mark.parametrize(("limit", "budget"), [(0, 12), (2, 12), (5, 0), (5, 1)])
def test_limits_are_kept(limit: int, budget: int) -> None:
    """No more fixes than asked for, and no fix without a plan."""
    this = scenario(node("a", taints=(DB,)), node("b", unschedulable=True), pod("w"))
    found = fixes(this, limit=limit, budget_plans=budget)
    assert len(found) <= min(limit, budget)
    assert bool(found) == bool(limit and budget)


def test_the_cheaper_fix_has_the_lower_rank() -> None:
    """First who waits on, then who loses, then who moves, then how much is changed."""
    this = scenario(node("a"), pod("r", 4000, on="a", priority=5), pod("w", 2000))
    plan = plan_scenario(this, NOW)
    waiting = this.cluster.waiting["default/w"]
    add, priority, useless = AddNodes(1, "a"), SetPriority("default/w", 6), Request("default/w", "cpu", CPU_STEP)
    ranks = [ranked(this, plan, waiting, [change]) for change in (add, priority, useless)]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == 3


def test_the_search_ends_with_the_patience_of_the_asker() -> None:
    """What was found by then is offered; without any patience no plan is made."""
    this = scenario(node("a", taints=(DB,)), node("b", 500), pod("w", 1000))
    everything = fixes(this)
    asked: list[int] = []
    for plans in range(len(everything) + 1):
        asked.clear()

        def patient(plans: int = plans) -> bool:
            asked.append(1)
            return len(asked) <= plans

        found = fixes(this, context=AnswerContext(NOW, patient=patient))
        assert len(found) <= plans
        assert all(fix in everything for fix in found)
        assert bool(found) == bool(plans)
