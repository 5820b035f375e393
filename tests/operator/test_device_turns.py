"""kube-scheduler and the binder choose devices on the same nodes, and each knows of the other's choice only later.

No device is ever given to two claims, not even for a moment: when one of them is freed, kube-scheduler takes the device
for free though the other one has it. Histories are drawn by seed, as in ``test_two_schedulers``.
"""

import random
from collections import deque

import msgspec
import pytest
from support.device_clusters import GPU
from support.draw_devices import read_classes
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.claims import claiming
from support.fake_cluster.cluster import asked
from support.fake_cluster.device_case import DeviceCase
from support.fake_cluster.machine import asking_for, gang, sized
from support.fake_cluster.steered import CLASS, SteeredCluster, steering
from thalweg_extender.answers import to_preempt
from thalweg_extender.wire import MetaPod, MetaVictims
from thalweg_operator.reservations.effects import Allocate, WakePod
from thalweg_operator.reservations.events import Answer, Event, NamespaceSet, ObjectSet, PodPut
from thalweg_operator.reservations.ledger.records.devices import device_turns
from thalweg_operator.reservations.ledger.records.devices.device_turns import DeviceTurns
from thalweg_operator.reservations.ledger.records.devices.turn_line import TurnLine
from thalweg_operator.reservations.ledger.transitions import Phase

from flowcore.cluster.kinds import DEVICE_CLASSES
from flowcore.model.advice import HELD_MESSAGE
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME, Policy
from flowcore.model.resource_claims import (
    AllocatedDevice,
    ClaimAllocation,
    ClaimingPod,
    ClaimRequest,
    DeviceRequest,
    PodClaim,
    ResourceClaim,
)
from flowcore.model.resource_slices import DeviceId
from flowcore.rules.devices.pod_claims import lacks_devices

DEFAULT_NAME = "default-scheduler"
#: Seconds: kube-scheduler's watch is behind at most, its look at the devices is older than its question at most, and
#: from our answer to its write.
LAG, LOOK, WRITE = 0.5, 0.3, 9.0
OURS = Pod("ns", "ours", "w", PodClass())


def comes(case: DeviceCase, name: str, scheduler: str = DEFAULT_NAME, uid: str = "", *, extended: bool = False) -> None:
    """A pod with a claim of its own, or that asks for a device as an extended resource; its uid is mostly its name."""
    uid, labels = uid or name, (("app", "steered" if scheduler == STEERED_NAME else "other"),)
    if extended:
        pod_class, requests = asking_for(sized(1), 1)
        case.create_pod(name, uid, pod_class=pod_class, extended=requests, scheduler_name=scheduler, labels=labels)
        return
    case.devices.make(NAMESPACE, f"{uid}-gpu", f"{uid}-gpu", owner=uid)
    devices = claiming(NAMESPACE, name, uid, f"{uid}-gpu", template=True)
    pod_class = msgspec.structs.replace(sized(1), devices=devices)
    case.create_pod(name, uid, pod_class=pod_class, scheduler_name=scheduler, labels=labels)


def takes(case: DeviceCase, pod: Pod, device: DeviceId) -> None:
    """kube-scheduler writes the claim of a pod, and binds it."""
    pod_class = pod.pod_class
    if pod.extended:
        name, allocation = f"{pod.uid}-extended", ClaimAllocation((AllocatedDevice("r", device),))
        case.devices.put(
            ResourceClaim(
                NAMESPACE, name, name, pod.uid, is_extended=True, allocation=allocation, reserved_for=(pod.uid,)
            )
        )
        devices = ClaimingPod(NAMESPACE, pod.name, pod.uid).with_extended_claim(made=name)
        pod_class = msgspec.structs.replace(pod_class, devices=devices)
    else:
        case.devices.allocate_elsewhere((NAMESPACE, f"{pod.uid}-gpu"), device, pod.uid)
    case.change_pod(pod.key, node_name=device.pool, pod_class=pod_class, usage=pod_class.requests)


def key_of(name: str) -> str:
    return f"{NAMESPACE}/{name}"


class Both:
    """The world, and a kube-scheduler with a cache of claims."""

    def __init__(self, seed: int, extended: float) -> None:
        """A history of pods of which so many of one ask for devices as an extended resource."""
        self.draw, self.world, self.made, self.extended = random.Random(seed), DeviceCase(2, 2), 0, extended
        self.world.shell.checked = False
        selector = {"podSelector": {"matchLabels": {"app": "steered"}}}
        self.world.set_policies([Policy("bound"), steering(selects=selector)])
        #: When a change of claims comes to kube-scheduler's cache at the latest, and what was held then.
        self.coming: deque[tuple[float, frozenset[DeviceId]]] = deque()
        self.cache: frozenset[DeviceId] = frozenset()
        #: Attempts: when it looked, and the first device that it found on each node.
        self.under_way: dict[str, tuple[float, dict[str, DeviceId]]] = {}
        #: Those that were let through: when, and the device.
        self.chosen: dict[str, tuple[float, DeviceId]] = {}
        #: What it wrote, and how many changes were to come then: until it sees that, it remembers it.
        self.written: dict[DeviceId, int] = {}
        publish = self.world.publish

        def publish_to_both(event: Event) -> None:
            publish(event)
            self.coming.append((self.world.now + LAG, frozenset(self.world.devices.held())))

        self.world.publish = publish_to_both  # type: ignore[method-assign]
        self.world.devices._publish = publish_to_both
        self.actions = [
            *[self.pod_comes, self.it_looks] * 2,
            *[self.we_plan, self.we_write, self.it_asks, self.it_writes, self.time_passes] * 3,
            *[lambda: self.world.show(self.draw.randint(1, 6))] * 4,
            lambda: self.it_sees(self.draw.randint(1, 3)),
            *[self.pod_goes] * 2,
        ]

    def pod_comes(self) -> None:
        if len(self.world.api) < 7:
            self.made += 1
            scheduler = self.draw.choice((SCHEDULER_NAME, STEERED_NAME, DEFAULT_NAME))
            comes(self.world, f"p{self.made}", scheduler, extended=self.draw.random() < self.extended)

    def pod_goes(self) -> None:
        keys = sorted(key for key, pod in self.world.api.items() if pod.node_name or self.draw.random() < 0.2)
        if keys and self.draw.random() < 0.7:
            self.world.remove_pod(self.draw.choice(keys))
            self.world.devices.follow_pods({pod.uid for pod in self.world.api.values()})

    def it_sees(self, most: int) -> None:
        for _ in range(min(most, len(self.coming))):
            _, self.cache = self.coming.popleft()
            self.written = {device: left - 1 for device, left in self.written.items() if left > 1}

    def we_plan(self) -> None:
        if self.world.plan is None:
            self.world.make_plan()
        else:
            self.world.deliver(100)

    def we_write(self) -> None:
        if self.world.writes:
            at, refuses = self.draw.randrange(len(self.world.writes)), self.draw.random() < 0.1
            self.world.send(at, Answer.RETRYING if refuses else Answer.DONE)

    def it_looks(self) -> None:
        keys = [
            key
            for key, pod in sorted(self.world.api.items())
            if not pod.node_name and pod.scheduler_name != SCHEDULER_NAME and key not in {*self.under_way, *self.chosen}
        ]
        if keys and not self.under_way:  # it tries one pod after the other
            taken = self.cache | {device for _, device in self.chosen.values()} | self.written.keys()
            free = [DeviceId("gpu.example.com", node, f"gpu-{at}") for node in ("a", "b") for at in range(2)]
            first: dict[str, DeviceId] = {}
            for device in free:
                if device not in taken:
                    first.setdefault(device.pool, device)
            self.under_way[self.draw.choice(keys)] = self.world.now, first

    def it_asks(self) -> None:
        for key, (_, first) in list(self.under_way.items()):
            del self.under_way[key]
            pod = self.world.api.get(key)
            if pod is None or not first:
                continue
            fits = [pod.nominated_node] if pod.nominated_node in first else list(first)
            passed = self.world.filter(asked(pod), fits)[1]
            if passed:
                self.chosen[key] = self.world.now, first[self.draw.choice(passed)]
            else:
                self.world.change_pod(key, nominated_node="", unschedulable_message="held")

    def it_writes(self) -> None:
        if self.chosen:
            self.write(self.draw.choice(sorted(self.chosen)), fails=self.draw.random() < 0.2)

    def write(self, key: str, *, fails: bool = False) -> None:
        _, device = self.chosen.pop(key)
        pod = self.world.api.get(key)
        if pod is None or fails:
            return
        takes(self.world, pod, device)
        self.written[device] = len(self.coming)

    def time_passes(self) -> None:
        seconds = self.draw.choice((0.05, 0.05, 0.05, 0.1, 0.1, 0.1, 0.3, 1.0, 3.0))
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.pass_time(0.05)
            while self.coming and self.coming[0][0] <= self.world.now:
                self.it_sees(1)
            for key, (since, _) in list(self.under_way.items()):
                if self.world.now - since >= LOOK:
                    self.it_asks()
                    assert key not in self.under_way
            for key in [key for key, (since, _) in self.chosen.items() if self.world.now - since >= WRITE]:
                self.write(key)

    def check(self) -> None:
        held = self.world.devices.held()
        assert all(count == 1 for count in held.values()), held
        turns = self.world.ledger.device_turns
        for key in self.world.ledger.preparing:
            reservation = self.world.ledger.reservations[key]
            assert reservation.devices_asked_for or key in turns.pods or reservation.pod in turns.line, (
                f"{key} is forgotten"
            )
        assert {key for _, key in turns.line.in_order(turns.line.namespaces)} <= self.world.ledger.preparing


@pytest.mark.parametrize("seeds", [25, pytest.param(100, marks=pytest.mark.slow)])
def test_no_device_is_given_away_twice(seeds: int) -> None:
    """Pods that we bind, steered and unmanaged ones; writes that are late or fail; watches that are behind."""
    bound: set[tuple[int, str, str]] = set()
    for seed in range(seeds):
        both = Both(seed, extended=0.5 if seed < 0.6 * seeds else 0.0)
        for _ in range(200):
            both.draw.choice(both.actions)()
            both.check()
            bound |= {(seed, pod.scheduler_name, key) for key, pod in both.world.api.items() if pod.node_name}
    for name in (SCHEDULER_NAME, STEERED_NAME, DEFAULT_NAME):
        assert sum(pod[1] == name for pod in bound) > 0.6 * seeds, f"little happens to pods of {name}"


# --- nobody waits for long ---


def asks_for(case: DeviceCase, name: str) -> bool:
    """Whether devices are being written for a pod of the binder."""
    return any(isinstance(write, Allocate) and write.pod.name == name for write in case.writes)


def settle(case: DeviceCase) -> None:
    """By now kube-scheduler knows what the watch has shown."""
    case.pass_time(0.1)
    case.pass_time(1.0)


def test_the_binder_waits_until_kube_scheduler_has_chosen() -> None:
    """What kube-scheduler chose counts once its claim shows it, also where the watch shows its pod bound before."""
    case = DeviceCase(a=2)
    comes(case, "x")
    case.show()
    assert case.ask(key_of("x"), ["a"])[1] == ["a"]
    case.pod("p")
    case.round()
    assert case.phase("p") is Phase.PREPARING
    assert not asks_for(case, "p")
    pod = case.api[key_of("x")]
    case.apply(PodPut(msgspec.structs.replace(pod, node_name="a", usage=pod.pod_class.requests)))
    case.pass_time(0.1)
    assert not asks_for(case, "p"), "which device it has is not known"
    planned = case.ledger.reservations[key_of("p")].device_claims[0].allocation.devices[0].device
    case.devices.allocate_elsewhere((NAMESPACE, "x-gpu"), planned, "x")
    case.change_pod(key_of("x"), node_name="a", usage=pod.pod_class.requests)
    case.show()
    case.pass_time(0.1)
    assert case.phase("p") is None, "others have what was planned for it"
    case.pass_time(1.0)
    case.round()
    assert asks_for(case, "p")
    case.settle()
    assert case.device("p-gpu") not in (None, planned)


def test_an_attempt_that_ends_lets_the_binder_write() -> None:
    """kube-scheduler asks about its pod again, the pod goes or ends, or ten seconds pass."""
    for end in ("held", "gone", "ended", "late"):
        case = DeviceCase(a=1)
        comes(case, "x")
        case.show()
        assert case.ask(key_of("x"), ["a"])[1] == ["a"]
        case.pod("p")
        case.round()
        case.pass_time(9.0 if end == "late" else 5.0)
        assert not asks_for(case, "p")
        if end == "held":
            assert case.ask(key_of("x"), ["a"])[1] == []
        elif end == "gone":
            case.remove_pod(key_of("x"))
            case.show()
            case.pass_time(0.1)
            assert not asks_for(case, "p"), "its claim may just be written"
        elif end == "ended":
            pod = case.api[key_of("x")]
            case.change_pod(key_of("x"), node_name="a", usage=pod.pod_class.requests, terminal=True)
            case.show()
            case.pass_time(0.1)
            assert not asks_for(case, "p"), "its claim is written, and not shown yet"
        case.pass_time(0.1 if end == "held" else 1.0)
        assert asks_for(case, "p"), end


def test_an_attempt_goes_on_though_a_pod_of_the_same_name_comes() -> None:
    """Whatever that one claims, and whatever kube-scheduler is answered about it."""
    for claims in (True, False):
        case = DeviceCase(a=2)
        comes(case, "x")
        case.show()
        assert case.ask(key_of("x"), ["a"])[1] == ["a"]
        case.pod("p")
        case.round()
        case.remove_pod(key_of("x"))
        if claims:
            comes(case, "x", uid="x2")
        else:
            case.create_pod("x", "x2", pod_class=sized(1), scheduler_name=DEFAULT_NAME, labels=(("app", "other"),))
        case.show()
        assert case.ask(key_of("x"), ["a"])[1] == ([] if claims else ["a"])
        case.pass_time(0.1)
        assert not asks_for(case, "p"), "the claim of the first one may just be written"
        case.pass_time(1.0)
        assert asks_for(case, "p")


def test_a_pod_is_gone_though_the_watch_shows_only_the_next_one_of_its_name() -> None:
    """A list in place of a watch shows no deletion."""
    case = DeviceCase(a=1)
    comes(case, "x")
    case.show()
    assert case.ask(key_of("x"), ["a"])[1] == ["a"]
    case.pod("p")
    case.round()
    case.apply(PodPut(msgspec.structs.replace(case.api[key_of("x")], uid="x2", pod_class=sized(1))))
    case.pass_time(0.1)
    assert not asks_for(case, "p")
    case.pass_time(1.0)
    assert asks_for(case, "p")


def test_an_attempt_for_devices_as_an_extended_resource() -> None:
    """kube-scheduler makes the claim itself (KEP-5004). Until the pod is bound nothing but its request tells of it."""
    case = DeviceCase(a=2)
    comes(case, "x", extended=True)
    case.show()
    assert case.ask(key_of("x"), ["a"])[1] == ["a"]
    case.pod("p")
    case.round()
    assert not asks_for(case, "p")
    takes(case, case.api[key_of("x")], case.devices.free_devices()[1])
    case.show()
    case.pass_time(0.1)
    assert asks_for(case, "p"), "that one has its device"


def test_an_attempt_for_an_extended_resource_ends_without_a_node() -> None:
    """The garbage collector of pods ends it, and a finalizer keeps it: its claim may just be written."""
    case = DeviceCase(a=1)
    comes(case, "x", extended=True)
    case.show()
    assert case.ask(key_of("x"), ["a"])[1] == ["a"]
    case.change_pod(key_of("x"), terminal=True)
    case.show()
    case.pod("p")
    case.round()
    assert not asks_for(case, "p")


def test_claims_of_a_pod_may_be_made_after_the_question() -> None:
    """kube-scheduler knew of them before our watch did."""
    case = DeviceCase(a=2)
    comes(case, "x")
    pod_class = case.api[key_of("x")].pod_class
    assert pod_class.devices is not None
    unmade = msgspec.structs.replace(pod_class.devices, made=())
    case.change_pod(key_of("x"), pod_class=msgspec.structs.replace(pod_class, devices=unmade))
    case.show()
    assert case.ask(key_of("x"), ["a"])[1] == ["a"]
    case.devices.allocate_elsewhere((NAMESPACE, "x-gpu"), case.devices.free_devices()[0], "x")
    case.change_pod(key_of("x"), node_name="a", pod_class=pod_class, usage=pod_class.requests)
    case.show()
    case.pod("p")
    case.round()
    assert asks_for(case, "p")


def test_the_binders_turn_comes() -> None:
    """While it waits kube-scheduler begins no attempt on the node, so a stream of pods does not keep it off."""
    case = DeviceCase(a=9)
    for name in ("x", "y"):
        comes(case, name)
    case.show()
    assert case.ask(key_of("x"), ["a"])[1] == ["a"]
    case.pod("p")
    case.round()
    assert case.ask(key_of("y"), ["a", "b"])[1] == ["b"]
    case.ask(key_of("x"), ["a"])
    case.pass_time(0.1)
    assert asks_for(case, "p")
    case.settle()
    assert case.ask(key_of("y"), ["a", "b"])[1] == ["b"], "an attempt under way may not know it"
    settle(case)
    assert case.ask(key_of("y"), ["a", "b"])[1] == ["a", "b"]


def test_a_turn_ends_though_nothing_is_written() -> None:
    """The API server answers nothing for long: the pod is told, and the node is open for others."""
    case = DeviceCase(a=2)
    comes(case, "x")
    case.pod("p")
    case.round()
    assert asks_for(case, "p")
    case.pass_time(19.0)
    assert case.ask(key_of("x"), ["a"])[1] == []
    case.told()
    case.pass_time(1.0)
    assert case.phase("p") is None
    assert case.told() == ["its claims could not be allocated on a within 20 s"]
    settle(case)
    settle(case)
    assert case.ask(key_of("x"), ["a"])[1] == [], "it may still be written"
    case.settle()
    settle(case)
    settle(case)
    assert case.ask(key_of("x"), ["a"])[1] == ["a"]


def test_a_gang_keeps_the_places_for_which_others_left() -> None:
    """kube-scheduler is at a node of it: its claims wait, and nobody left in vain."""
    case = DeviceCase(a=2, b=2)
    for name in ("p", "q", "r", "s"):
        case.pod(name)
    case.round()
    case.settle()
    for name in ("u", "v"):
        case.pod(name, of=gang("g", 2), priority=10)
    case.round()
    case.settle()
    for name in {key.split("/")[1] for key in case.api} - {"u", "v"}:
        case.remove_pod(key_of(name))
    case.devices.follow_pods({"u", "v"})
    case.show()
    settle(case)
    assert (case.phase("u"), case.phase("v")) == (Phase.HELD, Phase.HELD)
    comes(case, "x")
    case.show()
    assert case.ask(key_of("x"), ["a", "b"])[1] == ["a", "b"]
    case.round()
    assert (case.phase("u"), case.phase("v")) == (Phase.PREPARING, Phase.PREPARING)
    assert not asks_for(case, "u")
    case.ask(key_of("x"), ["a", "b"])
    case.pass_time(0.1)
    assert asks_for(case, "u")
    assert asks_for(case, "v")


def test_nobody_is_evicted_for_a_moment() -> None:
    """A pod that the binder's turn keeps from its only node waits: kube-scheduler evicts nobody on another one."""
    case = DeviceCase(a=2)
    comes(case, "x")
    case.pod("p")
    case.round()
    candidates = {"b": MetaVictims([MetaPod("v")])}

    def spared() -> bool:
        advice = case.advise(case.extender_pod(key_of("x")), ["b"])
        return not to_preempt(advice, candidates).node_name_to_meta_victims

    assert case.ask(key_of("x"), [])[1] == []
    assert not spared(), "no node would do but b"
    assert case.ask(key_of("x"), ["a"])[1] == []
    assert spared()
    case.pass_time(5.0)
    assert spared(), "its node is still closed"
    case.settle()
    settle(case)
    case.pass_time(1.0)
    assert not spared(), "kube-scheduler does not ask about nodes before it evicts, if its own filters refuse all"
    assert case.ask(key_of("x"), ["a"])[1] == ["a"]
    assert not spared()


def test_who_is_spared_is_woken_afterwards() -> None:
    """If it were woken amid the attempt, it might be spared in the next one too, and nothing would wake it again."""
    case = DeviceCase(a=2)
    comes(case, "x")
    case.pod("p")
    case.round()
    case.answer(Allocate)
    case.show()
    case.pass_time(0.1)
    case.pass_time(0.9)
    assert case.ask(key_of("x"), ["a"])[1] == []
    for _ in range(9):
        case.pass_time(0.1)
        assert "WakePod" not in case.kinds()
    case.pass_time(0.1)
    assert case.kinds().count("WakePod") == 1
    assert not case.ledger.device_turns.is_kept_off(key_of("x"))


def test_nobody_is_evicted_though_the_turn_ends_meanwhile() -> None:
    """kube-scheduler looks for pods to evict after our answer, and that takes a while."""
    case = DeviceCase(a=2)
    comes(case, "x")
    case.pod("p")
    case.round()
    case.answer(Allocate)
    case.show()
    case.pass_time(0.1)
    case.pass_time(0.9)
    assert case.ask(key_of("x"), ["a"])[1] == []
    case.pass_time(0.1)
    assert not case.ledger.device_turns.is_any_binders
    candidates = {"b": MetaVictims([MetaPod("v")])}
    advice = case.advise(case.extender_pod(key_of("x")), ["b"])
    assert not to_preempt(advice, candidates).node_name_to_meta_victims
    assert case.ask(key_of("x"), ["a"])[1] == ["a"]


def test_a_pod_that_was_kept_off_is_woken() -> None:
    """All that wakes it in kube-scheduler may come before its node is open."""
    case = DeviceCase(a=2)
    comes(case, "x")
    comes(case, "y")
    case.pod("p")
    case.round()
    assert case.ask(key_of("x"), ["a"])[1] == []
    assert case.ask(key_of("y"), ["a", "b"])[1] == ["b"]
    case.answer(Allocate)
    case.show()
    case.pass_time(0.1)
    assert "WakePod" not in case.kinds()
    case.pass_time(1.0)
    assert [write.pod.name for write in case.writes if isinstance(write, WakePod)] == ["x"]
    case.pass_time(1.0)
    assert case.kinds().count("WakePod") == 1


@pytest.mark.parametrize(("pause", "most"), [(1, 9), (50, 5)])
def test_turns_alternate(pause: int, most: int) -> None:
    """The binder has a new pod for a node all the time, and kube-scheduler's pod that was kept off gets its try.

    It asks every ``pause`` fifths of a second; 50 is a back-off of ten seconds. At most ``most`` of its questions are
    refused before one passes.
    """
    case = DeviceCase(a=9)
    comes(case, "x")
    allocated, passed = 0, list[bool]()
    for number in range(60 * min(pause, 5)):
        case.pod(f"p{number}")
        case.round()
        while asks := [write.pod.name for write in case.writes if isinstance(write, Allocate)]:
            case.answer(Allocate)
            case.show()
            case.remove_pod(key_of(asks[0]))
            allocated += 1
        case.devices.follow_pods({pod.uid for pod in case.api.values()})
        case.show()
        if number % pause == 0:
            passed.append(bool(case.ask(key_of("x"), ["a"])[1]))
        if pause > 1 and any(passed):
            break
        case.pass_time(0.2)
    assert 0 < passed.index(True) <= most, "it was kept off, and not for long"
    assert allocated > 20, "and the binder goes on"


def test_a_backlog_keeps_few_nodes_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns are for claims that are being written; who waits in line is not given up, however long it takes."""
    monkeypatch.setattr(device_turns, "_MOST_TURNS", 4)
    case = DeviceCase(a=9, b=9)
    for number in range(16):
        case.pod(f"p{number}")
    case.round()
    assert case.kinds().count("Allocate") == len(case.ledger.device_turns.pods) == 3
    case.told()
    for _ in range(16):
        case.pass_time(4.0)
        case.answer(Allocate)
        case.show()
    assert case.told() == []
    assert all(case.device(f"p{number}-gpu") for number in range(16))


def test_turns_of_pods_that_waited_for_an_attempt_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-scheduler may choose any node: not all of them are closed then, and the backlog goes on afterwards."""
    monkeypatch.setattr(device_turns, "_MOST_TURNS", 4)
    case = DeviceCase(a=9, b=9)
    comes(case, "x")
    case.show()
    assert case.ask(key_of("x"), ["a", "b"])[1] == ["a", "b"]
    for number in range(12):
        case.pod(f"p{number}")
    case.round()
    assert len(case.ledger.device_turns.pods) == 3
    case.pass_time(10.0)
    assert case.kinds().count("Allocate") == 3
    case.told()
    for _ in range(12):
        case.pass_time(4.0)
        case.answer(Allocate)
        case.show()
    assert case.told() == []
    assert all(case.device(f"p{number}-gpu") for number in range(12))


def test_namespaces_take_turns_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pods of one wait, another one's has its turn at once, and after that namespaces alternate."""
    monkeypatch.setattr(device_turns, "_MOST_TURNS", 4)
    case = DeviceCase(a=9, b=9)
    case.apply(NamespaceSet("other", ()))
    for number in range(8):
        case.pod(f"p{number}")
    case.round()
    for number in range(3):
        name = f"q{number}"
        case.devices.make("other", name, name, owner=name)
        pod_class = msgspec.structs.replace(sized(100), devices=claiming("other", name, name, name, template=True))
        case.put_pod(Pod("other", name, name, pod_class, scheduler_name=SCHEDULER_NAME))
    case.pod("high", priority=1000)
    case.show()
    case.round()
    order = list[str]()
    for _ in range(20):
        while asks := [write.pod.key for write in case.writes if isinstance(write, Allocate)]:
            order.append(asks[0])
            case.answer(Allocate)
        case.show()
        case.pass_time(0.1)
    assert len(order) == 12
    assert [at for at, key in enumerate(order) if key.startswith("other/")][-1] < 9
    assert order.index("other/q0") <= 3
    assert order.index(key_of("high")) < max(order.index(key_of(f"p{number}")) for number in range(8))
    assert order.index(key_of("high")) < 6, "the highest priority of its namespace comes first"


def test_whose_namespace_had_a_turn_comes_last() -> None:
    """One pod of each namespace after the other."""
    line, pods = TurnLine(), [Pod(name[0], name, name, PodClass()) for name in ("a1", "a2", "a3", "b1", "c1", "c2")]
    for pod in pods:
        line.add(pod)

    def keys() -> list[str]:
        return [key for _, key in line.in_order(line.namespaces)]

    assert keys() == ["a/a1", "b/b1", "c/c1", "a/a2", "c/c2", "a/a3"]
    line.served(pods[0])
    assert keys() == ["b/b1", "c/c1", "a/a2", "c/c2", "a/a3"]
    line.served(pods[3])
    line.leave(pods[4])
    assert line.in_order(["a"]) == [("a", "a/a2"), ("a", "a/a3")]
    assert keys() == ["c/c2", "a/a2", "a/a3"]


def test_kube_scheduler_says_which_node_it_chose() -> None:
    """It nominates the node before it writes claims: the binder waits there only."""
    case = DeviceCase(a=2, b=1)
    comes(case, "x")
    case.show()
    assert case.ask(key_of("x"), ["a", "b"])[1] == ["a", "b"]
    case.change_pod(key_of("x"), nominated_node="a")
    case.show()
    for name in ("p", "q"):
        case.pod(name)
    case.round()
    at_a = next(name for name in ("p", "q") if case.ledger.reservations[key_of(name)].node == "a")
    assert not asks_for(case, at_a)
    assert case.kinds().count("Allocate") == 1


def test_a_gang_that_takes_too_long_keeps_its_nodes_closed() -> None:
    """All of it may still be written, not only what is late first."""
    case = DeviceCase(a=1, b=1)
    comes(case, "x")
    for name in ("u", "v"):
        case.pod(name, of=gang("g", 2))
    case.round()
    case.pass_time(20.0)
    for _ in range(2):
        settle(case)
    assert (case.phase("u"), case.phase("v")) == (None, None)
    assert [case.ask(key_of("x"), [node])[1] for node in ("a", "b")] == [[], []]
    case.settle()
    for _ in range(3):
        settle(case)
    assert case.ask(key_of("x"), ["a", "b"])[1] == ["a", "b"]


def test_a_pod_that_replaces_another_one_has_a_turn_of_its_own() -> None:
    """It waits until the claims of the pod before it, of the same name, are given back; it is not given up for that."""
    case = DeviceCase(a=2)
    comes(case, "x")
    case.pod("p")
    case.round()
    assert asks_for(case, "p")
    assert case.ask(key_of("x"), ["a"])[1] == []
    case.remove_pod(key_of("p"))
    case.show()
    case.devices.make(NAMESPACE, "later-gpu", "later-gpu", owner="later")
    devices = claiming(NAMESPACE, "p", "later", "later-gpu", template=True)
    pod_class = msgspec.structs.replace(sized(100), devices=devices)
    case.create_pod("p", "later", pod_class=pod_class, scheduler_name=SCHEDULER_NAME)
    case.show()
    case.round()
    for _ in range(30):
        case.pass_time(0.1)
    assert case.ask(key_of("x"), ["a"])[1] == []
    case.settle()
    case.told()
    for _ in range(60):
        case.pass_time(0.1)
        case.settle()
    assert case.told() == []
    assert case.device("later-gpu") is not None


def test_a_shared_claim_that_loses_its_device_is_written_in_turn() -> None:
    """It had a device when it was planned, and gets one anew."""
    case = DeviceCase(a=2)
    case.devices.make(NAMESPACE, "shared", "shared")
    (device, _) = case.devices.free_devices()
    case.devices.allocate_elsewhere((NAMESPACE, "shared"), device, "gone")
    comes(case, "x")
    case.pod("p", shares="shared")
    case.round()
    assert asks_for(case, "p")
    case.devices.follow_pods({"p", "x"})
    case.show()
    assert case.device("shared") is None
    assert case.ask(key_of("x"), ["a"])[1] == []


def test_a_node_stays_closed_until_claims_are_given_back() -> None:
    """A pod of the binder goes while its claim may just be written."""
    case = DeviceCase(a=1)
    comes(case, "x")
    case.pod("p")
    case.round()
    assert asks_for(case, "p")
    case.remove_pod(key_of("p"))
    case.show()
    settle(case)
    settle(case)
    assert case.ask(key_of("x"), ["a"])[1] == []
    case.settle()
    settle(case)
    settle(case)
    assert case.ask(key_of("x"), ["a"])[1] == ["a"]


# --- steered pods ---


def steered(steering: str = "Require", *, extended: bool = False) -> tuple[SteeredCluster, Pod]:
    """A pod that needs a device, and the binder's turn at node a."""
    world = SteeredCluster(steering=steering)
    if extended:
        (gpu,) = read_classes([GPU]).values()
        world.apply(ObjectSet(DEVICE_CLASSES, gpu.name, gpu))
        pod_class, requests = asking_for(CLASS, 1)
        pod = world.pod(pod_class=pod_class, extended=requests)
    else:
        devices = ClaimingPod(NAMESPACE, "p", "u", (PodClaim("gpu", "c"),))
        pod = world.pod(pod_class=msgspec.structs.replace(CLASS, devices=devices))
    world.show()
    world.ledger.device_turns.begin(OURS, "a", 1, world.now)
    return world, pod


@pytest.mark.parametrize("extended", [False, True])
def test_a_steered_pod_keeps_its_node(*, extended: bool) -> None:
    """It is held, and its node does not count as refused, however often kube-scheduler asks meanwhile."""
    world, pod = steered(extended=extended)
    plain = world.pod("plain", "v")
    world.show()
    assert world.plan_pod(pod.key, "a")
    assert world.plan_pod(plain.key, "a")
    assert world.ask(plain.key, ["a"]) == ("steered", ["a"]), "it has no claims"
    for _ in range(8):
        world.attempt(pod.key, ["a", "b"])
        world.end_attempt(pod.key, fails=True)
        world.show()
        for _ in range(3):
            world.pass_time(0.1)
            world.ledger.device_turns.begin(OURS, "a", 1, world.now)
        while world.writes:
            world.send(0)
        world.show()
    assert not world.rejected
    assert world.ledger.reservations[pod.key].node == "a"
    world.ledger.device_turns.end(OURS.key)
    for _ in range(3):
        world.pass_time(1.0)
        while world.writes:
            world.send(0)
        world.show()
    assert world.schedule(pod.key) == ("steered", ["a"])


def test_our_nomination_does_not_say_what_kube_scheduler_chose() -> None:
    """It was let through to any node, and a plan comes later."""
    world, pod = steered("Prefer")
    world.ledger.device_turns.end(OURS.key)
    for _ in range(3):
        world.pass_time(1.0)
    world.change_pod(pod.key, unschedulable_message=HELD_MESSAGE)
    world.show()
    world.set_free(pod)
    assert world.ask(pod.key, ["a", "b"])[1] == ["a", "b"]
    assert world.plan_pod(pod.key, "a")
    for _ in range(3):
        while world.writes:
            world.send(0)
        world.show()
        world.pass_time(0.1)
    assert world.api[pod.key].nominated_node == "a"
    assert [each.uid for each in world.ledger.device_turns.attempts.at("b")] == [pod.uid]


def test_a_nomination_that_was_there_before_is_no_choice() -> None:
    """kube-scheduler looked at all nodes all the same; that the pod changes in another way says nothing of it."""
    turns, pod = DeviceTurns(), Pod("ns", "p", "u", PodClass(devices=ClaimingPod("ns", "p", "u")), nominated_node="a")
    turns.attempts.let_through(pod, frozenset("ab"), 0.0)
    turns.changed(msgspec.structs.replace(pod, unschedulable_message=HELD_MESSAGE), pod, 0.0)
    assert list(turns.attempts.at("b"))
    turns.changed(msgspec.structs.replace(pod, nominated_node="b"), pod, 0.0)
    assert not list(turns.attempts.at("a"))
    assert list(turns.attempts.at("b"))


@pytest.mark.parametrize("end", ["gone", "bound", "another of its name"])
def test_who_was_kept_off_and_is_there_no_more_holds_nobody_up(end: str) -> None:
    """Its node is wanted by nobody, and nobody is spared for it."""
    turns, pod, new = DeviceTurns(), Pod("ns", "p", "u", PodClass()), Pod("ns", "new", "n", PodClass())
    turns.begin(OURS, "a", 1, 0.0)
    turns.keep_off(pod.key, frozenset("a"), 0.0)
    assert not turns.may_begin(new, "a")
    if end == "gone":
        turns.gone(pod, 0.0)
    else:
        change = {"node_name": "b"} if end == "bound" else {"uid": "v"}
        turns.changed(msgspec.structs.replace(pod, **change), pod, 0.0)
    assert turns.may_begin(new, "a")
    assert not turns.is_kept_off(pod.key)


def test_nobody_goes_before_those_in_line_of_its_namespace() -> None:
    """Another namespace's pod may: none of its own is in line."""
    turns = DeviceTurns()
    first, second = Pod("ns", "first", "f", PodClass()), Pod("ns", "second", "s", PodClass())
    turns.line.add(first)
    assert turns.may_begin(first, "a")
    assert not turns.may_begin(second, "a")
    assert turns.may_begin(Pod("more", "second", "m", PodClass()), "a")


def test_a_foreign_nomination_is_not_cleared() -> None:
    """Its node is closed for a moment only."""
    world, pod = steered()
    world.change_pod(pod.key, nominated_node="a")
    world.show()
    assert world.ledger.reservations[pod.key].phase is Phase.FOREIGN
    assert world.schedule(pod.key)[1] == []
    assert world.in_line == []


# --- what counts as a choice ---


def test_who_chooses_devices() -> None:
    """A pod whose claims have devices, or that needs none, chooses none; unless the node offers a resource itself."""
    node = Node("a", allocatable=(("cpu", 1), ("example.com/gpu", 1)))
    held = ResourceClaim("ns", "held", allocation=ClaimAllocation())
    claims = {("ns", "held"): held, ("ns", "bare"): ResourceClaim("ns", "bare")}

    def lacks(pod: ClaimingPod, on: Node = node) -> bool:
        return lacks_devices(pod, claims, {"made": ("ns", "held")}, on)

    def naming(*named: PodClaim, made: tuple[tuple[str, str], ...] = ()) -> ClaimingPod:
        return ClaimingPod("ns", "p", "u", named, made)

    assert not lacks(naming(PodClaim("c", "held")))
    assert lacks(naming(PodClaim("c", "held"), PodClaim("d", "bare")))
    assert lacks(naming(PodClaim("c", "gone")))
    assert lacks(naming(PodClaim("c", template="t"))), "its claim is not made yet"
    assert not lacks(naming(PodClaim("c", template="t"), made=(("c", ""),))), "it needs none"
    request = ClaimRequest("r", DeviceRequest("r", "gpu"), resource="example.com/gpu")
    extended = naming().with_extended_claim((request,))
    assert not lacks(extended)
    assert lacks(extended, Node("b"))
    assert not lacks(msgspec.structs.replace(extended, uid="made"), Node("b"))


def test_nothing_is_remembered_for_long() -> None:
    """Attempts and closed nodes are forgotten."""
    turns, pod = DeviceTurns(), Pod("ns", "p", "u", PodClass(devices=ClaimingPod("ns", "p", "u")))
    turns.attempts.let_through(Pod("ns", "plain", "v", PodClass()), frozenset("a"), 0.0)
    assert not list(turns.attempts.at("a"))
    turns.attempts.let_through(pod, frozenset("ab"), 0.0)
    more = Pod("ns", "more", "m", PodClass())
    turns.begin(OURS, "a", 1, 0.0)
    turns.begin(more, "a", 2, 0.0)
    turns.keep_off("ns/x", frozenset("a"), 0.0)
    for key in (OURS.key, OURS.key, more.key):
        turns.end(key)
    turns.forget(9.0)
    assert [each.key for each in turns.attempts.at("b")] == ["ns/p"]
    assert turns.is_binders("a")
    turns.forget(10.0)
    assert not turns.is_any_binders
    new = Pod("ns", "new", "n", PodClass())
    assert not turns.may_begin(new, "a")
    assert turns.let_in() == ["ns/x"]
    turns.forget(12.0)
    assert turns.may_begin(new, "a")
    turns.line.add(new)
    turns.leave(new, 3)
    turns.forget(60.0)
    assert is_empty(turns)


def is_empty(record: object) -> bool:
    """Whether nothing is remembered, in records of it neither."""
    return all(not value if hasattr(value, "__len__") else is_empty(value) for value in vars(record).values())
