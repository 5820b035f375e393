"""Claims that a PodGroup shares: who reserves them, what stays when a pod does not come, and what comes free."""

from __future__ import annotations

import msgspec
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.device_case import DeviceCase
from support.fake_cluster.machine import sized
from thalweg_operator.reservations.effects import Allocate, Bind, ReleaseClaims
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.step.before_binding.leftovers import IDLE_SECONDS

from flowcore.model.device_gates import WORKLOAD_CLAIMS, DeviceGates
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.policies import SCHEDULER_NAME
from flowcore.model.resource_claims import ClaimingPod, PodClaim
from flowcore.model.resource_slices import DeviceId

KEY = GangKey(GangSource.NATIVE, NAMESPACE, "train")
SHARED = PodClaim("gpu", template="t")
CLAIM = NAMESPACE, "train-gpu"
GPU = DeviceId("gpu.example.com", "a", "gpu-0")


class GroupCase(DeviceCase):
    """Nodes with devices, and a PodGroup whose pods share a claim for one of them."""

    def __init__(self, a: int = 1, b: int = 0, *, least: int = 2, later: bool = False) -> None:
        super().__init__(a, b, later=later)
        self.put_pod_group(PodGroup(KEY, GangSpec(min_member=least), uid="group", claims=(SHARED,)))
        self.devices.make(*CLAIM, "claim", owner="group", group="train")
        self.show()

    def member(self, name: str, cpu: int = 100) -> None:
        """A pod of the group; its uid is its name."""
        devices = ClaimingPod(NAMESPACE, name, name, (SHARED,), (("gpu", CLAIM[1]),))
        pod_class = msgspec.structs.replace(sized(cpu), devices=devices)
        self.create_pod(name, name, pod_class=pod_class, scheduler_name=SCHEDULER_NAME, gang=GangRef(KEY))
        self.show()

    def let_time_pass(self) -> None:
        """Longer than what nobody uses stays; nothing is written yet."""
        for _ in range(int(IDLE_SECONDS) + 2):
            self.pass_time(1.0)

    @property
    def reserved(self) -> tuple[str, ...]:
        return self.devices.claims[CLAIM].reserved_for

    def nodes_of_pods(self) -> dict[str, str]:
        return {pod.name: pod.node_name for pod in self.api.values()}


def test_a_gang_shares_one_allocation() -> None:
    """It is reserved for the group, once, and stays so when its pods run, end and go."""
    case = GroupCase()
    for name in "pq":
        case.member(name)
    case.round()
    case.settle()
    assert case.nodes_of_pods() == {"p": "a", "q": "a"}
    assert case.reserved == ("group",)
    case.change_pod(f"{NAMESPACE}/p", terminal=True)
    case.remove_pod(f"{NAMESPACE}/q")
    case.show()
    case.wait(2 * IDLE_SECONDS, 1.0)
    assert (case.reserved, case.kinds()) == (("group",), [])


def test_both_write_the_claim() -> None:
    """No pod is bound before the watch shows it, and a pod whose group has it is bound by that alone."""
    case = GroupCase()
    for name in "pq":
        case.member(name)
    case.round()
    assert case.kinds() == ["Allocate", "Allocate"]
    case.answer(Allocate)
    assert {case.phase(name) for name in "pq"} == {Phase.PREPARING}
    case.show()
    assert case.kinds() == ["Allocate", "Bind", "Bind"]


def test_a_pod_that_does_not_come() -> None:
    """Others of the group use the claim: nothing is given back, and the pod follows them."""
    case = GroupCase(a=1, b=1, least=1)
    case.member("p")
    case.round()
    case.settle()
    case.member("q")
    case.round()
    case.answer(Bind, Answer.REFUSED, "a webhook says no")
    case.settle()
    assert (case.kinds(), case.reserved) == ([], ("group",))
    case.pass_time(30)
    case.round()
    case.settle()
    assert len(set(case.nodes_of_pods().values())) == 1


def test_a_write_that_comes_late() -> None:
    """Pods are given up while their claim is being written: others may get the devices before. So it comes free."""
    case = GroupCase()
    for name in "pq":
        case.member(name)
    case.round()
    late = case.writes[0]
    assert isinstance(late, Allocate)
    case.send(1, Answer.REFUSED, reason="a webhook says no")
    assert not case.ledger.reservations
    case.devices.allocate(late, 1)
    case.show()
    assert case.reserved == ("group",)
    assert case.ledger.plannable() == [], "no pod of the group takes it up"
    case.answer(Allocate)
    case.answer(ReleaseClaims)
    case.show()
    assert case.ledger.plannable() == [], "the write for the other pod may come late, too"
    case.settle()
    assert (case.device(CLAIM[1]), case.reserved) == (None, ())
    assert len(case.ledger.plannable()) == 2


def test_others_take_the_device_before_us() -> None:
    """Their write came first, as the watch shows: ours is given back, and no pod of the group is bound with it."""
    case = GroupCase()
    for name in "pq":
        case.member(name)
    case.round()
    case.devices.make(NAMESPACE, "theirs", "theirs")
    case.devices.allocate_elsewhere((NAMESPACE, "theirs"), GPU, "somebody")
    case.settle()
    assert (case.device(CLAIM[1]), case.device("theirs"), case.reserved) == (None, GPU, ())
    case.pass_time(5)
    case.round()
    case.settle()
    assert not any(case.nodes_of_pods().values())


def test_devices_that_do_not_get_ready() -> None:
    """They come free at once: a next plan would wait for them again, as long as a driver may take."""
    case = GroupCase(later=True)
    for name in "pq":
        case.member(name)
    case.round()
    case.settle()
    assert case.reserved == ("group",)
    case.devices.report(CLAIM, ready=False)
    case.settle()
    assert (case.device(CLAIM[1]), case.reserved) == (None, ())


def test_no_pod_of_the_group_comes() -> None:
    """The devices are kept for a while: a next plan may take them up. Then they come free."""
    case = GroupCase(a=1, b=1)
    left_over(case)
    assert not case.ledger.reservations
    assert case.reserved == ("group",), "as with kube-scheduler"
    case.let_time_pass()
    assert case.kinds() == ["ReleaseClaims"]
    assert case.ledger.plannable() == [], "until that is done, nobody knows what the group has"
    case.member("late")
    assert case.ledger.plannable() == [], "nor does a pod that comes meanwhile"
    case.settle()
    assert (case.device(CLAIM[1]), case.reserved) == (None, ())
    assert len(case.ledger.plannable()) == 3
    case.pass_time(30)
    case.round()
    case.settle()
    assert case.reserved == ("group",)


def test_a_next_plan_takes_it_up() -> None:
    """Before it comes free: the same devices, and only what is missing is written."""
    case = GroupCase(a=1, b=1)
    for name in "pq":
        case.member(name)
    case.round()
    case.answer(Allocate)
    before = case.devices.claims[CLAIM]
    case.start()
    case.round()
    case.settle()
    assert case.devices.claims[CLAIM] == before
    assert all(case.nodes_of_pods().values())


def left_over(case: GroupCase) -> None:
    """The group has devices, and the operator starts anew before a pod of it is bound."""
    for name in "pq":
        case.member(name)
    case.round()
    case.answer(Allocate)
    case.start()


def test_a_pod_of_the_group_runs() -> None:
    """Somebody bound it: the devices are its own, before they are given back and while that is under way."""
    case = GroupCase()
    left_over(case)
    case.let_time_pass()
    assert case.kinds() == ["ReleaseClaims"]
    case.change_pod(f"{NAMESPACE}/p", node_name="a")
    case.show()
    case.answer(ReleaseClaims)
    case.wait(3 * IDLE_SECONDS, 1.0)
    assert (case.kinds(), case.reserved) == ([], ("group",))
    assert [pod.name for pod in case.ledger.plannable()] == ["q"]


def test_a_group_without_waiting_pods() -> None:
    """It keeps its devices until it is deleted: that is the affair of Kubernetes' controller."""
    case = GroupCase()
    left_over(case)
    for name in "pq":
        case.remove_pod(f"{NAMESPACE}/{name}")
    case.show()
    case.wait(3 * IDLE_SECONDS, 1.0)
    assert (case.kinds(), case.reserved) == ([], ("group",))


def test_a_reservation_that_somebody_takes_away() -> None:
    """While devices get ready: the pods are planned anew, and told of the group's claim."""
    case = GroupCase(later=True)
    for name in "pq":
        case.member(name)
    case.round()
    case.settle()
    allocated = case.devices.claims[CLAIM]
    case.devices.put(msgspec.structs.replace(allocated, reserved_for=()))
    case.show()
    reasons = case.told()
    assert any("is not reserved for PodGroup train any more" in reason for reason in reasons), reasons


def test_a_group_that_is_made_anew() -> None:
    """Kubernetes takes away what is reserved for the group before it: no pod is bound with that."""
    case = GroupCase(later=True)
    for name in "pq":
        case.member(name)
    case.round()
    case.settle()
    case.put_pod_group(PodGroup(KEY, GangSpec(min_member=2), uid="again", claims=(SHARED,)))
    case.devices.report(CLAIM, ready=True)
    case.settle()
    assert not any(case.nodes_of_pods().values())
    case.pass_time(1)  # their nominations are cleared before
    case.round()
    case.settle()
    assert all(case.nodes_of_pods().values())
    assert case.reserved == ("group", "again")


def test_the_gate_is_off() -> None:
    """The claim is not the pod's: it waits, with kube-scheduler's words, and nothing is written."""
    case = GroupCase()
    case.cluster.device_gates = DeviceGates(frozenset({WORKLOAD_CLAIMS}))
    for name in "pq":
        case.member(name)
    case.make_plan()
    assert case.plan is not None
    assert not case.plan.placements
    case.deliver(100)
    assert case.writes == []
