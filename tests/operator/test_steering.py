"""Steering against a kube-scheduler, an API server and a clock. In any order: test_ledger_machine."""

from typing import Any

import msgspec
import pytest
from support.fake_cluster.steered import CLASS, NODES, SteeredCluster, steering
from thalweg_extender.answers import FilterOutcome
from thalweg_operator.reservations.effects import WakePod
from thalweg_operator.reservations.events import PricesPlanned
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.steering.nominations import ReservedPlacement
from thalweg_operator.reservations.steering.records.planned_prices import NO_ROOM

from flowcore.model.advice import HELD_MESSAGE, Advice
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import HOSTNAME, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.volumes import ClaimVolume


@pytest.fixture
def world() -> SteeredCluster:
    return SteeredCluster()


def planned(world: SteeredCluster, key: str = "ns/p", node: str = "a") -> None:
    """Nominated, and seen to be."""
    assert world.plan_pod(key, node)
    world.now += 1  # kube-scheduler is idle
    world.look_after()
    world.settle()
    assert world.api[key].nominated_node == node


# --- the way of one pod ---


def test_nominated_let_through_and_bound(world: SteeredCluster) -> None:
    """The reservation is there from the plan to the binding; the pod is let through to its node alone."""
    pod = world.pod()
    world.show()
    assert world.schedule(pod.key) == (FilterOutcome.HELD, [])
    planned(world)
    assert world.state.reservations[pod.key].owner is Owner.STEERING
    assert world.schedule(pod.key) == (FilterOutcome.STEERED, ["a"])
    world.change_pod(pod.key, node_name="a")
    world.show()
    assert not world.state.reservations
    assert world.count("bound") == 1
    world.wait(100)
    assert not world.writes


def test_let_through_before_the_nomination_is_written(world: SteeredCluster) -> None:
    """kube-scheduler asks while the write waits in line: steered, and after the binding nothing is written."""
    pod = world.pod()
    world.show()
    world.plan_pod(pod.key, "b")
    assert world.schedule(pod.key) == (FilterOutcome.STEERED, ["b"])
    world.change_pod(pod.key, node_name="b")
    world.show()
    assert world.write_kinds == []


def test_an_attempt_that_did_not_know_erases(world: SteeredCluster) -> None:
    """A hold in flight erases the nomination: written again, once for each such attempt, and nobody is to blame."""
    pod = world.pod()
    world.show()
    ignorant = world.extender_pod(pod.key)
    planned(world)
    for _ in range(3):
        assert world.filter(ignorant, ["b", "c"]) == (FilterOutcome.HELD, [])  # a sample without the node
        world.change_pod(pod.key, nominated_node="", unschedulable_message=f"0/3 nodes are available: {HELD_MESSAGE}")
        world.show()
        world.wait(0.4)
        assert world.api[pod.key].nominated_node == "a"
    assert world.rejected == []
    assert world.count("erased") == 3


def test_erased_and_not_by_an_attempt_that_was_held(world: SteeredCluster) -> None:
    """kube-scheduler's filters leave no node, so it asks nobody and erases: the pair is reported, the room is free."""
    pod = world.pod()
    world.show()
    planned(world)
    world.change_pod(pod.key, nominated_node="")
    world.show()
    world.wait(0.4)
    assert world.rejected == [(pod.key, "a")]
    assert not world.state.reservations


def test_erased_by_filters_that_leave_no_node(world: SteeredCluster) -> None:
    """Held before the plan came, refused by every filter after it: the latest words say which of the two erased it."""
    pod = world.pod()
    world.show()
    world.schedule(pod.key)
    world.change_pod(pod.key, unschedulable_message=f"0/3 nodes are available: {HELD_MESSAGE}")
    planned(world)
    world.change_pod(
        pod.key, nominated_node="", unschedulable_message="0/3 nodes are available: 3 node(s) were unschedulable"
    )
    world.show()
    world.wait(0.4)
    assert world.rejected == [(pod.key, "a")]


def test_room_that_others_took(world: SteeredCluster) -> None:
    """kube-scheduler does not wake a pod for a node that is full: the nomination is taken back within seconds."""
    pod = world.pod()
    world.show()
    planned(world)
    world.pod("theirs", "u2", scheduler_name="x", node_name="a", usage=(("cpu", 300),))
    world.show()
    world.wait(12)
    assert not world.state.reservations
    assert world.api[pod.key].nominated_node == ""


def test_rewrites_are_bounded(world: SteeredCluster) -> None:
    """However often an attempt that did not know is held and erases, after five times it counts as refused."""
    pod = world.pod()
    world.show()
    ignorant = world.extender_pod(pod.key)
    planned(world)
    for _ in range(10):
        world.filter(ignorant, ["b", "c"])
        world.change_pod(pod.key, nominated_node="", unschedulable_message=f"0/3 nodes are available: {HELD_MESSAGE}")
        world.show()
        world.wait(0.4)
    assert world.count("erased") == 5
    assert world.rejected == [(pod.key, "a")]


def test_asked_about_others_in_full_knowledge(world: SteeredCluster) -> None:
    """The nominated node is refused in-tree: taken back, reported, and free for others."""
    pod = world.pod()
    world.show()
    planned(world)
    assert world.schedule(pod.key, ("b", "c")) == (FilterOutcome.HELD, [])
    world.wait(1)
    assert world.rejected == [(pod.key, "a")]
    assert not world.state.reservations
    assert world.api[pod.key].nominated_node == ""
    assert world.plan_pod(pod.key, "b")


def test_an_attempt_that_was_let_through_fails(world: SteeredCluster) -> None:
    """It found the node by itself and was not bound. Asked about others next, it is told the node by nomination."""
    pod = world.pod()
    world.show()
    world.plan_pod(pod.key, "a")
    assert world.schedule(pod.key) == (FilterOutcome.STEERED, ["a"])
    world.wait(20)  # as long as it may take: nobody else is given the room
    assert world.state.reservations
    assert world.schedule(pod.key, ("b", "c")) == (FilterOutcome.HELD, [])
    world.settle()
    assert world.api[pod.key].nominated_node == "a"
    assert world.schedule(pod.key, ("b", "c")) == (FilterOutcome.HELD, [])
    world.wait(1)
    assert world.rejected == [(pod.key, "a")]


def test_nobody_follows(world: SteeredCluster) -> None:
    """A nomination is taken back after a minute, and the room with it; the pair does not rest."""
    pod = world.pod()
    world.show()
    planned(world)
    world.wait(59)
    assert world.state.reservations
    world.wait(8)
    assert not world.state.reservations
    assert world.api[pod.key].nominated_node == ""
    assert world.rejected == []
    assert world.count("expired") == 1


def test_a_pod_with_volumes_has_longer(world: SteeredCluster) -> None:
    """Provisioning takes up to ten minutes."""
    pod = world.pod(pod_class=msgspec.structs.replace(CLASS, volumes=(ClaimVolume("ns", "data"),)))
    world.show()
    planned(world)
    assert world.schedule(pod.key) == (FilterOutcome.STEERED, ["a"])
    world.wait(600, 1.0)
    assert world.state.reservations
    world.wait(80, 1.0)
    assert not world.state.reservations


def test_a_nomination_that_cannot_be_written(world: SteeredCluster) -> None:
    """Refused by the API server: given up; the room is free, and the pod rests, since no other node would help."""
    pod = world.pod()
    world.show()
    world.plan_pod(pod.key, "a")
    be_idle(world)
    world.refuse(0, "admission webhook says no")
    assert not world.state.reservations
    assert world.rejected == []
    assert world.refused == [(pod.key, "the API server refused to nominate node a for it: admission webhook says no")]


def test_a_nomination_that_cannot_be_cleared(world: SteeredCluster) -> None:
    """However often kube-scheduler asks meanwhile, one write is in line; once it is carried out the room is free."""
    pod = world.pod()
    world.show()
    planned(world)
    world.now += 100.0
    world.look_after()
    for _ in range(5):
        world.refuse(0, "forbidden")
        world.now += 30.0
        world.look_after()
        world.schedule(pod.key, ["b"])
    assert [kind for kind, _ in world.in_line] == ["clear"]
    world.settle()
    world.wait(5)
    assert not world.state.reservations


def at_work(world: SteeredCluster) -> None:
    """kube-scheduler is: it asks about a pod that has no plan."""
    if "ns/other" not in world.api:
        world.pod("other")
        world.show()
    assert world.schedule("ns/other") == (FilterOutcome.HELD, [])


def be_idle(world: SteeredCluster) -> None:
    """kube-scheduler is: it asks about nothing for a second."""
    world.now += 1
    world.look_after()


def test_a_pod_that_stands_in_line(world: SteeredCluster) -> None:
    """While kube-scheduler is at work nothing is written for it; then it is, or its room goes to somebody else."""
    pod, taker = world.pod(), world.pod("taker", pod_class=PodClass(requests=(("cpu", 300),)))
    world.show()
    for end in ("idle", "tried in vain", "taken"):
        at_work(world)
        world.plan_pod(pod.key, "a")
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
                world.change_pod(pod.key, unschedulable_message="0/3 nodes are available")
                world.show()
                assert world.write_kinds == ["nominate"]
            case "taken":
                world.change_pod(taker.key, node_name="a", usage=taker.pod_class.requests)
                world.show()
                for _ in range(30):
                    world.now += 0.2
                    at_work(world)
                    world.look_after()
                assert not world.write_kinds
                assert not world.state.reservations
        world.remove_pod(pod.key)
        world.show()
        world.settle()
        pod = world.pod()
        world.show()


def test_right_after_a_plan_nothing_is_written(world: SteeredCluster) -> None:
    """kube-scheduler may be starting, or its watch be behind: it is idle if it asks nothing for a second."""
    pods = [world.pod(f"p{number}", f"u{number}") for number in range(3)]
    world.show()
    for pod, node in zip(pods, "abc", strict=True):
        world.plan_pod(pod.key, node)
    for _ in range(9):
        world.now += 0.1
        world.look_after()
    assert not world.write_kinds
    world.now += 0.2
    world.look_after()
    assert world.write_kinds == ["nominate"] * 3


def test_a_pod_that_stood_in_line_for_too_long(world: SteeredCluster) -> None:
    """It is nominated though kube-scheduler is at work; asked about sooner, it still takes an equal pod's place."""
    first, second, third = (world.pod(name) for name in ("p1", "p2", "p3"))
    world.show()
    at_work(world)
    world.plan_pod(first.key, "a")
    for _ in range(152):
        world.now += 0.2
        at_work(world)
        world.look_after()
    assert [write.pod.key for write in world.writes] == [first.key]
    world.plan_pod(second.key, "b")
    world.plan_pod(third.key, "c")
    assert world.schedule(first.key, ["b"]) == (FilterOutcome.STEERED, ["b"])
    assert world.schedule(second.key, ["c"]) == (FilterOutcome.STEERED, ["c"])
    assert {key: each.node for key, each in world.state.reservations.items()} == dict(
        zip((first.key, second.key, third.key), "bca", strict=True)
    )


def test_pods_that_are_alike_on_full_nodes(world: SteeredCluster) -> None:
    """Each fits where the other one is to go once that one goes elsewhere."""
    large = PodClass(requests=(("cpu", 300),))
    first, second = world.pod("p1", pod_class=large), world.pod("p2", pod_class=large)
    world.show()
    at_work(world)
    world.plan_pod(first.key, "a")
    world.plan_pod(second.key, "b")
    assert world.schedule(first.key, ["b"]) == (FilterOutcome.STEERED, ["b"])
    assert world.schedule(second.key, ["a"]) == (FilterOutcome.STEERED, ["a"])


def test_pods_that_are_alike_change_places(world: SteeredCluster) -> None:
    """Asked before the nomination is written, with another's node: that one is as good, and no write is needed."""
    first, second, third = (world.pod(name) for name in ("p1", "p2", "p3"))
    world.show()
    at_work(world)
    for pod, node in ((first, "a"), (second, "b"), (third, "c")):
        world.plan_pod(pod.key, node)
    assert world.schedule(first.key, ["b"]) == (FilterOutcome.STEERED, ["b"])
    where = {key: reservation.node for key, reservation in world.state.reservations.items()}
    be_idle(world)
    assert where == {first.key: "b", second.key: "a", third.key: "c"}
    assert world.schedule(first.key, ["a"])[1] == []  # it has its node: it is not asked about twice for nothing
    world.settle()
    nominated = {key: pod.nominated_node for key, pod in world.api.items() if pod.nominated_node}
    assert nominated == {first.key: "b", second.key: "a", third.key: "c"}


@pytest.mark.parametrize("unlike", ["class", "labels", "relabelled", "nominated", "held", "told"])
def test_pods_that_do_not_change_places(world: SteeredCluster, unlike: str) -> None:
    """Those that differ in anything that counts, and those whose node may be known already."""
    fields: dict[str, Any] = {
        "class": {"pod_class": PodClass(requests=(("cpu", 101),))},
        "labels": {"labels": (("app", "x"),)},
        "told": {"unschedulable_message": "0/3 nodes are available"},
    }.get(unlike, {})
    first, second = world.pod("p1"), world.pod("p2", **fields)
    world.show()
    at_work(world)
    if unlike == "held":
        assert world.schedule(second.key) == (FilterOutcome.HELD, [])
    world.plan_pod(first.key, "a")
    world.plan_pod(second.key, "b")
    if unlike == "relabelled":
        world.change_pod(second.key, labels=(("app", "x"),), nominated_node="", planned_node="")
        world.show()
    if unlike == "nominated":
        be_idle(world)
    assert world.schedule(first.key, ["b"]) == (FilterOutcome.HELD, [])
    assert world.state.reservations[first.key].node == "a"


def test_erased_with_its_annotation(world: SteeredCluster) -> None:
    """Somebody takes away all trace of the nomination: noticed a few seconds later."""
    pod = world.pod()
    world.show()
    planned(world)
    world.change_pod(pod.key, nominated_node="", planned_node="")
    world.show()
    world.wait(12)
    assert not world.state.reservations


def test_planned_for_the_same_node_again(world: SteeredCluster) -> None:
    """The old nomination's annotation is no sign that the new one is lost, however long its write takes."""
    pod = world.pod()
    world.show()
    planned(world)
    world.change_pod(pod.key, nominated_node="")
    world.show()
    world.wait(0.4)
    assert not world.state.reservations
    assert world.plan_pod(pod.key, "a")
    world.change_pod(pod.key, unschedulable_message="why")
    world.show()
    for _ in range(20):
        world.now += 0.1
        world.look_after()
    assert world.write_kinds == ["nominate"]
    assert len(world.rejected) == 1


def test_gone_or_bound_between_reservation_and_sending(world: SteeredCluster) -> None:
    """A round delivers in bursts: what happened to a pod meanwhile is heeded, and other pods' updates do no harm."""
    pods = [world.pod(name, f"u-{name}") for name in ("gone", "bound", "told")]
    world.show()
    for pod in pods:
        assert world.state.reserve(pod, "a", Owner.STEERING)
    world.remove_pod("ns/gone")
    world.change_pod("ns/bound", node_name="b")
    world.change_pod("ns/told", unschedulable_message="why")
    world.show()
    assert set(world.state.reservations) == {"ns/told"}
    world.add_plan([ReservedPlacement(pod, "a") for pod in pods])
    be_idle(world)
    assert [write.pod.key for write in world.writes] == ["ns/told"]


# --- waves ---


def test_waves(world: SteeredCluster) -> None:
    """The next wave is nominated once all of the one before are let through, gone or given up, or after two seconds."""
    pods = [world.pod(f"p{number}", f"u{number}") for number in range(5)]
    world.show()
    nodes_of = {"p0": "a", "p1": "a", "p2": "a", "p3": "b", "p4": "b"}
    for pod in pods:
        assert world.state.reserve(pod, nodes_of[pod.name], Owner.STEERING)
    turns = ((1, 1), (1, 1), (1, 2), (1, 3), (2, 1))
    world.add_plan([ReservedPlacement(pod, nodes_of[pod.name], turn) for pod, turn in zip(pods, turns, strict=True)])
    be_idle(world)
    assert {write.pod.name for write in world.writes} == {"p0", "p1", "p4"}
    world.settle()
    assert world.schedule("ns/p2", "c") == (FilterOutcome.HELD, [])
    world.schedule("ns/p0")
    assert not world.writes
    world.remove_pod("ns/p1")
    world.show()
    assert {write.pod.name for write in world.writes} == {"p2"}
    world.settle()
    world.now += 1.9
    world.look_after()
    assert not world.writes
    world.now += 0.2
    world.look_after()  # the wave begins
    be_idle(world)
    assert {write.pod.name for write in world.writes} == {"p3"}


def test_asked_about_before_its_wave(world: SteeredCluster) -> None:
    """Where kube-scheduler's filters let a node pass that is planned for a pod like it, it goes there, and no write.

    The first wave whose node passes is served first; the other pod has its node and its turn then.
    """
    pods = [world.pod(f"p{number}", f"u{number}") for number in range(4)]
    world.show()
    for pod, node in zip(pods, "abca", strict=True):
        assert world.state.reserve(pod, node, Owner.STEERING)
    turns = ((1, 1), (1, 2), (1, 3), (1, 4))
    world.add_plan([ReservedPlacement(pod, node, turn) for pod, node, turn in zip(pods, "abca", turns, strict=True)])
    be_idle(world)
    world.settle()
    assert world.schedule("ns/p3", "bc") == (FilterOutcome.STEERED, ["b"])
    assert world.state.reservations["ns/p1"].node == "a"
    # Nominated for the first wave, but now a rule is against that: one that is queued gives it its place.
    assert world.schedule("ns/p0", "c") == (FilterOutcome.STEERED, ["c"])
    assert world.state.reservations["ns/p2"].node == "a"
    assert not world.writes  # kube-scheduler is at work: it comes to p2 by itself
    assert world.schedule("ns/p2", ["a"]) == (FilterOutcome.STEERED, ["a"])
    be_idle(world)
    assert [write.pod.name for write in world.writes] == ["p1"]


@pytest.mark.parametrize("asked", ["about other nodes", "about none"])
def test_refused_until_the_others_of_its_wave_have_come(world: SteeredCluster, asked: str) -> None:
    """A pod of a later wave went first, to a node near its own: its own node is not refused for good.

    Its nomination is written again. Once it is the only one of its wave, a refusal counts.
    """
    names, nodes = ("p0", "p1", "early"), ("a", "b", "b")
    # No two of them are equal.
    pods = [world.pod(name, f"u-{name}", labels=(("app", name),)) for name in names]
    world.show()
    for pod, node in zip(pods, nodes, strict=True):
        assert world.state.reserve(pod, node, Owner.STEERING)
    turns = ((1, 1), (1, 1), (1, 2))
    world.add_plan([ReservedPlacement(*each) for each in zip(pods, nodes, turns, strict=True)])
    be_idle(world)
    world.settle()
    assert world.schedule("ns/early") == (FilterOutcome.STEERED, ["b"])
    for held, told in ((True, []), (False, [("ns/p1", "b")])):
        words = "2 node(s) didn't match pod topology spread constraints"
        if asked == "about other nodes":
            # Only "a" keeps the spread, and that is another pod's.
            assert world.schedule("ns/p1", "a") == (FilterOutcome.HELD, [])
            words += f", 1 {HELD_MESSAGE}"
        world.change_pod("ns/p1", nominated_node="", unschedulable_message=f"0/3 nodes are available: {words}")
        world.show()
        world.wait(0.4)
        assert (world.api["ns/p1"].nominated_node == "b") == held
        assert world.rejected == told
        assert world.schedule("ns/p0") == (FilterOutcome.STEERED, ["a"])


def test_refused_on_a_node_that_kube_scheduler_has_not_seen(world: SteeredCluster) -> None:
    """The node came a moment ago: the nomination is written again. Five seconds later a refusal counts."""
    pod = world.pod()
    world.show()
    world.state.upsert_node(Node("new", allocatable=(("cpu", 300), ("pods", 10))))
    planned(world, pod.key, "new")
    for wait, told in ((0.0, []), (5.0, [(pod.key, "new")])):
        world.now += wait
        assert world.schedule(pod.key, "ab") == (FilterOutcome.HELD, [])
        message = f"0/3 nodes are available: {HELD_MESSAGE}"
        world.change_pod(pod.key, nominated_node="", unschedulable_message=message)
        world.show()
        world.wait(0.4)
        assert (world.api[pod.key].nominated_node == "new") == (not told)
        assert world.rejected == told


def test_woken_after_a_refusal_that_came_too_early(world: SteeredCluster) -> None:
    """kube-scheduler leaves the nomination of a pod that may not preempt, and sleeps. It is woken, once."""
    pod = world.pod(preempts=False)
    world.show()
    world.state.upsert_node(Node("new", allocatable=(("cpu", 300), ("pods", 10))))
    planned(world, pod.key, "new")
    assert world.schedule(pod.key) == (FilterOutcome.HELD, [])
    world.change_pod(pod.key, unschedulable_message=f"0/4 nodes are available: 1 {HELD_MESSAGE}")
    world.show()
    woken: list[float] = []
    world.put_write = lambda write: woken.append(world.now) if isinstance(write, WakePod) else None
    began = world.now
    world.wait(20.0)
    assert [at - began < 11.0 for at in woken] == [True]
    assert world.schedule(pod.key, [*NODES, "new"]) == (FilterOutcome.STEERED, ["new"])


@pytest.mark.parametrize(("label", "rounds"), [("topology.kubernetes.io/zone", 0), ("set", 1)])
def test_bound_as_planned_with_labels_of_its_node(world: SteeredCluster, label: str, rounds: int) -> None:
    """The API server copies the zone of the node to the pod: that alone asks for no round, though others count pods."""
    selector = LabelSelector((Requirement("app", "In", ("x",)),))
    rules = InterPodConstraints(spread=(SpreadConstraint("example.com/rack", 1, selector),))
    pod = world.pod(labels=(("app", "x"),), constraints=rules)
    world.pod("other", labels=(("app", "x"),), constraints=rules)
    world.show()
    planned(world)
    assert world.schedule(pod.key) == (FilterOutcome.STEERED, ["a"])
    before = world.state.rounds_requested
    world.change_pod(pod.key, node_name="a", labels=(("app", "x"), (label, "1")))
    world.show()
    assert world.state.rounds_requested - before == rounds


@pytest.mark.parametrize("change", ["cordoned", "gone"])
def test_refused_on_a_node_that_changed_since_it_was_planned(world: SteeredCluster, change: str) -> None:
    """kube-scheduler refuses it for that: the refusal counts, and the nomination is not written again."""
    pod = world.pod()
    world.show()
    planned(world, pod.key, "c")
    if change == "gone":
        world.state.delete_node("c")
    else:
        world.state.upsert_node(Node("c", unschedulable=True, allocatable=(("cpu", 300), ("pods", 10))))
    assert world.schedule(pod.key, "ab") == (FilterOutcome.HELD, [])
    world.change_pod(pod.key, nominated_node="", unschedulable_message=f"0/3 nodes are available: {HELD_MESSAGE}")
    world.show()
    world.wait(0.4)
    assert not world.api[pod.key].nominated_node
    assert world.rejected == [(pod.key, "c")]


def test_chains_do_not_wait_for_each_other(world: SteeredCluster) -> None:
    """But one of a later plan waits for that chain of the earlier one whose pods it counts."""
    selector = LabelSelector((Requirement("app", "In", ("x",)),))
    rules = InterPodConstraints(spread=(SpreadConstraint("example.com/rack", 5, selector),))
    counted = {"labels": (("app", "x"),), "constraints": rules}
    kinds = (counted, counted, {}, {}, counted)
    pods = [world.pod(f"p{number}", f"u{number}", **kind) for number, kind in enumerate(kinds)]
    world.show()
    nodes_of = dict(zip(pods, "aabbc", strict=True))
    for pod in pods:
        assert world.state.reserve(pod, nodes_of[pod], Owner.STEERING)
    turns = ((1, 1), (1, 2), (2, 1), (2, 2))
    world.add_plan([ReservedPlacement(pod, nodes_of[pod], turn) for pod, turn in zip(pods, turns, strict=False)])
    world.add_plan([ReservedPlacement(pods[4], "c", (1, 1))])
    be_idle(world)
    assert {write.pod.name for write in world.writes} == {"p0", "p2"}
    for passed, begins in (("p2", ["p3"]), ("p0", ["p1"]), ("p1", ["p4"])):
        world.settle()
        world.schedule(f"ns/{passed}")
        be_idle(world)
        assert [write.pod.name for write in world.writes] == begins


# --- units ---


#: Pods that a constraint places together or not at all: all of them are nominated.
TOGETHER: dict[str, Any] = {"labels": (("unit", "ml"),)}
CONSTRAINT = {"name": "near", "together": {"pods": {"matchLabels": {"unit": "ml"}}, "topologyKey": "zone"}}


def planned_unit(world: SteeredCluster, *names: str, unit: str = "gang ml") -> list[ReservedPlacement]:
    """Gated pods with reservations, one node after the other."""
    world.set_policy(constraints=[CONSTRAINT])
    pods = [world.pod(name, f"u-{name}", gated=True, **(TOGETHER if unit else {})) for name in names]
    world.show()
    planned = [ReservedPlacement(pod, NODES[at % len(NODES)], atomic_group=unit) for at, pod in enumerate(pods)]
    assert all(world.state.reserve(each.pod, each.node, Owner.STEERING) for each in planned)
    return planned


def test_gates_of_a_unit_open_together(world: SteeredCluster) -> None:
    """Each of its pods is nominated before any of them is let go; a pod by itself is let go without a nomination."""
    world.add_plan([*planned_unit(world, "p", "q"), *planned_unit(world, "alone", unit="")])
    assert world.in_line == [
        ("nominate", "p"),
        ("nominate", "q"),
        ("open", "alone"),
    ]
    world.send(0)
    assert world.in_line == [("nominate", "q"), ("open", "alone")]
    world.send(0)
    assert set(world.in_line) == {("open", "alone"), ("open", "p"), ("open", "q")}


@pytest.mark.parametrize("how", ["not written", "deleted", "nominated by others"])
def test_a_unit_that_lost_a_pod_before_its_gates_opened(world: SteeredCluster, how: str) -> None:
    """None of it is let go: nominations are taken back, reservations end, and the next round plans it anew."""
    world.add_plan(planned_unit(world, "p", "q", "r"))
    world.send(0)
    world.show()
    match how:
        case "not written":
            world.refuse(0, "forbidden")
        case "deleted":
            world.remove_pod("ns/q")
        case _:
            world.change_pod("ns/q", nominated_node="b")
    world.show()
    world.settle()
    world.wait(5)
    assert not {"ns/p", "ns/r"} & world.state.reservations.keys()
    for name in ("p", "r"):
        assert world.api[f"ns/{name}"].gated
        assert not world.api[f"ns/{name}"].nominated_node


def test_what_is_taken_back_is_not_on_its_way(world: SteeredCluster) -> None:
    """One of a gang is gone before the gates opened: all of it is needed again, though there is room still held."""
    world.set_policy(constraints=[CONSTRAINT])
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "ml"), GangSpec(min_member=3))
    pods = [world.pod(name, f"u-{name}", gated=True, gang=gang, **TOGETHER) for name in "pqr"]
    world.show()
    assert all(world.state.reserve(pod, "a", Owner.STEERING) for pod in pods)
    world.add_plan([ReservedPlacement(pod, "a", atomic_group="gang ns/ml") for pod in pods])
    world.send(0)
    world.show()
    assert len(world.ledger.gang_pods()) == 3
    world.remove_pod("ns/q")
    world.show()
    assert world.state.reservations
    assert not world.ledger.gang_pods()
    assert world.shell.state.nominations.is_withdrawing("gang ns/ml")
    world.settle()
    world.wait(5)
    assert not world.shell.state.nominations.is_withdrawing("gang ns/ml")
    assert not world.state.reservations


def test_a_pod_of_a_unit_is_bound_early(world: SteeredCluster) -> None:
    """Somebody opens its gate and it is bound where it was to be: the others go on, none is taken back."""
    world.add_plan(planned_unit(world, "p", "q"))
    world.change_pod("ns/p", gated=False, node_name="a")
    world.show()
    world.send(1)
    assert world.wanted == [("open", "q")]


def test_pods_of_a_unit_without_gates(world: SteeredCluster) -> None:
    """Each is nominated at once, and that one of them is through is nothing to the others."""
    world.set_policy(constraints=[CONSTRAINT])
    pods = [world.pod(name, f"u-{name}", **TOGETHER) for name in "pqr"]
    world.show()
    assert all(world.state.reserve(pod, "a", Owner.STEERING) for pod in pods)
    world.add_plan([ReservedPlacement(pod, "a", atomic_group="gang ml") for pod in pods])
    assert world.write_kinds == ["nominate"] * 3
    world.schedule("ns/p")
    world.change_pod("ns/p", node_name="a")
    world.show()
    assert world.write_kinds == ["nominate"] * 2
    assert not world.shell.state.nominations.is_withdrawing("gang ml")


def test_a_spare_pod_is_lost(world: SteeredCluster) -> None:
    """Its unit opens without it; and a spare pod's own gate opens with those that are needed."""
    planned = planned_unit(world, "p", "q", "spare", "lost")
    needed, spare = (
        planned[:2],
        [ReservedPlacement(each.pod, each.node, atomic_group=each.atomic_group, optional=True) for each in planned[2:]],
    )
    world.add_plan([*spare, *needed])
    world.send(0)
    world.refuse(0, "forbidden")
    world.send(0)
    assert [kind for kind, _ in world.in_line] == ["nominate"]
    world.send(0)
    assert set(world.in_line) == {("open", "p"), ("open", "q"), ("open", "spare")}


def test_policies_change_while_a_unit_waits_for_its_wave(world: SteeredCluster) -> None:
    """All of it is given up, one with the other."""
    units = [planned_unit(world, "p", "q"), planned_unit(world, "r", "s")]
    world.add_plan(
        [
            ReservedPlacement(each.pod, each.node, (1, at + 1), "gang ml")
            for at, unit in enumerate(units)
            for each in unit
        ]
    )
    world.set_policy(delivery="Observe")
    world.wait(5)
    assert not world.state.reservations


def test_a_gang_under_prefer(world: SteeredCluster) -> None:
    """One pod of a gang is not let go wherever it likes: without a node for all of it, it is held."""
    world.set_policy(delivery="Extender", steering="Prefer")
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "ml"), GangSpec(min_member=3))
    pod = world.pod("p", gang=gang)
    world.show()
    world.set_free(pod)
    assert world.schedule("ns/p") == (FilterOutcome.HELD, [])


def test_gangs_do_not_change_places(world: SteeredCluster) -> None:
    """A late pod of a gang that must be in one place, and one like it that may be anywhere: each has its own node."""
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "ml"), GangSpec(min_member=1, topology_key="rack"))
    late, free = world.pod("late", "u1", gang=gang), world.pod("free", "u2")
    world.show()
    assert world.state.reserve(late, "a", Owner.STEERING)
    assert world.state.reserve(free, "b", Owner.STEERING)
    world.add_plan([ReservedPlacement(late, "a"), ReservedPlacement(free, "b")])
    assert world.schedule("ns/late", ["b"]) == (FilterOutcome.HELD, [])
    assert world.schedule("ns/free", ["a"]) == (FilterOutcome.HELD, [])


def test_waves_of_a_unit_that_lost_a_pod(world: SteeredCluster) -> None:
    """A pod of the first wave is lost before that was let go: those of later waves are planned anew as well."""
    first, second = planned_unit(world, "p", "q"), planned_unit(world, "later")
    world.add_plan(
        [ReservedPlacement(each.pod, each.node, (1, 1), "gang ml") for each in first]
        + [ReservedPlacement(each.pod, each.node, (1, 2), "gang ml") for each in second]
    )
    assert [write.pod.name for write in world.writes] == ["p", "q"]
    world.refuse(0, "forbidden")
    world.settle()
    world.wait(5)
    assert not world.state.reservations
    assert all(pod.gated for pod in world.api.values())


# --- restarts ---


def test_a_restart(world: SteeredCluster) -> None:
    """Our nominations are reservations again and are followed up; behind our gate it is opened."""
    world.pod("open", "u1")
    world.pod("shut", "u2", gated=True)
    world.show()
    for name in ("open", "shut"):
        assert world.plan_pod(f"ns/{name}", "a")
    be_idle(world)
    world.settle()
    # As a pod of a gang whose other pods are not nominated yet.
    world.change_pod("ns/shut", gated=True, nominated_node="a", planned_node="a")
    world.start()
    assert {key: each.owner for key, each in world.state.reservations.items()} == dict.fromkeys(
        ("ns/open", "ns/shut"), Owner.STEERING
    )
    assert world.in_line == [("open", "shut")]
    assert world.schedule("ns/open") == (FilterOutcome.STEERED, ["a"])
    world.wait(70)
    assert not world.state.reservations


def test_a_restart_while_a_gang_is_nominated(world: SteeredCluster) -> None:
    """One of two was nominated before: its gate stays shut, and both are planned anew."""
    world.set_policy(constraints=[CONSTRAINT])
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "ml"), GangSpec(min_member=2))
    for name in ("p", "q"):
        world.pod(name, f"u-{name}", gated=True, gang=gang, **TOGETHER)
    world.show()
    for name in ("p", "q"):
        assert world.state.reserve(world.state.waiting[f"ns/{name}"], "a", Owner.STEERING)
    world.add_plan(
        [ReservedPlacement(world.state.waiting[f"ns/{name}"], "a", atomic_group="gang ns/ml") for name in ("p", "q")]
    )
    world.send(0)
    world.start()
    world.settle()
    world.wait(5)
    assert not world.state.reservations
    assert all(pod.gated and not pod.nominated_node for pod in world.api.values())


def test_a_restart_before_the_namespaces_are_known(world: SteeredCluster) -> None:
    """A pod that is listed before its namespace's labels seems to be the binder's: its nomination is not taken back."""
    selects = {"podSelector": {}, "schedulerNames": ["shared"]}
    ours = {**selects, "namespaceSelector": {"matchLabels": {"team": "ml"}}}
    world.set_policies([steering(selects=ours, precedence=1), steering("binder", selects=selects, delivery="Binder")])
    pod = world.pod(scheduler_name="shared")
    world.show()
    planned(world)
    world.start(policies_first=True)
    world.settle()
    assert world.schedule(pod.key) == (FilterOutcome.STEERED, ["a"])
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
    world = SteeredCluster(**{**policy, "selects": {"podSelector": {}, "schedulerNames": names}})
    pod = world.pod(scheduler_name="shared" if names == ["shared"] else STEERED_NAME)
    world.show()
    assert world.view.advise(world.extender_pod(pod.key), NODES) == expected


def test_prefer_has_no_node() -> None:
    """Let go when the plan has none, woken for that if it was held; steered again when the plan has one."""
    world = SteeredCluster(steering="Prefer")
    pod = world.pod()
    world.show()
    assert world.schedule(pod.key)[0] is FilterOutcome.HELD
    world.set_free(pod)
    world.set_free(pod)
    assert world.write_kinds == ["wake"]
    assert world.schedule(pod.key) == (FilterOutcome.PASSED, list(NODES))
    planned(world, node="c")
    assert world.schedule(pod.key) == (FilterOutcome.STEERED, ["c"])


def test_prefer_is_told_what_nodes_cost() -> None:
    """As the last plan had it, whether or not a node had room or got a pod since."""
    world = SteeredCluster(steering="Prefer")
    pod = world.pod()
    world.show()
    world.set_free(pod)
    codes, positions = [0, NO_ROOM + 50, 100], {name: position for position, name in enumerate(NODES)}
    policy = world.cluster.policies.of(pod, world.state.namespaces)
    assert policy is not None
    world.state.apply(PricesPlanned(pod.pod_class, policy.name, positions, 7, 1, codes, 1, world.state.generation))
    assert world.view.advise(world.extender_pod(pod.key), ["c"]).scores == {"a": 10, "b": 5, "c": 0}


def test_prefer_is_told_what_nodes_cost_a_replica() -> None:
    """Our scores outweigh those of kube-scheduler's spread: a node with another pod of its controller has fewer."""
    world = SteeredCluster(steering="Prefer")
    for each in list(world.nodes.values()):
        world.put_node(msgspec.structs.replace(each, labels=((HOSTNAME, each.name),)))
    world.create_pod("other", pod_class=CLASS, node_name="a", spread_owner="web")
    pod = world.pod(spread_owner="web")
    world.show()
    world.set_free(pod)
    policy = world.cluster.policies.of(pod, world.state.namespaces)
    positions = {name: position for position, name in enumerate(NODES)}
    assert policy is not None
    world.state.apply(PricesPlanned(pod.pod_class, policy.name, positions, 7, 1, [0, 0, 0], 1, world.state.generation))
    assert world.view.advise(world.extender_pod(pod.key), ["c"]).scores == {"a": 0, "b": 10, "c": 10}


def test_prefer_is_refused_its_node() -> None:
    """kube-scheduler's filters refuse the planned node: it chooses in the same attempt."""
    world = SteeredCluster(steering="Prefer")
    pod = world.pod()
    world.show()
    planned(world)
    assert world.schedule(pod.key, ("b", "c")) == (FilterOutcome.PASSED, ["b", "c"])
    world.change_pod(pod.key, node_name="b", nominated_node="")
    world.show()
    assert not world.state.reservations
    assert world.count("elsewhere") == 1


def test_policies_change_under_way(world: SteeredCluster) -> None:
    """Under Observe nothing more is nominated, what is nominated is taken back, and held pods are woken."""
    for name in ("held", "nominated", "queued"):
        world.pod(name, f"u-{name}")
    world.show()
    world.schedule("ns/held")
    planned(world, "ns/nominated", "a")
    queued = world.state.waiting["ns/queued"]
    for pod, node in ((queued, "b"),):
        assert world.state.reserve(pod, node, Owner.STEERING)
    first = world.pod("first", "u-first")
    world.show()
    assert world.state.reserve(first, "c", Owner.STEERING)
    world.add_plan([ReservedPlacement(first, "c", (1, 1)), ReservedPlacement(queued, "b", (1, 2))])

    world.set_policy(delivery="Observe", selects={"podSelector": {}, "schedulerNames": [STEERED_NAME]})
    world.look_after()
    assert ("wake", "held") in world.in_line
    world.wait(10)
    assert not world.state.reservations
    assert not any(pod.nominated_node for pod in world.api.values())
    assert world.schedule("ns/held") == (FilterOutcome.PASSED, list(NODES))


# --- others ---


def test_nominations_of_others(world: SteeredCluster) -> None:
    """They end ours and are never written over; the pod may go there, and nowhere else under Require."""
    pod = world.pod()
    world.show()
    planned(world)
    world.change_pod(pod.key, nominated_node="b")
    world.show()
    assert world.state.reservations[pod.key].owner is Owner.OTHERS
    world.wait(100)
    assert world.api[pod.key].nominated_node == "b"
    assert world.schedule(pod.key) == (FilterOutcome.PASSED, ["b"]) or world.schedule(pod.key) == (
        FilterOutcome.STEERED,
        ["b"],
    )


def test_unmanaged_pods_are_kept_off_promised_room(world: SteeredCluster) -> None:
    """Nodes that reservations fill do not pass for pods of the same priority, and do for those above a nomination."""
    big = PodClass(requests=(("cpu", 300),))
    world.pod("ours", "u1", pod_class=big)
    world.pod("bound", "u2", pod_class=big, scheduler_name=SCHEDULER_NAME)
    world.pod("theirs", "u3", scheduler_name="default-scheduler")
    world.pod("urgent", "u4", pod_class=PodClass(requests=(("cpu", 100),), priority=9), scheduler_name="x")
    world.show()
    planned(world, "ns/ours", "a")
    assert world.bind("ns/bound", "b")
    assert world.schedule("ns/theirs") == (FilterOutcome.PASSED, ["c"])
    assert world.schedule("ns/urgent") == (FilterOutcome.PASSED, ["a", "c"])
    # A binding of ours that we have seen may still be news to kube-scheduler.
    world.change_pod("ns/bound", node_name="b", usage=big.requests)
    world.show()
    assert world.schedule("ns/theirs") == (FilterOutcome.PASSED, ["c"])


def test_what_passed_counts_for_the_binder(world: SteeredCluster) -> None:
    """Any node that an unmanaged pod passed for may be taken by it, until it is bound or ten seconds went by."""
    big = PodClass(requests=(("cpu", 300),))
    world.pod("ours", "u1", pod_class=big, scheduler_name=SCHEDULER_NAME)
    world.pod("theirs", "u3", scheduler_name="default-scheduler")
    world.show()
    assert world.schedule("ns/theirs", ("a", "b"))[1] == ["a", "b"]
    assert not world.bind("ns/ours", "a")
    assert world.bind("ns/ours", "c")
    world.state.release("ns/ours", "u1")
    world.change_pod("ns/theirs", node_name="b", usage=CLASS.requests)
    world.show()
    assert world.bind("ns/ours", "a")
    world.state.release("ns/ours", "u1")
    world.pod("slow", "u4", scheduler_name="default-scheduler")
    world.show()
    world.schedule("ns/slow", ("a",))
    assert not world.bind("ns/ours", "a")
    world.wait(16)
    assert world.bind("ns/ours", "a")


@pytest.mark.parametrize("scheduler", ["default-scheduler", STEERED_NAME])
def test_what_each_does_not_know_of_the_other(world: SteeredCluster, scheduler: str) -> None:
    """kube-scheduler knows of a pod that it assumes, we of a binding of ours: a third must fit beside both."""
    world.pod("theirs", "u1", scheduler_name="x")
    world.pod("bound", "u2", scheduler_name=SCHEDULER_NAME)
    world.pod("third", "u3", scheduler_name=scheduler, pod_class=PodClass(requests=(("cpu", 200),)))
    world.show()
    assert world.schedule("ns/theirs", ("a", "b"))[1] == ["a", "b"]
    assert world.bind("ns/bound", "a")
    if scheduler == STEERED_NAME:
        world.state.reserve(world.state.pods["ns/third"], "a", Owner.STEERING)

        world.add_plan([ReservedPlacement(world.state.pods["ns/third"], "a")])
    assert "a" not in world.schedule("ns/third", ("a", "b"))[1]


def test_let_through_pods_do_not_give_way(world: SteeredCluster) -> None:
    """A nomination does not count before a higher priority; a pod that is being bound there does."""
    world.pod("low", "u1")
    world.pod("bound", "u2", scheduler_name=SCHEDULER_NAME)
    urgent = PodClass(requests=(("cpu", 200),), priority=9)
    world.pod("urgent", "u3", scheduler_name="x", pod_class=urgent)
    world.show()
    planned(world, "ns/low", "a")
    assert world.bind("ns/bound", "a")
    assert world.schedule("ns/low") == (FilterOutcome.STEERED, ["a"])
    assert world.schedule("ns/urgent", ("a", "c"))[1] == ["c"]


def test_let_through_and_given_up(world: SteeredCluster) -> None:
    """The room of a pod that kube-scheduler may still be binding is not our binder's, whatever its nomination says."""
    pod = world.pod(pod_class=PodClass(requests=(("cpu", 300),)))
    world.pod("ours", "u2", scheduler_name=SCHEDULER_NAME)
    world.show()
    planned(world)
    world.change_pod(pod.key, nominated_node="", unschedulable_message="2 Insufficient cpu")
    world.show()
    assert world.schedule(pod.key) == (FilterOutcome.STEERED, ["a"])
    world.wait(0.4)
    assert not world.bind("ns/ours", "a")


def test_somebody_nominates_for_room_that_is_taken(world: SteeredCluster) -> None:
    """A nomination by others reserves whether there is room or not: beside a binding of ours it is not let through."""
    big = PodClass(requests=(("cpu", 300),))
    pod = world.pod(pod_class=big)
    world.pod("ours", "u2", scheduler_name=SCHEDULER_NAME, pod_class=big)
    world.show()
    assert world.bind("ns/ours", "a")
    world.change_pod(pod.key, nominated_node="a")
    world.show()
    assert world.schedule(pod.key) == (FilterOutcome.HELD, [])
