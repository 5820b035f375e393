"""What is done for the claims of pods before the pods are bound, and what becomes of them where that fails."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import pytest
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.reservations.effects import (
    TOLD_AFTER,
    Bind,
    BindClaim,
    ClearNomination,
    Evict,
    Nominate,
    WriteCondition,
)
from thalweg_operator.reservations.events import (
    Answer,
    PlanMade,
    PlannedPlacement,
    PodsUnplaced,
    PoliciesChanged,
    TimePassed,
    UnplacedPod,
    WriteAnswered,
)
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.step.before_binding.volume_steps import BINDING_SECONDS

from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import SCHEDULER_NAME, Delivery, Policy
from flowcore.model.running_pods import EvictionKind
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.model.volumes import (
    ISCSI,
    Claim,
    ClaimRef,
    ClaimVolume,
    Disk,
    PersistentVolume,
    StorageClass,
    StorageObject,
    VolumeChoice,
    Volumes,
    claim_key,
    key_of,
    volume_key,
)
from flowcore.planning.plan_document import PlanEviction

POLICY = Policy("bound", delivery=Delivery.BINDER)
HOST = "kubernetes.io/hostname"
MODES = ("ReadWriteOnce",)
VOLUME_OF_P = ClaimVolume("ns", "p")


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class PreparedCase:
    """Two nodes with a local volume each, a claim of each pod, and plans by hand."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.ledger = DrivenLedger(self.clock)
        self.ledger.apply(PoliciesChanged((POLICY,)))
        self.ledger.set_namespace("ns", ())
        for name in ("a", "b"):
            self.ledger.upsert_node(Node(name, labels=((HOST, name),), allocatable=(("cpu", 1_000), ("pods", 10))))
            self.put(volume(f"v-{name}", name))
        self.put(StorageClass("late", "csi.example.com", "WaitForFirstConsumer"))
        self.ledger.sync()

    def put(self, *stored: StorageObject) -> None:
        for each in stored:
            self.ledger.upsert_storage(each)

    def pod(self, name: str, *, volumes: Volumes | None = None) -> Pod:
        """A pod with a claim of its name, seen."""
        self.put(claim(name))
        mounted = (ClaimVolume("ns", name),) if volumes is None else volumes
        pod = Pod("ns", name, f"u-{name}", PodClass((("cpu", 100),), volumes=mounted), scheduler_name=SCHEDULER_NAME)
        self.ledger.upsert_pod(pod)
        return pod

    def plan(self, *placements: tuple[Pod, str, VolumeChoice | None], group: str = "") -> None:
        planned = [
            PlannedPlacement(pod, POLICY, node, (0, 0), group, False, volumes=() if choice is None else (choice,))
            for pod, node, choice in placements
        ]
        self.ledger.apply(PlanMade(1, self.ledger.generation, planned, [group] if group else []))

    def plan_with_victims(self, pod: Pod, node: str, chosen: VolumeChoice, *victims: Pod, group: str = "") -> None:
        """A pod that is to come once others have left."""
        evictions = tuple(PlanEviction(each.key, each.uid, node, EvictionKind.PREEMPTION) for each in victims)
        planned = PlannedPlacement(
            pod, POLICY, node, (0, 0), group, False, victims=evictions, waits=True, volumes=(chosen,)
        )
        self.ledger.apply(PlanMade(1, self.ledger.generation, [planned], [group] if group else []))

    def running(self, name: str, node: str) -> Pod:
        """A pod of a low priority."""
        pod = Pod("ns", name, f"u-{name}", PodClass((("cpu", 500),)), node_name=node, usage=(("cpu", 500),))
        self.ledger.upsert_pod(pod)
        return pod

    def urgent(self, name: str) -> Pod:
        """A pod of a high priority with a claim of its name, as large as a node."""
        self.put(claim(name))
        pod_class = PodClass((("cpu", 1_000),), priority=100, volumes=(ClaimVolume("ns", name),))
        pod = Pod("ns", name, f"u-{name}", pod_class, scheduler_name=SCHEDULER_NAME)
        self.ledger.upsert_pod(pod)
        return pod

    def evicted(self) -> list[str]:
        """Names of the pods that are evicted. The API server agrees to all that it is asked about."""
        names = []
        while asked := [*self.ledger.taken(Evict), *self.ledger.taken(Nominate)]:
            for write in asked:
                if isinstance(write, Evict) and not write.dry_run:
                    names.append(write.pod.name)
                self.ledger.apply(WriteAnswered(write, Answer.DONE, ""))
        return names

    def answer(
        self, write: BindClaim | Bind | ClearNomination | Evict | Nominate, answer: Answer, reason: str = ""
    ) -> None:
        self.ledger.apply(WriteAnswered(write, answer, reason))

    def phases(self) -> dict[str, Phase]:
        return {key.removeprefix("ns/"): each.phase for key, each in self.ledger.reservations.items()}

    def seen_by_rounds(self) -> dict[str, StorageObject]:
        """What the next round is told of claims and volumes, by name."""
        self.ledger.cluster.storage.mark_all_dirty()
        put, _ = self.ledger.cluster.storage.take_changes()
        return {key_of(each)[2]: each for each in put}

    def waits(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.clock.now += 1.0
            self.ledger.apply(TimePassed())

    def pauses(self, pod: Pod) -> bool:
        """Whether no round plans it now."""
        state = self.ledger.shell.state
        return backoff.is_backing_off(state.cluster, state.ledger, pod, self.clock.now)

    def pause(self, pod: Pod) -> float:
        """How long a pod pauses now, in seconds."""
        return self.ledger.ledger.record(pod).backoff_until - self.clock.now

    def told(self) -> list[str]:
        return [effect.reason for effect in self.ledger.taken(WriteCondition)]


def claim(name: str, **fields: object) -> Claim:
    fresh = Claim("ns", name, uid=f"c-{name}", storage_class="late", size=1, access_modes=MODES)
    return msgspec.structs.replace(fresh, **fields)


def volume(name: str, *nodes: str, kept_for: str = "") -> PersistentVolume:
    reach = (NodeSelectorTerm((Requirement(HOST, "In", nodes),)),)
    kept = ClaimRef("ns", kept_for, f"c-{kept_for}") if kept_for else None
    free = PersistentVolume(name, storage_class="late", size=1, access_modes=MODES, affinity=reach)
    return msgspec.structs.replace(free, claim=kept, available=not kept)


def choice(name: str, held: str = "") -> VolumeChoice:
    return VolumeChoice("ns", name, f"c-{name}", held)


def bound(name: str, held: str) -> list[StorageObject]:
    """As the controller leaves both."""
    return [volume(held, held[-1], kept_for=name), claim(name, bound=True, volume_name=held)]


@pytest.fixture
def world() -> PreparedCase:
    return PreparedCase()


def only(writes: Iterable[BindClaim | Bind]) -> BindClaim | Bind:
    (write,) = writes
    return write


def test_the_claim_then_the_pod(world: PreparedCase) -> None:
    """The pod is bound once the watch shows its claim bound."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p", "v-a")))
    write = only(world.ledger.taken(BindClaim))
    assert isinstance(write, BindClaim)
    assert (write.node, write.choice) == ("a", choice("p", "v-a"))
    assert world.phases() == {"p": Phase.PREPARING}
    world.answer(write, Answer.DONE)
    world.put(volume("v-a", "a", kept_for="p"))
    assert world.ledger.taken(Bind) == []
    world.put(*bound("p", "v-a"))
    assert only(world.ledger.taken(Bind)).node == "a"
    assert world.phases() == {"p": Phase.BINDING}


def test_a_claim_that_is_bound_already_needs_nothing(world: PreparedCase) -> None:
    """The pod is bound at once."""
    pod = world.pod("p")
    world.put(*bound("p", "v-a"))
    world.plan((pod, "a", None))
    assert world.ledger.taken(BindClaim) == []
    assert only(world.ledger.taken(Bind)).node == "a"


def test_what_was_written_before_a_restart_is_not_written_again(world: PreparedCase) -> None:
    """The next leader plans the pod as this one did, and waits for the same."""
    pod = world.pod("p")
    world.put(volume("v-a", "a", kept_for="p"))
    world.plan((pod, "a", choice("p", "v-a")))
    assert world.ledger.taken(BindClaim) == []
    world.put(*bound("p", "v-a"))
    assert only(world.ledger.taken(Bind)).node == "a"


def test_rounds_see_what_is_promised(world: PreparedCase) -> None:
    """The volume is another claim's no more, and comes free with the reservation."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p", "v-a")))
    promised = world.seen_by_rounds()["v-a"]
    assert isinstance(promised, PersistentVolume)
    assert promised.claim == ClaimRef("ns", "p", "c-p")
    world.ledger.delete_pod(pod.key)
    free = world.seen_by_rounds()["v-a"]
    assert isinstance(free, PersistentVolume)
    assert free.claim is None
    other = world.pod("q")
    world.plan((other, "a", choice("q", "v-a")))
    assert world.phases() == {"q": Phase.PREPARING}


def test_a_volume_to_be_provisioned_is_promised_too(world: PreparedCase) -> None:
    """Another pod with the same claim goes to the same node or not at all."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p")))
    seen = world.seen_by_rounds()["p"]
    assert isinstance(seen, Claim)
    assert seen.selected_node == "a"
    beside = Pod("ns", "q", "u-q", pod.pod_class, scheduler_name=SCHEDULER_NAME)
    world.ledger.upsert_pod(beside)
    world.plan((beside, "b", choice("p")))
    assert set(world.phases()) == {"p"}
    world.plan((beside, "a", choice("p")))
    assert set(world.phases()) == {"p", "q"}
    world.ledger.delete_pod(pod.key)
    seen = world.seen_by_rounds()["p"]
    assert isinstance(seen, Claim)
    assert seen.selected_node == "a"


@pytest.mark.parametrize(
    "change",
    [
        [volume("v-a", "a", kept_for="other")],
        [claim("p", uid="another")],
        [claim("p", selected_node="b")],
        [claim("p", lost=True)],
        [claim("p", deleting=True)],
    ],
)
def test_a_plan_that_does_not_hold_is_dropped(world: PreparedCase, change: list[StorageObject]) -> None:
    """What changed while it was made is planned with in the next round."""
    pod = world.pod("p")
    world.put(*change)
    world.plan((pod, "a", choice("p", "v-a")))
    assert world.phases() == {}
    assert world.ledger.taken(BindClaim) == []


@pytest.mark.parametrize(
    "change",
    [
        {"affinity": volume("v-b", "b").affinity},
        {"storage_class": "other"},
        {"size": 0},
        {"access_modes": ("ReadOnlyMany",)},
        {"volume_mode": "Block"},
        {"available": False},
        {"deleting": True},
    ],
)
def test_a_volume_that_suits_its_claim_no_more(world: PreparedCase, change: dict[str, object]) -> None:
    """It changed while the plan was made: the pod is planned anew, and nothing is written."""
    pod = world.pod("p")
    world.put(msgspec.structs.replace(volume("v-a", "a"), **change))
    world.plan((pod, "a", choice("p", "v-a")))
    assert world.phases() == {}
    assert world.ledger.taken(BindClaim) == []


def test_two_pods_never_get_one_volume(world: PreparedCase) -> None:
    """Not even if a plan says so."""
    pods = [world.pod(name) for name in ("p", "q")]
    world.plan(*((pod, "a", choice(pod.name, "v-a")) for pod in pods))
    assert set(world.phases()) == {"p"}


def test_two_pods_never_mount_one_disk(world: PreparedCase) -> None:
    """Not even if a plan says so; on another node there is no conflict."""
    disk = (Disk(ISCSI, ("x",)),)
    pods = [world.pod(name, volumes=disk) for name in ("p", "q", "r")]
    world.plan((pods[0], "a", None), (pods[1], "a", None), (pods[2], "b", None))
    assert world.phases() == {"p": Phase.BINDING, "r": Phase.BINDING}


def test_a_claim_for_one_pod_is_used_by_one(world: PreparedCase) -> None:
    """Wherever the other would go."""
    pods = [world.pod(name, volumes=(ClaimVolume("ns", "one"),)) for name in ("p", "q")]
    world.put(volume("v", "a", kept_for="one"))
    world.put(claim("one", access_modes=("ReadWriteOncePod",), bound=True, volume_name="v"))
    world.plan((pods[0], "a", None), (pods[1], "b", None))
    assert world.phases() == {"p": Phase.BINDING}


@pytest.mark.parametrize("there", [True, False])
def test_a_claim_that_somebody_bound_since_the_plan(world: PreparedCase, *, there: bool) -> None:
    """To a volume of another node, or to one that is not there: no pod goes where its volume is not."""
    pod = world.pod("p")
    if there:
        world.put(volume("v-b", "b", kept_for="p"))
    world.put(claim("p", bound=True, volume_name="v-b"))
    world.plan((pod, "a", choice("p", "v-a")))
    assert world.phases() == {}
    assert world.ledger.taken(BindClaim) == []


def test_a_provisioner_that_refuses(world: PreparedCase) -> None:
    """The pod is planned anew at once, elsewhere first, and told why."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p")))
    world.put(claim("p", selected_node="a"))
    world.put(claim("p"))
    assert world.phases() == {}
    refusal = 'no volume is provisioned for persistentvolumeclaim "p" on node a (provisioner csi.example.com)'
    assert world.told() == [f"its volumes were not bound: {refusal}; the Events of the claim say why"]
    state = world.ledger.shell.state
    assert backoff.rejected_nodes(state.cluster, state.ledger, pod, world.clock.now) == ["a"]
    assert not world.pauses(pod)
    world.plan((pod, "b", choice("p")))
    assert world.phases() == {"p": Phase.PREPARING}


def test_a_watch_that_is_behind_is_no_refusal(world: PreparedCase) -> None:
    """The claim changes before it shows the annotation."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p")))
    world.answer(only(world.ledger.taken(BindClaim)), Answer.DONE)
    world.put(claim("p", data_problem="changed"))
    assert world.phases() == {"p": Phase.PREPARING}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            [volume("v-a", "a", kept_for="other")],
            'persistentvolume "v-a" is not there for persistentvolumeclaim "p"',
        ),
        ([claim("p", uid="another")], 'persistentvolumeclaim "p" is gone'),
        (
            [volume("v-b", "b", kept_for="p"), claim("p", bound=True, volume_name="v-b")],
            'persistentvolumeclaim "p" is bound to a volume that the node does not reach',
        ),
    ],
)
def test_what_goes_wrong_meanwhile(world: PreparedCase, change: list[StorageObject], reason: str) -> None:
    """The room is given back, the pod pauses, and is told why."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p", "v-a")))
    world.put(*change)
    assert world.phases() == {}
    assert world.told() == [f"its volumes were not bound: {reason}"]
    assert world.pauses(pod)


def test_a_volume_that_is_taken_back_after_it_was_shown(world: PreparedCase) -> None:
    """The controller drops the reference (unbindVolume)."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p", "v-a")))
    world.put(volume("v-a", "a", kept_for="p"))
    world.put(volume("v-a", "a"))
    assert world.phases() == {}


def test_claims_that_are_not_bound_in_time(world: PreparedCase) -> None:
    """After ten minutes the room is given back."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p", "v-a")))
    world.waits(BINDING_SECONDS)
    assert world.phases() == {"p": Phase.PREPARING}
    world.told()
    world.waits(2)
    assert world.phases() == {}
    awaited = 'persistentvolumeclaim "p" is not bound yet (persistentvolume "v-a")'
    assert world.told() == [f"its volumes were not bound: {awaited}, 10 minutes after that was asked for"]


@pytest.mark.parametrize("answer", [Answer.REFUSED, Answer.UNWANTED, Answer.RETRYING])
def test_a_write_that_is_refused(world: PreparedCase, answer: Answer) -> None:
    """For good, or since it was not wanted any more: the room is given back. Else nothing changes."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p", "v-a")))
    world.answer(only(world.ledger.taken(BindClaim)), answer, "forbidden")
    assert world.phases() == ({"p": Phase.PREPARING} if answer is Answer.RETRYING else {})
    assert world.told() == (
        ['its volumes were not bound: persistentvolumeclaim "p": forbidden'] if answer is Answer.REFUSED else []
    )


def test_an_answer_to_an_earlier_reservation_changes_nothing(world: PreparedCase) -> None:
    """It was given back, and the pod is planned again."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p")))
    late = only(world.ledger.taken(BindClaim))
    world.ledger.release(pod.key, pod.uid)
    world.plan((pod, "b", choice("p", "v-b")))
    world.answer(late, Answer.REFUSED, "no")
    assert world.phases() == {"p": Phase.PREPARING}


def test_all_claims_of_a_group_then_all_bindings(world: PreparedCase) -> None:
    """A pod without claims waits for the others."""
    pods = [world.pod("p"), world.pod("q"), world.pod("plain", volumes=())]
    choices = [choice("p", "v-a"), choice("q", "v-b"), None]
    world.plan(*zip(pods, ("a", "b", "a"), choices, strict=True), group="g")
    assert set(world.phases().values()) == {Phase.PREPARING}
    world.put(*bound("p", "v-a"))
    assert world.ledger.taken(Bind) == []
    world.put(*bound("q", "v-b"))
    assert [write.pod.name for write in world.ledger.taken(Bind)] == ["p", "plain", "q"]
    assert set(world.phases().values()) == {Phase.BINDING}


@pytest.mark.parametrize("end", ["pod", "volume"])
def test_a_group_that_loses_one_ends_as_a_whole(world: PreparedCase, end: str) -> None:
    """None of its pods is bound, and no room is kept."""
    pods = [world.pod("p"), world.pod("q")]
    world.plan((pods[0], "a", choice("p", "v-a")), (pods[1], "b", choice("q", "v-b")), group="g")
    world.put(*bound("p", "v-a"))
    if end == "pod":
        world.ledger.delete_pod(pods[1].key)
    else:
        world.ledger.delete_storage(volume_key("v-b"))
    world.waits(1)
    assert world.phases() == {}
    assert world.ledger.taken(Bind) == []


def test_a_node_that_changes_meanwhile(world: PreparedCase) -> None:
    """Nothing is bound to it that was not planned so."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p", "v-a")))
    cordoned = Node("a", labels=((HOST, "a"),), unschedulable=True, allocatable=(("cpu", 1_000), ("pods", 10)))
    world.ledger.upsert_node(cordoned)
    world.put(*bound("p", "v-a"))
    assert world.ledger.taken(Bind) == []
    assert world.phases() == {}


def test_a_node_that_goes_meanwhile(world: PreparedCase) -> None:
    """Nobody waits for volumes there."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p")))
    world.ledger.delete_node("a")
    world.waits(1)
    assert world.phases() == {}


def test_nothing_is_left_when_all_is_gone(world: PreparedCase) -> None:
    """Neither promises nor groups."""
    pods = [world.pod("p"), world.pod("q")]
    world.plan((pods[0], "a", choice("p", "v-a")), (pods[1], "b", choice("q")), group="g")
    for pod in pods:
        world.ledger.delete_pod(pod.key)
    world.waits(1)
    storage, ledger = world.ledger.cluster.storage, world.ledger.ledger
    assert not storage.promises
    assert storage.promised_to("v-a") is None
    assert not storage.pods_that_await(claim_key("ns", "p"))
    assert (ledger.preparing, ledger.bound_together.members, ledger.bound_together.lost) == (set(), {}, {})


@pytest.mark.parametrize(("held", "source"), [("", "provisioner csi.example.com"), ("v-a", 'persistentvolume "v-a"')])
def test_a_pod_that_waits_for_its_volume_is_told(world: PreparedCase, held: str, source: str) -> None:
    """Where it goes, which claim, and who is to make the volume: once, and not at once."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p", held)))
    world.waits(9)
    assert world.told() == []
    world.waits(60)
    (effect,) = world.ledger.taken(WriteCondition)
    awaited = f'persistentvolumeclaim "p" is not bound yet ({source})'
    assert (effect.reason, effect.condition) == (f"its volumes on a are not ready: {awaited}", "WaitingForVolumes")
    assert world.ledger.shell.pod_to_tell(pod.key, pod.uid) == pod


def test_a_pod_with_two_claims_is_told_of_the_second(world: PreparedCase) -> None:
    """Once the first is bound."""
    pod = world.pod("p", volumes=(ClaimVolume("ns", "p"), ClaimVolume("ns", "q")))
    world.put(claim("q"))
    planned = PlannedPlacement(pod, POLICY, "a", (0, 0), "", False, volumes=(choice("p", "v-a"), choice("q")))
    world.ledger.apply(PlanMade(1, world.ledger.generation, [planned], []))
    world.waits(11)
    world.put(*bound("p", "v-a"))
    world.waits(1)
    assert [reason.split('"')[1] for reason in world.told()] == ["p", "q"]


def test_a_provisioner_that_refuses_every_node(world: PreparedCase) -> None:
    """Other nodes are tried at once, not all of them: then the pod pauses, longer each time."""
    pod, pauses = world.pod("p"), []
    names = [f"n{number}" for number in range(12)]
    for name in names:
        world.ledger.upsert_node(Node(name, labels=((HOST, name),), allocatable=(("cpu", 1_000), ("pods", 10))))
    for name in names:
        world.plan((pod, name, choice("p")))
        world.put(claim("p", selected_node=name))
        world.put(claim("p"))
        pauses.append(max(0.0, world.pause(pod)))
        world.waits(pauses[-1])
    assert pauses == [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_nodes_without_a_volume_are_counted(world: PreparedCase) -> None:
    """The reason names three of them."""
    pod = world.pod("p")
    state = world.ledger.shell.state
    for number in range(5):
        name = f"n{number}"
        world.ledger.upsert_node(Node(name, labels=((HOST, name),)))
        backoff.node_rejected(state.cluster, state.ledger, pod, name, world.clock.now)
    world.ledger.apply(PodsUnplaced([UnplacedPod(pod, POLICY, "It waits.", "VolumeBinding")]))
    assert world.told() == ["It waits. No volume was provisioned for it on n0, n1, n2 and 2 more a short time ago."]


def late(world: PreparedCase, pod: Pod) -> None:
    """A provisioner does not answer in time."""
    world.plan((pod, "a", choice("p")))
    world.put(claim("p", selected_node="a"))
    world.waits(BINDING_SECONDS + 1)
    assert world.phases() == {}


def test_a_provisioner_that_never_answers(world: PreparedCase) -> None:
    """The pod pauses for longer each time, in the end for as long as it waits."""
    pod, pauses = world.pod("p"), []
    for _ in range(6):
        late(world, pod)
        pauses.append(world.pause(pod))
        world.waits(pauses[-1])
    assert pauses == [60, 120, 240, 480, 600, 600]


def test_a_claim_that_is_bound_late_ends_the_pause(world: PreparedCase) -> None:
    """The pod is planned at once."""
    pod = world.pod("p")
    late(world, pod)
    assert world.pauses(pod)
    rounds = world.ledger.rounds_requested
    world.put(*bound("p", "v-a"))
    assert world.ledger.rounds_requested > rounds
    assert not world.pauses(pod)


def test_nobody_leaves_again_for_a_pod_whose_volume_is_not_made(world: PreparedCase) -> None:
    """Until its claim changes. Where there is room it is tried again."""
    low = [world.running(name, "a") for name in ("low", "lower")]
    pod = world.urgent("p")
    waiting = choice("p")
    world.plan_with_victims(pod, "a", waiting, *low)
    assert world.evicted() == ["low", "lower"]
    for each in low:
        world.ledger.delete_pod(each.key)
    assert world.phases() == {"p": Phase.HELD}
    late(world, pod)
    others = [world.running(name, "a") for name in ("other", "another")]
    world.waits(world.pause(pod))
    world.told()
    world.plan_with_victims(pod, "a", waiting, *others)
    world.waits(1)
    assert (world.evicted(), world.phases()) == ([], {})
    (told,) = world.told()
    assert told.startswith("nobody is evicted for it while these claims")
    assert told.endswith(': persistentvolumeclaim "p"')
    assert world.pauses(pod)
    world.put(*bound("p", "v-a"))
    world.plan_with_victims(pod, "a", waiting, *others)
    assert sorted(world.evicted()) == ["another", "other"]


def test_nobody_leaves_again_for_its_gang(world: PreparedCase) -> None:
    """Also where another pod of the gang needs the room."""
    gang = [world.pod("p"), world.urgent("q")]
    late(world, gang[0])
    low = [world.running(name, "b") for name in ("low", "lower")]
    evictions = tuple(PlanEviction(each.key, each.uid, "b", EvictionKind.PREEMPTION) for each in low)
    first, second = (
        PlannedPlacement(pod, POLICY, node, (0, 0), "g", False, waits=True, volumes=(choice(pod.name),))
        for pod, node in zip(gang, "ab", strict=True)
    )
    second = msgspec.structs.replace(second, victims=evictions)
    world.ledger.apply(PlanMade(1, world.ledger.generation, [first, second], ["g"]))
    world.waits(1)
    assert (world.evicted(), world.phases()) == ([], {})


def test_a_refusal_that_the_watch_never_showed(world: PreparedCase) -> None:
    """A provisioner took its node back before a watch that began anew: it is asked once more, and the pod goes on."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p")))
    write = only(world.ledger.taken(BindClaim))
    assert isinstance(write, BindClaim)
    world.waits(30)
    assert world.ledger.taken(BindClaim) == []  # it stands in line still
    world.answer(write, Answer.DONE)
    world.waits(9)
    assert world.ledger.taken(BindClaim) == []
    world.waits(1)
    assert only(world.ledger.taken(BindClaim)) == write
    world.waits(30)
    assert world.ledger.taken(BindClaim) == []
    world.answer(write, Answer.DONE)
    world.put(claim("p", selected_node="a"))
    world.put(claim("p"))
    assert world.phases() == {}


def taken_away(world: PreparedCase, what: str) -> None:
    """Something happens to the volume that "p" is to have on node "a"."""
    match what:
        case "volume gone":
            world.ledger.delete_storage(volume_key("v-a"))
        case "claim gone":
            world.ledger.delete_storage(claim_key("ns", "p"))
        case "volume of another claim":
            world.put(volume("v-a", "a", kept_for="other"))
        case "claim bound elsewhere":
            world.put(*bound("p", "v-b"))
        case "provisioned elsewhere":
            world.put(claim("p", selected_node="b"))


@pytest.mark.parametrize(
    "what", ["volume gone", "claim gone", "volume of another claim", "claim bound elsewhere", "provisioned elsewhere"]
)
def test_nobody_leaves_for_a_pod_whose_volume_is_gone(world: PreparedCase, what: str) -> None:
    """While the API server is asked whether it would evict them, the pod loses its volume: they stay."""
    low = [world.running(name, "a") for name in ("low", "lower")]
    pod = world.urgent("p")
    world.plan_with_victims(pod, "a", choice("p", "v-a"), *low)
    checks = world.ledger.taken(Evict)
    assert [check.dry_run for check in checks] == [True]
    taken_away(world, what)
    for check in checks:
        world.answer(check, Answer.DONE)
    world.waits(2)
    assert world.evicted() == []
    assert world.phases() == {}


def test_they_leave_for_a_pod_whose_volume_is_there(world: PreparedCase) -> None:
    """Nothing changed meanwhile."""
    low = [world.running(name, "a") for name in ("low", "lower")]
    pod = world.urgent("p")
    world.plan_with_victims(pod, "a", choice("p", "v-a"), *low)
    assert world.evicted() == ["low", "lower"]
    assert world.phases() == {"p": Phase.AWAITING_VICTIM}


def test_a_claim_for_one_pod_that_its_victim_uses(world: PreparedCase) -> None:
    """Neither the pod itself nor who leaves for it stands in its way."""
    alone = claim("p", access_modes=("ReadWriteOncePod",), bound=True, volume_name="v-a")
    low = [world.running(name, "a") for name in ("low", "lower")]
    user = msgspec.structs.replace(low[0], pod_class=msgspec.structs.replace(low[0].pod_class, volumes=(VOLUME_OF_P,)))
    world.ledger.upsert_pod(user)
    pod = world.urgent("p")
    world.put(volume("v-a", "a", kept_for="p"), alone)
    world.plan_with_victims(pod, "a", choice("p", "v-a"), user, low[1])
    assert world.evicted() == ["low", "lower"]


@pytest.mark.parametrize("shown", [True, False])
def test_the_node_is_written_while_volumes_come(world: PreparedCase, shown: bool) -> None:  # noqa: FBT001
    """Once, for pods that wait for claims; where the pod does not come it is cleared, and nothing is kept for it."""
    pod = world.pod("p")
    world.plan((pod, "a", choice("p", "v-a")))
    world.plan((world.pod("plain", volumes=()), "b", None))
    world.waits(3)
    assert world.ledger.taken(Nominate) == [], "it waits for our own write, which another one would only delay"
    (claimed,) = world.ledger.taken(BindClaim)
    world.answer(claimed, Answer.DONE)
    world.put(volume("v-a", "a", kept_for="p"))
    world.waits(2)
    (write,) = world.ledger.taken(Nominate)
    assert (write.pod.name, write.node) == ("p", "a")
    assert world.ledger.shell.is_wanted(write)
    world.answer(write, Answer.DONE)
    nominated = msgspec.structs.replace(pod, nominated_node="a", planned_node="a")
    if shown:
        world.ledger.upsert_pod(nominated)
        assert world.phases()["p"] is Phase.PREPARING
    taken_away(world, "volume of another claim")
    if not shown:
        world.ledger.upsert_pod(nominated)
    (cleared,) = world.ledger.taken(ClearNomination)
    assert cleared.pod.name == "p"
    world.answer(cleared, Answer.DONE)
    world.ledger.upsert_pod(pod)
    world.waits(3)
    assert "p" not in world.phases()
    assert world.ledger.taken(Nominate) == []


def test_no_node_is_written_for_a_pod_that_gets_its_volume_soon(world: PreparedCase) -> None:
    """A write of a pod's status for each pod with a claim would be one in vain; it comes once the wait lasts."""
    soon, late = world.pod("p"), world.pod("q")
    world.put(volume("v-a", "a", kept_for="p"), volume("v-b", "b", kept_for="q"))
    world.plan((soon, "a", choice("p", "v-a")))
    world.clock.now += TOLD_AFTER - 0.1
    world.ledger.apply(TimePassed())
    world.put(*bound("p", "v-a"))
    world.plan((late, "b", choice("q", "v-b")))
    assert only(world.ledger.taken(Bind)).pod.name == "p"
    assert world.ledger.taken(Nominate) == []
    world.waits(2)
    assert [write.pod.name for write in world.ledger.taken(Nominate)] == ["q"]


def test_a_node_that_is_nominated_already_is_not_written_again(world: PreparedCase) -> None:
    """By us while the pod waited for victims, or by an autoscaler."""
    pod = world.pod("p")
    nominated = msgspec.structs.replace(pod, nominated_node="a")
    world.ledger.upsert_pod(nominated)
    world.plan((nominated, "a", choice("p", "v-a")))
    world.waits(3)
    assert world.phases() == {"p": Phase.PREPARING}
    assert world.ledger.taken(Nominate) == []


def test_a_restart_while_claims_are_prepared(world: PreparedCase) -> None:
    """The place is kept for the pod until a round confirms it."""
    pod = world.pod("p")
    nominated = msgspec.structs.replace(pod, nominated_node="a", planned_node="a")
    after = PreparedCase()
    after.ledger = DrivenLedger(after.clock)
    after.ledger.apply(PoliciesChanged((POLICY,)))
    after.ledger.set_namespace("ns", ())
    after.ledger.upsert_node(Node("a", labels=((HOST, "a"),), allocatable=(("cpu", 100), ("pods", 10))))
    after.ledger.upsert_pod(nominated)
    after.ledger.sync()
    assert after.phases() == {"p": Phase.HELD}
    assert [pod.key for pod in after.ledger.ledger.plannable()] == ["ns/p"]
