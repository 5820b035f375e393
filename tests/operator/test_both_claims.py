"""Pods and gangs that claim devices and volumes: all get what they need, or none is bound and devices come free."""

from __future__ import annotations

import msgspec
import pytest
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.claims import claiming
from support.fake_cluster.cluster import FakeCluster
from support.fake_cluster.machine import gang, room, sized
from support.fake_cluster.volumes import HOST, LOCAL, MADE
from thalweg_operator.reservations.effects import Allocate, BindClaim, WriteCondition
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger.transitions import Phase

from flowcore.model.gang_spec import GangRef
from flowcore.model.policies import SCHEDULER_NAME, Delivery, Policy, Selects
from flowcore.model.volumes import ClaimVolume


class Case(FakeCluster):
    """A node with a device and a local volume."""

    def __init__(self, *, later: bool = False) -> None:
        super().__init__([msgspec.structs.replace(room("a", 1000), labels=((HOST, "a"),))], [Policy("bound")])
        self.devices.publish_devices("a", 1, later=later)
        self.volumes.publish_volumes("a", 1)
        self.start()

    def pod(self, name: str, *, device: bool = False, volume: str = "", of: GangRef | None = None) -> None:
        """A pod with a claim of each of these kinds; its uid is its name."""
        pod_class = sized(100)
        if device:
            self.devices.make(NAMESPACE, f"{name}-gpu", f"{name}-gpu", owner=name)
            devices = claiming(NAMESPACE, name, name, f"{name}-gpu", template=True)
            pod_class = msgspec.structs.replace(pod_class, devices=devices)
        if volume:
            self.volumes.make(NAMESPACE, f"{name}-data", f"{name}-data", volume)
            pod_class = msgspec.structs.replace(pod_class, volumes=(ClaimVolume(NAMESPACE, f"{name}-data"),))
        self.create_pod(name, name, pod_class=pod_class, scheduler_name=SCHEDULER_NAME, gang=of)
        self.show()

    def round(self) -> None:
        """All that waits is planned, and the plan is carried out."""
        self.make_plan()
        self.deliver(100)

    def answer(self, kind: type[Allocate | BindClaim], answer: Answer = Answer.DONE, reason: str = "no") -> None:
        """The first write of a kind is sent, and answered so; the watch shows what it did."""
        self.send(next(at for at, write in enumerate(self.writes) if isinstance(write, kind)), answer, reason=reason)
        self.show()

    def controllers_act(self) -> None:
        """Claims are bound to what is kept for them, and that is shown."""
        self.volumes.controllers_act()
        self.show()

    def kinds(self) -> list[str]:
        return sorted(type(write).__name__ for write in self.writes)

    def phases(self) -> dict[str, Phase]:
        return {key.removeprefix(f"{NAMESPACE}/"): each.phase for key, each in self.ledger.reservations.items()}

    def has_device(self, name: str) -> bool:
        return self.devices.claims[NAMESPACE, f"{name}-gpu"].allocation is not None

    def told(self) -> list[str]:
        return [effect.reason for effect in self.effects if isinstance(effect, WriteCondition)]


@pytest.mark.parametrize("first", [Allocate, BindClaim])
def test_a_pod_is_bound_once_it_has_both(first: type[Allocate | BindClaim]) -> None:
    """Whichever comes first."""
    case = Case()
    case.pod("p", device=True, volume=LOCAL)
    case.round()
    assert case.kinds() == ["Allocate", "BindClaim"]
    assert case.phases() == {"p": Phase.PREPARING}
    kinds = [Allocate, BindClaim] if first is Allocate else [BindClaim, Allocate]
    for kind in kinds:
        assert "Bind" not in case.kinds()
        case.answer(kind)
        if kind is BindClaim:
            case.controllers_act()
    assert case.kinds() == ["Bind"]
    case.settle()
    assert case.api[f"{NAMESPACE}/p"].node_name == "a"


def test_a_pod_whose_volume_is_taken_gives_its_device_back() -> None:
    """The device is free for the next pod, and what was written for volumes stays."""
    case = Case()
    case.pod("p", device=True, volume=LOCAL)
    case.round()
    case.answer(Allocate)
    assert case.has_device("p")
    case.volumes.take("a-0")
    case.show()
    assert case.kinds() == ["BindClaim", "ReleaseClaims"]
    case.settle()
    assert not case.has_device("p")
    assert case.told() == [
        'its volumes were not bound: persistentvolume "a-0" is not there for persistentvolumeclaim "p-data"'
    ]
    case.pod("q", device=True)
    case.round()
    case.settle()
    assert case.api[f"{NAMESPACE}/q"].node_name == "a"


def test_a_pod_whose_device_fails_keeps_its_volume() -> None:
    """It is planned anew, with the volume that its claim has by then."""
    case = Case(later=True)
    case.pod("p", device=True, volume=MADE)
    case.round()
    case.answer(Allocate)
    case.answer(BindClaim)
    case.controllers_act()
    assert case.phases() == {"p": Phase.PREPARING}
    case.devices.report((NAMESPACE, "p-gpu"), ready=False)
    case.show()
    assert case.kinds() == ["ReleaseClaims"]
    case.settle()
    assert not case.has_device("p")
    case.pass_time(5)
    case.round()
    assert case.kinds() == ["Allocate"]
    case.answer(Allocate)
    case.devices.report((NAMESPACE, "p-gpu"), ready=True)
    case.settle()
    assert case.api[f"{NAMESPACE}/p"].node_name == "a"


def test_a_gang_with_claims_of_both_kinds_is_bound_together() -> None:
    """One pod has a device, one a volume, one nothing: all bindings come once both have theirs."""
    case = Case()
    members = gang("g", 3)
    case.pod("p", device=True, of=members)
    case.pod("q", volume=LOCAL, of=members)
    case.pod("r", of=members)
    case.round()
    assert case.phases() == dict.fromkeys("pqr", Phase.PREPARING)
    case.answer(Allocate)
    case.answer(BindClaim)
    assert not case.writes
    case.controllers_act()
    assert case.kinds() == ["Bind", "Bind", "Bind"]
    case.settle()
    assert all(pod.node_name == "a" for pod in case.api.values())


def test_a_gang_whose_volume_is_refused_gives_its_device_back() -> None:
    """None of its pods is bound, the pod of the claim alone is told, and the gang comes later as a whole."""
    case = Case()
    members = gang("g", 2)
    case.pod("p", device=True, of=members)
    case.pod("q", volume=LOCAL, of=members)
    case.round()
    case.answer(Allocate)
    assert case.has_device("p")
    case.answer(BindClaim, Answer.REFUSED, "a webhook says no")
    assert case.phases() == {}
    assert case.kinds() == ["ReleaseClaims"]
    assert case.told() == ['its volumes were not bound: persistentvolumeclaim "q-data": a webhook says no']
    case.settle()
    assert not case.has_device("p")
    assert not any(pod.node_name for pod in case.api.values())
    case.pass_time(5)
    case.round()
    case.settle()
    case.controllers_act()
    case.settle()
    assert all(pod.node_name == "a" for pod in case.api.values())


def test_a_gang_whose_provisioner_never_answers_gives_all_back() -> None:
    """Devices and room are others' while the gang pauses; then the gang is tried again as a whole."""
    case = Case()
    members = gang("g", 2)
    case.pod("p", device=True, of=members)
    case.pod("q", volume=MADE, of=members)
    case.round()
    case.answer(Allocate)
    case.answer(BindClaim)
    case.pass_time(601)
    assert case.phases() == {}
    case.settle()
    assert not case.has_device("p")
    case.pod("other", device=True)
    case.round()
    assert case.phases() == {"other": Phase.PREPARING}
    case.settle()
    assert case.api[f"{NAMESPACE}/other"].node_name == "a"
    case.remove_pod(f"{NAMESPACE}/other")
    case.devices.follow_pods({"p", "q"})
    case.show()
    case.pass_time(61)
    case.round()
    assert case.phases() == dict.fromkeys("pq", Phase.PREPARING)
    case.settle()
    case.controllers_act()
    case.settle()
    assert [case.api[f"{NAMESPACE}/{name}"].node_name for name in "pq"] == ["a", "a"]


def test_a_pod_that_its_gang_does_without_ends_alone() -> None:
    """The other one is bound, though no device can be had."""
    case = Case()
    members = gang("g", 1)
    case.pod("p", device=True, of=members)
    case.pod("q", volume=LOCAL, of=members)
    case.round()
    assert [key for key, each in case.ledger.reservations.items() if each.optional] == [f"{NAMESPACE}/p"]
    case.answer(BindClaim)
    case.controllers_act()
    assert case.phases() == dict.fromkeys("pq", Phase.PREPARING)
    case.answer(Allocate, Answer.REFUSED)
    assert case.phases() == {"q": Phase.BINDING}


@pytest.mark.parametrize("change", ["policy", "pod"])
def test_a_pod_that_is_not_ours_any_more_is_not_bound(change: str) -> None:
    """Another policy leaves it to kube-scheduler, or it is being deleted, while its volume is made."""
    case = Case()
    case.pod("p", device=True, volume=MADE)
    case.round()
    case.answer(Allocate)
    case.answer(BindClaim)
    if change == "policy":
        selects = Selects(scheduler_names=(SCHEDULER_NAME,))
        case.set_policies([Policy("steered", selects=selects, delivery=Delivery.EXTENDER)])
    else:
        case.change_pod(f"{NAMESPACE}/p", deleting=True, blocked_reason="it is being deleted")
    case.controllers_act()
    assert case.phases() == {}
    assert case.kinds() == ["ReleaseClaims"]


def test_overdue_claims_are_told_by_what_they_lack() -> None:
    """A pod has its device, and nobody binds its volume: it does not say that the device is late."""
    case = Case()
    case.state.shell.state.device_timeout = 60.0
    case.pod("p", device=True, volume=LOCAL)
    case.round()
    case.answer(Allocate)
    case.answer(BindClaim)
    case.pass_time(300)
    assert case.phases() == {"p": Phase.PREPARING}
    case.pass_time(301)
    awaited = 'persistentvolumeclaim "p-data" is not bound yet (persistentvolume "a-0")'
    assert case.told() == [
        f"its volumes on a are not ready: {awaited}",
        f"its volumes were not bound: {awaited}, 10 minutes after that was asked for",
    ]
    case.settle()
    assert not case.has_device("p")
