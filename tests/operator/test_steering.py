"""Steering against a kube-scheduler, an API server and a clock that do what they may do, in any order."""

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.fake_cluster import CLASS, NODES, FakeCluster
from support.profiles import examples
from support.state_snapshot import state_snapshot
from thalweg_extender.answers import Outcome
from thalweg_operator.reservations.effects import WakePod
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.steering.nominations import PlannedPod, nominations

from flowcore.model.advice import HELD_MESSAGE, Advice
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME
from flowcore.model.selectors import LabelSelector, Requirement


@pytest.fixture
def world() -> FakeCluster:
    return FakeCluster()


def planned(world: FakeCluster, key: str = "ns/p", node: str = "a") -> None:
    """Nominated, and seen to be."""
    assert world.plan(key, node)
    world.now += 1  # kube-scheduler is idle
    world.look_after()
    world.settle()
    assert world.api[key].nominated_node == node


# --- the way of one pod ---


def test_nominated_let_through_and_bound(world: FakeCluster) -> None:
    """The reservation is there from the plan to the binding; the pod is let through to its node alone."""
    pod = world.pod()
    world.deliver_watch()
    assert world.schedule(pod.key) == (Outcome.HELD, [])
    planned(world)
    assert world.state.reservations[pod.key].owner is Owner.STEERING
    assert world.schedule(pod.key) == (Outcome.STEERED, ["a"])
    world.change(pod.key, node_name="a")
    world.deliver_watch()
    assert not world.state.reservations
    assert world.count("bound") == 1
    world.advance(100)
    assert not world.writes


def test_let_through_before_the_nomination_is_written(world: FakeCluster) -> None:
    """kube-scheduler asks while the write waits in line: steered, and after the binding nothing is written."""
    pod = world.pod()
    world.deliver_watch()
    world.plan(pod.key, "b")
    assert world.schedule(pod.key) == (Outcome.STEERED, ["b"])
    world.change(pod.key, node_name="b")
    world.deliver_watch()
    assert world.write_kinds == []


def test_an_attempt_that_did_not_know_erases(world: FakeCluster) -> None:
    """A hold in flight erases the nomination: written again, once for each such attempt, and nobody is to blame."""
    pod = world.pod()
    world.deliver_watch()
    ignorant = world.extender_pod(pod.key)
    planned(world)
    for _ in range(3):
        assert world.call_filter(ignorant, ["b", "c"]) == (Outcome.HELD, [])  # a sample without the node
        world.change(pod.key, nominated_node="", unschedulable_message=f"0/3 nodes are available: {HELD_MESSAGE}")
        world.deliver_watch()
        world.advance(0.4)
        assert world.api[pod.key].nominated_node == "a"
    assert world.rejected == []
    assert world.count("erased") == 3


def test_erased_and_not_by_an_attempt_that_was_held(world: FakeCluster) -> None:
    """kube-scheduler's filters leave no node, so it asks nobody and erases: the pair is reported, the room is free."""
    pod = world.pod()
    world.deliver_watch()
    planned(world)
    world.change(pod.key, nominated_node="")
    world.deliver_watch()
    world.advance(0.4)
    assert world.rejected == [(pod.key, "a")]
    assert not world.state.reservations


def test_erased_by_filters_that_leave_no_node(world: FakeCluster) -> None:
    """Held before the plan came, refused by every filter after it: the latest words say which of the two erased it."""
    pod = world.pod()
    world.deliver_watch()
    world.schedule(pod.key)
    world.change(pod.key, unschedulable_message=f"0/3 nodes are available: {HELD_MESSAGE}")
    planned(world)
    world.change(
        pod.key, nominated_node="", unschedulable_message="0/3 nodes are available: 3 node(s) were unschedulable"
    )
    world.deliver_watch()
    world.advance(0.4)
    assert world.rejected == [(pod.key, "a")]


def test_room_that_others_took(world: FakeCluster) -> None:
    """kube-scheduler does not wake a pod for a node that is full: the nomination is taken back within seconds."""
    pod = world.pod()
    world.deliver_watch()
    planned(world)
    world.pod("theirs", "u2", scheduler_name="x", node_name="a", usage=(("cpu", 300),))
    world.deliver_watch()
    world.advance(12)
    assert not world.state.reservations
    assert world.api[pod.key].nominated_node == ""


def test_rewrites_are_bounded(world: FakeCluster) -> None:
    """However often an attempt that did not know is held and erases, after five times it counts as refused."""
    pod = world.pod()
    world.deliver_watch()
    ignorant = world.extender_pod(pod.key)
    planned(world)
    for _ in range(10):
        world.call_filter(ignorant, ["b", "c"])
        world.change(pod.key, nominated_node="", unschedulable_message=f"0/3 nodes are available: {HELD_MESSAGE}")
        world.deliver_watch()
        world.advance(0.4)
    assert world.count("erased") == 5
    assert world.rejected == [(pod.key, "a")]


def test_asked_about_others_in_full_knowledge(world: FakeCluster) -> None:
    """The nominated node is refused in-tree: taken back, reported, and free for others."""
    pod = world.pod()
    world.deliver_watch()
    planned(world)
    assert world.schedule(pod.key, ("b", "c")) == (Outcome.HELD, [])
    world.advance(1)
    assert world.rejected == [(pod.key, "a")]
    assert not world.state.reservations
    assert world.api[pod.key].nominated_node == ""
    assert world.plan(pod.key, "b")


def test_an_attempt_that_was_let_through_fails(world: FakeCluster) -> None:
    """It found the node by itself and was not bound. Asked about others next, it is told the node by nomination."""
    pod = world.pod()
    world.deliver_watch()
    world.plan(pod.key, "a")
    assert world.schedule(pod.key) == (Outcome.STEERED, ["a"])
    world.advance(20)  # as long as it may take: nobody else is given the room
    assert world.state.reservations
    assert world.schedule(pod.key, ("b", "c")) == (Outcome.HELD, [])
    world.settle()
    assert world.api[pod.key].nominated_node == "a"
    assert world.schedule(pod.key, ("b", "c")) == (Outcome.HELD, [])
    world.advance(1)
    assert world.rejected == [(pod.key, "a")]


def test_nobody_follows(world: FakeCluster) -> None:
    """A nomination is taken back after a minute, and the room with it; the pair does not rest."""
    pod = world.pod()
    world.deliver_watch()
    planned(world)
    world.advance(59)
    assert world.state.reservations
    world.advance(8)
    assert not world.state.reservations
    assert world.api[pod.key].nominated_node == ""
    assert world.rejected == []
    assert world.count("expired") == 1


def test_a_pod_with_volumes_has_longer(world: FakeCluster) -> None:
    """Provisioning takes up to ten minutes."""
    pod = world.pod(unbindable_reason="it has volume claims (data)")
    world.deliver_watch()
    planned(world)
    assert world.schedule(pod.key) == (Outcome.STEERED, ["a"])
    world.advance(600, 1.0)
    assert world.state.reservations
    world.advance(80, 1.0)
    assert not world.state.reservations


def test_a_nomination_that_cannot_be_written(world: FakeCluster) -> None:
    """Refused by the API server: given up; the room is free, and the pod rests, since no other node would help."""
    pod = world.pod()
    world.deliver_watch()
    world.plan(pod.key, "a")
    be_idle(world)
    world.send_write(problem="admission webhook says no")
    assert not world.state.reservations
    assert world.rejected == []
    assert world.refused == [(pod.key, "the API server refused to nominate node a for it: admission webhook says no")]


def test_a_nomination_that_cannot_be_cleared(world: FakeCluster) -> None:
    """However often kube-scheduler asks meanwhile, one write is in line; once it is carried out the room is free."""
    pod = world.pod()
    world.deliver_watch()
    planned(world)
    world.now += 100.0
    world.look_after()
    for _ in range(5):
        world.send_write(problem="forbidden")
        world.now += 30.0
        world.look_after()
        world.schedule(pod.key, ["b"])
    assert [write.kind for write in world.writes] == ["clear"]
    world.settle()
    world.advance(5)
    assert not world.state.reservations


def at_work(world: FakeCluster) -> None:
    """kube-scheduler is: it asks about a pod that has no plan."""
    if "ns/other" not in world.api:
        world.pod("other")
        world.deliver_watch()
    assert world.schedule("ns/other") == (Outcome.HELD, [])


def be_idle(world: FakeCluster) -> None:
    """kube-scheduler is: it asks about nothing for a second."""
    world.now += 1
    world.look_after()


def test_a_pod_that_stands_in_line(world: FakeCluster) -> None:
    """While kube-scheduler is at work nothing is written for it; then it is, or its room goes to somebody else."""
    pod, taker = world.pod(), world.pod("taker", pod_class=PodClass(requests=(("cpu", 300),)))
    world.deliver_watch()
    for end in ("idle", "tried in vain", "taken"):
        at_work(world)
        world.plan(pod.key, "a")
        for _ in range(10):
            world.now += 0.2
            at_work(world)
            world.look_after()
        assert not world.write_kinds
        match end:
            case "idle":
                be_idle(world)
                assert world.write_kinds == ["nominate"]
            case "tried in vain":
                world.change(pod.key, unschedulable_message="0/3 nodes are available")
                world.deliver_watch()
                assert world.write_kinds == ["nominate"]
            case "taken":
                world.change(taker.key, node_name="a", usage=taker.pod_class.requests)
                world.deliver_watch()
                for _ in range(30):
                    world.now += 0.2
                    at_work(world)
                    world.look_after()
                assert not world.write_kinds
                assert not world.state.reservations
        world.put_pod(pod.key, None)
        world.deliver_watch()
        world.settle()
        pod = world.pod()
        world.deliver_watch()


def test_right_after_a_plan_nothing_is_written(world: FakeCluster) -> None:
    """kube-scheduler may be starting, or its watch be behind: it is idle if it asks nothing for a second."""
    pods = [world.pod(f"p{number}", f"u{number}") for number in range(3)]
    world.deliver_watch()
    for pod, node in zip(pods, "abc", strict=True):
        world.plan(pod.key, node)
    for _ in range(9):
        world.now += 0.1
        world.look_after()
    assert not world.write_kinds
    world.now += 0.2
    world.look_after()
    assert world.write_kinds == ["nominate"] * 3


def test_a_pod_that_stood_in_line_for_too_long(world: FakeCluster) -> None:
    """It is nominated though kube-scheduler is at work; asked about sooner, it still takes an equal pod's place."""
    first, second, third = (world.pod(name) for name in ("p1", "p2", "p3"))
    world.deliver_watch()
    at_work(world)
    world.plan(first.key, "a")
    for _ in range(152):
        world.now += 0.2
        at_work(world)
        world.look_after()
    assert [write.pod.key for write in world.writes] == [first.key]
    world.plan(second.key, "b")
    world.plan(third.key, "c")
    assert world.schedule(first.key, ["b"]) == (Outcome.STEERED, ["b"])
    assert world.schedule(second.key, ["c"]) == (Outcome.STEERED, ["c"])
    assert {key: each.node for key, each in world.state.reservations.items()} == dict(
        zip((first.key, second.key, third.key), "bca", strict=True)
    )


def test_pods_that_are_alike_on_full_nodes(world: FakeCluster) -> None:
    """Each fits where the other one is to go once that one goes elsewhere."""
    large = PodClass(requests=(("cpu", 300),))
    first, second = world.pod("p1", pod_class=large), world.pod("p2", pod_class=large)
    world.deliver_watch()
    at_work(world)
    world.plan(first.key, "a")
    world.plan(second.key, "b")
    assert world.schedule(first.key, ["b"]) == (Outcome.STEERED, ["b"])
    assert world.schedule(second.key, ["a"]) == (Outcome.STEERED, ["a"])


def test_pods_that_are_alike_change_places(world: FakeCluster) -> None:
    """Asked before the nomination is written, with another's node: that one is as good, and no write is needed."""
    first, second, third = (world.pod(name) for name in ("p1", "p2", "p3"))
    world.deliver_watch()
    at_work(world)
    for pod, node in ((first, "a"), (second, "b"), (third, "c")):
        world.plan(pod.key, node)
    assert world.schedule(first.key, ["b"]) == (Outcome.STEERED, ["b"])
    where = {key: reservation.node for key, reservation in world.state.reservations.items()}
    be_idle(world)
    assert where == {first.key: "b", second.key: "a", third.key: "c"}
    assert world.schedule(first.key, ["a"])[1] == []  # it has its node: it is not asked about twice for nothing
    world.settle()
    nominated = {key: pod.nominated_node for key, pod in world.api.items() if pod.nominated_node}
    assert nominated == {first.key: "b", second.key: "a", third.key: "c"}


@pytest.mark.parametrize("unlike", ["class", "labels", "relabelled", "nominated", "held", "told"])
def test_pods_that_do_not_change_places(world: FakeCluster, unlike: str) -> None:
    """Those that differ in anything that counts, and those whose node may be known already."""
    fields: dict[str, Any] = {
        "class": {"pod_class": PodClass(requests=(("cpu", 101),))},
        "labels": {"labels": (("app", "x"),)},
        "told": {"unschedulable_message": "0/3 nodes are available"},
    }.get(unlike, {})
    first, second = world.pod("p1"), world.pod("p2", **fields)
    world.deliver_watch()
    at_work(world)
    if unlike == "held":
        assert world.schedule(second.key) == (Outcome.HELD, [])
    world.plan(first.key, "a")
    world.plan(second.key, "b")
    if unlike == "relabelled":
        world.change(second.key, labels=(("app", "x"),), nominated_node="", planned_node="")
        world.deliver_watch()
    if unlike == "nominated":
        be_idle(world)
    assert world.schedule(first.key, ["b"]) == (Outcome.HELD, [])
    assert world.state.reservations[first.key].node == "a"


def test_erased_with_its_annotation(world: FakeCluster) -> None:
    """Somebody takes away all trace of the nomination: noticed a few seconds later."""
    pod = world.pod()
    world.deliver_watch()
    planned(world)
    world.change(pod.key, nominated_node="", planned_node="")
    world.deliver_watch()
    world.advance(12)
    assert not world.state.reservations


def test_planned_for_the_same_node_again(world: FakeCluster) -> None:
    """The old nomination's annotation is no sign that the new one is lost, however long its write takes."""
    pod = world.pod()
    world.deliver_watch()
    planned(world)
    world.change(pod.key, nominated_node="")
    world.deliver_watch()
    world.advance(0.4)
    assert not world.state.reservations
    assert world.plan(pod.key, "a")
    world.change(pod.key, unschedulable_message="why")
    world.deliver_watch()
    for _ in range(20):
        world.now += 0.1
        world.look_after()
    assert world.write_kinds == ["nominate"]
    assert len(world.rejected) == 1


def test_gone_or_bound_between_reservation_and_sending(world: FakeCluster) -> None:
    """A round delivers in bursts: what happened to a pod meanwhile is heeded, and other pods' updates do no harm."""
    pods = [world.pod(name, f"u-{name}") for name in ("gone", "bound", "told")]
    world.deliver_watch()
    for pod in pods:
        assert world.state.reserve(pod, "a", Owner.STEERING)
    world.put_pod("ns/gone", None)
    world.change("ns/bound", node_name="b")
    world.change("ns/told", unschedulable_message="why")
    world.deliver_watch()
    assert set(world.state.reservations) == {"ns/told"}
    world.add_plan([PlannedPod(pod, "a") for pod in pods])
    be_idle(world)
    assert [write.pod.key for write in world.writes] == ["ns/told"]


# --- waves ---


def test_waves(world: FakeCluster) -> None:
    """The next wave is nominated once all of the one before are let through, gone or given up, or after two seconds."""
    pods = [world.pod(f"p{number}", f"u{number}") for number in range(5)]
    world.deliver_watch()
    nodes_of = {"p0": "a", "p1": "a", "p2": "a", "p3": "b", "p4": "b"}
    for pod in pods:
        assert world.state.reserve(pod, nodes_of[pod.name], Owner.STEERING)
    turns = ((1, 1), (1, 1), (1, 2), (1, 3), (2, 1))
    world.add_plan([PlannedPod(pod, nodes_of[pod.name], turn) for pod, turn in zip(pods, turns, strict=True)])
    be_idle(world)
    assert {write.pod.name for write in world.writes} == {"p0", "p1", "p4"}
    world.settle()
    assert world.schedule("ns/p2", "c") == (Outcome.HELD, [])
    world.schedule("ns/p0")
    assert not world.writes
    world.put_pod("ns/p1", None)
    world.deliver_watch()
    assert {write.pod.name for write in world.writes} == {"p2"}
    world.settle()
    world.now += 1.9
    world.look_after()
    assert not world.writes
    world.now += 0.2
    world.look_after()  # the wave begins
    be_idle(world)
    assert {write.pod.name for write in world.writes} == {"p3"}


def test_asked_about_before_its_wave(world: FakeCluster) -> None:
    """Where kube-scheduler's filters let a node pass that is planned for a pod like it, it goes there, and no write.

    The first wave whose node passes is served first; the other pod has its node and its turn then.
    """
    pods = [world.pod(f"p{number}", f"u{number}") for number in range(4)]
    world.deliver_watch()
    for pod, node in zip(pods, "abca", strict=True):
        assert world.state.reserve(pod, node, Owner.STEERING)
    turns = ((1, 1), (1, 2), (1, 3), (1, 4))
    world.add_plan([PlannedPod(pod, node, turn) for pod, node, turn in zip(pods, "abca", turns, strict=True)])
    be_idle(world)
    world.settle()
    assert world.schedule("ns/p3", "bc") == (Outcome.STEERED, ["b"])
    assert world.state.reservations["ns/p1"].node == "a"
    # Nominated for the first wave, but now a rule is against that: one that is queued gives it its place.
    assert world.schedule("ns/p0", "c") == (Outcome.STEERED, ["c"])
    assert world.state.reservations["ns/p2"].node == "a"
    assert not world.writes  # kube-scheduler is at work: it comes to p2 by itself
    assert world.schedule("ns/p2", ["a"]) == (Outcome.STEERED, ["a"])
    be_idle(world)
    assert [write.pod.name for write in world.writes] == ["p1"]


@pytest.mark.parametrize("asked", ["about other nodes", "about none"])
def test_refused_until_the_others_of_its_wave_have_come(world: FakeCluster, asked: str) -> None:
    """A pod of a later wave went first, to a node near its own: its own node is not refused for good.

    Its nomination is written again. Once it is the only one of its wave, a refusal counts.
    """
    names, nodes = ("p0", "p1", "early"), ("a", "b", "b")
    pods = [world.pod(name, f"u-{name}") for name in names]
    world.deliver_watch()
    for pod, node in zip(pods, nodes, strict=True):
        assert world.state.reserve(pod, node, Owner.STEERING)
    turns = ((1, 1), (1, 1), (1, 2))
    world.add_plan([PlannedPod(*each) for each in zip(pods, nodes, turns, strict=True)])
    be_idle(world)
    world.settle()
    assert world.schedule("ns/early") == (Outcome.STEERED, ["b"])
    for held, told in ((True, []), (False, [("ns/p1", "b")])):
        words = "2 node(s) didn't match pod topology spread constraints"
        if asked == "about other nodes":
            # Only "a" keeps the spread, and that is another pod's.
            assert world.schedule("ns/p1", "a") == (Outcome.HELD, [])
            words += f", 1 {HELD_MESSAGE}"
        world.change("ns/p1", nominated_node="", unschedulable_message=f"0/3 nodes are available: {words}")
        world.deliver_watch()
        world.advance(0.4)
        assert (world.api["ns/p1"].nominated_node == "b") == held
        assert world.rejected == told
        assert world.schedule("ns/p0") == (Outcome.STEERED, ["a"])


def test_refused_on_a_node_that_kube_scheduler_has_not_seen(world: FakeCluster) -> None:
    """The node came a moment ago: the nomination is written again. Five seconds later a refusal counts."""
    pod = world.pod()
    world.deliver_watch()
    world.state.upsert_node(Node("new", allocatable=(("cpu", 300), ("pods", 10))))
    planned(world, pod.key, "new")
    for wait, told in ((0.0, []), (5.0, [(pod.key, "new")])):
        world.now += wait
        assert world.schedule(pod.key, "ab") == (Outcome.HELD, [])
        message = f"0/3 nodes are available: {HELD_MESSAGE}"
        world.change(pod.key, nominated_node="", unschedulable_message=message)
        world.deliver_watch()
        world.advance(0.4)
        assert (world.api[pod.key].nominated_node == "new") == (not told)
        assert world.rejected == told


def test_woken_after_a_refusal_that_came_too_early(world: FakeCluster) -> None:
    """kube-scheduler leaves the nomination of a pod that may not preempt, and sleeps. It is woken, once."""
    pod = world.pod(preempts=False)
    world.deliver_watch()
    world.state.upsert_node(Node("new", allocatable=(("cpu", 300), ("pods", 10))))
    planned(world, pod.key, "new")
    assert world.schedule(pod.key) == (Outcome.HELD, [])
    world.change(pod.key, unschedulable_message=f"0/4 nodes are available: 1 {HELD_MESSAGE}")
    world.deliver_watch()
    woken: list[float] = []
    world.put_write = lambda write: woken.append(world.now) if isinstance(write, WakePod) else None
    began = world.now
    world.advance(20.0)
    assert [at - began < 11.0 for at in woken] == [True]
    assert world.schedule(pod.key, [*NODES, "new"]) == (Outcome.STEERED, ["new"])


@pytest.mark.parametrize(("label", "rounds"), [("topology.kubernetes.io/zone", 0), ("set", 1)])
def test_bound_as_planned_with_labels_of_its_node(world: FakeCluster, label: str, rounds: int) -> None:
    """The API server copies the zone of the node to the pod: that alone asks for no round, though others count pods."""
    selector = LabelSelector((Requirement("app", "In", ("x",)),))
    rules = InterPodConstraints(spread=(SpreadConstraint("example.com/rack", 1, selector),))
    pod = world.pod(labels=(("app", "x"),), constraints=rules)
    world.pod("other", labels=(("app", "x"),), constraints=rules)
    world.deliver_watch()
    planned(world)
    assert world.schedule(pod.key) == (Outcome.STEERED, ["a"])
    before = world.state.rounds_requested
    world.change(pod.key, node_name="a", labels=(("app", "x"), (label, "1")))
    world.deliver_watch()
    assert world.state.rounds_requested - before == rounds


@pytest.mark.parametrize("change", ["cordoned", "gone"])
def test_refused_on_a_node_that_changed_since_it_was_planned(world: FakeCluster, change: str) -> None:
    """kube-scheduler refuses it for that: the refusal counts, and the nomination is not written again."""
    pod = world.pod()
    world.deliver_watch()
    planned(world, pod.key, "c")
    if change == "gone":
        world.state.delete_node("c")
    else:
        world.state.upsert_node(Node("c", unschedulable=True, allocatable=(("cpu", 300), ("pods", 10))))
    assert world.schedule(pod.key, "ab") == (Outcome.HELD, [])
    world.change(pod.key, nominated_node="", unschedulable_message=f"0/3 nodes are available: {HELD_MESSAGE}")
    world.deliver_watch()
    world.advance(0.4)
    assert not world.api[pod.key].nominated_node
    assert world.rejected == [(pod.key, "c")]


def test_chains_do_not_wait_for_each_other(world: FakeCluster) -> None:
    """But a later plan's wait for all of the earlier ones: what it counts on may still be on its way."""
    pods = [world.pod(f"p{number}", f"u{number}") for number in range(5)]
    world.deliver_watch()
    nodes_of = dict(zip(pods, "aabbc", strict=True))
    for pod in pods:
        assert world.state.reserve(pod, nodes_of[pod], Owner.STEERING)
    turns = ((1, 1), (1, 2), (2, 1), (2, 2))
    world.add_plan([PlannedPod(pod, nodes_of[pod], turn) for pod, turn in zip(pods, turns, strict=False)])
    world.add_plan([PlannedPod(pods[4], "c", (1, 1))])
    be_idle(world)
    assert {write.pod.name for write in world.writes} == {"p0", "p2"}
    world.settle()
    world.schedule("ns/p2")
    be_idle(world)
    assert [write.pod.name for write in world.writes] == ["p3"]
    world.settle()
    world.schedule("ns/p3")
    world.schedule("ns/p0")
    be_idle(world)
    assert [write.pod.name for write in world.writes] == ["p1"]
    world.settle()
    world.schedule("ns/p1")
    be_idle(world)
    assert [write.pod.name for write in world.writes] == ["p4"]


# --- units ---


def planned_unit(world: FakeCluster, *names: str, unit: str = "gang ml") -> list[PlannedPod]:
    """Gated pods with reservations, one node after the other."""
    pods = [world.pod(name, f"u-{name}", gated=True) for name in names]
    world.deliver_watch()
    planned = [PlannedPod(pod, NODES[at % len(NODES)], atomic_group=unit) for at, pod in enumerate(pods)]
    assert all(world.state.reserve(each.pod, each.node, Owner.STEERING) for each in planned)
    return planned


def test_gates_of_a_unit_open_together(world: FakeCluster) -> None:
    """Each of its pods is nominated before any of them is let go; a pod by itself is let go without a nomination."""
    world.add_plan([*planned_unit(world, "p", "q"), *planned_unit(world, "alone", unit="")])
    assert [(write.kind, write.pod.name) for write in world.writes] == [
        ("nominate", "p"),
        ("nominate", "q"),
        ("open", "alone"),
    ]
    world.send_write(0)
    assert [(write.kind, write.pod.name) for write in world.writes] == [("nominate", "q"), ("open", "alone")]
    world.send_write(0)
    assert {(write.kind, write.pod.name) for write in world.writes} == {("open", "alone"), ("open", "p"), ("open", "q")}


@pytest.mark.parametrize("how", ["not written", "deleted", "nominated by others"])
def test_a_unit_that_lost_a_pod_before_its_gates_opened(world: FakeCluster, how: str) -> None:
    """None of it is let go: nominations are taken back, reservations end, and the next round plans it anew."""
    world.add_plan(planned_unit(world, "p", "q", "r"))
    world.send_write(0)
    world.deliver_watch()
    match how:
        case "not written":
            world.send_write(0, problem="forbidden")
        case "deleted":
            world.put_pod("ns/q", None)
        case _:
            world.change("ns/q", nominated_node="b")
    world.deliver_watch()
    world.settle()
    world.advance(5)
    assert not {"ns/p", "ns/r"} & world.state.reservations.keys()
    for name in ("p", "r"):
        assert world.api[f"ns/{name}"].gated
        assert not world.api[f"ns/{name}"].nominated_node


def test_what_is_taken_back_is_not_on_its_way(world: FakeCluster) -> None:
    """One of a gang is gone before the gates opened: all of it is needed again, though there is room still held."""
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "ml"), GangSpec(min_member=3))
    pods = [world.pod(name, f"u-{name}", gated=True, gang=gang) for name in "pqr"]
    world.deliver_watch()
    assert all(world.state.reserve(pod, "a", Owner.STEERING) for pod in pods)
    world.add_plan([PlannedPod(pod, "a", atomic_group="gang ns/ml") for pod in pods])
    world.send_write(0)
    world.deliver_watch()
    assert len(world.ledger.gang_pods()) == 3
    world.put_pod("ns/q", None)
    world.deliver_watch()
    assert world.state.reservations
    assert not world.ledger.gang_pods()
    assert world.state.shell.state.nominations.is_withdrawing("gang ns/ml")
    world.settle()
    world.advance(5)
    assert not world.state.shell.state.nominations.is_withdrawing("gang ns/ml")
    assert not world.state.reservations


def test_a_pod_of_a_unit_is_bound_early(world: FakeCluster) -> None:
    """Somebody opens its gate and it is bound where it was to be: the others go on, none is taken back."""
    world.add_plan(planned_unit(world, "p", "q"))
    world.change("ns/p", gated=False, node_name="a")
    world.deliver_watch()
    world.send_write(1)
    assert [(write.kind, write.pod.name) for write in world.writes if write.still_wanted()] == [("open", "q")]


def test_pods_of_a_unit_without_gates(world: FakeCluster) -> None:
    """Each is nominated at once, and that one of them is through is nothing to the others."""
    pods = [world.pod(name, f"u-{name}") for name in "pqr"]
    world.deliver_watch()
    assert all(world.state.reserve(pod, "a", Owner.STEERING) for pod in pods)
    world.add_plan([PlannedPod(pod, "a", atomic_group="gang ml") for pod in pods])
    assert world.write_kinds == ["nominate"] * 3
    world.schedule("ns/p")
    world.change("ns/p", node_name="a")
    world.deliver_watch()
    assert world.write_kinds == ["nominate"] * 2
    assert not world.state.shell.state.nominations.is_withdrawing("gang ml")


def test_a_spare_pod_is_lost(world: FakeCluster) -> None:
    """Its unit opens without it; and a spare pod's own gate opens with those that are needed."""
    planned = planned_unit(world, "p", "q", "spare", "lost")
    needed, spare = (
        planned[:2],
        [PlannedPod(each.pod, each.node, atomic_group=each.atomic_group, optional=True) for each in planned[2:]],
    )
    world.add_plan([*spare, *needed])
    world.send_write(0)
    world.send_write(0, problem="forbidden")
    world.send_write(0)
    assert [write.kind for write in world.writes] == ["nominate"]
    world.send_write(0)
    assert {(write.kind, write.pod.name) for write in world.writes} == {("open", "p"), ("open", "q"), ("open", "spare")}


def test_policies_change_while_a_unit_waits_for_its_wave(world: FakeCluster) -> None:
    """All of it is given up, one with the other."""
    units = [planned_unit(world, "p", "q"), planned_unit(world, "r", "s")]
    world.add_plan(
        [PlannedPod(each.pod, each.node, (1, at + 1), "gang ml") for at, unit in enumerate(units) for each in unit]
    )
    world.set_policy(delivery="Observe")
    world.advance(5)
    assert not world.state.reservations


def test_a_gang_under_prefer(world: FakeCluster) -> None:
    """One pod of a gang is not let go wherever it likes: without a node for all of it, it is held."""
    world.set_policy(delivery="Extender", steering="Prefer")
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "ml"), GangSpec(min_member=3))
    pod = world.pod("p", gang=gang)
    world.deliver_watch()
    world.set_free(pod)
    assert world.schedule("ns/p") == (Outcome.HELD, [])


def test_gangs_do_not_change_places(world: FakeCluster) -> None:
    """A late pod of a gang that must be in one place, and one like it that may be anywhere: each has its own node."""
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "ml"), GangSpec(min_member=1, topology_key="rack"))
    late, free = world.pod("late", "u1", gang=gang), world.pod("free", "u2")
    world.deliver_watch()
    assert world.state.reserve(late, "a", Owner.STEERING)
    assert world.state.reserve(free, "b", Owner.STEERING)
    world.add_plan([PlannedPod(late, "a"), PlannedPod(free, "b")])
    assert world.schedule("ns/late", ["b"]) == (Outcome.HELD, [])
    assert world.schedule("ns/free", ["a"]) == (Outcome.HELD, [])


def test_waves_of_a_unit_that_lost_a_pod(world: FakeCluster) -> None:
    """A pod of the first wave is lost before that was let go: those of later waves are planned anew as well."""
    first, second = planned_unit(world, "p", "q"), planned_unit(world, "later")
    world.add_plan(
        [PlannedPod(each.pod, each.node, (1, 1), "gang ml") for each in first]
        + [PlannedPod(each.pod, each.node, (1, 2), "gang ml") for each in second]
    )
    assert [write.pod.name for write in world.writes] == ["p", "q"]
    world.send_write(0, problem="forbidden")
    world.settle()
    world.advance(5)
    assert not world.state.reservations
    assert all(pod.gated for pod in world.api.values())


# --- restarts ---


def test_a_restart(world: FakeCluster) -> None:
    """Our nominations are reservations again and are followed up; behind our gate it is opened."""
    world.pod("open", "u1")
    world.pod("shut", "u2", gated=True)
    world.deliver_watch()
    for name in ("open", "shut"):
        assert world.plan(f"ns/{name}", "a")
    be_idle(world)
    world.settle()
    # As a pod of a gang whose other pods are not nominated yet.
    world.change("ns/shut", gated=True, nominated_node="a", planned_node="a")
    world.start()
    assert {key: each.owner for key, each in world.state.reservations.items()} == dict.fromkeys(
        ("ns/open", "ns/shut"), Owner.STEERING
    )
    assert [(write.kind, write.pod.name) for write in world.writes] == [("open", "shut")]
    assert world.schedule("ns/open") == (Outcome.STEERED, ["a"])
    world.advance(70)
    assert not world.state.reservations


def test_a_restart_while_a_gang_is_nominated(world: FakeCluster) -> None:
    """One of two was nominated before: its gate stays shut, and both are planned anew."""
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "ml"), GangSpec(min_member=2))
    for name in ("p", "q"):
        world.pod(name, f"u-{name}", gated=True, gang=gang)
    world.deliver_watch()
    for name in ("p", "q"):
        assert world.state.reserve(world.state.waiting[f"ns/{name}"], "a", Owner.STEERING)
    world.add_plan(
        [PlannedPod(world.state.waiting[f"ns/{name}"], "a", atomic_group="gang ns/ml") for name in ("p", "q")]
    )
    world.send_write(0)
    world.start()
    world.settle()
    world.advance(5)
    assert not world.state.reservations
    assert all(pod.gated and not pod.nominated_node for pod in world.api.values())


def test_a_restart_before_the_namespaces_are_known(world: FakeCluster) -> None:
    """A pod that is listed before its namespace's labels seems to be the binder's: its nomination is not taken back."""
    selects = {"podSelector": {}, "schedulerNames": ["shared"]}
    world.policy = {
        "selects": {**selects, "namespaceSelector": {"matchLabels": {"team": "ml"}}},
        "delivery": "Extender",
        "precedence": 1,
    }
    world.other_policies = {"binder": {"selects": selects, "delivery": "Binder"}}
    world.start()
    pod = world.pod(scheduler_name="shared")
    world.deliver_watch()
    planned(world)
    world.start(namespaces_last=True)
    world.settle()
    assert world.schedule(pod.key) == (Outcome.STEERED, ["a"])
    assert world.api[pod.key].nominated_node == "a"


# --- what each policy says ---


@pytest.mark.parametrize(
    ("policy", "names", "expected"),
    [
        ({"delivery": "Extender"}, [STEERED_NAME], Advice(managed=True, hold=True)),
        ({"delivery": "Extender", "steering": "Prefer"}, [STEERED_NAME], Advice(managed=True, hold=True)),
        ({"delivery": "Observe"}, [STEERED_NAME], Advice(infeasible_nodes=[])),
        ({"delivery": "Binder"}, ["shared"], Advice(managed=True, hold=True)),
        ({"delivery": "Extender"}, ["another"], Advice(infeasible_nodes=[])),
    ],
)
def test_guidance_without_a_plan(policy: dict[str, Any], names: list[str], expected: Advice) -> None:
    """Held under Extender and Binder, passed where nobody or only an observer governs."""
    world = FakeCluster(**{**policy, "selects": {"podSelector": {}, "schedulerNames": names}})
    pod = world.pod(scheduler_name="shared" if names == ["shared"] else STEERED_NAME)
    world.deliver_watch()
    assert world.view.advise(world.extender_pod(pod.key), NODES) == expected


def test_prefer_has_no_node() -> None:
    """Let go when the plan has none, woken for that if it was held; steered again when the plan has one."""
    world = FakeCluster(steering="Prefer")
    pod = world.pod()
    world.deliver_watch()
    assert world.schedule(pod.key)[0] is Outcome.HELD
    world.set_free(pod)
    world.set_free(pod)
    assert world.write_kinds == ["wake"]
    assert world.schedule(pod.key) == (Outcome.PASSED, list(NODES))
    planned(world, node="c")
    assert world.schedule(pod.key) == (Outcome.STEERED, ["c"])


def test_prefer_is_refused_its_node() -> None:
    """kube-scheduler's filters refuse the planned node: it chooses in the same attempt."""
    world = FakeCluster(steering="Prefer")
    pod = world.pod()
    world.deliver_watch()
    planned(world)
    assert world.schedule(pod.key, ("b", "c")) == (Outcome.PASSED, ["b", "c"])
    world.change(pod.key, node_name="b", nominated_node="")
    world.deliver_watch()
    assert not world.state.reservations
    assert world.count("elsewhere") == 1


def test_policies_change_under_way(world: FakeCluster) -> None:
    """Under Observe nothing more is nominated, what is nominated is taken back, and held pods are woken."""
    for name in ("held", "nominated", "queued"):
        world.pod(name, f"u-{name}")
    world.deliver_watch()
    world.schedule("ns/held")
    planned(world, "ns/nominated", "a")
    queued = world.state.waiting["ns/queued"]
    for pod, node in ((queued, "b"),):
        assert world.state.reserve(pod, node, Owner.STEERING)
    first = world.pod("first", "u-first")
    world.deliver_watch()
    assert world.state.reserve(first, "c", Owner.STEERING)
    world.add_plan([PlannedPod(first, "c", (1, 1)), PlannedPod(queued, "b", (1, 2))])

    world.set_policy(delivery="Observe", selects={"podSelector": {}, "schedulerNames": [STEERED_NAME]})
    world.look_after()
    assert ("wake", "held") in [(write.kind, write.pod.name) for write in world.writes]
    world.advance(10)
    assert not world.state.reservations
    assert not any(pod.nominated_node for pod in world.api.values())
    assert world.schedule("ns/held") == (Outcome.PASSED, list(NODES))


# --- others ---


def test_nominations_of_others(world: FakeCluster) -> None:
    """They end ours and are never written over; the pod may go there, and nowhere else under Require."""
    pod = world.pod()
    world.deliver_watch()
    planned(world)
    world.change(pod.key, nominated_node="b")
    world.deliver_watch()
    assert world.state.reservations[pod.key].owner is Owner.OTHERS
    world.advance(100)
    assert world.api[pod.key].nominated_node == "b"
    assert world.schedule(pod.key) == (Outcome.PASSED, ["b"]) or world.schedule(pod.key) == (Outcome.STEERED, ["b"])


def test_unmanaged_pods_are_kept_off_promised_room(world: FakeCluster) -> None:
    """Nodes that reservations fill do not pass for pods of the same priority, and do for those above a nomination."""
    big = PodClass(requests=(("cpu", 300),))
    world.pod("ours", "u1", pod_class=big)
    world.pod("bound", "u2", pod_class=big, scheduler_name=SCHEDULER_NAME)
    world.pod("theirs", "u3", scheduler_name="default-scheduler")
    world.pod("urgent", "u4", pod_class=PodClass(requests=(("cpu", 100),), priority=9), scheduler_name="x")
    world.deliver_watch()
    planned(world, "ns/ours", "a")
    assert world.bind("ns/bound", "b")
    assert world.schedule("ns/theirs") == (Outcome.PASSED, ["c"])
    assert world.schedule("ns/urgent") == (Outcome.PASSED, ["a", "c"])
    # A binding of ours that we have seen may still be news to kube-scheduler.
    world.change("ns/bound", node_name="b", usage=big.requests)
    world.deliver_watch()
    assert world.schedule("ns/theirs") == (Outcome.PASSED, ["c"])


def test_what_passed_counts_for_the_binder(world: FakeCluster) -> None:
    """Any node that an unmanaged pod passed for may be taken by it, until it is bound or ten seconds went by."""
    big = PodClass(requests=(("cpu", 300),))
    world.pod("ours", "u1", pod_class=big, scheduler_name=SCHEDULER_NAME)
    world.pod("theirs", "u3", scheduler_name="default-scheduler")
    world.deliver_watch()
    assert world.schedule("ns/theirs", ("a", "b"))[1] == ["a", "b"]
    assert not world.bind("ns/ours", "a")
    assert world.bind("ns/ours", "c")
    world.state.release("ns/ours", "u1")
    world.change("ns/theirs", node_name="b", usage=CLASS.requests)
    world.deliver_watch()
    assert world.bind("ns/ours", "a")
    world.state.release("ns/ours", "u1")
    world.pod("slow", "u4", scheduler_name="default-scheduler")
    world.deliver_watch()
    world.schedule("ns/slow", ("a",))
    assert not world.bind("ns/ours", "a")
    world.advance(16)
    assert world.bind("ns/ours", "a")


@pytest.mark.parametrize("scheduler", ["default-scheduler", STEERED_NAME])
def test_what_each_does_not_know_of_the_other(world: FakeCluster, scheduler: str) -> None:
    """kube-scheduler knows of a pod that it assumes, we of a binding of ours: a third must fit beside both."""
    world.pod("theirs", "u1", scheduler_name="x")
    world.pod("bound", "u2", scheduler_name=SCHEDULER_NAME)
    world.pod("third", "u3", scheduler_name=scheduler, pod_class=PodClass(requests=(("cpu", 200),)))
    world.deliver_watch()
    assert world.schedule("ns/theirs", ("a", "b"))[1] == ["a", "b"]
    assert world.bind("ns/bound", "a")
    if scheduler == STEERED_NAME:
        world.state.reserve(world.state.pods["ns/third"], "a", Owner.STEERING)

        world.add_plan([PlannedPod(world.state.pods["ns/third"], "a")])
    assert "a" not in world.schedule("ns/third", ("a", "b"))[1]


def test_let_through_pods_do_not_give_way(world: FakeCluster) -> None:
    """A nomination does not count before a higher priority; a pod that is being bound there does."""
    world.pod("low", "u1")
    world.pod("bound", "u2", scheduler_name=SCHEDULER_NAME)
    urgent = PodClass(requests=(("cpu", 200),), priority=9)
    world.pod("urgent", "u3", scheduler_name="x", pod_class=urgent)
    world.deliver_watch()
    planned(world, "ns/low", "a")
    assert world.bind("ns/bound", "a")
    assert world.schedule("ns/low") == (Outcome.STEERED, ["a"])
    assert world.schedule("ns/urgent", ("a", "c"))[1] == ["c"]


def test_let_through_and_given_up(world: FakeCluster) -> None:
    """The room of a pod that kube-scheduler may still be binding is not our binder's, whatever its nomination says."""
    pod = world.pod(pod_class=PodClass(requests=(("cpu", 300),)))
    world.pod("ours", "u2", scheduler_name=SCHEDULER_NAME)
    world.deliver_watch()
    planned(world)
    world.change(pod.key, nominated_node="", unschedulable_message="2 Insufficient cpu")
    world.deliver_watch()
    assert world.schedule(pod.key) == (Outcome.STEERED, ["a"])
    world.advance(0.4)
    assert not world.bind("ns/ours", "a")


def test_somebody_nominates_for_room_that_is_taken(world: FakeCluster) -> None:
    """A nomination by others reserves whether there is room or not: beside a binding of ours it is not let through."""
    big = PodClass(requests=(("cpu", 300),))
    pod = world.pod(pod_class=big)
    world.pod("ours", "u2", scheduler_name=SCHEDULER_NAME, pod_class=big)
    world.deliver_watch()
    assert world.bind("ns/ours", "a")
    world.change(pod.key, nominated_node="a")
    world.deliver_watch()
    assert world.schedule(pod.key) == (Outcome.HELD, [])


# --- anything in any order ---


class AnyOrder(RuleBasedStateMachine):
    """kube-scheduler, the API server, the rounds, other people and restarts, in any order."""

    KEYS = ("ns/p", "ns/q", "ns/r")

    @initialize(prefer=st.booleans())
    def begin(self, prefer: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        self.world = FakeCluster(steering="Prefer" if prefer else "Require")
        self.number = 0
        #: Attempts under way: what passed.
        self.trying: dict[str, tuple[str, list[str]]] = {}

    def _there(self, key: str) -> Pod | None:
        pod = self.world.api.get(key)
        return None if pod is None or pod.node_name else pod

    @rule(key=st.sampled_from(KEYS), gated=st.booleans())
    def comes(self, key: str, gated: bool) -> None:  # noqa: FBT001
        if key not in self.world.api:
            self.number += 1
            self.world.pod(key.partition("/")[2], f"u{self.number}", gated=gated)

    @rule(key=st.sampled_from(KEYS))
    def goes(self, key: str) -> None:
        if key in self.world.api:
            self.world.put_pod(key, None)

    @rule(key=st.sampled_from(KEYS), node=st.sampled_from(NODES), wave=st.sampled_from((0, 1, 2)))
    def plans(self, key: str, node: str, wave: int) -> None:
        self.world.plan(key, node, wave)

    @precondition(lambda self: self.world.writes)
    @rule(at=st.integers(0, 3), problem=st.sampled_from(("", "", "", "refused")))
    def writes(self, at: int, problem: str) -> None:
        write = self.world.writes[min(at, len(self.world.writes) - 1)]
        known = self.world.state.pods.get(write.pod.key)
        if write.kind in ("nominate", "clear") and write.still_wanted():
            assert known is not None, "a write for a pod that is known to be gone"
            assert (known.uid, known.node_name) == (write.pod.uid, ""), "a write for a pod that is bound or another"
        self.world.send_write(min(at, len(self.world.writes) - 1), problem)

    @rule(most=st.integers(1, 3))
    def sees(self, most: int) -> None:
        self.world.deliver_watch(most)

    @rule(key=st.sampled_from(KEYS), fits=st.sets(st.sampled_from(NODES)))
    def tries(self, key: str, fits: set[str]) -> None:
        pod = self._there(key)
        if pod is None or pod.gated or key in self.trying:
            return
        _, passed = self.world.schedule(key, sorted(fits))
        self.trying[key] = pod.uid, passed

    @rule(key=st.sampled_from(KEYS), nodes=st.sets(st.sampled_from(NODES)), known=st.booleans())
    def asks_without_an_attempt(self, key: str, nodes: set[str], known: bool) -> None:  # noqa: FBT001
        """Prioritize and preempt ask the same: asked twice, the same answer, and nothing has changed."""
        pod = self.world.api.get(key)
        if pod is None:
            return
        asked = self.world.extender_pod(key, None if known else msgspec.structs.replace(pod, nominated_node=""))
        before = state_snapshot((self.world.state.cluster, self.world.ledger, self.world.writes))
        first = self.world.view.advise(asked, sorted(nodes))
        assert self.world.view.advise(asked, sorted(nodes)) == first
        assert state_snapshot((self.world.state.cluster, self.world.ledger, self.world.writes)) == before

    @rule(key=st.sampled_from(KEYS), fails=st.booleans(), told=st.sampled_from((HELD_MESSAGE, "2 Insufficient cpu")))
    def ends(self, key: str, fails: bool, told: str) -> None:  # noqa: FBT001
        uid, passed = self.trying.pop(key, ("", []))
        pod = self._there(key)
        if pod is None or pod.uid != uid:
            return
        if passed and not fails:
            self.world.change(key, node_name=passed[0], usage=CLASS.requests)
        else:
            self.world.change(key, nominated_node="", unschedulable_message=told)

    @rule(key=st.sampled_from(KEYS), node=st.sampled_from(("", *NODES)))
    def others_nominate(self, key: str, node: str) -> None:
        if self._there(key) is not None:
            self.world.change(key, nominated_node=node)

    @rule(seconds=st.sampled_from((0.05, 0.2, 1.0, 3.0, 20.0, 70.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.look_after()

    @rule(delivery=st.sampled_from(("Extender", "Extender", "Observe")))
    def the_policy_changes(self, delivery: str) -> None:
        self.world.set_policy(delivery=delivery, selects={"podSelector": {}, "schedulerNames": [STEERED_NAME]})

    @rule()
    def restarts(self) -> None:
        self.world.start()

    @invariant()
    def steered_pods_have_their_reservations(self) -> None:
        """And those reservations have somebody who ends them."""
        if not hasattr(self, "world"):
            return
        steered = {each.pod.key: (each.pod.uid, each.node) for each in nominations(self.world.ledger)}
        reserved = {key: (each.pod.uid, each.node) for key, each in self.world.state.reservations.items()
                    if each.owner is Owner.STEERING}  # fmt: skip
        assert steered == reserved

    @invariant()
    def one_nomination_at_a_time(self) -> None:
        """Of the writes in line for a pod that are wanted, none names another node than its reservation."""
        if not hasattr(self, "world"):
            return
        for write in self.world.writes:
            if write.kind == "nominate" and write.still_wanted():
                assert self.world.state.reservations[write.pod.key].node == write.node

    def teardown(self) -> None:
        """Every reservation ends, though nobody follows any more."""
        if not hasattr(self, "world"):
            return
        self.world.settle()
        self.world.advance(30, 0.5)
        self.world.advance(120, 2.0)
        left = {key: each.owner for key, each in self.world.state.reservations.items() if each.owner is Owner.STEERING}
        assert not left, left
        for pod in self.world.api.values():
            if not pod.node_name and pod.nominated_node:
                assert pod.nominated_node != pod.planned_node, "a nomination of ours that nobody ends"


AnyOrder.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase
