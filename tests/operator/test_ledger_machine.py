"""Any history of the ledger: whatever happens in whatever order, its invariants hold after each event.

`support.ledger_checks` counts anew: the usage of each node is bound + ledger; no pod is in two places; no gang is
handed on in part; no phase changes but by the table of transitions; advice changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import Phase as HypothesisPhase
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.ledger_world import NAMESPACE, LedgerWorld
from support.profiles import examples
from thalweg_operator.reservations.effects import Departure
from thalweg_operator.reservations.events import Answer, PlannedEviction, PlannedPlacement
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase

from flowcore.cluster.victims import victim_key
from flowcore.model.advice import HELD_MESSAGE, UNSEEN_MESSAGE
from flowcore.model.constraint_limits import HOSTNAME
from flowcore.model.constraints import Conflict
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.policies import (
    SCHEDULER_NAME,
    STEERED_NAME,
    Delivery,
    DuringExecution,
    GangPolicy,
    PartialBind,
    Policy,
    ReschedulingMode,
    ReschedulingPolicy,
    Selects,
    Steering,
    Victims,
    WaitingMode,
)
from flowcore.model.selectors import LabelSelector, Requirement

NODES = ("a", "b", "c")
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


def gang(name: str, count: int) -> GangRef:
    """Membership of a gang that needs so many pods."""
    return GangRef(GangKey(GangSource.THALWEG, NAMESPACE, name), GangSpec(min_member=count))


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
pods = st.sampled_from(list(PODS))
#: What others change about a pod.
CHANGES: dict[str, dict[str, Any]] = {
    "is deleted": {"deleting": True},
    "ends": {"terminal": True},
    "has another label": {"labels": (("app", "z"),)},
    "is blocked": {"blocked_reason": "its scheduling gates are closed: x"},
    "is blocked no more": {"blocked_reason": ""},
    "names no victim": {"replaces": None},
    "has no gate": {"gated": False},
}
nodes = st.sampled_from(NODES)
steered_policies = st.sampled_from(
    [
        (Policy("steered", selects=STEERED, delivery=Delivery.EXTENDER, gangs=EVICTING, victims=Victims.GOVERNED),),
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
        (Policy("bound", gangs=EVICTING, victims=Victims.GOVERNED),),
        (Policy("bound", rescheduling=MOVING, during_execution=EVICT),),
        (Policy("bound", constraints=(Conflict("one", APP_X, HOSTNAME),)),),
        (Policy("bound", delivery=Delivery.OBSERVE),),
    ]
)


class LedgerMachine(RuleBasedStateMachine):
    """Users, controllers, the API server, kube-scheduler, rounds and restarts, in any order."""

    @initialize(
        steered=steered_policies,
        bound=bound_policies,
        first=st.lists(pods, min_size=3, max_size=4),
        running=st.booleans(),
    )
    def begin(self, steered: tuple[Policy, ...], bound: tuple[Policy, ...], first: list[str], running: bool) -> None:  # noqa: FBT001
        self.world = LedgerWorld([make_node(name) for name in NODES], steered + bound)
        for name, kind in zip(NAMES, first, strict=False):
            self._create(name, kind)
            if running and name == NAMES[0]:
                self.world.change_pod(f"{NAMESPACE}/{name}", node_name=NODES[0], usage=SMALL.requests, gated=False)
        self.world.show()

    def _create(self, name: str, kind: str) -> None:
        fields = PODS[kind]
        if "replaces" in fields:
            running = [pod.name for pod in self.world.api.values() if pod.node_name and not pod.terminal]
            fields = {**fields, "replaces": min(running, default=None)}
        self.world.create_pod(name, **fields)

    @staticmethod
    def _pick(keys: Iterable[str], at: int) -> str:
        ordered = sorted(keys)
        return ordered[at % len(ordered)]

    # --- people and controllers ---

    @precondition(lambda self: len(self.world.api) < len(NAMES))
    @rule(kind=pods, show=st.booleans())
    def pod_comes(self, kind: str, show: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        self._create(next(name for name in NAMES if f"{NAMESPACE}/{name}" not in self.world.api), kind)
        if show:
            self.world.show()

    @precondition(lambda self: self.world.api)
    @rule(
        at=st.integers(0, 4),
        what=st.sampled_from(
            (*CHANGES, "goes", "is bound", "is nominated", "is nominated", "is replaced under its name")
        ),
        node=st.sampled_from((*NODES, "unknown")),
    )
    def others_change_a_pod(self, at: int, what: str, node: str) -> None:
        """People, controllers, kubelets and other schedulers."""
        world, key = self.world, self._pick(self.world.api, at)
        pod = world.api[key]
        match what:
            case "goes":
                world.remove_pod(key)
            case "is bound" if not pod.node_name:
                world.change_pod(key, node_name=node, usage=pod.pod_class.requests, gated=False)
            case "is nominated" if not pod.node_name:
                world.change_pod(key, nominated_node="" if pod.nominated_node else node)
            case "is replaced under its name":
                kept = {
                    name: getattr(pod, name)
                    for name in ("pod_class", "scheduler_name", "labels", "gang", "gated", "owner")
                }
                world.create_pod(pod.name, **kept)
            case _:
                world.change_pod(key, **CHANGES.get(what, {}))

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

    # --- the operator ---

    @precondition(lambda self: self.world.watch)
    @rule(count=st.sampled_from((1, 2, 10)))
    def watch_shows(self, count: int) -> None:
        self.world.show(count)

    @precondition(lambda self: self.world.plan is None)
    @rule(count=st.sampled_from((1, 2, 10)))
    def round_plans(self, count: int) -> None:
        self.world.make_plan()
        self.world.deliver(count)

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
                PlannedEviction(
                    each.key,
                    each.uid,
                    choose.choice((Departure.RULE, Departure.MIGRATION)),
                    choose.choice(("", *NODES)),
                    by_controller=choose.random() < 0.2,
                )
                for each in sorted(self.world.cluster.pods.values(), key=lambda each: each.key)
                if each.node_name and choose.random() < 0.5
            ]
        self.world.bring(plan)
        self.world.deliver(count)

    @staticmethod
    def _eviction(choose: random.Random, pod: Pod, priority: int) -> PlannedEviction:
        """A running pod leaves for one of this priority: it is preempted, or moved."""
        lower = pod.pod_class.priority < priority and choose.random() < 0.7
        departure = Departure.PREEMPTION if lower else Departure.MIGRATION
        to = choose.choice(NODES) if departure is Departure.MIGRATION or choose.random() < 0.5 else ""
        return PlannedEviction(pod.key, pod.uid, departure, to)

    @precondition(lambda self: self.world.plan is not None)
    @rule(count=st.sampled_from((1, 2, 10)))
    def plan_goes_on(self, count: int) -> None:
        self.world.deliver(count)

    @precondition(lambda self: self.world.writes)
    @rule(
        at=st.integers(0, 5),
        answer=st.sampled_from((Answer.DONE, Answer.DONE, Answer.DONE, Answer.REFUSED, Answer.RETRYING)),
        lost=st.sampled_from((False, False, False, True)),
        shown_first=st.booleans(),
    )
    def write_is_sent(self, at: int, answer: Answer, lost: bool, shown_first: bool) -> None:  # noqa: FBT001
        self.world.send(at % len(self.world.writes), answer, lost=lost, shown_first=shown_first)

    @precondition(lambda self: self.world.writes)
    @rule()
    def writes_are_carried_out(self) -> None:
        """As on most days."""
        for _ in range(len(self.world.writes)):
            self.world.send(0)
        self.world.remove_deleting_pods()
        self.world.show()

    @rule(seconds=st.sampled_from((0.05, 0.2, 1.0, 3.0, 7.0, 20.0, 70.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    # --- kube-scheduler ---

    @precondition(lambda self: self.world.schedulable())
    @rule(at=st.integers(0, 4), fits=st.sampled_from((NODES, NODES, ("a",), ("b", "c"), ())), binds=st.booleans())
    def scheduler_tries(self, at: int, fits: tuple[str, ...], binds: bool) -> None:  # noqa: FBT001
        key = self._pick(self.world.schedulable(), at)
        self.world.attempt(key, fits)
        if binds:
            self.world.end_attempt(key, fails=False)

    @precondition(lambda self: self.world.attempts)
    @rule(
        at=st.integers(0, 5),
        fails=st.booleans(),
        message=st.sampled_from((HELD_MESSAGE, UNSEEN_MESSAGE, "2 Insufficient cpu")),
    )
    def attempt_ends(self, at: int, fails: bool, message: str) -> None:  # noqa: FBT001
        self.world.end_attempt(self._pick(self.world.attempts, at), fails=fails, message=message)

    # --- the end ---

    def teardown(self) -> None:
        """Nothing that we reserve stays for ever; and when all is gone, nothing is remembered."""
        if not hasattr(self, "world"):
            return
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
        assert not self.world.state.moves.awaited
        assert not self.world.state.moves.by_owner
        assert not self.world.state.moves.without_place
        assert not ledger.waiting_groups
        assert not ledger.unevictable
        assert not self.world.state.checking
        assert not ledger.pending
        assert not self.world.state.evicting
        assert not world.cluster.occupancy.usage


LedgerMachine.TestCase.settings = settings(
    max_examples=examples(100),
    stateful_step_count=40,
    report_multiple_bugs=False,
    phases=[HypothesisPhase.reuse, HypothesisPhase.generate, HypothesisPhase.shrink],
)
TestLedgerMachine = LedgerMachine.TestCase


# --- what the machine found ---


def test_a_policy_that_changes_while_a_plan_comes_in_parts() -> None:
    """A gang that was planned for the binder is not bound once its policy says that kube-scheduler binds."""
    binder = Policy("steered", selects=STEERED, delivery=Delivery.BINDER)
    world = LedgerWorld([make_node(name) for name in NODES], [binder])
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
    world = LedgerWorld([make_node("a")], [])
    old = world.create_pod("p", **PODS["ours"])
    world.show()
    world.ledger.record(old).backoff_until = world.now + 60.0
    world.create_pod("p", **PODS["ours"])
    world.show()
    assert not world.ledger.pending
