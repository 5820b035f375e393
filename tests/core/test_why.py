"""Why a pod waits: one reason that decides, and its evidence."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from support.cli import Manifest, node, pod
from support.draw import ASPECTS, Case, crowded_cases
from support.profiles import examples
from support.scenario_state import NOW, drawn_scenario, manifest_node, scenario_of
from thalweg.questions.why import to_lines

from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.questions.diagnosis.answers import WhyAnswer, WhyKind, WhyQuery
from flowcore.questions.diagnosis.finding import UnplacedCase
from flowcore.questions.diagnosis.nothing_fits import STEPS
from flowcore.questions.diagnosis.room_taken import takers
from flowcore.questions.diagnosis.why import answer_why
from flowcore.questions.scenario import GovernedScenario, Scenario, plan_scenario
from flowcore.questions.scenario.context import AnswerContext, UnknownName, sees_all
from flowcore.rules.filters.registry import IN_ORDER
from flowcore.rules.reasons.codes import WAITING_FOR_DEVICES, WAITING_FOR_VOLUMES

EVERYTHING = AnswerContext(NOW)
TAINTED = [{"key": "gpu", "effect": "NoSchedule"}]
RUNS = {"phase": "Running"}
DELETION_TIMESTAMP = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def policy(name: str = "shop", **spec: Any) -> Manifest:
    selects = {"podSelector": {"matchLabels": {"app": "web"}}}
    return {"kind": "FlowSchedulingPolicy", "metadata": {"name": name}, "spec": {"selects": selects, **spec}}


ONE_EACH = {"name": "az", "conflict": {"pods": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}}


def web(name: str, cpu: str = "1", **spec: Any) -> Manifest:
    return pod(name, cpu, schedulerName="thalweg", metadata={"labels": {"app": "web"}}, **spec)


def of_gang(name: str, least: int = 3, **spec: Any) -> Manifest:
    terms = {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": str(least)}
    return pod(name, "1", metadata={"annotations": terms}, **spec)


def why(target: str, *objects: Manifest, sees: Callable[[str], bool] = sees_all, fixes: bool = False) -> WhyAnswer:
    return answer_why(scenario_of(objects), WhyQuery(target, fixes), AnswerContext(NOW, sees=sees))


def test_filters_that_do_not_matter_are_told_apart_from_those_that_do() -> None:
    """kube-scheduler's words name the taint, which does not help: the pod is too large for that node too."""
    answer = why("default/p", node("a", "2"), node("b", "2", taints=TAINTED), pod("p", "3"))
    assert answer.kind is WhyKind.NOTHING_FITS
    assert answer.text.endswith("1 node(s) had untolerated taint(s). NodeResourcesFit alone rejects every node.")
    assert "Without NodeResourcesFit, a would take it (it lacks 1 cpu)." in answer.evidence
    assert answer.next == "Ask for less, or add a node with more room."


def test_the_shortest_way_out_names_a_node_and_what_stands_between() -> None:
    """Where one filter keeps the pod from a node, that filter is what to mend."""
    answer = why("default/p", node("a", "2"), node("b", "4", taints=TAINTED), pod("p", "3"))
    assert "Without TaintToleration, b would take it (its taint is gpu:NoSchedule)." in answer.evidence
    answer = why("default/p", node("a", "2"), pod("p", "2500m"))
    assert "Without NodeResourcesFit, a would take it (it lacks 500m cpu)." in answer.evidence


def test_a_node_that_is_too_small_when_empty_is_no_way_out() -> None:
    """Two nodes lack the room for good, one is tainted: the taint is what stands between; next is the first fix."""
    objects = (node("a", "2"), node("b", "2"), node("c", "4", taints=TAINTED), pod("p", "3"))
    answer = why("default/p", *objects, fixes=True)
    assert "Without TaintToleration, c would take it (its taint is gpu:NoSchedule)." in answer.evidence
    assert answer.next == answer.fixes[0].text
    assert why("default/p", *objects).next == "Tolerate the taint, or remove it."


def test_the_control_plane_is_no_way_out() -> None:
    """Neither what is to be done nor the way out names its taint, where another node is left."""
    reserved = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    answer = why("default/p", node("cp", "8", taints=reserved), pod("p", "3"))
    assert answer.next == "Add nodes: those that are left are for other pods."
    objects = (
        node("cp", "8", taints=reserved),
        node("a", "4", taints=TAINTED),
        pod("f", "4", nodeName="a", status=RUNS),
    )
    answer = why("default/p", *objects, pod("p", "3"))
    assert any(each.startswith("Without TaintToleration and NodeResourcesFit, a would") for each in answer.evidence)


def test_who_has_the_room_and_how_much_more_it_costs_to_leave_them() -> None:
    """Both pods are needed, and the prices are those of the plan."""
    rivals = [pod(name, "1", priority=10) for name in "qr"]
    answer = why("default/p", node("a", "2"), pod("p", "2"), *rivals)
    assert answer.kind is WhyKind.ROOM_TAKEN
    assert answer.evidence[0] == "default/q and default/r have its room on a."
    assert answer.evidence[1] == "Their highest priority is 10, that of this pod 0."
    them, own = map(int, re.findall(r"\d+", answer.details[0]))
    assert them > own


def test_room_that_is_taken_back_for_a_higher_priority() -> None:
    """The second part of a round gave the node to a pod that fits nowhere else: its price is told all the same."""
    objects = (node("a", "2"), node("b", "1"), pod("p", "2"), pod("q", "1"), pod("r", "2", priority=10))
    scenario = scenario_of(objects)
    answers = [answer_why(scenario, WhyQuery(f"default/{name}", fixes=False), EVERYTHING) for name in "pq"]
    answer = next(each for each in answers if each.kind is WhyKind.ROOM_TAKEN)
    assert "To leave it costs 200200, and to leave this pod 200000." in answer.details


def test_a_pod_that_may_not_be_seen_is_not_named() -> None:
    """Who has the room is counted in the price all the same; and it cannot be asked about, in the same words."""
    rival = pod("q", "2", priority=10, metadata={"namespace": "red"})
    objects = (node("a", "2"), pod("p", "2"), rival)
    answer = why("default/p", *objects, sees=lambda name: name != "red")
    assert answer.evidence[0] == "a pod of another namespace has its room on a."
    for name in ("red/q", "red/nobody"):
        with pytest.raises(UnknownName, match=f"pod {name}: there is no such pod"):
            why(name, *objects, sees=lambda name: name != "red")


def test_a_constraint_and_its_price() -> None:
    """The price is what a plan without it costs."""
    objects = (node("a"), web("w0", nodeName="a", status=RUNS), web("w1"))
    answer = why("default/w1", *objects, policy(constraints=[ONE_EACH]))
    assert answer.kind is WhyKind.CONSTRAINT
    costs = [
        plan_scenario(scenario_of([*objects, policy(constraints=each)]), NOW).result.cost for each in ([], [ONE_EACH])
    ]
    said = (
        f"Without constraint az of policy shop, the plan would cost {costs[0]} in place of {costs[1]}, and places it."
    )
    assert answer.evidence == [said]


def queue(name: str, **spec: Any) -> Manifest:
    selects = {"podSelector": {"matchLabels": {"team": name}}}
    return {"kind": "FlowQueue", "metadata": {"name": name}, "spec": {"selects": selects, **spec}}


def of_team(name: str, team: str, **spec: Any) -> Manifest:
    return pod(name, "1", metadata={"labels": {"team": team}}, **spec)


def test_a_limit_and_its_price() -> None:
    """The queue is named, the price is that of a plan without the limit, and the limit is there again afterwards."""
    objects = (node("a"), *(of_team(f"p{at}", "one") for at in range(2)))
    limited = queue("one", limit={"cpu": "1"})
    scenario = scenario_of([*objects, limited])
    answers = [answer_why(scenario, WhyQuery(f"default/p{at}"), EVERYTHING) for at in (0, 1, 0, 1)]
    assert answers[:2] == answers[2:]
    (answer,) = {msgspec.json.encode(each): each for each in answers if each.kind is WhyKind.SHARE}.values()
    costs = [plan_scenario(scenario_of([*objects, each]), NOW).result.cost for each in (queue("one"), limited)]
    said = f"Without the limit of FlowQueue one, the plan would cost {costs[0]} in place of {costs[1]}, and places it."
    assert answer.evidence == [said]


def test_a_share() -> None:
    """Two queues want the same four cores: each gets two, and what waits beyond that is told its queue's share."""
    pods = [of_team(f"{team}{at}", team) for team in ("one", "two") for at in range(4)]
    objects = (node("a"), *pods, queue("one"), queue("two"))
    placed = {each.pod.key for each in plan_scenario(scenario_of(objects), NOW).result.placements}
    left = next(f"default/one{at}" for at in range(4) if f"default/one{at}" not in placed)
    answer = why(left, *objects)
    assert answer.kind is WhyKind.SHARE
    assert answer.evidence[0] == (
        "FlowQueue one has 50.0% of what queues share, and with this pod more than its fair share, 50.0%."
    )
    # Where a higher priority decides, the share does not.
    urgent = [of_team(f"two{at}", "two", priority=10) for at in range(4)]
    assert why("default/one0", node("a"), *pods[:4], *urgent, queue("one"), queue("two")).kind is WhyKind.ROOM_TAKEN


def test_a_constraint_that_is_not_all_is_not_the_reason() -> None:
    """Without it the pod would wait all the same, for room."""
    running = web("w0", "4", nodeName="a", status=RUNS)
    answer = why("default/w1", node("a"), running, web("w1"), policy(constraints=[ONE_EACH]))
    assert answer.kind is WhyKind.NOTHING_FITS


def test_gangs() -> None:
    """Pods are missing; or there is no room for all; or others have it."""
    members = [of_gang(f"g{at}") for at in range(3)]
    answer = why("gang/default/g", node("a", "4"), *members[:2])
    assert (answer.kind, answer.waiting, answer.alike) == (WhyKind.GANG_INCOMPLETE, 2, 2)
    assert answer.evidence == ["gang default/g needs 3 pods: 2 wait, 0 have a node."]
    assert answer.next == "Create 1 more pod of it, or lower its minMember."
    answer = why("default/g1", node("a", "2"), *members)
    assert answer.kind is WhyKind.NOTHING_FITS
    assert answer.evidence == ["What is short: cpu (best node lacks 1)."]
    rivals = [pod(f"x{at}", "1", priority=1000) for at in range(4)]
    answer = why("gang/default/g", node("a", "4"), *members, *rivals)
    assert answer.kind is WhyKind.ROOM_TAKEN
    assert answer.evidence[0] == "By itself, with no other waiting pod, it would be placed on a."


def test_pods_that_a_policy_keeps_together() -> None:
    """The constraint is the reason where they have room apart; room is, where others have it."""
    together = {"name": "web", "together": {"pods": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}}
    pods = [web(f"w{at}", "3") for at in range(2)]
    answer = why("default/w0", node("a"), node("b"), *pods, policy(constraints=[together]))
    assert answer.kind is WhyKind.CONSTRAINT
    assert answer.evidence[0].startswith("Without constraint web of policy shop, the plan would cost ")
    # A pod that is too large for every node waits for that.
    answer = why("default/w0", node("a", "2"), node("b", "2"), *pods, policy(constraints=[together]))
    assert answer.kind is WhyKind.NOTHING_FITS
    assert answer.evidence[1].startswith("NodeResourcesFit rejects 2 of 2 nodes;")
    # Other pods have the room of one domain that is large enough.
    rivals = [pod(f"x{at}", "4", priority=1000) for at in range(2)]
    answer = why("default/w0", node("a", "8"), *pods, *rivals, policy(constraints=[together]))
    assert answer.kind is WhyKind.ROOM_TAKEN
    assert answer.evidence[0] == "By itself, with no other waiting pod, it would be placed on a."


def test_victims_that_leave() -> None:
    """Pods that terminate already, and pods that the plan evicts."""
    low = pod("low", "2", nodeName="a", priority=1, status=RUNS)
    waits = pod("p", "2", priority=2, schedulerName="thalweg")
    answer = why("default/p", node("a", "2"), low, waits, policy(delivery="Binder"))
    assert (answer.kind, answer.text) == (WhyKind.VICTIMS_LEAVING, "Its room is on a, once default/low has left.")
    going = pod("low", "2", nodeName="a", status=RUNS, metadata=DELETION_TIMESTAMP)
    answer = why("default/p", node("a", "2"), going, pod("p", "2"))
    assert answer.kind is WhyKind.VICTIMS_LEAVING
    assert answer.evidence == ["It fits on a once default/low has left: it is terminating."]


def test_a_victim_on_another_node() -> None:
    """A rule between pods keeps the pod out of a zone until somebody has left another node of it."""
    term = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    going = pod("low", "2", nodeName="a", status=RUNS, metadata=DELETION_TIMESTAMP | {"labels": {"app": "web"}})
    nodes = manifest_node("a", "z") | {"spec": {"unschedulable": True}}, manifest_node("b", "z")
    answer = why("default/p", *nodes, going, pod("p", "2", affinity=rule))
    assert answer.kind is WhyKind.VICTIMS_LEAVING
    assert answer.evidence == ["It fits on b once default/low has left: it is terminating."]


def test_victims_that_are_of_no_use() -> None:
    """The pod is too large even without them."""
    going = pod("low", "2", nodeName="a", status=RUNS, metadata=DELETION_TIMESTAMP)
    answer = why("default/p", node("a", "2"), going, pod("p", "3"))
    assert answer.kind is WhyKind.NOTHING_FITS


@pytest.mark.parametrize(("delivery", "scheduler"), [("Observe", "thalweg"), ("Extender", "thalweg-steered")])
def test_kube_scheduler_has_it(delivery: str, scheduler: str) -> None:
    """The plan has a node, and somebody else binds; with Binder the pod waits for nothing."""
    waiting = pod("w", schedulerName=scheduler, metadata={"labels": {"app": "web"}})
    answer = why("default/w", node("a"), waiting, policy(delivery=delivery))
    assert answer.kind is WhyKind.HANDED_OVER
    assert why("default/w", node("a"), web("w"), policy()).kind is WhyKind.PLANNED


@pytest.mark.parametrize("batch", ["4", "8"])
def test_preemption_that_would_take_the_partner_first(batch: str) -> None:
    """Without the third pod it would fit beside its partner. A node with more than it holds is not decided again."""
    partner = {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": HOSTNAME}]}  # fmt: skip
    objects = (
        node("a", "8"),
        pod("cache", "1", nodeName="a", status=RUNS, metadata={"labels": {"app": "cache"}}),
        pod("batch", batch, nodeName="a", status=RUNS),
        pod("p", "5", priority=10, affinity={"podAffinity": partner}),
    )
    answer = why("default/p", *objects, fixes=True)
    if batch == "4":
        assert answer.text.startswith("The plan has a for it, once default/batch has left")
    else:
        assert answer.evidence[-1] == (
            "No running pod leaves for it: preemption would take default/cache, which it must run beside, away first; "
            "without default/batch it would fit on a."
        )
    assert "Evict default/batch: default/batch loses its place." in [fix.text for fix in answer.fixes]


def test_evictions_that_were_tried_and_are_not_enough() -> None:
    """That they would not make enough room is said where all who may leave were thought away."""
    filler = pod("r", "3", nodeName="a", status=RUNS, priority=100)
    low = pod("s", "1", nodeName="a", status=RUNS)
    answer = why("default/p", node("a"), filler, low, pod("p", "2", priority=10))
    would_not = "evictions of pods with a lower priority would not make enough room"
    assert f"No running pod leaves for it: {would_not}." in answer.evidence
    # A gang leaves as a whole, and a budget or a gang may leave no choice: then it is not said.
    pinned = [of_gang(f"h{at}", least=2, nodeName="a", status=RUNS) for at in range(2)]
    answer = why("default/p", node("a"), *pinned, pod("p", "3", priority=10))
    assert would_not not in " ".join(answer.evidence)


def test_a_nominated_pod_is_not_said_to_preempt_never() -> None:
    """Its policy lets it preempt; nobody else leaves for it while a pod leaves the node that it is nominated for."""
    leaving = pod("old", "1", nodeName="a", status=RUNS, metadata=DELETION_TIMESTAMP)
    filler = pod("r", "3", nodeName="a", status=RUNS)
    big = pod("big", "3", priority=100, status={"phase": "Pending", "nominatedNodeName": "a"})
    answer = why("default/big", node("a"), leaving, filler, big)
    assert "Never" not in " ".join((answer.text, *answer.evidence))
    assert "default/old leaves node a already, for which it is nominated." in answer.evidence
    never = pod("p", "3", priority=100, preemptionPolicy="Never")
    assert "No running pod leaves for it: its preemptionPolicy is Never." in why(
        "default/p", node("a"), filler, never).evidence  # fmt: skip


def test_room_that_a_pod_of_the_same_anti_affinity_got_was_taken() -> None:
    """The node was free before the plan: its kind is that the room is taken, not that nothing fits."""
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOSTNAME}]}  # fmt: skip
    pods = [pod(f"p{at}", metadata={"labels": {"app": "db"}}, affinity={"podAntiAffinity": apart}) for at in range(2)]
    scenario = scenario_of((node("a"), *pods))
    waits = plan_scenario(scenario, NOW).result.unplaced[0].pod.key
    answer = answer_why(scenario, WhyQuery(waits, fixes=False), EVERYTHING)
    assert answer.kind is WhyKind.ROOM_TAKEN
    assert answer.evidence[0].startswith("The only node that it may use has one, and 2 pods want one each:")


def test_to_uncordon_a_node_spares_an_eviction() -> None:
    """The plan evicts for it, and the pod need only wait; with the cordoned node nobody would leave."""
    running = web("r", "3", nodeName="a", status=RUNS)
    objects = (node("a"), node("b", unschedulable=True), running, web("p", "3", priority=10), policy())
    answer = why("default/p", *objects, fixes=True)
    assert answer.kind is WhyKind.VICTIMS_LEAVING
    assert [fix.text for fix in answer.fixes] == ["Uncordon node b: nobody loses a place."]
    assert answer.next.startswith("Wait until they have left.")


def test_a_pod_of_another_scheduler_that_waits_for_victims_is_told_what_helps() -> None:
    """The plan has a node once others have left, and nobody evicts them: what is short and what helps is said."""
    objects = (node("a"), node("b", unschedulable=True), pod("r", "3", nodeName="a", status=RUNS),
               pod("p", "3", priority=10))  # fmt: skip
    answer = why("default/p", *objects, fixes=True)
    assert answer.kind is WhyKind.HANDED_OVER
    assert answer.text.endswith("Nobody evicts it: default-scheduler did not, and Thalweg observes.")
    assert answer.evidence[0].startswith("Without evictions: 0/2 nodes are available: 1 Insufficient cpu, ")
    assert answer.next == "Uncordon node b: nobody loses a place."
    assert "preemptionPolicy" not in " ".join(answer.evidence)
    observed = policy(delivery="Observe")
    web_pods = (web("r", "3", nodeName="a", status=RUNS), web("p", "3", priority=10))
    objects = (node("a"), node("b", unschedulable=True), *web_pods, observed)
    objects[3]["spec"]["schedulerName"] = "default-scheduler"
    answer = why("default/p", *objects, fixes=True)
    assert answer.next == "Uncordon node b: nobody loses a place."


@pytest.mark.parametrize("code", [WAITING_FOR_DEVICES, WAITING_FOR_VOLUMES])
def test_a_pod_that_waits_for_its_claims(code: str) -> None:
    """It has its node, and does not wait for nothing: who binds it told it what it waits for."""
    told = {"type": "PodScheduled", "status": "False", "reason": code, "message": "its volumes on a are not ready"}
    waiting = pod("w", schedulerName="thalweg", metadata={"labels": {"app": "web"}}, status={"conditions": [told]})
    answer = why("default/w", node("a"), waiting, policy())
    assert (answer.kind, answer.evidence) == (WhyKind.PLANNED, ["It was told: its volumes on a are not ready"])


def owned(name: str, kind: str, controller: str, cpu: str = "9", **labels: str) -> Manifest:
    owner = {"apiVersion": "v1", "kind": kind, "name": controller, "uid": "u", "controller": True}
    return pod(name, cpu, metadata={"labels": labels, "ownerReferences": [owner]})


def test_pods_of_a_controller() -> None:
    """They are found by their owner references, and the commonest reason is told of those that the plan leaves."""
    pods = [
        owned(f"cart-abc12-{name}", "ReplicaSet", "cart-abc12", cpu, **{"pod-template-hash": "abc12"})
        for name, cpu in (("aaaaa", "1"), ("bbbbb", "9"), ("ccccc", "9"))
    ]
    for target in ("deployment/default/cart", "replicaset/default/cart-abc12"):
        answer = why(target, node("a"), *pods)
        assert (answer.pod, answer.waiting, answer.alike) == ("default/cart-abc12-bbbbb", 2, 2)
    labelled = pod("job-x", "9", metadata={"labels": {"batch.kubernetes.io/job-name": "job"}})
    for job in (labelled, owned("job-x", "Job", "job")):
        assert why("job/default/job", node("a"), job).pod == "default/job-x"
    member = owned("db-0", "StatefulSet", "db")
    assert why("statefulset/default/db", node("a"), member).pod == "default/db-0"
    for target in ("deployment/default/other", "deployment/red/cart", "job/default/cart", "statefulset/default/d"):
        with pytest.raises(UnknownName, match="no pod belongs to it"):
            why(target, node("a"), *pods, member)


def test_a_name_without_its_kind_is_a_hint() -> None:
    """Somebody who asks why cart waits means the Deployment, if they may see it."""
    cart = owned("cart-abc12-aaaaa", "ReplicaSet", "cart-abc12", **{"pod-template-hash": "abc12"})
    with pytest.raises(UnknownName, match="no such pod, but a Deployment has this name: why deployment/default/cart"):
        why("default/cart", node("a"), cart)
    with pytest.raises(UnknownName, match="no such pod, but a gang has this name: why gang/default/g"):
        why("default/g", node("a"), of_gang("g-0"))
    with pytest.raises(UnknownName, match=r"no such pod$"):
        why("default/cart", node("a"), cart, sees=lambda _: False)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("default", "expected NAMESPACE/POD or KIND/NAMESPACE/NAME"),
        ("rack/default/x", "no pod belongs to it; kinds are pod, "),
        ("default/runs", "it does not wait: it is bound to a"),
        ("default/over", "it has finished"),
    ],
)
def test_targets_that_do_not_wait(target: str, problem: str) -> None:
    """One sentence names the target and says what is wrong."""
    over = pod("over", "1", nodeName="a", status={"phase": "Succeeded"})
    with pytest.raises(UnknownName, match=problem):
        why(target, node("a"), pod("runs", "1", nodeName="a", status=RUNS), over)


@given(crowded_cases(ASPECTS))
@settings(max_examples=examples(15))
def test_every_waiting_pod_gets_an_answer_that_names_nobody_hidden(case: Case) -> None:
    """At most ten lines and a kind, the words of the plan, and neither nodes nor pods of other namespaces."""
    scenario = drawn_scenario(case)
    everybody, asker = (
        plan_scenario(scenario, NOW),
        AnswerContext(NOW, sees=lambda name: name == "default", nodes=False),
    )
    reasons = {each.pod.key: each.reason for each in everybody.result.unplaced}
    for waiting in scenario.waiting()[::6]:
        answer = answer_why(scenario, WhyQuery(waiting.key, fixes=False), EVERYTHING)
        assert 1 <= len(to_lines(answer)) <= 10
        assert answer.text == reasons.get(waiting.key, answer.text)
        assert all("\n" not in line for line in to_lines(answer))
        if waiting.namespace == "default":
            words = msgspec.json.encode(answer_why(scenario, WhyQuery(waiting.key), asker)).decode()
            assert not re.search(r"\b(red|blue)/", words)
            assert not re.search(r"\bn[0-5]\b", words)
        else:
            with pytest.raises(UnknownName, match="there is no such pod"):
                answer_why(scenario, WhyQuery(waiting.key), asker)


@given(crowded_cases(("NodeResourcesFit", "NodePorts")))
@settings(max_examples=examples(40))
def test_without_those_that_have_the_room_the_pod_fits_and_with_one_of_them_it_does_not(case: Case) -> None:
    """By a plan of the cluster in which all others of the plan run already, on their nodes."""
    scenario = drawn_scenario(case)
    plan, governed = plan_scenario(scenario, NOW), GovernedScenario(scenario)
    for unplaced in plan.result.unplaced[:3]:
        pod = UnplacedCase(scenario, governed, plan, unplaced, EVERYTHING)
        found = takers(pod)
        if found is None or plan.result.evictions:
            continue
        gone = {each.pod.key for each in found.placements}
        assert fits_beside(drawn_scenario(case), plan.result.placements, gone, unplaced.pod.key, found.node)
        for key in gone:
            assert not fits_beside(
                drawn_scenario(case), plan.result.placements, gone - {key}, unplaced.pod.key, found.node
            )


def fits_beside(scenario: Scenario, placements: tuple, gone: set[str], key: str, where: str) -> bool:
    cluster = scenario.cluster
    for each in placements:
        if each.pod.key not in gone:
            cluster.put_pod(msgspec.structs.replace(cluster.pods[each.pod.key], node_name=each.node))
    cluster.put_pod(msgspec.structs.replace(cluster.pods[key], preempts=False))
    for name in [name for name in cluster.nodes if name != where]:
        cluster.remove_node(name)
    return bool(plan_scenario(scenario, NOW, only=(key,)).result.placements)


def test_each_workload_of_a_plan_can_be_asked_about() -> None:
    """Its name is that which plans show, also where a kind of others controls the pods."""
    worker = owned("train-worker-0", "RayCluster", "train")
    assert why("raycluster/default/train", node("a"), worker).pod == "default/train-worker-0"
    with pytest.raises(UnknownName, match="but a raycluster has this name: why raycluster/default/train"):
        why("default/train", node("a"), worker)


def test_a_pod_that_is_being_deleted_is_waited_for() -> None:
    """No node and no change helps it."""
    leaving = pod("w", "1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert why("default/w", node("a"), leaving).next.startswith("Wait until it is gone")


def test_every_filter_has_a_next_step() -> None:
    """A filter without one would end `thalweg why` with a KeyError."""
    assert set(STEPS) == {each.name for each in IN_ORDER}
