"""Gangs that kube-scheduler binds: reserved as a whole, and let go in whatever order it asks, with few writes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from support.fake_cluster.steered import SteeredCluster, steering
from thalweg_extender.answers import FilterOutcome
from thalweg_operator.delivery import extender_view
from thalweg_operator.reservations.effects import RequestRound
from thalweg_operator.reservations.events import PlanAsked, PlanMade, PodsUnplaced, SchedulerAsks, UnplacedPod
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering import nominations
from thalweg_operator.reservations.steering.advise import awaits_plan, is_shown
from thalweg_operator.reservations.steering.nomination_events import ASKED_SECONDS
from thalweg_operator.reservations.steering.nominations import ReservedPlacement
from thalweg_operator.reservations.steering.records.waves import UNORDERED, WavePosition
from thalweg_operator.reservations.waiting_codes import UNSCHEDULABLE

from flowcore.model.advice import HELD_MESSAGE
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.inter_pod_constraints import InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.selectors import LabelSelector, Requirement

HELD = f"0/4 nodes are available: {HELD_MESSAGE}"


def gang(size: int, name: str = "ml", **spec: Any) -> GangRef:
    """A gang that needs so many pods."""
    return GangRef(GangKey(GangSource.THALWEG, "ns", name), GangSpec(min_member=size, **spec))


def create(world: SteeredCluster, count: int, name: str = "p", **fields: Any) -> list[Pod]:
    """So many pods, which the watch shows."""
    pods = [world.pod(f"{name}{number}", f"u-{name}{number}", **fields) for number in range(count)]
    world.show()
    return [world.state.waiting[pod.key] for pod in pods]


def plan(world: SteeredCluster, pods: Sequence[Pod], nodes: str | Sequence[str], *waves: WavePosition) -> None:
    """A plan has these nodes for the pods of a gang, in these waves."""
    for pod, node in zip(pods, nodes, strict=True):
        assert world.state.reserve(pod, node, Owner.STEERING)
    turns = waves or (UNORDERED,) * len(pods)
    world.add_plan(
        [ReservedPlacement(pod, node, wave, "gang") for pod, node, wave in zip(pods, nodes, turns, strict=True)]
    )


def node_of(world: SteeredCluster, pod: Pod) -> str:
    """The node of a pod's reservation."""
    return world.state.reservations[pod.key].node


# --- writes ---


def test_a_gang_behind_gates_costs_one_write_a_pod() -> None:
    """All gates open at once, kube-scheduler comes upon the nodes by itself, and nothing else is written."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3), gated=True)
    plan(world, pods, "abc")
    assert world.in_line == [("open", pod.name) for pod in pods]
    world.settle()
    for pod in pods:
        outcome, passed = world.schedule(pod.key)
        assert outcome is FilterOutcome.STEERED
        world.change_pod(pod.key, node_name=passed[0])
    world.show()
    world.wait(5)
    assert not world.state.reservations
    assert not any(pod.nominated_node or pod.planned_node for pod in world.api.values())


def test_a_gang_without_gates_costs_no_write() -> None:
    """Whichever of its nodes are in the sample."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3))
    plan(world, pods, "abc")
    assert world.schedule(pods[0].key, [*"bc"]) == (FilterOutcome.STEERED, ["b"])
    assert world.schedule(pods[1].key, [*"ac"]) == (FilterOutcome.STEERED, ["a"])
    assert world.schedule(pods[2].key, [*"abc"]) == (FilterOutcome.STEERED, ["c"])
    assert not world.writes


@pytest.mark.parametrize("gated", [False, True])
def test_a_gang_whose_room_no_answer_keeps(gated: bool) -> None:  # noqa: FBT001
    """kube-scheduler asks about no pods of others: each pod of a gang is nominated, and pods of no gang are not."""
    world = SteeredCluster()
    world.shell.state.keeps_others_off = False
    pods = create(world, 2, gang=gang(2), gated=gated)
    plan(world, pods, "ab")
    assert world.wanted == [("nominate", "p0"), ("nominate", "p1")]
    world.settle()
    assert [world.api[pod.key].nominated_node for pod in pods] == ["a", "b"]
    assert not any(world.api[pod.key].gated for pod in pods)
    alone = create(world, 1, "alone")[0]
    assert world.plan_pod(alone.key, "c")
    assert not world.wanted


def test_one_that_was_tried_in_vain_is_nominated() -> None:
    """One write for it, and none for the others of its gang."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3))
    world.change_pod(pods[0].key, unschedulable_message=HELD)
    world.show()
    plan(world, [world.state.waiting[pod.key] for pod in pods], "abc")
    assert world.wanted == [("nominate", "p0")]


def test_a_sample_without_any_of_its_nodes() -> None:
    """The pod is held, and nominated then."""
    world = SteeredCluster()
    pods = create(world, 2, gang=gang(2))
    plan(world, pods, "aa")
    assert world.schedule(pods[0].key, [*"bc"]) == (FilterOutcome.HELD, [])
    assert world.wanted == [("nominate", "p0")]
    assert world.schedule(pods[1].key) == (FilterOutcome.STEERED, ["a"])


def test_gates_wait_for_the_nominations_that_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a large cluster a gang with a topology is nominated first, all of it."""
    monkeypatch.setattr(nominations, "MANY_NODES", 1)
    world = SteeredCluster()
    pods = create(world, 2, gang=gang(2, topology_key="rack"), gated=True)
    plan(world, pods, "ab")
    assert world.in_line == [("nominate", "p0"), ("nominate", "p1")]
    world.send(0)
    assert world.in_line == [("nominate", "p1")]
    world.send(0)
    assert sorted(world.in_line) == [("open", "p0"), ("open", "p1")]


def test_one_is_gone_before_its_group_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that needs no nomination waits behind its gate for one that does, and is planned anew with it."""
    monkeypatch.setattr(nominations, "MANY_NODES", 1)
    world = SteeredCluster()
    both = [GangKey(GangSource.THALWEG, "ns", name) for name in ("near", "far")]
    near, far = (
        create(world, 1, name, gated=True, gang=GangRef(key, GangSpec(1, topology, group=tuple(both))))[0]
        for name, topology, key in (("near", "rack", both[0]), ("far", "", both[1]))
    )
    plan(world, [far, near], "ab")
    assert world.in_line == [("nominate", "near0")]
    assert world.state.reservations[far.key].phase is Phase.RESERVED
    world.remove_pod(near.key)
    world.show()
    assert far.key not in world.state.reservations
    world.settle()
    assert world.api[far.key].gated


def test_a_gate_that_does_not_open() -> None:
    """The place behind it is given up after a minute, as a nomination that nobody follows."""
    world = SteeredCluster()
    (pod,) = create(world, 1, gang=gang(1), gated=True)
    plan(world, [pod], "a")
    world.pass_time(59)
    assert pod.key in world.state.reservations
    world.pass_time(6)
    assert pod.key not in world.state.reservations


# --- whole or absent ---


def lose(world: SteeredCluster, pod: Pod, how: str) -> None:
    """A pod is lost before kube-scheduler asks about it."""
    if how == "gone":
        world.remove_pod(pod.key)
    elif how == "being deleted":
        world.change_pod(pod.key, deleting=True, blocked_reason="it is being deleted")
    else:
        world.change_pod(pod.key, terminal=True)
    world.show()


@pytest.mark.parametrize("how", ["gone", "being deleted", "failed"])
@pytest.mark.parametrize("gated", [False, True])
def test_a_gang_that_loses_a_pod_before_it_has_begun(how: str, *, gated: bool) -> None:
    """Nobody goes without it, and no room is kept; with its replacement all of them are planned anew."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3), gated=gated)
    plan(world, pods, "abc")
    world.settle()
    lose(world, pods[2], how)
    assert world.schedule(pods[0].key) == (FilterOutcome.HELD, [])
    assert not world.state.reservations
    world.remove_pod(pods[2].key)
    again = create(world, 1, "again", gang=gang(3), gated=gated)
    world.make_plan()
    world.settle()
    for pod in (*pods[:2], *again):
        assert world.schedule(pod.key)[0] is FilterOutcome.STEERED


def test_a_nominated_gang_that_loses_a_pod() -> None:
    """Nominations are cleared, and nobody goes meanwhile."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3), unschedulable_message=HELD)
    plan(world, pods, "abc")
    world.settle()
    assert world.api[pods[0].key].nominated_node == "a"
    lose(world, pods[2], "gone")
    assert world.schedule(pods[0].key) == (FilterOutcome.HELD, [])
    world.settle()
    world.wait(3)
    assert not world.state.reservations
    assert not any(pod.nominated_node for pod in world.api.values())
    assert not world.rejected


def test_waves_of_a_gang_that_loses_a_pod() -> None:
    """Also one of a wave that is to come; none of them begins meanwhile."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3), unschedulable_message=HELD)
    plan(world, pods, "abc", (1, 1), (1, 2), (1, 2))
    world.settle()
    lose(world, pods[2], "gone")
    assert not world.state.reservations
    assert not world.wanted


@pytest.mark.parametrize("bound", [False, True])
def test_a_gang_that_loses_a_pod_after_it_has_begun(*, bound: bool) -> None:
    """The others go on, and the replacement joins them."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3))
    plan(world, pods, "abc")
    assert world.schedule(pods[0].key) == (FilterOutcome.STEERED, ["a"])
    if bound:
        world.change_pod(pods[0].key, node_name="a")
    lose(world, pods[2], "gone")
    world.wait(6)
    assert world.schedule(pods[1].key) == (FilterOutcome.STEERED, ["b"])
    (again,) = create(world, 1, "again", gang=gang(3))
    world.make_plan()
    world.settle()
    assert world.schedule(again.key)[0] is FilterOutcome.STEERED


@pytest.mark.parametrize("how", ["held", "never bound", "gone"])
def test_the_only_pod_that_began_does_not_come(how: str) -> None:
    """Its attempt failed, is never heard of again, or the pod is gone: the gang has not begun after all."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3))
    plan(world, pods, "abc")
    assert world.schedule(pods[0].key) == (FilterOutcome.STEERED, ["a"])
    lose(world, pods[2], "gone")
    if how == "held":
        assert world.schedule(pods[0].key, ["c"]) == (FilterOutcome.HELD, [])
    elif how == "never bound":
        world.wait(16, 1.0)
    else:
        world.change_pod(pods[0].key, node_name="a")
        world.show()
        lose(world, pods[0], "gone")
    assert world.schedule(pods[1].key) == (FilterOutcome.HELD, [])


def test_a_gang_that_wants_more_pods_than_before() -> None:
    """Its PodGroup changes after its pods were planned: it is found to lack pods within seconds."""
    world, key = SteeredCluster(), GangKey(GangSource.NATIVE, "ns", "ml")
    world.put_pod_group(PodGroup(key, GangSpec(min_member=2)))
    pods = create(world, 2, gang=GangRef(key))
    plan(world, pods, "ab")
    world.put_pod_group(PodGroup(key, GangSpec(min_member=3)))
    world.show()
    world.wait(6)
    assert world.schedule(pods[0].key) == (FilterOutcome.HELD, [])


def test_a_gang_without_which_others_are_not_to_run() -> None:
    """The only pod of one of two gangs that need each other is gone: no pod of the other one goes."""
    world = SteeredCluster()
    both = tuple(GangKey(GangSource.THALWEG, "ns", name) for name in ("driver", "workers"))
    (driver,) = create(world, 1, "driver", gang=GangRef(both[0], GangSpec(1, group=both)))
    workers = create(world, 2, "worker", gang=GangRef(both[1], GangSpec(2, group=both)))
    plan(world, [driver, *workers], "abc")
    lose(world, driver, "gone")
    assert world.schedule(workers[0].key) == (FilterOutcome.HELD, [])


def test_a_pod_that_was_planned_beside_others_that_are_not_on_their_way_any_more() -> None:
    """A fourth pod of a gang of three: while it was planned, the gang lost a pod, and its other places."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3))
    plan(world, pods, "abc")
    (late,) = create(world, 1, "late", gang=gang(3))
    lose(world, pods[2], "gone")
    plan(world, [late], "a")
    create(world, 1, "other")
    assert world.schedule(late.key) == (FilterOutcome.HELD, [])


# --- places ---


def with_racks() -> SteeredCluster:
    """Two nodes of one rack, and one of another."""
    world = SteeredCluster()
    for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2")):
        world.put_node(Node(name, labels=(("rack", rack),), allocatable=(("cpu", 300), ("pods", 10))))
    return world


def test_places_in_the_same_domains() -> None:
    """Gangs that must be in one rack exchange nodes there, and a pod that may be anywhere takes none of them."""
    world = with_racks()
    first = create(world, 2, "first", gang=gang(2, "first", topology_key="rack"))
    second = create(world, 1, "second", gang=gang(1, "second", topology_key="rack"))
    (free,) = create(world, 1, "free")
    plan(world, first, "aa")
    plan(world, second, "b")
    plan(world, [free], "c")
    assert world.schedule(free.key, [*"ab"]) == (FilterOutcome.HELD, [])
    assert world.schedule(first[0].key, [*"c"]) == (FilterOutcome.HELD, [])
    assert world.schedule(first[1].key, [*"bc"]) == (FilterOutcome.STEERED, ["b"])
    assert node_of(world, second[0]) == "a"


def test_one_is_bound_in_another_domain() -> None:
    """An earlier leader let it go there: the places of the others, beside where it was to be, are given up."""
    world = with_racks()
    pods = create(world, 2, gang=gang(2, topology_key="rack"))
    plan(world, pods, "ab")
    world.change_pod(pods[0].key, node_name="c")
    world.show()
    assert world.schedule(pods[1].key) == (FilterOutcome.HELD, [])


def test_one_is_bound_elsewhere_in_the_same_domain() -> None:
    """That is nothing to the others."""
    world = with_racks()
    pods = create(world, 2, gang=gang(2, topology_key="rack"))
    plan(world, pods, "aa")
    world.change_pod(pods[0].key, node_name="b")
    world.show()
    assert world.schedule(pods[1].key) == (FilterOutcome.STEERED, ["a"])


def test_gangs_without_a_topology_exchange_nodes() -> None:
    """Also with pods by themselves."""
    world = SteeredCluster()
    (of_gang,), (free,) = create(world, 1, "g", gang=gang(1)), create(world, 1, "free")
    plan(world, [of_gang], "a")
    plan(world, [free], "b")
    assert world.schedule(of_gang.key, [*"b"]) == (FilterOutcome.STEERED, ["b"])
    assert world.schedule(free.key, [*"a"]) == (FilterOutcome.STEERED, ["a"])


# --- the order of the questions ---


class Zones:
    """kube-scheduler's own filters for pods of a gang that are spread over zones, one more in one than in another.

    As it does, a node is looked at with the pods that are nominated for it, and must pass without them too.

    Attributes:
        assumed: node of each pod that was let through.
    """

    def __init__(self, rooms: dict[str, int], *waves: tuple[str, int]) -> None:
        """``rooms``: pods that each node takes; its zone is its first letter. ``waves``: node and wave of each pod."""
        self.world, self.rooms = SteeredCluster(), rooms
        for name, room in rooms.items():
            allocatable = (("cpu", 100 * room), ("pods", 10))
            self.world.put_node(Node(name, labels=(("zone", name[0]),), allocatable=allocatable))
        self.pods = create(self.world, len(waves), gang=gang(len(waves)))
        self.waves, self.assumed = waves, dict[str, str]()

    def begin(self, *, tried: bool) -> list[tuple[str, str]]:
        """The plan is made; the writes that follow.

        Args:
            tried: all pods were tried in vain before.
        """
        for pod in self.pods if tried else ():
            self.world.ask(pod.key, list(self.rooms))
            self.world.change_pod(pod.key, unschedulable_message=HELD)
        self.world.show()
        self.world.now += 6.0  # kube-scheduler knows the nodes
        pods = [self.world.state.waiting[pod.key] for pod in self.pods]
        plan(self.world, pods, [node for node, _ in self.waves], *((1, wave) for _, wave in self.waves))
        wanted = self.world.wanted
        self.world.settle()
        return wanted

    def _passes(self, node: str, nominated: int) -> bool:
        zones = Counter(dict.fromkeys({name[0] for name in self.rooms}, 0))
        zones.update(name[0] for name in self.assumed.values())
        zones[node[0]] += nominated
        there = Counter(self.assumed.values())[node] + nominated
        return there < self.rooms[node] and zones[node[0]] + 1 - min(zones.values()) <= 1

    def fits(self, key: str) -> list[str]:
        """Nodes that pass for a pod."""
        waiting = (pod for pod in self.world.api.values() if pod.key != key and pod.key not in self.assumed)
        nominated = Counter(pod.nominated_node for pod in waiting)
        return [name for name in self.rooms if self._passes(name, nominated[name]) and self._passes(name, 0)]

    def ask(self, pod: Pod) -> bool:
        """kube-scheduler asks about a pod; whether it was let through."""
        self.world.now += 0.001
        outcome, passed = self.world.schedule(pod.key, self.fits(pod.key))
        if outcome is FilterOutcome.STEERED:
            self.assumed[pod.key] = passed[0]
        return outcome is FilterOutcome.STEERED

    def forget(self, *, erase: bool) -> None:
        """An attempt at the whole gang came to nothing; ``erase``: and it erases nominations."""
        for key in self.assumed if erase else ():
            self.world.change_pod(key, nominated_node="", unschedulable_message="pod group is unschedulable")
        self.assumed.clear()
        self.world.show()
        self.world.now += 1.0


TWO_EACH = {"x0": 1, "x1": 1, "y0": 1, "y1": 1}, ("x0", 1), ("y0", 1), ("x1", 2), ("y1", 2)


@pytest.mark.parametrize("tried", [False, True])
def test_every_order_of_the_questions(tried: bool) -> None:  # noqa: FBT001
    """Each pod gets a legal node at once, whether kube-scheduler tried them in vain before or not."""
    for order in permutations(range(4)):
        zones = Zones(*TWO_EACH)
        zones.begin(tried=tried)
        assert [zones.ask(zones.pods[at]) for at in order] == [True] * 4, order
        assert sorted(zones.assumed.values()) == sorted(TWO_EACH[0])


def test_pods_that_were_tried_in_vain_are_woken() -> None:
    """Not nominated: that would keep the others off; and only those of the first wave, until it has passed."""
    assert Zones(*TWO_EACH).begin(tried=True) == [("wake", "p0"), ("wake", "p1")]


def test_an_attempt_at_a_whole_gang_that_came_to_nothing() -> None:
    """Asked about again in another order, and with one more of them, all pods find their nodes."""
    drawn = random.Random(5)
    for _ in range(30):
        zones = Zones({"x0": 1, "x1": 1, "x2": 2, "y0": 1, "y1": 1},
                      ("x0", 1), ("y0", 1), ("x1", 2), ("y1", 2), ("x2", 3))  # fmt: skip
        zones.begin(tried=True)
        first, second = drawn.sample(zones.pods, 4), drawn.sample(zones.pods, 5)
        assert all(zones.ask(pod) for pod in first)
        zones.forget(erase=False)
        assert all(zones.ask(pod) for pod in second), [pod.name for pod in (*first, *second)]
        assert sorted(zones.assumed.values()) == sorted(zones.rooms)


def test_a_nomination_that_such_an_attempt_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written again: nobody refused the node."""
    monkeypatch.setattr(nominations, "_ALL_NODES", 0)
    zones = Zones(*TWO_EACH)
    zones.begin(tried=True)
    assert zones.world.api["ns/p0"].nominated_node == "x0"
    assert zones.ask(zones.pods[0])
    zones.forget(erase=True)
    zones.world.wait(3)
    assert zones.world.api["ns/p0"].nominated_node == "x0"
    assert not zones.world.rejected


def test_asked_about_before_the_nominated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod of a later wave takes the node of one that is nominated for the first; this one gets its node and wave."""
    monkeypatch.setattr(nominations, "_ALL_NODES", 0)
    world = SteeredCluster()
    pods = create(world, 2, gang=gang(2), unschedulable_message=HELD)
    plan(world, pods, "ab", (1, 1), (1, 2))
    world.settle()
    assert world.schedule(pods[1].key, [*"ac"]) == (FilterOutcome.STEERED, ["a"])
    assert node_of(world, pods[0]) == "b"
    assert world.schedule(pods[0].key, [*"bc"]) == (FilterOutcome.STEERED, ["b"])


def let_through_one(world: SteeredCluster, nodes: str = "ab") -> list[Pod]:
    """Two pods of a gang in waves; the first was let through long enough ago to be bound, or tried again."""
    pods = create(world, 2, gang=gang(2))
    plan(world, pods, nodes, (1, 1), (1, 2))
    assert world.schedule(pods[0].key, [nodes[0]]) == (FilterOutcome.STEERED, [nodes[0]])
    world.now += 2.0
    assert world.schedule(pods[1].key, [*"c"]) == (FilterOutcome.HELD, [])
    return pods


def test_the_place_of_one_that_may_be_on_its_way() -> None:
    """It is not taken where another pod would lose the room that is reserved for it, and kube-scheduler cannot know."""
    world = SteeredCluster()
    world.put_node(Node("a", allocatable=(("cpu", 200), ("pods", 10))))
    (other,) = create(world, 1, "other", gang=gang(1, "other"), labels=(("app", "other"),))
    plan(world, [other], "a")
    pods = let_through_one(world)
    assert world.schedule(pods[1].key, [*"ac"]) == (FilterOutcome.HELD, [])
    world.change_pod(pods[0].key, node_name="a", usage=pods[0].pod_class.requests)
    world.show()
    assert world.schedule(other.key) == (FilterOutcome.STEERED, ["a"])


def test_whole_attempts_that_follow_each_other_at_once() -> None:
    """Once a pod of the attempt before is asked about again, its others are not on their way: their places are free."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3))
    plan(world, pods, "abc", (1, 1), (1, 2), (1, 3))
    for pod, node in zip(pods[:2], "ab", strict=True):
        assert world.schedule(pod.key, [node]) == (FilterOutcome.STEERED, [node])
    assert world.schedule(pods[2].key, ["d"]) == (FilterOutcome.HELD, [])
    # The attempt has failed, and the first pod is taken last now: its node is legal for the others until then.
    world.now += 0.01
    assert world.schedule(pods[1].key, ["b"]) == (FilterOutcome.STEERED, ["b"])
    assert world.schedule(pods[2].key, ["a"]) == (FilterOutcome.STEERED, ["a"])
    assert world.schedule(pods[0].key, ["c"]) == (FilterOutcome.STEERED, ["c"])


def test_the_place_of_one_that_a_policy_counts() -> None:
    """If that one is on its way after all, there were two, and kube-scheduler counts for no policy."""
    limit = {"name": "one", "conflict": {"pods": {}, "topologyKey": "kubernetes.io/hostname", "maxPerDomain": 1}}
    world = SteeredCluster(constraints=[limit])
    pods = let_through_one(world)
    assert world.schedule(pods[1].key, [*"ac"]) == (FilterOutcome.HELD, [])


def test_places_of_an_earlier_plan_go_first() -> None:
    """Of equal pods that rules link; the chains of each plan are numbered from 1."""
    world = SteeredCluster()
    selector = LabelSelector((Requirement("app", "In", ("x",)),))
    spread = {
        "labels": (("app", "x"),),
        "constraints": InterPodConstraints(spread=(SpreadConstraint("kubernetes.io/hostname", 1, selector),)),
    }
    (first,), (second,) = create(world, 1, "first", **spread), create(world, 1, "second", **spread)
    plan(world, [first], "a", (2, 1))
    plan(world, [second], "b", (1, 1))
    assert world.schedule(second.key, [*"ab"]) == (FilterOutcome.STEERED, ["a"])
    assert world.schedule(first.key, [*"bc"]) == (FilterOutcome.STEERED, ["b"])


def test_the_place_of_one_whose_node_is_gone() -> None:
    """kube-scheduler may not know that yet."""
    world = SteeredCluster()
    pods = let_through_one(world)
    world.remove_node("a")
    world.show()
    assert world.schedule(pods[1].key, [*"ac"]) == (FilterOutcome.HELD, [])


def test_let_through_again_and_again() -> None:
    """If it is not bound within a minute, its place is given up."""
    world = SteeredCluster()
    pods = create(world, 2, gang=gang(2))
    plan(world, pods, "ab", (1, 1), (1, 2))
    for _ in range(16):
        world.schedule(pods[0].key)
        world.wait(5, 5)
    assert pods[0].key not in world.state.reservations


def test_a_nominated_node_that_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other pod takes that place: the one that was refused would keep the refusal for its new node."""
    monkeypatch.setattr(nominations, "_ALL_NODES", 0)
    world = SteeredCluster()
    pods = create(world, 2, gang=gang(2), unschedulable_message=HELD)
    plan(world, pods, "ab", (1, 1), (1, 2))
    world.settle()
    world.now += 6.0
    assert world.schedule(pods[0].key, [*"c"]) == (FilterOutcome.HELD, [])
    assert world.schedule(pods[1].key, [*"ac"]) == (FilterOutcome.HELD, [])
    world.wait(1)
    assert world.rejected == [(pods[0].key, "a")]


def test_one_wake_for_each_pod() -> None:
    """Also for one that gives its place up before kube-scheduler asks about it."""
    for order in permutations(range(4)):
        zones = Zones(*TWO_EACH)
        sent = zones.begin(tried=True)
        assert all(zones.ask(zones.pods[at]) for at in order)
        wakes = Counter(name for kind, name in (*sent, *zones.world.in_line) if kind == "wake")
        assert max(wakes.values()) == 1, (order, wakes)


# --- PodGroups of Kubernetes itself, which kube-scheduler tries as a whole ---


def in_group(world: SteeredCluster, count: int, least: int = 4, **fields: Any) -> list[Pod]:
    """So many pods of a PodGroup, which needs so many."""
    key = GangKey(GangSource.NATIVE, "ns", "ml")
    world.put_pod_group(PodGroup(key, GangSpec(least)))
    return create(world, count, gang=GangRef(key), **fields)


def test_questions_about_a_group_in_any_order() -> None:
    """Attempts that fail after some questions, and come again in another order: never more than the plan, no write."""
    drawn = random.Random(7)
    for order in permutations(range(4)):
        world = SteeredCluster()
        pods = in_group(world, 4)
        plan(world, pods, "abca")
        for asked in range(1, 4):
            attempt = drawn.sample(pods, asked)
            passed = [world.schedule(pod.key) for pod in attempt]
            assert all(outcome is FilterOutcome.STEERED for outcome, _ in passed)
            assert not Counter(node for _, nodes in passed for node in nodes) - Counter("abca")
            for pod in attempt:
                world.change_pod(pod.key, unschedulable_message="pod group is unschedulable")
            world.show()
        for at in order:
            assert world.schedule(pods[at].key)[0] is FilterOutcome.STEERED
        assert sorted(node_of(world, pod) for pod in pods) == ["a", "a", "b", "c"]
        assert not world.writes


def test_an_idle_scheduler_has_no_group_nominated() -> None:
    """It asks about the group by itself. After half a minute without a question its pods are nominated all the same."""
    world = SteeredCluster()
    plan(world, in_group(world, 4), "abca")
    world.pass_time(20)
    assert not world.writes
    world.pass_time(15)
    assert sorted(world.in_line) == [("nominate", f"p{at}") for at in range(4)]


@pytest.mark.parametrize("told", ["before the plan", "after it"])
def test_one_wake_for_a_group_that_was_tried_in_vain(told: str) -> None:
    """kube-scheduler takes its other pods along: one write, whenever our watch shows what the attempt wrote."""
    world = SteeredCluster()
    pods = in_group(world, 4)
    if told == "before the plan":
        for pod in pods:
            assert world.schedule(pod.key) == (FilterOutcome.HELD, [])
            world.change_pod(pod.key, unschedulable_message=HELD)
        world.show()
    plan(world, [world.state.waiting[pod.key] for pod in pods], "abca")
    for pod in pods if told == "after it" else ():
        world.change_pod(pod.key, unschedulable_message=HELD)
        world.show()
    assert world.in_line == [("wake", "p0")]
    assert all(world.schedule(pod.key)[0] is FilterOutcome.STEERED for pod in pods)
    world.pass_time(5)
    assert world.in_line == [("wake", "p0")]


def test_a_group_that_loses_a_pod_is_held_whole() -> None:
    """Asked about in any order, with a pod missing, none of them is let through; with its replacement all are."""
    for order in permutations(range(3)):
        world = SteeredCluster()
        pods = in_group(world, 4)
        plan(world, pods, "abca")
        lose(world, pods[3], "gone")
        for at in (*order, *order):
            assert world.schedule(pods[at].key) == (FilterOutcome.HELD, [])
        assert not world.state.reservations
        (again,) = create(world, 1, "again", gang=pods[0].gang)
        plan(world, [*(world.state.waiting[pod.key] for pod in pods[:3]), again], "abca")
        assert all(world.schedule(pod.key)[0] is FilterOutcome.STEERED for pod in (again, *pods[:3]))
        assert [kind for kind, _ in world.in_line] == ["wake"]


def test_a_question_before_the_watch_shows_the_group() -> None:
    """kube-scheduler has seen all that the group needs. Its question waits, and asks for no round in vain."""
    world = SteeredCluster()
    pods = in_group(world, 3)
    asked = world.extender_pod(pods[0].key)
    assert awaits_plan(world.cluster, world.ledger, asked)
    assert not is_shown(world.cluster, asked)

    def asks_for_a_round() -> bool:
        effects = world.apply(SchedulerAsks(asked, [*"abc"]))
        return any(isinstance(effect, RequestRound) and effect.asked for effect in effects)

    assert not asks_for_a_round()
    policy = steering()
    world.apply(PodsUnplaced([UnplacedPod(pod, policy, "3 of 4 pods exist", UNSCHEDULABLE) for pod in pods]))
    assert awaits_plan(world.cluster, world.ledger, asked)
    in_group(world, 4)
    assert is_shown(world.cluster, asked)
    assert awaits_plan(world.cluster, world.ledger, asked)
    assert asks_for_a_round()
    # A round had no node for it: nothing is worth waiting for.
    last = world.state.waiting["ns/p3"]
    world.apply(PodsUnplaced([UnplacedPod(last, policy, "no room", UNSCHEDULABLE)]))
    assert not awaits_plan(world.cluster, world.ledger, asked)


async def test_an_answer_waits_for_the_rest_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then for the plan, and all pods are let through in one attempt. A group that does not come is waited for once."""
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 1000.0)
    world = SteeredCluster()
    pods = in_group(world, 3)
    task = asyncio.create_task(world.view.until_planned(world.extender_pod(pods[0].key), [*"abc"]))

    async def still_waits() -> bool:
        for _ in range(5):
            await asyncio.sleep(0)
        return not task.done()

    assert await still_waits()
    pods += create(world, 1, "last", gang=pods[0].gang)
    assert await still_waits()
    plan(world, pods, "abca")
    world.apply(PlanMade(1, world.state.generation, (), ()))
    await asyncio.wait_for(task, 30)
    assert all(world.schedule(pod.key)[0] is FilterOutcome.STEERED for pod in pods)
    assert not world.writes
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 0.01)
    lost = create(world, 2, "lost", gang=GangRef(GangKey(GangSource.NATIVE, "ns", "lost")))
    world.put_pod_group(PodGroup(lost[0].gang.key, GangSpec(4)))
    world.show()
    await asyncio.wait_for(world.view.until_planned(world.extender_pod(lost[0].key), [*"abc"]), 30)
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 1000.0)
    await asyncio.wait_for(world.view.until_planned(world.extender_pod(lost[1].key), [*"abc"]), 30)


# --- a question before the plan ---


def test_a_question_waits_for_a_gang_that_is_there() -> None:
    """Not for one that lacks pods: no round has a node for any of it."""
    world = SteeredCluster()
    (first,) = create(world, 1, gang=gang(2))
    assert not awaits_plan(world.cluster, world.ledger, world.extender_pod(first.key))
    world.pod("p1", "u-p1", gang=gang(2))
    world.show()
    assert awaits_plan(world.cluster, world.ledger, world.extender_pod(first.key))


# --- a new leader ---


def test_a_new_leader_finds_a_gang_that_is_bound_in_part() -> None:
    """The rest of it is in the next round, and answers wait for that; after the round nobody waits."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3))
    create(world, 1, "other")
    plan(world, pods, "abc")
    assert world.schedule(pods[0].key) == (FilterOutcome.STEERED, ["a"])
    world.change_pod(pods[0].key, node_name="a")
    world.start()
    records = world.shell.state.nominations
    assert records.begun == {"u-p1", "u-p2"}
    assert records.begun_until > world.now
    world.make_plan()
    world.settle()
    assert not records.begun
    assert records.begun_until < world.now
    assert {pod.key for pod in pods[1:]} <= world.state.reservations.keys()


@pytest.mark.parametrize("bound", [0, 3])
def test_a_new_leader_finds_no_such_gang(bound: int) -> None:
    """Nobody waits for a gang that has not begun, or is whole."""
    world = SteeredCluster()
    for pod in create(world, 4, gang=gang(3))[:bound]:
        world.change_pod(pod.key, node_name="a")
    world.start()
    assert not world.shell.state.nominations.begun


@pytest.mark.parametrize("bound", [False, True])
def test_a_new_leader_finds_a_part_of_a_gang_nominated(bound: bool) -> None:  # noqa: FBT001
    """If none is bound, the nomination is cleared and the pod is held: the gang is planned anew, as a whole."""
    world = SteeredCluster()
    pods = create(world, 3, gang=gang(3))
    world.change_pod(pods[0].key, unschedulable_message=HELD)
    world.show()
    plan(world, [world.state.waiting[pod.key] for pod in pods], "abc")
    world.settle()
    assert world.api[pods[0].key].nominated_node == "a"
    if bound:
        world.change_pod(pods[1].key, node_name="b")
    world.start()
    expected = (FilterOutcome.STEERED, ["a"]) if bound else (FilterOutcome.HELD, [])
    assert world.schedule(pods[0].key) == expected
    world.settle()
    assert bool(world.api[pods[0].key].nominated_node) == bound


@pytest.mark.parametrize("native", [False, True])
def test_a_pod_that_a_planned_gang_does_not_need(native: bool) -> None:  # noqa: FBT001
    """The plan has no node for it: its first round is over, as those of the others are. No answer waits for another."""
    world = SteeredCluster()
    pods = in_group(world, 3, least=2) if native else create(world, 3, gang=gang(2))
    policy = world.policies[0]
    world.apply(PlanAsked([(world.cluster.waiting[pod.key], policy) for pod in pods]))
    plan(world, [world.cluster.waiting[pod.key] for pod in pods[:2]], "ab")
    world.apply(PlanMade(1, world.cluster.generation, (), ()))
    left = world.cluster.waiting[pods[2].key]
    world.apply(PodsUnplaced([UnplacedPod(left, policy, "no room", UNSCHEDULABLE)]))
    assert not awaits_plan(world.cluster, world.ledger, world.extender_pod(left.key))


async def test_who_asked_about_a_group_and_went() -> None:
    """kube-scheduler was gone before the plan was there: then one of the pods is woken; it takes the others along."""
    world = SteeredCluster()
    full = PodClass(requests=(("cpu", 300),))
    world.create_pod("running", "r", pod_class=full, node_name="a", usage=full.requests)
    pods, policy = in_group(world, 3, least=3), world.policies[0]
    governed = [(world.cluster.waiting[pod.key], policy) for pod in pods]
    world.apply(PlanAsked(governed))
    world.apply(PlanMade(1, world.cluster.generation, (), ()))
    world.apply(PodsUnplaced([UnplacedPod(pod, policy, "no room", UNSCHEDULABLE) for pod, _ in governed]))
    for pod in pods:
        world.change_pod(pod.key, unschedulable_message=HELD, unschedulable_reason="Unschedulable")
    world.show()
    world.remove_pod("ns/running")
    world.show()
    question = asyncio.create_task(world.view.until_planned(world.extender_pod(pods[1].key), [*"abc"]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not question.done()
    question.cancel()
    await asyncio.gather(question, return_exceptions=True)
    plan(world, [world.cluster.waiting[pod.key] for pod in pods], "abc")
    assert not world.in_line
    world.pass_time(ASKED_SECONDS)
    world.pass_time(1.0)
    assert world.write_kinds == ["wake"]


def sleeping_group(least: int) -> tuple[SteeredCluster, list[Pod]]:
    """Three pods that kube-scheduler has tried in vain, and a plan for all of them: the first one is woken."""
    world = SteeredCluster()
    pods = in_group(world, 3, least=least)
    for pod in pods:
        world.schedule(pod.key)
        world.change_pod(pod.key, unschedulable_message=HELD, unschedulable_reason="Unschedulable")
    world.show()
    plan(world, [world.cluster.waiting[pod.key] for pod in pods], "abc")
    assert world.in_line == [("wake", "p0")]
    return world, pods


def test_the_pod_that_was_woken_goes() -> None:
    """The gang does without it: another one is woken."""
    world, (first, *_) = sleeping_group(least=2)
    world.remove_pod(first.key)
    world.show()
    world.pass_time(2.0)
    assert len({name for kind, name in world.in_line if kind == "wake"} - {first.name}) == 1


def test_the_attempt_after_a_wake_ends_at_another_pod() -> None:
    """kube-scheduler's own filters refuse it, and we are not asked about it: the group is woken again."""
    world, pods = sleeping_group(least=3)
    world.settle()
    assert world.schedule(pods[0].key)[0] is FilterOutcome.STEERED
    for pod in pods:
        world.change_pod(pod.key, unschedulable_message="3 Insufficient cpu", unschedulable_reason="Unschedulable")
    world.show()
    world.pass_time(2.0)
    assert len([kind for kind, _ in world.in_line if kind == "wake"]) == 1
