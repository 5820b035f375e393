"""How plans are carried out: units whole or not at all, whatever happened between the plan and its delivery."""

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.reservations.effects import Bind
from thalweg_operator.reservations.events import PlanMade, PlannedPlacement
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.reserve import reserve
from thalweg_operator.reservations.steering import plans as nomination_plans
from thalweg_operator.reservations.steering.nominations import ReservedPlacement
from thalweg_operator.reservations.steering.records.nomination_records import NominationRecords
from thalweg_operator.reservations.steering.records.waves import UNORDERED
from thalweg_operator.reservations.step import plans

from flowcore.cluster.cluster import Cluster
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import STEERED_NAME
from flowcore.model.selectors import LabelSelector, Requirement

CLASS = PodClass(requests=(("cpu", 100),))
BOTH = pytest.mark.parametrize("scheduler", ["thalweg", STEERED_NAME])


class Case:
    """A cluster, and what was handed on of a plan for it."""

    def __init__(self) -> None:
        self.state = DrivenLedger(handlers={Bind: lambda effect: self._hand_on(effect.pod, effect.node)})
        self.policies = self.state.policies
        selects = {"schedulerNames": [STEERED_NAME]}
        self.policies.offer("steered", "u", 1, {"selects": selects, "delivery": "Extender"})
        self.bound: list[str] = []
        self.units: dict[str, str] = {}
        #: Units whose nominations are being taken back.
        self.withdrawn: set[str] = set()
        self.state.set_namespace("ns", ())
        for name in ("a", "b"):
            self.node(name)

    @property
    def rested(self) -> list[str]:
        """Pods that pause now."""
        pending = self.state.ledger.pending
        return [key.removeprefix("ns/") for key, record in pending.items() if record.backoff_until > 1000.0]

    def node(self, name: str, **changes: Any) -> None:
        self.state.upsert_node(
            Node(name, labels=(("host", name),), allocatable=(("cpu", 400), ("pods", 10)), **changes)
        )

    def _hand_on(self, pod: Pod, node: str) -> None:
        assert self.state.reservations[pod.key].node == node
        self.bound.append(pod.name)

    def _add_plan(self, _step: object, planned: Sequence[ReservedPlacement]) -> None:
        for each in planned:
            self._hand_on(each.pod, each.node)
            self.units[each.pod.name] = each.atomic_group

    def pods(self, names: str, scheduler: str, **fields: Any) -> list[Pod]:
        pods = [Pod("ns", name, f"u-{name}", CLASS, scheduler_name=scheduler, **fields) for name in names]
        for pod in pods:
            self.state.upsert_pod(pod)
        return pods

    def carry_out(
        self, plan: Sequence[tuple[Pod, str, str, bool]], meanwhile: Callable[[], object] = lambda: None
    ) -> bool:
        """A plan (pod, node, unit, spare) made now, and carried out after something happened."""
        cluster = self.state.cluster
        placements = []
        for pod, node, unit, spare in plan:
            policy = cluster.policies.of(pod, cluster.namespaces)
            if policy is not None:
                placements.append(PlannedPlacement(pod, policy, node, UNORDERED, unit, spare))
        units = sorted({unit for *_, unit, _ in plan if unit})
        self.state.take_changes()
        made = PlanMade(1, self.state.generation, placements, units)
        meanwhile()
        requested = self.state.rounds_requested
        with (
            patch.object(nomination_plans, "add_plan", self._add_plan),
            patch.object(NominationRecords, "is_withdrawing", lambda _records, unit: unit in self.withdrawn),
        ):
            self.state.apply(made)
        return self.state.rounds_requested > requested


@BOTH
def test_a_whole_unit(scheduler: str) -> None:
    """All of it is handed on; the steering is told which unit."""
    case = Case()
    pods = case.pods("pqr", scheduler)
    assert not case.carry_out([(pod, "a", "gang", False) for pod in pods[:2]] + [(pods[2], "b", "", False)])
    assert case.bound == ["p", "q", "r"]
    if scheduler == STEERED_NAME:
        assert case.units == {"p": "gang", "q": "gang", "r": ""}


@BOTH
@pytest.mark.parametrize("lost", ["p", "r"])
def test_a_unit_that_lost_a_pod(scheduler: str, lost: str) -> None:
    """Gone before the delivery: none of its unit is handed on, its room is free again, the others are not concerned."""
    case = Case()
    pods = case.pods("pqrs", scheduler)
    plan = [(pod, "a", "gang", False) for pod in pods[:3]] + [(pods[3], "b", "", False)]
    case.carry_out(plan, lambda: case.state.delete_pod(f"ns/{lost}"))
    assert case.bound == ["s"]
    assert list(case.state.reservations) == ["ns/s"]


@BOTH
def test_a_unit_that_is_being_taken_back(scheduler: str) -> None:
    """What is left of it is not handed on by itself while others of it still hold their room; it rests a little."""
    case = Case()
    pods = case.pods("pq", scheduler)
    case.withdrawn.add("gang")
    assert not case.carry_out([(pods[0], "a", "gang", False), (pods[1], "a", "other", False)])
    assert case.bound == ["q"]
    assert case.rested == ["p"]


@BOTH
def test_a_node_that_changes_while_a_plan_is_handed_on(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit's pod on it was reserved before the change: none of the unit is handed on."""
    case = Case()
    pods = case.pods("pqr", scheduler)
    cordoned = False

    def reserving(cluster: Cluster, ledger: Ledger, pod: Pod, node: str, owner: Owner, *args: Any, **kw: Any) -> bool:
        nonlocal cordoned
        done = reserve(cluster, ledger, pod, node, owner, *args, **kw)
        if not cordoned:
            cordoned = True
            case.node("a", unschedulable=True)
        return done

    monkeypatch.setattr(plans, "reserve", reserving)
    case.carry_out([(pods[0], "a", "gang", False), (pods[1], "b", "gang", False), (pods[2], "b", "", False)])
    assert case.bound == ["r"]


def test_somebody_nominates_a_pod_of_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unit is given up, and the room that was nominated stays counted."""
    case = Case()
    pods = case.pods("pq", STEERED_NAME)

    def reserving(cluster: Cluster, ledger: Ledger, pod: Pod, node: str, owner: Owner, *args: Any, **kw: Any) -> bool:
        done = reserve(cluster, ledger, pod, node, owner, *args, **kw)
        if pod.name == "p":
            case.state.upsert_pod(msgspec.structs.replace(pod, nominated_node="b"))
        return done

    monkeypatch.setattr(plans, "reserve", reserving)
    case.carry_out([(pods[0], "a", "gang", False), (pods[1], "a", "gang", False)])
    assert case.bound == []
    assert {key: (each.node, each.owner) for key, each in case.state.reservations.items()} == {
        "ns/p": ("b", Owner.OTHERS)
    }


@BOTH
def test_a_spare_pod(scheduler: str) -> None:
    """A unit goes without a spare pod that is lost; a spare pod does not go without its unit."""
    case = Case()
    p, q, r, s = case.pods("pqrs", scheduler)
    plan = [(p, "a", "one", False), (q, "a", "one", True), (r, "b", "two", True), (s, "b", "two", False)]
    case.carry_out(plan, lambda: (case.state.delete_pod("ns/q"), case.state.delete_pod("ns/s")))
    assert case.bound == ["p"]


def test_a_unit_beside_which_kube_scheduler_is_at_work() -> None:
    """What it may be placing there has no room beside the unit: all of it rests, and nothing is handed on."""
    case = Case()
    running = Pod("ns", "running", "u", CLASS, node_name="a", usage=CLASS.requests)
    case.state.upsert_pod(running)
    case.state.in_flight.let_through(Pod("ns", "theirs", "u", PodClass(requests=(("cpu", 300),))), frozenset("a"), 10.0)
    pods = case.pods("pq", "thalweg")
    assert not case.carry_out([(pods[1], "b", "gang", False), (pods[0], "a", "gang", True)])
    assert case.bound == ["q"]
    case.state.release("ns/q", "u-q")
    case.bound.clear()
    case.carry_out([(pods[1], "b", "gang", False), (pods[0], "a", "gang", False)])
    assert case.bound == []
    assert sorted(case.rested) == ["p", "q"]
    assert not case.state.reservations


def test_what_counted_on_a_unit_that_is_not_whole() -> None:
    """A pod that wants to be near one of a unit's is not carried out without it, nor what counts on it in turn."""
    case = Case()

    def near(app: str) -> InterPodConstraints:
        selector = LabelSelector((Requirement("app", "In", (app,)),))
        return InterPodConstraints(affinity=(AffinityTerm("host", selector, ("ns",)),))

    leader, other = (case.pods(name, "thalweg", labels=(("app", "leader"),))[0] for name in "lo")
    (near_leader,) = case.pods("n", "thalweg", constraints=near("leader"), labels=(("app", "follower"),))
    (near_follower,) = case.pods("f", "thalweg", constraints=near("follower"))
    (free,) = case.pods("x", "thalweg")
    plan = [
        (leader, "a", "gang", False),
        (near_leader, "a", "", False),
        (near_follower, "a", "second", False),
        (free, "a", "", False),
        (other, "b", "gang", False),
    ]
    assert case.carry_out(plan, lambda: case.state.delete_pod("ns/o"))
    assert case.bound == ["x"]
    assert list(case.state.reservations) == ["ns/x"]


@given(st.data())
def test_units_are_whole_whatever_happens(data: st.DataObject) -> None:
    """Random plans, random losses in between: of each unit all that it needs is handed on, or nothing."""
    case = Case()
    names = "abcdefghijkl"[: data.draw(st.integers(1, 12))]
    scheduler = data.draw(st.sampled_from(["thalweg", STEERED_NAME]))
    pods = case.pods(names, scheduler)
    plan = [
        (
            pod,
            data.draw(st.sampled_from("ab")),
            data.draw(st.sampled_from(["", "one", "two"])),
            data.draw(st.booleans()),
        )
        for pod in pods
    ]
    gone = data.draw(st.sets(st.sampled_from(names)))
    tainted = data.draw(st.booleans())

    def meanwhile() -> None:
        for name in sorted(gone):
            case.state.delete_pod(f"ns/{name}")
        if tainted:
            case.node("b", unschedulable=True)

    case.carry_out(plan, meanwhile)
    assert sorted(case.bound) == sorted(key.removeprefix("ns/") for key in case.state.reservations)
    for unit in ("one", "two"):
        needed = {pod.name for pod, _, of, spare in plan if of == unit and not spare}
        spare = {pod.name for pod, _, of, spare in plan if of == unit and spare}
        here = needed & set(case.bound)
        assert here in (set(), needed)
        assert here or not needed or not spare & set(case.bound)
    alone = [(pod.name, node) for pod, node, of, _ in plan if not of]
    lost = {name for name, node in alone if name in gone or (tainted and node == "b")}
    assert not lost & set(case.bound)
