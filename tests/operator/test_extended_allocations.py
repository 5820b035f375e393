"""Planned pods whose extended resource is devices on some nodes: claims that are made, bound with, and deleted."""

from __future__ import annotations

import msgspec
import pytest
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.claims import Part, parts_of
from support.fake_cluster.cluster import FakeCluster
from support.fake_cluster.machine import asking_for, gang, room, sized
from thalweg_operator.reservations.effects import Allocate, Bind, ReleaseClaims
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.step.before_binding.leftovers import IDLE_SECONDS

from flowcore.model.gang_spec import GangRef
from flowcore.model.policies import SCHEDULER_NAME, Delivery, Policy, Selects
from flowcore.model.resource_claims import ResourceClaim, extended_claim_name

OF_P = (NAMESPACE, extended_claim_name("p", "p"))


class Case(FakeCluster):
    """Node "a" has so many devices, "b" offers so many itself."""

    def __init__(self, a: int = 1, b: int = 0, *, later: bool = False) -> None:
        super().__init__([room("a", 1000), room("b", 1000, b)], [Policy("bound")])
        self.devices.publish_devices("a", a, later=later)
        self.start()

    def pod(self, name: str, *, of: GangRef | None = None) -> None:
        """A pod that asks for one device; its uid is its name."""
        pod_class, extended = asking_for(sized(100), 1)
        self.create_pod(name, name, pod_class=pod_class, scheduler_name=SCHEDULER_NAME, gang=of, extended=extended)
        self.show()

    def round(self) -> None:
        """All that waits is planned, and the plan is carried out."""
        self.make_plan()
        self.deliver(100)

    def answer(self, kind: type[Allocate | Bind | ReleaseClaims], answer: Answer = Answer.DONE) -> None:
        """The first write of a kind is sent, and answered so."""
        self.send(next(at for at, write in enumerate(self.writes) if isinstance(write, kind)), answer)

    def kinds(self) -> list[str]:
        return sorted(type(write).__name__ for write in self.writes)

    def node(self, name: str) -> str:
        return self.api[f"{NAMESPACE}/{name}"].node_name

    def killed_after(self, part: Part) -> ResourceClaim:
        """A round plans the pod p, and the operator is killed after a part of its write; the claim by then."""
        self.pod("p")
        self.round()
        (write,) = self.writes
        assert isinstance(write, Allocate)
        self.devices.allocate(write, 1 + [each for _, each in parts_of(write)].index(part))
        self.start()
        return self.devices.claims[OF_P]


def test_a_pod_is_bound_once_its_claim_is_shown_and_told() -> None:
    """The watch alone does not show that the pod's status names it."""
    case = Case()
    case.pod("p")
    case.round()
    assert case.kinds() == ["Allocate"]
    case.send(0, lost=True, shown_first=True)
    assert case.devices.claims[OF_P].reserved_for == ("p",)
    assert case.kinds() == ["Allocate"]
    case.answer(Allocate)
    assert case.kinds() == ["Bind"]
    case.settle()
    assert case.node("p") == "a"
    assert case.devices.told == {"p": OF_P[1]}


def test_a_pod_on_a_node_that_offers_the_resource() -> None:
    """It is bound, and no claim is made."""
    case = Case(a=0, b=1)
    case.pod("p")
    case.round()
    assert case.kinds() == ["Bind"]
    case.settle()
    assert (case.node("p"), case.devices.claims) == ("b", {})


def test_the_next_round_knows_of_a_claim_that_is_not_made_yet() -> None:
    """Nobody else gets its device, nor once it is made."""
    case = Case()
    case.pod("p")
    case.round()
    case.pod("q")
    case.round()
    assert case.kinds() == ["Allocate"]
    case.answer(Allocate)
    case.show()
    case.round()
    case.settle()
    assert (case.node("p"), case.node("q")) == ("a", "")


def test_a_refused_claim_of_a_gang() -> None:
    """No pod of it is bound, and its claims are deleted before it is planned anew."""
    case = Case(a=2)
    for name in ("p", "q"):
        case.pod(name, of=gang("g", 2))
    case.round()
    case.answer(Allocate)
    case.answer(Allocate, Answer.REFUSED)  # it is made, and gets no device
    assert case.kinds() == ["ReleaseClaims", "ReleaseClaims"]
    assert len(case.devices.claims) == 2
    case.answer(ReleaseClaims)
    case.answer(ReleaseClaims)
    case.show()
    assert [claim.is_being_deleted for claim in case.devices.claims.values()] == [True]
    case.pass_time(60.0)
    case.round()
    assert case.writes == []
    case.devices.follow_pods({"p", "q"})
    case.show()
    case.pass_time(60.0)
    case.round()
    case.settle()
    assert (case.node("p"), case.node("q")) == ("a", "a")
    assert len(case.devices.told) == 2


def test_a_write_of_an_earlier_leader_that_comes_late() -> None:
    """Between two parts of a plan: the pod's status is written all the same."""
    case = Case(a=2)
    for name in ("p", "q"):
        case.pod(name, of=gang("g", 2))
    case.make_plan()
    assert case.plan is not None
    case.plan.placements.sort(key=lambda placement: placement.pod.name)
    claims = case.plan.placements[0].device_claims
    assert claims is not None
    case.deliver(1)
    case.devices.allocate(Allocate(case.api[f"{NAMESPACE}/p"], "a", 99, claims), 2)
    case.show()
    case.deliver(100)
    assert case.kinds() == ["Allocate", "Allocate"]
    case.settle()
    assert (case.node("p"), case.node("q")) == ("a", "a")
    assert len(case.devices.told) == 2


def test_a_pod_is_not_planned_before_its_claim_is_seen_to_go() -> None:
    """The watch shows that it is free, and not yet that it is being deleted."""
    case = Case(later=True)
    case.pod("p")
    case.round()
    case.answer(Allocate)
    case.show()
    case.devices.report(OF_P, ready=False)
    case.show()
    case.answer(ReleaseClaims)
    case.show(1)
    known = case.cluster.devices.claims[OF_P]
    assert (known.allocation, known.is_being_deleted) == (None, False)
    case.pass_time(60.0)
    case.round()
    assert case.writes == []


def test_a_claim_that_was_made_and_has_no_device_is_taken_up() -> None:
    """By the next round, at once."""
    case = Case()
    before = case.killed_after(Part.MADE)
    assert before.allocation is None
    case.round()
    case.settle()
    assert case.node("p") == "a"
    assert case.devices.claims[OF_P].uid == before.uid


@pytest.mark.parametrize("part", [Part.ALLOCATED, Part.TOLD])
def test_a_claim_that_has_devices_is_deleted(part: Part) -> None:
    """After a while, and its pod is planned anew."""
    case = Case()
    before = case.killed_after(part)
    case.wait(IDLE_SECONDS - 2, 1.0)
    case.round()
    assert case.writes == []
    assert case.devices.claims[OF_P] == before
    case.wait(4, 1.0)
    assert case.devices.claims[OF_P].is_being_deleted
    assert case.devices.told == {}
    case.round()
    assert case.writes == []
    case.devices.follow_pods({"p"})
    case.show()
    case.round()
    case.settle()
    assert case.node("p") == "a"
    assert case.devices.claims[OF_P].uid != before.uid


@pytest.mark.parametrize("part", list(Part))
def test_a_claim_of_a_pod_that_takes_what_a_node_offers(part: Part) -> None:
    """It goes, before or after the pod is bound; no status names it."""
    case = Case()
    case.killed_after(part)
    case.put_node(msgspec.structs.replace(case.nodes["a"], unschedulable=True))
    case.put_node(room("b", 1000, 1))
    case.show()
    for _ in range(3):
        case.round()
        case.wait(IDLE_SECONDS + 1, 1.0)
        case.devices.follow_pods({"p"})
    case.settle()
    assert case.node("p") == "b"
    assert (case.devices.claims, case.devices.told) == ({}, {})


def test_a_claim_is_deleted_though_its_class_is_gone() -> None:
    """The pod asks for a resource that nobody has, and waits; nothing keeps the device."""
    case = Case()
    case.killed_after(Part.TOLD)
    case.state.set_device_class("gpu", None)
    case.wait(IDLE_SECONDS + 2, 1.0)
    assert case.devices.claims[OF_P].is_being_deleted
    assert case.devices.told == {}


def test_what_kube_scheduler_binds_is_left_to_it() -> None:
    """It deletes the claim itself."""
    case = Case()
    before = case.killed_after(Part.MADE)
    case.set_policies(
        [Policy("steered", selects=Selects(scheduler_names=(SCHEDULER_NAME,)), delivery=Delivery.EXTENDER)]
    )
    case.wait(5 * IDLE_SECONDS, 1.0)
    assert case.devices.claims[OF_P] == before


def test_a_device_that_will_not_get_ready() -> None:
    """The claim goes, and is made anew."""
    case = Case(later=True)
    case.pod("p")
    case.round()
    case.answer(Allocate)
    case.show()
    first = case.devices.claims[OF_P]
    case.devices.report(OF_P, ready=False)
    case.show()
    case.settle()
    case.devices.follow_pods({"p"})
    case.settle()
    assert OF_P not in case.devices.claims
    case.pass_time(60.0)
    case.round()
    case.answer(Allocate)
    case.show()
    case.devices.report(OF_P, ready=True)
    case.settle()
    assert case.node("p") == "a"
    assert case.devices.claims[OF_P].uid != first.uid


def test_a_pod_that_goes() -> None:
    """Its claim is not kept, whether it was made or not."""
    case = Case(later=True)
    case.pod("p")
    case.round()
    case.answer(Allocate)
    case.show()
    assert case.ledger.reservations[f"{NAMESPACE}/p"].phase is Phase.PREPARING
    case.remove_pod(f"{NAMESPACE}/p")
    case.settle()
    case.devices.follow_pods(set())
    case.settle()
    assert case.devices.claims == {}
    records = case.ledger.device_claims
    assert not any((records.users, records.releasing, records.ended))
