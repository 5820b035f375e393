"""Claims of planned pods: what is written, what of it counts, what is given back, and when pods are bound."""

from __future__ import annotations

import msgspec
import pytest
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.device_case import DeviceCase as Case
from support.fake_cluster.machine import asking_for, gang, sized
from thalweg_operator.reservations.effects import Allocate, Bind
from thalweg_operator.reservations.events import Answer, ObjectSet
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.records.devices.freed_devices import SECONDS
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.step.before_binding.leftovers import IDLE_SECONDS

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.cluster.kinds import DEVICE_TAINT_RULES
from flowcore.model.device_taint_rules import DeviceTaintRule
from flowcore.model.policies import SCHEDULER_NAME, Delivery, Policy, Selects
from flowcore.model.resource_claims import AllocatedDevice, ClaimAllocation
from flowcore.model.resource_slices import DeviceId, DeviceTaint
from flowcore.model.selectors import NodeSelectorTerm, Requirement

GPU = DeviceId("gpu.example.com", "a", "gpu-0")
OWN: ClaimKey = NAMESPACE, "p-gpu"


def test_a_pod_is_bound_once_the_watch_shows_its_claims() -> None:
    """The answer to the write is not enough: what others wrote before may not be seen yet."""
    case = Case()
    case.pod("p")
    case.round()
    assert case.kinds() == ["Allocate"]
    case.answer(Allocate)
    assert (case.phase("p"), case.kinds(), case.device("p-gpu")) == (Phase.PREPARING, [], GPU)
    case.show()
    assert (case.phase("p"), case.kinds()) == (Phase.BINDING, ["Bind"])
    case.answer(Bind)
    case.show()
    assert case.phase("p") is None
    case.wait(2 * IDLE_SECONDS, 1.0)
    assert case.device("p-gpu") == GPU


def test_others_take_the_device_before_us() -> None:
    """Their write came first, as the watch shows: ours is given back, no pod is bound, and it is planned anew."""
    case = Case()
    case.pod("p")
    case.round()
    case.devices.make(NAMESPACE, "theirs", "theirs")
    case.devices.allocate_elsewhere((NAMESPACE, "theirs"), GPU, "somebody")
    case.answer(Allocate)
    case.show()
    assert case.kinds() == ["ReleaseClaims"]
    assert case.ledger.plannable() == [], "until that is done, nobody knows what it has"
    case.settle()
    assert (case.device("p-gpu"), case.device("theirs")) == (None, GPU)
    case.pass_time(1)
    case.round()
    assert case.phase("p") is None
    assert not case.writes


def test_others_take_the_device_while_we_plan() -> None:
    """The placement is dropped, and nothing is written."""
    case = Case()
    case.pod("p")
    case.make_plan()
    case.devices.make(NAMESPACE, "theirs", "theirs")
    case.devices.allocate_elsewhere((NAMESPACE, "theirs"), GPU, "somebody")
    case.show()
    case.deliver(100)
    assert (case.phase("p"), case.writes) == (None, [])


def tainting(effect: str) -> DeviceTaintRule:
    """A rule about all devices."""
    return DeviceTaintRule("broken", DeviceTaint("broken", "", effect))


@pytest.mark.parametrize(
    ("before", "after", "holds"),
    [
        (None, tainting("NoSchedule"), False),
        (None, tainting("NoExecute"), False),
        (tainting("None"), tainting("NoExecute"), False),
        (None, tainting("None"), True),
        (tainting("None"), None, True),
    ],
)
def test_a_taint_rule_that_changes_while_we_plan(
    before: DeviceTaintRule | None, after: DeviceTaintRule | None, *, holds: bool
) -> None:
    """The placement is dropped if the device has a taint now that keeps pods out; a rule that does not matters not."""
    case = Case()
    if before is not None:
        case.apply(ObjectSet(DEVICE_TAINT_RULES, "broken", before))
    case.pod("p")
    case.make_plan()
    case.apply(ObjectSet(DEVICE_TAINT_RULES, "broken", after))
    case.deliver(100)
    assert case.phase("p") is (Phase.PREPARING if holds else None)


def test_a_plan_without_devices_for_a_pod() -> None:
    """It is told and pauses: if it were planned so again at once, rounds would follow each other without end."""
    case = Case()
    case.pod("p")
    case.make_plan()
    assert case.plan is not None
    case.plan.placements = [msgspec.structs.replace(each, device_claims=None) for each in case.plan.placements]
    case.deliver(100)
    assert case.told() == ["its claims get no devices on a beside those of others"]
    case.round()
    assert (case.phase("p"), case.writes) == (None, [])
    case.pass_time(2)
    case.round()
    assert case.phase("p") is Phase.PREPARING


def test_others_allocate_the_claim() -> None:
    """Their allocation stays as it is; the pod goes where that device is."""
    case = Case(a=1, b=1)
    case.pod("p")
    case.round()
    (write,) = (each for each in case.writes if isinstance(each, Allocate))
    other = DeviceId("gpu.example.com", "b" if write.node == "a" else "a", "gpu-0")
    case.devices.allocate_elsewhere(OWN, other)
    case.answer(Allocate)
    assert any("allocated otherwise in the meantime" in reason for reason in case.told())
    case.settle()
    assert case.device("p-gpu") == other
    case.pass_time(5)
    case.round()
    case.settle()
    # The fake says of no allocation which nodes reach it.
    assert case.api[f"{NAMESPACE}/p"].node_name
    assert not case.devices.claims[OWN].is_ours
    assert case.device("p-gpu") == other


def test_a_gang_is_bound_once_the_claims_of_all_are_there() -> None:
    """One pod of it claims nothing, and waits with them."""
    case = Case(a=2)
    members = gang("g", 3)
    for name in ("p", "q"):
        case.pod(name, of=members)
    case.create_pod("r", pod_class=sized(100), scheduler_name=SCHEDULER_NAME, gang=members)
    case.show()
    case.round()
    assert case.kinds() == ["Allocate", "Allocate"]
    case.answer(Allocate)
    case.show()
    assert case.kinds() == ["Allocate"]
    assert {case.phase(name) for name in "pqr"} == {Phase.PREPARING}
    case.answer(Allocate)
    case.show()
    assert case.kinds() == ["Bind", "Bind", "Bind"]
    case.settle()
    assert all(pod.node_name for pod in case.api.values())


def test_one_refused_claim_of_a_gang() -> None:
    """All give back what they have; the pod that was refused is told, and pauses."""
    case = Case(a=2)
    for name in ("p", "q"):
        case.pod(name, of=gang("g", 2))
    case.round()
    case.answer(Allocate)
    case.show()
    case.answer(Allocate, Answer.REFUSED, "a webhook says no")
    assert case.kinds() == ["ReleaseClaims", "ReleaseClaims"]
    assert case.told() == ["its claims could not be reserved for a: a webhook says no"], (
        "only the pod that was refused is told"
    )
    case.settle()
    assert not case.ledger.reservations
    assert [case.device(f"{name}-gpu") for name in "pq"] == [None, None]
    case.pass_time(5)
    case.round()
    case.settle()
    assert all(pod.node_name for pod in case.api.values())


def test_a_pod_of_a_gang_that_goes() -> None:
    """While its claims are written: the others are nothing without it, and give back what they have."""
    case = Case(a=2)
    for name in ("p", "q"):
        case.pod(name, of=gang("g", 2))
    case.round()
    case.answer(Allocate)
    case.show()
    case.remove_pod(f"{NAMESPACE}/q")
    case.show()
    assert not case.ledger.reservations
    case.settle()
    assert case.device("p-gpu") is None


def test_pods_of_one_round_share_a_claim() -> None:
    """Whichever is written first allocates it. The last to leave frees it."""
    case = Case(a=2)
    for name in ("p", "q"):
        case.pod(name, shares="shared")
    case.round()
    case.writes.reverse()
    case.settle()
    assert all(pod.node_name == "a" for pod in case.api.values())
    assert set(case.devices.claims[NAMESPACE, "shared"].reserved_for) == {"p", "q"}
    case.pod("late", shares="shared")
    case.round()
    case.answer(Allocate)
    case.show()
    case.answer(Bind, Answer.REFUSED, "no")
    case.settle()
    assert set(case.devices.claims[NAMESPACE, "shared"].reserved_for) == {"p", "q"}
    assert case.device("shared") is not None


def test_devices_that_get_ready() -> None:
    """The pod is told what it waits for, and keeps its room meanwhile."""
    case = Case(later=True)
    case.pod("p")
    case.round()
    case.answer(Allocate)
    case.show()
    assert case.told() == ["its devices on a are not ready: gpu.example.com/a/gpu-0 (ready)"]
    case.pass_time(500)
    assert case.phase("p") is Phase.PREPARING
    assert case.kinds() == ["Nominate"], "who adds or removes nodes reads where it goes"
    case.send(0)
    case.devices.report(OWN, ready=True)
    case.show()
    assert case.kinds() == ["Bind"]


def test_two_writes_are_all_that_devices_cost() -> None:
    """kube-scheduler writes the pod's status besides: nominatedNodeName. We do if others are slow, not if we are."""
    case = Case()
    case.pod("p")
    case.round()
    for _ in range(5):
        case.pass_time(1)
    assert case.kinds() == ["Allocate"]
    case.answer(Allocate)
    case.show()
    case.pass_time(1)
    assert case.kinds() == ["Bind"]


@pytest.mark.parametrize("fails", [True, False])
def test_devices_that_do_not_get_ready(fails: bool) -> None:  # noqa: FBT001
    """Their driver says so, or it takes too long: they are given back."""
    case = Case(later=True)
    case.pod("p")
    case.round()
    case.answer(Allocate)
    case.show()
    case.told()
    if fails:
        case.devices.report(OWN, ready=False)
        case.show()
    else:
        case.pass_time(600.5)
    (reason,) = case.told()
    assert ("a device will not get ready: " if fails else "devices were not ready within 600 s: ") in reason
    assert case.kinds() == ["ReleaseClaims"]
    case.settle()
    assert case.device("p-gpu") is None
    assert f"{NAMESPACE}/p" in case.cluster.waiting


def test_a_reservation_that_somebody_takes_away() -> None:
    """While devices get ready: the pod is planned anew."""
    case = Case(later=True)
    case.pod("p")
    case.round()
    case.settle()
    case.devices.put(msgspec.structs.replace(case.devices.claims[OWN], reserved_for=()))
    case.show()
    assert any("is not reserved for it any more" in reason for reason in case.told())
    case.settle()
    assert case.device("p-gpu") is None


def test_an_operator_that_ended_between_its_writes() -> None:
    """The next one takes the allocation up: the claim is not written again."""
    case = Case()
    case.pod("p")
    case.round()
    case.answer(Allocate)
    before = case.devices.claims[OWN]
    case.start()
    case.round()
    assert case.kinds() == ["Bind"]
    case.settle()
    assert case.api[f"{NAMESPACE}/p"].node_name == "a"
    assert case.devices.claims[OWN] == before


@pytest.mark.parametrize("shares", ["", "shared"])
def test_an_operator_that_ended_while_others_took_the_device(shares: str) -> None:
    """Its last write came after theirs, and the next operator did not see the order: no pod is bound with the device.

    The claim gets another one.
    """
    case = Case(a=1)
    case.pod("p", shares=shares)
    case.round()
    case.devices.make(NAMESPACE, "theirs", "theirs")
    case.devices.allocate_elsewhere((NAMESPACE, "theirs"), GPU, "somebody")
    case.answer(Allocate)
    assert case.device(shares or "p-gpu") == case.device("theirs") == GPU
    case.start()
    case.round()
    assert case.told() == [f"ResourceClaim ns/{shares or 'p-gpu'} has {GPU}, which another claim has too"]
    case.settle()
    assert (case.device(shares or "p-gpu"), case.device("theirs")) == (None, GPU)
    assert not case.api[f"{NAMESPACE}/p"].node_name
    case.devices.publish_devices("b", 1, later=False)
    case.pass_time(1)
    case.show()
    case.round()
    case.settle()
    assert case.api[f"{NAMESPACE}/p"].node_name == "b"


def test_an_operator_that_ended_while_others_took_the_device_of_an_extended_resource() -> None:
    """The claim that it made is deleted, and made anew once a device is free."""
    case = Case(a=1)
    pod_class, extended = asking_for(sized(100), 1)
    case.create_pod("p", "p", pod_class=pod_class, extended=extended, scheduler_name=SCHEDULER_NAME)
    case.show()
    case.round()
    case.devices.make(NAMESPACE, "theirs", "theirs")
    case.devices.allocate_elsewhere((NAMESPACE, "theirs"), GPU, "somebody")
    (write,) = (each for each in case.writes if isinstance(each, Allocate))
    case.devices.allocate(write, 2)
    case.start()
    case.wait(2 * IDLE_SECONDS, 1.0)
    case.devices.follow_pods({"p", "somebody"})
    case.devices.publish_devices("b", 1, later=False)
    case.settle()
    case.round()
    case.settle()
    assert case.api[f"{NAMESPACE}/p"].node_name == "b"
    assert case.device("theirs") == GPU


def test_a_device_that_others_gave_away_twice() -> None:
    """The pod of one of the claims waits, is told once, and tries less and less often until the other claim goes."""
    case = Case(a=1)
    for name in ("theirs", "shared"):
        case.devices.make(NAMESPACE, name, name)
        case.devices.allocate_elsewhere((NAMESPACE, name), GPU, "somebody" if name == "theirs" else "")
    case.pod("p", shares="shared")
    told = list[str]()
    rounds = 0
    for _ in range(60):
        rounds += bool(case.ledger.plannable()) and not is_pausing(case, "p")
        case.round()
        told += case.told()
        case.wait(1, 1.0)
    assert set(told) == {f"ResourceClaim ns/shared has {GPU}, which another claim has too"}
    assert rounds < 8
    assert not case.api[f"{NAMESPACE}/p"].node_name
    case.devices.remove((NAMESPACE, "theirs"))
    case.wait(60, 5.0)
    case.round()
    case.settle()
    assert case.api[f"{NAMESPACE}/p"].node_name == "a"


def is_pausing(case: Case, name: str) -> bool:
    pod = case.cluster.waiting[f"{NAMESPACE}/{name}"]
    return backoff.is_backing_off(case.cluster, case.ledger, pod, case.now)


def test_others_take_the_device_while_the_binding_stands_in_line() -> None:
    """Their write came second. As long as the pod is not bound, the device is left to them."""
    case = Case(a=1)
    case.pod("p")
    case.round()
    case.answer(Allocate)
    case.show()
    assert case.kinds() == ["Bind"]
    case.devices.make(NAMESPACE, "theirs", "theirs")
    case.devices.allocate_elsewhere((NAMESPACE, "theirs"), GPU, "somebody")
    case.show()
    case.settle()
    assert not case.api[f"{NAMESPACE}/p"].node_name
    assert (case.device("p-gpu"), case.device("theirs")) == (None, GPU)


def test_an_operator_that_ended_and_a_pod_that_cannot_come() -> None:
    """What it allocated comes free after a while, and not before."""
    case = Case()
    case.pod("p")
    case.round()
    case.answer(Allocate)
    case.put_node(msgspec.structs.replace(case.nodes["a"], unschedulable=True))
    case.start()
    case.wait(IDLE_SECONDS - 2, 1.0)
    case.round()
    assert case.device("p-gpu") == GPU
    case.wait(4, 1.0)
    assert case.device("p-gpu") is None


def test_what_others_allocated_is_theirs() -> None:
    """However long nobody uses it; the same of what we allocated and a bound pod, or one that we do not know, uses."""
    case = Case(a=3)
    for name in ("p", "q", "r"):
        case.pod(name)
    for at, (name, uid, ours) in enumerate((("p", "", False), ("q", "gone", True), ("r", "r", True))):
        key = NAMESPACE, f"{name}-gpu"
        case.devices.allocate_elsewhere(key, DeviceId("gpu.example.com", "a", f"gpu-{at}"), uid)
        case.devices.put(msgspec.structs.replace(case.devices.claims[key], is_ours=ours))
    case.change_pod(f"{NAMESPACE}/r", node_name="a", usage=sized(100).requests)
    case.put_node(msgspec.structs.replace(case.nodes["a"], unschedulable=True))
    case.put_node(msgspec.structs.replace(case.nodes["b"], unschedulable=True))
    case.show()
    case.wait(5 * IDLE_SECONDS, 1.0)
    assert all(claim.allocation is not None for claim in case.devices.claims.values())
    case.devices.put(msgspec.structs.replace(case.devices.claims[NAMESPACE, "q-gpu"], reserved_for=()))
    case.show()
    case.wait(2 * IDLE_SECONDS, 1.0)
    assert [case.device(f"{name}-gpu") is None for name in "pqr"] == [False, True, False]


def test_what_kube_scheduler_binds_is_left_to_it() -> None:
    """A policy that now leaves a pod to kube-scheduler leaves it the allocation, too."""
    case = Case()
    case.pod("p")
    case.round()
    case.answer(Allocate)
    case.set_policies(
        [Policy("steered", selects=Selects(scheduler_names=(SCHEDULER_NAME,)), delivery=Delivery.EXTENDER)]
    )
    case.start()
    case.wait(5 * IDLE_SECONDS, 1.0)
    assert case.device("p-gpu") == GPU


def test_a_pod_that_somebody_bound_keeps_its_claims() -> None:
    """While ours were written."""
    case = Case(later=True)
    case.pod("p")
    case.round()
    case.answer(Allocate)
    case.change_pod(f"{NAMESPACE}/p", node_name="b", usage=sized(100).requests)
    case.settle()
    assert case.phase("p") is None
    assert case.devices.claims[OWN].reserved_for == ("p",)


def test_what_is_decided_is_told_to_the_next_round() -> None:
    """Two pods get two devices, though no claim says so when the second one is planned."""
    case = Case(a=2)
    case.pod("p")
    case.round()
    case.pod("q")
    case.round()
    case.settle()
    assert {case.device("p-gpu"), case.device("q-gpu")} == {
        DeviceId("gpu.example.com", "a", f"gpu-{number}") for number in range(2)
    }


def evicted_for(case: Case) -> None:
    """A pod has the only device, and is gone for an urgent one; nobody has looked at its claim yet."""
    case.pod("p")
    case.round()
    case.settle()
    assert case.api[f"{NAMESPACE}/p"].node_name == "a"
    case.pod("u", priority=10)
    case.round()
    case.settle()
    assert f"{NAMESPACE}/p" not in case.api
    assert (case.phase("u"), case.device("p-gpu")) == (Phase.AWAITING_VICTIM, GPU)


def test_devices_of_a_victim_come_free_later() -> None:
    """No round looks for others to leave before that, and nobody else gets the device."""
    case = Case()
    evicted_for(case)
    case.pod("q", priority=5)
    case.round()
    case.settle()
    assert (case.phase("u"), case.phase("q")) == (Phase.AWAITING_VICTIM, None)
    case.devices.follow_pods({"u", "q"})
    case.show()
    assert case.phase("u") is Phase.HELD
    case.round()
    case.settle()
    assert case.api[f"{NAMESPACE}/u"].node_name == "a"
    assert case.device("u-gpu") == GPU


def test_devices_of_a_victim_that_do_not_come_free() -> None:
    """The pod is told which claims have them, and is planned anew."""
    case = Case()
    evicted_for(case)
    case.told()
    case.wait(SECONDS + 2)
    assert case.phase("u") is None
    assert case.told()[-1] == f"claims of pods that left for it still have devices after 30 s: {NAMESPACE}/p-gpu"


def test_nobody_leaves_while_devices_do_not_come_free() -> None:
    """Others would leave in vain too. Once the claim is freed things go on."""
    case = Case(a=3)
    for name in ("p", "q", "r"):
        case.pod(name)
    case.round()
    case.settle()
    case.pod("u", priority=10)
    for _ in range(4):
        case.round()
        case.settle()
        case.wait(SECONDS + 5)
    late = case.shell.state.freed_devices.late
    assert len([pod for pod in case.api.values() if pod.node_name]) == 2, "the others keep their devices"
    assert len(late) == 1
    case.devices.follow_pods({pod.uid for pod in case.api.values()})
    case.show()
    assert not late
    case.round()
    case.settle()
    assert case.api[f"{NAMESPACE}/u"].node_name == "a"


def test_a_round_without_a_pod_that_a_place_is_held_for() -> None:
    """It pauses for a moment: nobody else gets the device for which another pod left."""
    case = Case()
    evicted_for(case)
    case.devices.follow_pods({"u"})
    case.show()
    assert case.phase("u") is Phase.HELD
    case.pod("q", priority=5)
    backoff.conflicted(case.ledger, case.cluster.waiting[f"{NAMESPACE}/u"], case.now)
    case.round()
    assert (case.phase("u"), case.phase("q")) == (Phase.HELD, None)
    case.pass_time(1)
    case.round()
    case.settle()
    assert case.device("u-gpu") == GPU


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_claim_that_is_taken_away_before_its_pod_is_bound(is_refused: bool) -> None:  # noqa: FBT001
    """While the binding stands in line, or the pod of a gang that has begun pauses: it is not bound without it."""
    case = Case(a=2)
    for name in ("p", "q"):
        case.pod(name, of=gang("g", 2))
    case.round()
    for _ in range(2):
        case.answer(Allocate)
        case.show()
    case.answer(Bind)
    if is_refused:
        case.answer(Bind, Answer.REFUSED, "no")
    case.show()
    ((key, left),) = case.ledger.reservations.items()
    assert left.phase is (Phase.PAUSED if is_refused else Phase.BINDING)
    claim = case.devices.claims[NAMESPACE, f"{left.pod.name}-gpu"]
    case.devices.put(msgspec.structs.replace(claim, allocation=None, reserved_for=(), is_ours=False))
    case.show()
    case.settle()
    case.wait(5)
    assert (case.api[key].node_name, case.ledger.reservations) == ("", {})
    case.round()
    case.settle()
    assert case.api[key].node_name == "a"


def on_node(case: Case, name: str, node: str, *consumers: str) -> None:
    """Somebody gave a claim the first device of a node, which that node alone reaches."""
    here = (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (node,)),)),)
    allocation = ClaimAllocation((AllocatedDevice("r", DeviceId("gpu.example.com", node, "gpu-0")),), here)
    known = case.devices.claims[NAMESPACE, name]
    case.devices.put(msgspec.structs.replace(known, allocation=allocation, reserved_for=consumers, is_ours=False))


def with_a_closed_node(*consumers: str) -> Case:
    """A pod whose claim has a device of a cordoned node; another node has one that is free."""
    case = Case(a=1, b=1)
    case.devices.make(NAMESPACE, "shared", "shared")
    on_node(case, "shared", "a", *consumers)
    case.put_node(msgspec.structs.replace(case.nodes["a"], unschedulable=True))
    case.pod("p", shares="shared")
    case.round()
    return case


@pytest.mark.parametrize("consumers", [(), ("p",)])
def test_an_idle_claim_is_freed_where_its_pod_can_have_devices_elsewhere(consumers: tuple[str, ...]) -> None:
    """Whoever allocated it: the pod is told, and is bound where a device is free. Soon, and not at once."""
    case = with_a_closed_node(*consumers)
    (told,) = case.told()
    assert "ResourceClaim shared has devices elsewhere that nobody uses: it is freed, and then b takes the pod." in told
    case.wait(0.5, 0.5)
    assert case.device("shared") is not None
    case.wait(3, 1.0)
    assert case.device("shared") is None
    case.round()
    case.answer(Allocate)
    case.settle()
    assert case.api[f"{NAMESPACE}/p"].node_name == "b"


def test_a_claim_that_somebody_else_reserves_stays() -> None:
    """So does one that is reserved while it is to be freed: the pod waits, and no round frees it."""
    case = with_a_closed_node("q")
    assert "is freed" not in case.told()[0]
    case.wait(5 * IDLE_SECONDS, 1.0)
    assert case.device("shared") is not None
    case = with_a_closed_node()
    on_node(case, "shared", "a", "q")
    case.show()
    case.wait(5 * IDLE_SECONDS, 1.0)
    assert case.device("shared") is not None


def test_a_claim_that_another_pod_is_on_its_way_with_stays() -> None:
    """It has room where the claim is; the other one cannot go there, and waits for it."""
    case = Case(a=1, b=1)
    case.devices.make(NAMESPACE, "shared", "shared")
    on_node(case, "shared", "a")
    case.pod("q", shares="shared")
    case.round()
    case.put_node(msgspec.structs.replace(case.nodes["a"], unschedulable=True))
    case.pod("p", shares="shared")
    case.round()
    case.wait(3, 1.0)
    assert case.device("shared") is not None


def test_a_claim_whose_devices_are_nowhere_else_stays() -> None:
    """To free it would help nobody, and no node that comes would."""
    case = Case(a=1, b=0)
    case.devices.make(NAMESPACE, "shared", "shared")
    on_node(case, "shared", "a")
    case.put_node(msgspec.structs.replace(case.nodes["a"], unschedulable=True))
    case.pod("p", shares="shared")
    case.round()
    assert "is freed" not in case.told()[0]
    case.wait(5 * IDLE_SECONDS, 1.0)
    assert case.device("shared") is not None
