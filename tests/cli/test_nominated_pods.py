"""Dumps of clusters in which a preemption is under way: the room of a nominated pod is kept, as by kube-scheduler."""

import json
from typing import Any

import pytest
from support.cli import Manifest, node, plan_of, pod, thalweg

#: A pod of node a that terminates, 3 of its 4 cpus.
OLD = pod("old", "3", nodeName="a", priority=0, status={"phase": "Running"})
OLD["metadata"] |= {"deletionTimestamp": "2020-01-02T00:00:00Z", "deletionGracePeriodSeconds": 30}
TOLD = "Its room on a is kept. It waits for default/old, which terminates."


def nominated(name: str = "big", cpu: str = "4", *, to: str = "a", priority: int = 100, **more: Any) -> Manifest:
    """A pod that waits for its room on a node."""
    return pod(name, cpu, priority=priority, status={"phase": "Pending", "nominatedNodeName": to}, **more)


def small(priority: int = 0, **more: Any) -> Manifest:
    return pod("small", "1", priority=priority, **more)


@pytest.mark.parametrize("priority", [0, 100])
def test_pods_of_no_higher_priority_do_not_get_the_room(priority: int) -> None:
    """The free cpu of the node is a part of it."""
    answer = plan_of(node("a"), OLD, nominated(), small(priority))
    assert answer["placements"] == {}
    assert answer["pending"]["default/big"]["reason"] == TOLD
    assert answer["counts"]["sentence"] == "2 pods wait: 1 has no node, 1 has room that is kept for it"
    assert answer["evicted"] == {}


def test_what_is_left_beside_it_is_free() -> None:
    """Where the pods need less than what terminates holds, the free rest stays free."""
    assert plan_of(node("a"), OLD, nominated(cpu="3"), small())["placements"] == {"default/small": "a"}


def test_a_pod_of_a_higher_priority_may_take_the_room() -> None:
    """Then the nominated one waits for another place; where the urgent one has room elsewhere, it goes there."""
    assert plan_of(node("a"), OLD, nominated(), small(1000))["placements"] == {"default/small": "a"}
    answer = plan_of(node("a"), node("b", "1"), OLD, nominated(), small(1000))
    assert answer["placements"] == {"default/small": "b"}
    assert answer["pending"]["default/big"]["reason"] == TOLD


@pytest.mark.parametrize("to", ["gone", "b"])
def test_a_node_that_is_gone_or_too_small_keeps_nothing(to: str) -> None:
    """The pod is planned as any other."""
    answer = plan_of(node("a"), node("b", "1"), OLD, nominated(to=to), small())
    assert "default/small" in answer["placements"]
    assert "kept" not in answer["pending"]["default/big"]["reason"]


def test_several_on_one_node() -> None:
    """Both wait for the same pod, and a third one that the node cannot hold is not among them."""
    answer = plan_of(
        node("a"), OLD, nominated("p", "2"), nominated("q", "2"), nominated("r", "2", priority=50), small()
    )
    assert answer["placements"] == {}
    assert [key for key, each in answer["pending"].items() if each["reason"] == TOLD] == ["default/p", "default/q"]


def test_without_a_pod_that_terminates_it_has_its_node() -> None:
    """Its victims have left, and nobody else gets the room before it, whoever waited for longer."""
    older = small(100, metadata={"creationTimestamp": "2019-01-01T00:00:00Z"})
    answer = plan_of(node("a"), nominated(), older)
    assert answer["placements"] == {"default/big": "a"}
    assert answer["pending"].keys() == {"default/small"}


def test_host_ports_are_kept() -> None:
    """As room is."""
    port = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    web, other = nominated(cpu="2"), small()
    for each in (web, other):
        each["spec"]["containers"][0] |= port
    answer = plan_of(node("a", "8"), OLD, web, other)
    assert answer["placements"] == {"default/big": "a"}
    assert "free ports" in answer["pending"]["default/small"]["reason"]


@pytest.mark.parametrize("second", ["a", ""])
def test_a_gang_keeps_rooms_for_all_of_its_pods_or_for_none(second: str) -> None:
    """With one pod that is not nominated it is planned as a whole."""
    gang = {"annotations": {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "2"}}
    pods = [nominated("g-0", "2", metadata=dict(gang)), nominated("g-1", "2", to=second, metadata=dict(gang))]
    answer = plan_of(node("a"), OLD, *pods, small())
    assert answer["placements"] == ({} if second else {"default/small": "a"})
    assert [each["reason"] == TOLD for each in answer["pending"].values()].count(True) == (2 if second else 0)


@pytest.mark.parametrize("members", [1, 2])
def test_room_on_another_node_is_taken_at_once(members: int) -> None:
    """kube-scheduler looks at all nodes where the nominated one has no room yet; a gang needs room for all."""
    gang = {"annotations": {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": str(members)}}
    pods = [nominated(f"g-{n}", "2", metadata=dict(gang)) for n in range(members)]
    answer = plan_of(node("a"), node("b", "3"), OLD, *pods, small())
    assert answer["evicted"] == {}
    if members == 1:
        assert answer["placements"].keys() == {"default/g-0", "default/small"}
    else:
        assert answer["placements"] == {"default/small": "b"}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "Room on a is kept for default/big, until others have left there."),
        ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "Port 80/TCP of a is held by default/big."),
    ],
)
def test_why_names_the_pod_for_which_room_is_kept(more: Manifest, says: str) -> None:
    """It is in the way of others; and whoever is given a higher priority takes its place."""
    big, other = nominated(cpu="2" if more else "4"), small()
    old = {**OLD, "spec": {**OLD["spec"], "containers": [dict(each) for each in OLD["spec"]["containers"]]}}
    old["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
    for each in (big, other):
        each["spec"]["containers"][0] |= more
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a"), old, big, other]})
    told = " ".join(thalweg("why", "default/small", "-f", "-", stdin=dump).stdout.split())
    assert says in told
    assert "Give it priority 101, not 0: default/big loses its place." in told


def test_other_answers_keep_it_too() -> None:
    """why, what-if, headroom and audit."""
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a"), OLD, nominated(), small()]})

    def answer(*words: str) -> str:
        done = thalweg(*words, "-f", "-", stdin=dump)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    why = answer("why", "default/big")
    assert "Its room is on a, once default/old has left." in why
    assert "Never" not in why
    assert "once default/old has left" not in answer("why", "default/small")
    assert "2 fewer wait" in answer("what-if", "--add-nodes", "1", "--like", "a")  # the nominated one goes there
    assert "default/small" in answer("headroom")
    assert "default/big" not in answer("headroom")
    assert "1 pod waits; no plan runs it." in answer("audit")


def test_counts_are_the_same_in_all_commands() -> None:
    """A pod whose room is kept is not one of those that have no node: one sentence counts it apart."""
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a"), OLD, nominated(), small()]})
    said = "2 pods wait: 1 has no node, 1 has room that is kept for it"
    for command in (["plan"], ["status"], ["headroom"]):
        done = thalweg(*command, "-f", "-", stdin=dump)
        assert said in done.stdout, (command, done.stdout, done.stderr)
    assert "1 pod has no node; no plan leaves fewer" in thalweg("plan", "-f", "-", stdin=dump).stdout
    audit = thalweg("audit", "-f", "-", stdin=dump).stdout
    assert "2 pods wait: 1 can be judged, 1 has room that is kept for it" in audit


@pytest.mark.parametrize(("to", "node_taken"), [("b", "b"), ("gone", "a"), ("full", "a")])
def test_pods_that_we_bind_follow_the_nomination_of_others_if_they_can(to: str, node_taken: str) -> None:
    """Before their equals, though other nodes are better; no room is kept beyond the plan."""
    full = pod("full", "4", nodeName="full", status={"phase": "Running"})
    beside = pod("beside", "1", nodeName="b", status={"phase": "Running"})
    ours = nominated("ours", "3", to=to, schedulerName="thalweg")
    older = small(100, schedulerName="thalweg", metadata={"creationTimestamp": "2019-01-01T00:00:00Z"})
    answer = plan_of(node("a"), node("b"), node("full"), full, beside, ours, older)
    assert answer["placements"] == {"default/ours": node_taken, "default/small": "b" if node_taken == "a" else "a"}


def test_a_nomination_of_ours_keeps_its_room() -> None:
    """The annotation that is written with it tells it apart."""
    ours = nominated("ours", schedulerName="thalweg", metadata={"annotations": {"scheduling.thalweg/nominated": "a"}})
    answer = plan_of(node("a"), OLD, ours, small(100, schedulerName="thalweg"))
    assert answer["pending"]["default/ours"]["reason"] == TOLD
    assert answer["placements"] == {}


def test_a_nomination_of_others_keeps_its_room_while_less_important_pods_leave() -> None:
    """A preemption is under way, whoever began it: kube-scheduler, before the pod was handed to us, for one."""
    ours = nominated("ours", schedulerName="thalweg")
    answer = plan_of(node("a"), OLD, ours, small(100, schedulerName="thalweg"))
    assert answer["pending"]["default/ours"]["reason"] == TOLD
    assert answer["placements"] == {}
