"""Any history of the ledger: whatever happens in whatever order, its invariants hold after each event.

`support.fake_cluster.checks` counts anew: the usage of each node is bound + ledger; no pod is in two places; no gang is
handed on in part; nobody is evicted in vain; no phase changes but by the table of transitions; advice changes nothing.
`support.fake_cluster.machine` has what may happen; here are the clusters that it happens to.
"""

from __future__ import annotations

import random
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import Phase as HypothesisPhase
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.cluster import FakeCluster
from support.fake_cluster.machine import (
    GROUP,
    Claims,
    Disturbances,
    Gangs,
    Moves,
    Preemption,
    SteeredPods,
    VolumeClaims,
    gang,
    pick,
    room,
    sized,
)
from support.fake_cluster.rounds import Plan
from support.fake_cluster.steered import CLASS, steering
from support.fake_cluster.volumes import LOCAL
from support.profiles import examples
from thalweg_operator.reservations.events import PlannedPlacement
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.victims.replacements import REPLACEMENT_TIMEOUT

from flowcore.cluster.replaced_pod import victim_key
from flowcore.model.constraints import Conflict
from flowcore.model.gang_spec import GangRef, GangSpec, PodGroup
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.policies import (
    SCHEDULER_NAME,
    STEERED_NAME,
    AllowedVictims,
    Delivery,
    DuringExecution,
    GangPolicy,
    PartialBind,
    Policy,
    ReschedulingMode,
    ReschedulingPolicy,
    Selects,
    Steering,
    WaitingMode,
)
from flowcore.model.running_pods import EvictionKind
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.plan_document import PlanEviction

NODES = SteeredPods.NODES
NAMES = tuple(f"p{at}" for at in range(5))
SMALL = PodClass(requests=(("cpu", 100),))
WITH_PORT = PodClass(requests=(("cpu", 100),), host_ports=(HostPort("TCP", "0.0.0.0", 80),))  # noqa: S104
APP_X = LabelSelector((Requirement("app", "In", ("x",)),))
NO_X_THERE = InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, APP_X, (NAMESPACE,)),))
EVICTING = GangPolicy(timeout=5, on_partial_bind=PartialBind.EVICT)
STEERED = Selects(scheduler_names=(STEERED_NAME,))
EVICT = DuringExecution.EVICT
MOVING = ReschedulingPolicy(ReschedulingMode.ACT)


def make_node(name: str, cpu: int = 300) -> Node:
    """A node that is its own host."""
    return Node(name, labels=((HOSTNAME, name),), allocatable=(("cpu", cpu), ("pods", 5)))


def kinds_of_pods() -> dict[str, dict[str, Any]]:
    """One draw gives a whole pod: drawn field by field most pods would be odd, and few would ever be placed."""
    steered = {"scheduler_name": STEERED_NAME, "pod_class": SMALL, "labels": (("app", "y"),), "owner": "controller"}
    ours = {**steered, "scheduler_name": SCHEDULER_NAME}
    apart = {"labels": (("app", "x"),), "constraints": NO_X_THERE}
    return {
        "steered": steered,
        "ours": ours,
        "steered, behind our gate": {**steered, "gated": True},
        "steered, of a gang": {**steered, "gang": gang("g", 2)},
        "steered, of a gang, behind our gate": {**steered, "gang": gang("g", 2), "gated": True},
        "steered, in a pod's place": {**steered, "replaces": ""},
        "ours, in a pod's place": {**ours, "replaces": ""},
        "ours, of a gang": {**ours, "gang": gang("h", 2)},
        "steered, large": {**steered, "pod_class": PodClass(requests=(("cpu", 200),))},
        "ours, large": {**ours, "pod_class": PodClass(requests=(("cpu", 200),))},
        "steered, urgent": {**steered, "pod_class": PodClass(requests=(("cpu", 100),), priority=9)},
        "ours, urgent": {**ours, "pod_class": PodClass(requests=(("cpu", 200),), priority=9)},
        "ours, urgent, of a gang": {**ours, "gang": gang("i", 2), "pod_class": PodClass((("cpu", 200),), priority=9)},
        "steered, with a port": {**steered, "pod_class": WITH_PORT},
        "ours, with a port": {**ours, "pod_class": WITH_PORT},
        "steered, apart": {**steered, **apart},
        "ours, apart": {**ours, **apart},
        "another scheduler's": {**steered, "scheduler_name": "default-scheduler"},
    }


PODS = kinds_of_pods()
#: What others change about a pod.
CHANGES: dict[str, dict[str, Any]] = {
    **{what: {} for what in ("goes", "is bound", "is nominated", "is nominated again", "is replaced under its name")},
    "is deleted": {"deleting": True, "blocked_reason": "it is being deleted"},
    "ends": {"terminal": True},
    "has another label": {"labels": (("app", "z"),)},
    "is blocked": {"gates": ("x",), "blocked_reason": "its scheduling gates are closed: x"},
    "is blocked no more": {"gates": (), "blocked_reason": ""},
    "names no victim": {"replaces": None},
    "has no gate": {"gated": False},
}
nodes = st.sampled_from(NODES)
steered_policies = st.sampled_from(
    [
        (
            Policy(
                "steered", selects=STEERED, delivery=Delivery.EXTENDER, gangs=EVICTING, victims=AllowedVictims.GOVERNED
            ),
        ),
        (Policy("steered", selects=STEERED, delivery=Delivery.EXTENDER, rescheduling=MOVING, during_execution=EVICT),),
        (Policy("steered", selects=STEERED, delivery=Delivery.EXTENDER, waiting=WaitingMode.GATE),),
        (Policy("steered", selects=STEERED, delivery=Delivery.EXTENDER, steering=Steering.PREFER),),
        (Policy("steered", selects=STEERED, delivery=Delivery.OBSERVE),),
        (Policy("steered", selects=STEERED, delivery=Delivery.BINDER),),
        (),
    ]
)
bound_policies = st.sampled_from(
    [
        (),
        (Policy("bound", gangs=EVICTING, victims=AllowedVictims.GOVERNED),),
        (Policy("bound", rescheduling=MOVING, during_execution=EVICT),),
        (Policy("bound", constraints=(Conflict("one", APP_X, HOSTNAME),)),),
        (Policy("bound", delivery=Delivery.OBSERVE),),
    ]
)


class AnyMachine(SteeredPods):
    """Users, controllers, the API server, kube-scheduler, rounds and restarts, in any order."""

    NAMES, KINDS, CHANGES = NAMES, PODS, CHANGES

    @initialize(
        steered=steered_policies,
        bound=bound_policies,
        first=st.lists(st.sampled_from(list(PODS)), min_size=3, max_size=4),
        running=st.booleans(),
    )
    def begin(self, steered: tuple[Policy, ...], bound: tuple[Policy, ...], first: list[str], running: bool) -> None:  # noqa: FBT001
        self.set_up([make_node(name) for name in NODES], steered + bound)
        for name, kind in zip(NAMES, first, strict=False):
            self.create(name, kind)
            if running and name == NAMES[0]:
                self.world.change_pod(f"{NAMESPACE}/{name}", node_name=NODES[0], usage=SMALL.requests, gated=False)
        self.world.show()

    @rule(
        what=st.sampled_from(("node changes", "node goes", "namespace changes", "policies change", "restart")),
        name=nodes,
        cpu=st.sampled_from((100, 300)),
        labels=st.sampled_from((None, (), (("team", "ml"),))),
        steered=steered_policies,
        bound=bound_policies,
    )
    def surroundings_change(
        self,
        what: str,
        name: str,
        cpu: int,
        labels: tuple[tuple[str, str], ...] | None,
        steered: tuple[Policy, ...],
        bound: tuple[Policy, ...],
    ) -> None:
        """One rule for all that is rare, so that it stays rare."""
        match what:
            case "node changes":
                self.world.put_node(make_node(name, cpu))
            case "node goes":
                self.world.remove_node(name)
            case "namespace changes" if labels is not None or self.world.namespace_labels is not None:
                self.world.set_namespace(labels)
            case "policies change":
                self.world.set_policies(steered + bound)
            case "restart":
                self.world.start()

    @precondition(lambda self: self.world.plan is None)
    @rule(choose=st.randoms(use_true_random=False), count=st.sampled_from((1, 2, 10)))
    def any_plan(self, choose: random.Random, count: int) -> None:
        """A plan that a round might make of another snapshot: any nodes, any waves, gangs as groups."""
        begun = self.world.begin_plan()
        if begun is None:
            return
        plan, snapshot, policies = begun
        for pending in snapshot.pending:
            if choose.random() < 0.2:
                continue
            pod = self.world.cluster.waiting[pending.key]
            victim = self.world.cluster.pods.get(victim_key(pod))
            node = victim.node_name if victim is not None and victim.node_name else choose.choice(NODES)
            group = pod.gang.key.name if pod.gang is not None else ""
            wave = choose.choice(((0, 0), (0, 0), (1, 1), (1, 2)))
            optional = bool(group) and choose.random() < 0.2
            victims = tuple(
                self._eviction(choose, each, pod.pod_class.priority)
                for each in sorted(self.world.cluster.pods.values(), key=lambda each: each.key)
                if each.node_name
                and each.pod_class.priority <= pod.pod_class.priority
                and choose.random() < (0.8 if each.node_name == node else 0.2)
            )
            placement = PlannedPlacement(pod, policies[pending.policy], node, wave, group, optional, victims, saving=0)
            plan.placements.append(placement)
        waiting = {each.atomic_group for each in plan.placements if each.victims} - {""}
        plan.placements = [
            msgspec.structs.replace(each, waits=bool(each.victims) or each.atomic_group in waiting)
            for each in plan.placements
        ]
        if choose.random() < 0.3:
            plan.evictions = [
                PlanEviction(
                    each.key,
                    each.uid,
                    each.node_name,
                    choose.choice((EvictionKind.RULE, EvictionKind.MIGRATION)),
                    to=choose.choice(("", *NODES)),
                    by_controller=choose.random() < 0.2,
                )
                for each in sorted(self.world.cluster.pods.values(), key=lambda each: each.key)
                if each.node_name and choose.random() < 0.5
            ]
        self.world.bring(plan)
        self.world.deliver(count)

    @staticmethod
    def _eviction(choose: random.Random, pod: Pod, priority: int) -> PlanEviction:
        """A running pod leaves for one of this priority: it is preempted, or moved."""
        lower = pod.pod_class.priority < priority and choose.random() < 0.7
        kind = EvictionKind.PREEMPTION if lower else EvictionKind.MIGRATION
        to = choose.choice(NODES) if kind is EvictionKind.MIGRATION or choose.random() < 0.5 else ""
        return PlanEviction(pod.key, pod.uid, pod.node_name, kind, to=to)

    @precondition(lambda self: self.world.writes)
    @rule()
    def writes_are_carried_out(self) -> None:
        """As on most days."""
        for _ in range(len(self.world.writes)):
            self.world.send(0)
        self.world.remove_deleting_pods()
        self.world.show()

    def check_the_end(self) -> None:
        """Nothing that we reserve stays for ever; and when all is gone, nothing is remembered."""
        world = self.world
        world.settle()
        world.wait(15, 1.0)
        world.wait(800, 80.0)
        ours = {key: each.phase for key, each in world.ledger.reservations.items() if each.owner is not Owner.OTHERS}
        # A place that is held waits for a round, which confirms it or gives it up.
        assert set(ours.values()) <= {Phase.HELD}, ours
        for key in list(world.api):
            world.remove_pod(key)
        world.wait(60, 20.0)
        ledger = world.ledger
        assert not ledger.reservations
        assert not ledger.victims
        assert not world.shell.state.moves.awaited
        assert not world.shell.state.moves.by_owner
        assert not world.shell.state.moves.without_place
        assert not ledger.waiting_groups
        assert not ledger.unevictable
        assert not world.shell.state.checking
        assert not ledger.pending
        assert not world.shell.state.evicting
        assert not world.cluster.occupancy.usage


class SteeringMachine(SteeredPods, Disturbances):
    """Small pods that kube-scheduler binds, and plans for any of them at any time."""

    NAMES = ("p", "q", "r")
    KINDS: ClassVar = {
        "open": {"pod_class": CLASS, "scheduler_name": STEERED_NAME},
        "gated": {"pod_class": CLASS, "scheduler_name": STEERED_NAME, "gated": True},
    }
    CHANGES: ClassVar = {"goes": {}, "is nominated": {}}

    @initialize(prefer=st.booleans())
    def begin(self, prefer: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        self.set_up([room(name, 300) for name in NODES], [steering(steering="Prefer" if prefer else "Require")])

    @precondition(lambda self: self.world.plan is None and self.world.cluster.waiting)
    @rule(at=st.integers(0, 2), node=st.sampled_from(NODES), wave=st.sampled_from(((0, 0), (1, 1), (1, 2))))
    def a_pod_is_planned(self, at: int, node: str, wave: tuple[int, int]) -> None:
        """Whether or not it has its place already."""
        waiting, policies = self.world.cluster.waiting, self.world.cluster.policies
        pod = waiting[pick(waiting, at)]
        policy = policies.of(pod, self.world.cluster.namespaces)
        if policy is not None and node in self.world.cluster.nodes:
            placement = PlannedPlacement(pod, policy, node, wave, atomic_group="", optional=False, saving=0)
            self.world.bring(Plan(0, self.world.cluster.generation, [placement]))
            self.world.deliver(1)

    @precondition(lambda self: self.world.api)
    @rule(at=st.integers(0, 4), nodes=st.sets(st.sampled_from(NODES)), known=st.booleans())
    def asks_without_an_attempt(self, at: int, nodes: set[str], known: bool) -> None:  # noqa: FBT001
        """Prioritize and preempt ask the same: asked twice, the same answer, and nothing has changed."""
        key = pick(self.world.api, at)
        self.world.advise(self.world.extender_pod(key, nominated=None if known else ""), sorted(nodes))

    @rule(delivery=st.sampled_from(("Extender", "Extender", "Observe")))
    def the_policy_changes(self, delivery: str) -> None:
        selects = {"podSelector": {}, "schedulerNames": [STEERED_NAME]}
        self.world.set_policies([steering(delivery=delivery, selects=selects)])

    def check_the_end(self) -> None:
        """Every reservation ends, though nobody follows any more."""
        world = self.world
        world.settle()
        world.wait(30, 0.5)
        world.wait(120, 2.0)
        left = {key: each.owner for key, each in world.ledger.reservations.items() if each.owner is Owner.STEERING}
        assert not left, left
        for pod in world.api.values():
            if not pod.node_name and pod.nominated_node:
                assert pod.nominated_node != pod.planned_node, "a nomination of ours that nobody ends"


class SteeredGangMachine(SteeringMachine):
    """Pods of a gang that needs two: none is let through that lacks the other, unless the gang has begun."""

    KINDS: ClassVar = {name: {**fields, "gang": gang("g", 2)} for name, fields in SteeringMachine.KINDS.items()}
    CHANGES: ClassVar = {
        **SteeringMachine.CHANGES,
        "is deleted": CHANGES["is deleted"],
        "ends": CHANGES["ends"],
        "is bound": {},
    }

    @precondition(lambda self: self.world.plan is None and self.world.cluster.waiting)
    @rule(drawn=st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from((0, 1, 2))), min_size=3, max_size=3))
    def the_gang_is_planned(self, drawn: list[tuple[str, int]]) -> None:
        """All of its pods that have no place."""
        world = self.world
        pods = [pod for key, pod in world.cluster.waiting.items() if key not in world.ledger.reservations]
        placements = []
        for pod, (node, wave) in zip(pods, drawn, strict=False):
            policy = world.cluster.policies.of(pod, world.cluster.namespaces)
            if policy is not None and node in world.cluster.nodes:
                at = (1, wave) if wave else (0, 0)
                placements.append(PlannedPlacement(pod, policy, node, at, "g", optional=False, saving=0))
        if placements:
            world.bring(Plan(0, world.cluster.generation, placements))
            world.deliver(10)


class SteeredGroupMachine(SteeredGangMachine):
    """Likewise of a PodGroup of Kubernetes itself, whose pods are woken together, and not nominated."""

    KINDS: ClassVar = {name: {**fields, "gang": GangRef(GROUP)} for name, fields in SteeringMachine.KINDS.items()}

    @initialize(prefer=st.booleans())
    def begin(self, prefer: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        super().begin(prefer)
        self.world.put_pod_group(PodGroup(GROUP, GangSpec(min_member=2)))


class GangMachine(Gangs):
    """A gang whose bindings are refused, lost or late is whole or absent at rest."""

    @initialize(
        rooms=st.lists(st.integers(1, 3), min_size=1, max_size=3), sizes=st.lists(st.integers(2, 3), max_size=3)
    )
    def begin(self, rooms: list[int], sizes: list[int]) -> None:
        self.set_up([room(f"n{at}", 100 * pods) for at, pods in enumerate(rooms)], [Policy("bound")])
        for size in (2, *sizes):
            self.gang_comes(size)
        self.world.show()


class ClaimMachine(Claims, Disturbances):
    """No device is had twice, no pod is bound without its claims, and nothing of ours is left over."""

    @initialize(
        devices=st.lists(st.integers(0, 3), min_size=1, max_size=3),
        later=st.lists(st.booleans(), min_size=3, max_size=3),
        offered=st.lists(st.sampled_from((0, 0, 1, 2)), min_size=3, max_size=3),
        asks=st.integers(0, 2),
    )
    def begin(self, devices: list[int], later: list[bool], offered: list[int], asks: int) -> None:
        self.set_up([room(f"n{at}", 500, offered[at]) for at in range(len(devices))], [Policy("bound")])
        for at, count in enumerate(devices):
            self.world.devices.publish_devices(f"n{at}", count, later=later[at])
        self.world.start()
        if asks:
            self.pods_with_an_extended_resource_come(2, asks, 0)
        else:
            self.pods_with_claims_come(2, 1, plain=False)
        self.world.show()


class VolumeClaimMachine(VolumeClaims, Disturbances):
    """No volume is had twice either, and a pod or a gang with claims of both kinds gets all, or comes not at all."""

    @initialize(
        nodes=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=3), later=st.booleans()
    )
    def begin(self, nodes: list[tuple[int, int]], later: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        rooms = [
            msgspec.structs.replace(room(f"n{at}", 500), labels=((HOSTNAME, f"n{at}"),)) for at in range(len(nodes))
        ]
        self.set_up(rooms, [Policy("bound")])
        for at, (devices, volumes) in enumerate(nodes):
            self.world.devices.publish_devices(f"n{at}", devices, later=later and at == 0)
            self.world.volumes.publish_volumes(f"n{at}", volumes)
        self.world.start()
        self.pods_with_both_come([(1, ""), (0, LOCAL)])
        self.world.show()


class PreemptionMachine(Preemption, Disturbances):
    """Nobody leaves in vain, and a gang comes whole or not at all; evictions are refused, lost, or take long."""

    @initialize(
        rooms=st.lists(st.integers(2, 4), min_size=1, max_size=3),
        first=st.lists(st.sampled_from(Preemption.SIZES), min_size=2),
    )
    def begin(self, rooms: list[int], first: list[int]) -> None:
        self.set_up([room(f"n{at}", 100 * pods) for at, pods in enumerate(rooms)], [Policy("bound")])
        for at, cpu in enumerate(first):
            self.low_pod_runs(f"n{at % len(rooms)}", cpu)
        self.world.show()


class MoveMachine(Moves, Disturbances):
    """Nodes that are half full: replacements come to reserved room."""

    PAUSE = REPLACEMENT_TIMEOUT

    @initialize(more=st.lists(st.sampled_from(("n0", "n1", "n2")), unique=True, max_size=2), keeps_names=st.booleans())
    def begin(self, more: list[str], keeps_names: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        nodes = [room(f"n{at}", 400) for at in range(3)]
        self.set_up(nodes, [self.moving(ReschedulingMode.ACT)])
        self.keeps_names = keeps_names
        self.owned_pods_run([*[node.name for node in nodes] * 2, *more])
        self.world.show()


AnyMachine.TestCase.settings = settings(
    max_examples=examples(100),
    stateful_step_count=40,
    report_multiple_bugs=False,
    phases=[HypothesisPhase.reuse, HypothesisPhase.generate, HypothesisPhase.shrink],
)
SteeringMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=30)
SteeredGangMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=20)
SteeredGroupMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=20)
GangMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=12)
ClaimMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=20)
VolumeClaimMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=20)
PreemptionMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=15)
MoveMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=15)
TestAnyMachine, TestSteeringMachine = AnyMachine.TestCase, SteeringMachine.TestCase
TestSteeredGangMachine = SteeredGangMachine.TestCase
TestSteeredGroupMachine = SteeredGroupMachine.TestCase
TestGangMachine, TestClaimMachine, TestVolumeClaimMachine, TestPreemptionMachine, TestMoveMachine = (
    GangMachine.TestCase,
    ClaimMachine.TestCase,
    VolumeClaimMachine.TestCase,
    PreemptionMachine.TestCase,
    MoveMachine.TestCase,
)


# --- what the machine found ---


def test_a_policy_that_changes_while_a_plan_comes_in_parts() -> None:
    """A gang that was planned for the binder is not bound once its policy says that kube-scheduler binds."""
    binder = Policy("steered", selects=STEERED, delivery=Delivery.BINDER)
    world = FakeCluster([make_node(name) for name in NODES], [binder])
    for name in NAMES[:2]:
        world.create_pod(name, **PODS["steered, of a gang"])
    world.create_pod(NAMES[2], **PODS["ours"])
    world.show()
    world.make_plan()
    assert world.plan is not None
    world.plan.placements.sort(key=lambda placement: placement.pod.name)
    world.deliver(2)
    assert len(world.ledger.reservations) == 2
    world.set_policies([msgspec.structs.replace(binder, delivery=Delivery.EXTENDER)])
    world.deliver(1)
    assert [write.pod.name for write in world.writes] == [NAMES[2]]


def test_nothing_is_remembered_of_a_pod_whose_name_another_one_has() -> None:
    """The watch may show the new pod without the end of the old one."""
    world = FakeCluster([make_node("a")], [])
    old = world.create_pod("p", **PODS["ours"])
    world.show()
    world.ledger.record(old).backoff_until = world.now + 60.0
    world.create_pod("p", **PODS["ours"])
    world.show()
    assert not world.ledger.pending


@pytest.mark.parametrize("happening", ["the node of its place changes", "the policy moves no pods"])
def test_nobody_is_moved_once_the_place_is_lost(happening: str) -> None:
    """The eviction stands in line meanwhile: the pod stays, and so the pod that wants its room waits."""
    world = FakeCluster([room(f"n{at}", 400) for at in range(3)], [Moves.moving(ReschedulingMode.ACT)])
    for at in range(6):
        fields = {"node_name": f"n{at % 3}", "usage": SMALL.requests, "owner": "controller"}
        world.create_pod(f"small-{at}", pod_class=SMALL, scheduler_name=SCHEDULER_NAME, **fields)
    world.create_pod("large", pod_class=sized(300), scheduler_name=SCHEDULER_NAME)
    world.show()
    world.make_plan()
    world.deliver(100)
    world.pass_time(0.2)
    (place,) = [each for each in world.ledger.reservations.values() if each.phase is Phase.AWAITING_REPLACEMENT]
    assert world.writes
    if happening == "the policy moves no pods":
        world.set_policies([Moves.moving(ReschedulingMode.OFF)])
    else:
        world.put_node(msgspec.structs.replace(room(place.node, 400), unschedulable=True))
    world.show()
    world.pass_time(0.2)
    while world.writes:
        world.send(0)
    assert not any(pod.deleting for pod in world.api.values())
