"""A pod is moved: room for its replacement is reserved first, and its controller's next pod takes that room."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from support.device_clusters import claim
from support.draw import Case, crowded_cases
from support.draw_devices import read_claims
from support.fake_cluster.driven_ledger import DrivenLedger
from support.profiles import examples
from support.verdicts import read_pods
from thalweg_operator.planning.inputs.round_facts import operator_round_input
from thalweg_operator.reservations.effects import Bind, ClearNomination, Departure, Evict, Nominate
from thalweg_operator.reservations.events import Answer, PlanMade, PlannedPlacement
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.victims.replacements import REPLACEMENT_TIMEOUT, is_alike, place_key, recent_moves

from flowcore.model.data import DATA
from flowcore.model.devices import DeviceClass, with_devices
from flowcore.model.nodes import Node, Report
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import DO_NOT_DISRUPT, STEERED_NAME
from flowcore.model.queues import Queue
from flowcore.model.resource_claims import ClaimingPod, PodClaim
from flowcore.model.running_pods import EvictionKind, RecentMove
from flowcore.model.selectors import LabelSelector
from flowcore.planning.plan_document import PlanEviction

PLACE = "ns/web-1~u-web-1"


def sized(cpu: int, priority: int = 0) -> PodClass:
    """A class of pods that ask for so much."""
    return PodClass(requests=(("cpu", cpu),), priority=priority)


class Scene:
    """Two nodes. On a runs a pod of a controller that may go to b. A large pod waits that fits on a without it."""

    def __init__(self, scheduler: str = "thalweg") -> None:
        self.now = 1000.0
        self.state = DrivenLedger(lambda: self.now, handlers={Nominate: self._nominate})
        self.ledger, self.scheduler = self.state.ledger, scheduler
        self.set_mode("Act")
        self.state.set_namespace("ns", ())
        self.node("a")
        self.node("b")
        self.pod("web-1", 400, node_name="a", usage=sized(400).requests, owner="rs")
        self.pod("large", 800)
        self._plans = 0

    def _nominate(self, write: Nominate) -> None:
        if self.state.waits_for_victim(write.pod.key):
            self.state.shell.answered(write, Answer.DONE)

    def set_mode(self, mode: str) -> None:
        """What the policies say of moves."""
        for name, spec in (
            ("own", {"selects": {"podSelector": {}}}),
            ("steered", {"selects": {"schedulerNames": [STEERED_NAME]}, "delivery": "Extender"}),
        ):
            self.state.policies.offer(
                name,
                "u",
                1 if mode == "Act" else 2,
                {**spec, "rescheduling": {"mode": mode}, "duringExecution": {"rules": "Evict"}},
            )

    def node(self, name: str, cpu: int = 1000, **fields: Any) -> None:
        self.state.upsert_node(Node(name, allocatable=(("cpu", cpu), ("pods", 10)), **fields))

    def pod(self, name: str, cpu: int, **fields: Any) -> Pod:
        fields = {"uid": f"u-{name}", "scheduler_name": self.scheduler, "pod_class": sized(cpu), **fields}
        pod = Pod("ns", name, **fields)
        self.state.upsert_pod(pod)
        return pod

    def change(self, name: str, **fields: Any) -> None:
        self.state.upsert_pod(msgspec.structs.replace(self.state.pods[f"ns/{name}"], **fields))

    def gone(self, name: str) -> None:
        self.state.delete_pod(f"ns/{name}")

    def plan(
        self, name: str, node: str, *victims: PlanEviction, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        """A round places a pod once these have left; something happens before its plan arrives."""
        self.state.take_changes()
        generation, pod = self.state.generation, self.state.waiting[f"ns/{name}"]
        policy = self.state.cluster.policies.of(pod, self.state.cluster.namespaces)
        assert policy is not None
        meanwhile()
        self._plans += 1
        placement = PlannedPlacement(pod, policy, node, (0, 0), "", False, victims, bool(victims))
        self.state.apply(PlanMade(self._plans, generation, [placement]))
        self.state.look_after()  # it is nominated
        self.state.look_after()  # pods are evicted

    def plan_move(self, kind: EvictionKind = EvictionKind.MIGRATION, **options: Any) -> None:
        """The large pod comes to a, and the other one goes to b."""
        self.plan("large", "a", PlanEviction("ns/web-1", "u-web-1", "a", kind, to="b"), **options)

    def plan_gain(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """A round moves the pod to b for gain; something happens before its plan arrives."""
        self.state.take_changes()
        generation = self.state.generation
        meanwhile()
        self._plans += 1
        move = PlanEviction("ns/web-1", "u-web-1", "a", EvictionKind.MIGRATION, to="b", reason="it gains", gain=500)
        self.state.apply(PlanMade(self._plans, generation, (), evictions=[move]))
        self.state.look_after()

    def leave(self) -> None:
        """The moved pod is evicted, and its end is seen."""
        assert self.evictions() == ["web-1"]
        self.change("web-1", deleting=True)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.state.look_after()

    def evictions(self) -> list[str]:
        """Names of the pods that are to be evicted now."""
        return [each.pod.name for each in self.state.effects if isinstance(each, Evict) and self._is_wanted(each)]

    def _is_wanted(self, write: Evict) -> bool:
        return self.state.shell.is_wanted(write)

    def phases(self) -> dict[str, tuple[Phase, str]]:
        """Phase and node of each reservation."""
        return {key: (each.phase, each.node) for key, each in self.ledger.reservations.items()}

    def moves(self) -> tuple[RecentMove, ...]:
        return recent_moves(self.state.shell.state, self.now)


@pytest.mark.parametrize(("scheduler", "owner"), [("thalweg", Owner.BINDER), (STEERED_NAME, Owner.STEERING)])
def test_the_whole_way(scheduler: str, owner: Owner) -> None:
    """Room is reserved, the pod is evicted, its replacement takes the room, the large pod comes: in this order."""
    scene = Scene(scheduler)
    scene.plan_move()
    assert scene.phases() == {
        "ns/large": (Phase.AWAITING_VICTIM, "a"),
        PLACE: (Phase.AWAITING_REPLACEMENT, "b"),
    }
    assert scene.ledger.reservations[PLACE].owner is owner
    scene.leave()
    scene.pod("web-2", 400, owner="rs")
    assert scene.phases()["ns/web-2"] == (Phase.HELD, "b")
    assert PLACE not in scene.ledger.reservations
    scene.gone("web-1")
    bound = owner is Owner.BINDER
    assert scene.phases()["ns/large"] == (Phase.BINDING if bound else Phase.HELD, "a")
    for name, node in (("web-2", "b"), *([] if bound else [("large", "a")])):
        scene.plan(name, node)
        assert scene.phases()[f"ns/{name}"][0] in (Phase.BINDING, Phase.NOMINATED, Phase.RESERVED)


@pytest.mark.parametrize(("scheduler", "owner"), [("thalweg", Owner.BINDER), (STEERED_NAME, Owner.STEERING)])
def test_a_move_for_gain(scheduler: str, owner: Owner) -> None:
    """Nobody waits for its room: its place is reserved first, then it is evicted, and its replacement goes there."""
    scene = Scene(scheduler)
    scene.gone("large")
    scene.plan_gain()
    assert scene.phases() == {PLACE: (Phase.AWAITING_REPLACEMENT, "b")}
    assert scene.ledger.reservations[PLACE].owner is owner
    scene.leave()
    scene.pod("web-2", 400, owner="rs")
    assert scene.phases() == {"ns/web-2": (Phase.HELD, "b")}
    assert [(move.node, move.under_way) for move in scene.moves()] == [("a", True)]


@pytest.mark.parametrize("mode", ["Propose", "Off"])
def test_no_move_for_gain_unless_the_policy_acts(mode: str) -> None:
    """The policy may have changed since the plan was made; nobody is evicted."""
    scene = Scene()
    scene.gone("large")
    scene.plan_gain(meanwhile=lambda: scene.set_mode(mode))
    assert not scene.phases()
    assert not scene.evictions()


def test_no_move_for_gain_without_room() -> None:
    """The room was taken before the plan arrived: the pod stays."""
    scene = Scene()
    scene.gone("large")
    scene.plan_gain(meanwhile=lambda: scene.pod("other", 700, node_name="b", usage=sized(700).requests))
    assert not scene.phases()
    assert not scene.evictions()


def test_a_round_has_another_place_than_the_one_that_is_held() -> None:
    """The place is given back, and the nomination that says it is cleared: the pod is planned anew."""
    scene = Scene()
    scene.plan_move()
    scene.leave()
    scene.change("large", nominated_node="a", planned_node="a")
    scene.pod("urgent", 5000, pod_class=sized(5000, 10**6))  # a round is to say who gets the place
    scene.gone("web-1")
    assert scene.phases()["ns/large"] == (Phase.HELD, "a")
    scene.node("c")
    scene.plan("large", "c")
    assert scene.phases()["ns/large"] == (Phase.WITHDRAWING, "a")
    assert [each.pod.name for each in scene.state.effects if isinstance(each, ClearNomination)] == ["large"]


def test_nobody_else_gets_the_room() -> None:
    """From before the eviction until the replacement comes."""
    scene = Scene()
    scene.plan_move()
    other = scene.pod("other", 700)
    assert not scene.state.reserve(other, "b")
    scene.leave()
    scene.gone("web-1")
    assert not scene.state.reserve(other, "b")
    assert scene.state.reserve(scene.pod("small", 600), "b")


def test_a_pod_of_a_statefulset_keeps_its_name() -> None:
    """Its replacement comes after its end, under its name; the watch may show nothing between."""
    scene = Scene()
    scene.plan_move()
    scene.leave()
    scene.pod("web-1", 400, uid="another", owner="rs")
    assert scene.phases()["ns/web-1"] == (Phase.HELD, "b")
    assert scene.phases()["ns/large"] == (Phase.BINDING, "a")


@pytest.mark.parametrize(
    "fields",
    [{"owner": "another"}, {"owner": ""}, {"pod_class": sized(300)}, {"node_name": "a"}],
    ids=["another controller's", "nobody's", "another size", "has a node"],
)
def test_who_does_not_take_the_place(fields: dict[str, Any]) -> None:
    """It waits for a pod of the same controller that asks for the same."""
    scene = Scene()
    scene.plan_move()
    scene.leave()
    scene.pod("web-2", 400, **{"owner": "rs", **fields})
    assert "ns/web-2" not in scene.ledger.reservations
    assert scene.phases()[PLACE] == (Phase.AWAITING_REPLACEMENT, "b")


@settings(max_examples=examples(60))
@given(crowded_cases())
def test_a_pod_is_alike_whether_it_is_bound_or_not(case: Case) -> None:
    """What is read of a pod with a node is not all that is read of one without."""
    for manifest in case.pending:
        spec = {field: value for field, value in manifest["spec"].items() if field != "nodeName"}
        waiting, bound = read_pods([{**manifest, "spec": each} for each in (spec, {**spec, "nodeName": "n0"})])
        if not waiting.blocked_reason:
            assert is_alike(waiting, bound)


def test_a_pod_with_data_is_alike_whether_it_is_bound_or_not() -> None:
    """Its annotation counts for a running pod too: the replacement asks for what the moved pod asks for."""
    annotations = {DATA: '[{"node": "n1", "bytes": "10Gi"}]'}
    manifest = {"metadata": {"name": "p", "namespace": "ns", "annotations": annotations}}
    waiting, bound = read_pods([{**manifest, "spec": spec} for spec in ({}, {"nodeName": "n0"})])
    assert bound.pod_class.data
    assert is_alike(waiting, bound)


GPU = "nvidia.com/gpu"
OF_TEMPLATE = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
TWO_GPUS = {"containers": [{"name": "c", "resources": {"requests": {GPU: "2"}}}]}


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        (OF_TEMPLATE, {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]}),
        (TWO_GPUS, {"extendedResourceClaimStatus": {"resourceClaimName": "p-extended", "requestMappings": []}}),
        (TWO_GPUS, {}),
    ],
    ids=["claims of a template", "devices", "of its node"],
)
def test_a_pod_with_devices_is_alike_whatever_its_claims_are_called(
    spec: dict[str, Any], status: dict[str, Any]
) -> None:
    """Each pod has claims of its own, and one that is bound has more of them."""
    manifest = {"metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "spec": spec | {"nodeName": "n0"}}
    another = {"metadata": {"name": "q", "namespace": "ns", "uid": "q"}, "spec": spec}
    bound, waiting = read_pods([manifest | {"status": status}, another])
    waiting = with_devices(waiting, {GPU: "gpu"})
    assert waiting.pod_class.devices is not None
    assert is_alike(waiting, bound)
    other_template = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "u"}]}
    (unlike,) = read_pods([another | {"spec": other_template}])
    assert not is_alike(unlike, bound)


def test_a_replacement_with_claims_takes_its_place_once_they_are_made() -> None:
    """Until then no round would confirm it. Its devices are kept all the while, of its place too."""
    scene = Scene()
    scene.state.set_device_class("gpu", DeviceClass("gpu"))
    for made in read_claims([claim("web-1", 2, owner="u-web-1"), claim("web-2", 2, owner="u-web-2")]):
        scene.state.set_resource_claim(msgspec.structs.replace(made, namespace="ns"))
    fields: dict[str, Any] = {"owner": "rs", "usage": sized(400).requests}
    scene.pod("web-1", 400, node_name="a", pod_class=claiming_class("web-1", "web-1"), **fields)
    scene.plan_move()
    scene.leave()
    (taker,) = scene.state.device_takers.update((), fresh=True) or ()
    assert taker.node == "b"
    assert [each.alternatives[0].count for each in taker.pod.extended] == [2]
    scene.gone("web-1")
    pod = scene.pod("web-2", 400, pod_class=claiming_class("web-2"), owner="rs")
    assert scene.phases()[PLACE] == (Phase.AWAITING_REPLACEMENT, "b")
    scene.change("web-2", pod_class=claiming_class("web-2", "web-2"))
    assert scene.phases()[pod.key] == (Phase.HELD, "b")
    assert PLACE not in scene.ledger.reservations


def claiming_class(name: str, *made: str) -> PodClass:
    """A class of pods with a claim of a template."""
    claims = (PodClaim("gpu", template="t"),)
    devices = ClaimingPod("ns", name, f"u-{name}", claims, tuple(("gpu", each) for each in made))
    return msgspec.structs.replace(sized(400), devices=devices)


def test_labels_may_differ() -> None:
    """A round judges what they change: the place only waits for its word."""
    scene = Scene()
    scene.plan_move()
    scene.leave()
    scene.pod("web-2", 400, owner="rs", labels=(("pod-index", "7"),))
    assert scene.phases()["ns/web-2"] == (Phase.HELD, "b")


def test_a_pod_that_comes_before_the_eviction_is_no_replacement() -> None:
    """The controller makes more pods: the place is not theirs while the pod that is to be moved runs."""
    scene = Scene()
    scene.plan_move()
    scene.pod("web-2", 400, owner="rs")
    assert "ns/web-2" not in scene.ledger.reservations
    scene.leave()
    scene.pod("web-3", 400, owner="rs")
    assert scene.phases()["ns/web-3"] == (Phase.HELD, "b")


LOST: dict[str, Callable[[Scene], object]] = {
    "the node changed": lambda scene: scene.node("b", unschedulable=True),
    "the node is gone": lambda scene: scene.state.delete_node("b"),
    "the room is taken": lambda scene: scene.pod("other", 700, node_name="b", usage=sized(700).requests),
    "the policy moves no pods": lambda scene: scene.set_mode("Off"),
    "the policy only proposes": lambda scene: scene.set_mode("Propose"),
    "the pod is not to be moved": lambda scene: scene.change("web-1", immovable_reason="its annotation says so"),
}


@pytest.mark.parametrize("change", LOST.values(), ids=list(LOST))
def test_a_place_that_does_not_hold_when_the_plan_arrives(change: Callable[[Scene], object]) -> None:
    """The move is dropped and so is the pod that it makes room for; nobody is evicted."""
    scene = Scene()
    scene.plan_move(meanwhile=lambda: change(scene))
    assert not scene.ledger.reservations
    assert not scene.evictions()
    assert not scene.moves()


def test_a_node_that_is_kept_when_the_plan_arrives() -> None:
    """Its annotation came meanwhile: the move is dropped."""
    scene = Scene()
    scene.plan_move(meanwhile=lambda: scene.node("a", report=Report(keeps_pods=DO_NOT_DISRUPT)))
    assert not scene.evictions()
    assert not scene.moves()


@pytest.mark.parametrize("change", LOST.values(), ids=list(LOST))
def test_a_place_that_is_lost_before_the_eviction(change: Callable[[Scene], object]) -> None:
    """An eviction that was not sent yet is not wanted any more, and the place ends with the plan."""
    scene = Scene()
    scene.plan_move()
    assert scene.evictions() == ["web-1"]
    change(scene)
    assert not scene.evictions()
    scene.pass_time(0.2)
    scene.pass_time(0.2)
    assert not scene.ledger.reservations
    assert not scene.moves()


@pytest.mark.parametrize("change", [LOST["the node changed"], LOST["the policy moves no pods"]])
def test_a_preempted_pod_leaves_whether_its_replacement_has_a_place_or_not(change: Callable[[Scene], object]) -> None:
    """The place is a favour: it is reserved where it holds."""
    scene = Scene()
    scene.change("large", pod_class=sized(800, priority=9))
    scene.plan_move(EvictionKind.PREEMPTION, meanwhile=lambda: change(scene))
    assert scene.evictions() == ["web-1"]
    kept = PLACE in scene.ledger.reservations
    assert kept == (change is LOST["the policy moves no pods"])
    assert not scene.moves(), "a preemption is no move"


def test_a_reclaimed_pod_leaves_though_its_replacement_has_no_place() -> None:
    """No policy governs it, so no place is reserved: it is evicted all the same, and no round is asked for."""
    scene = Scene()
    scene.change("web-1", scheduler_name="default-scheduler")
    scene.plan_move(EvictionKind.RECLAIM)
    assert scene.phases() == {"ns/large": (Phase.AWAITING_VICTIM, "a")}
    rounds = scene.state.rounds_requested
    scene.pass_time(0.2)
    assert scene.state.rounds_requested == rounds
    assert scene.evictions() == ["web-1"]
    (write,) = [each for each in scene.state.effects if isinstance(each, Evict)]
    assert write.message == "Evicted from node a for ns/large."


def test_the_pod_that_it_makes_room_for_goes() -> None:
    """Nobody is moved for nobody."""
    scene = Scene()
    scene.plan_move()
    scene.gone("large")
    assert not scene.evictions()
    scene.pass_time(0.2)
    assert not scene.ledger.reservations


def test_an_eviction_that_is_refused() -> None:
    """The pod stays, and the place ends with the plan."""
    scene = Scene()
    scene.plan_move()
    (write,) = [each for each in scene.state.effects if isinstance(each, Evict)]
    scene.state.shell.answered(write, Answer.RETRYING, "a budget")
    scene.pass_time(0.2)
    assert not scene.ledger.reservations


def test_no_replacement_comes() -> None:
    """Once the pod is gone, the place waits for so long and no longer."""
    scene = Scene()
    scene.plan_move()
    scene.leave()
    scene.pass_time(REPLACEMENT_TIMEOUT - 1)
    scene.gone("web-1")
    scene.pass_time(0)
    scene.pass_time(REPLACEMENT_TIMEOUT - 1)
    assert PLACE in scene.ledger.reservations
    scene.pass_time(2)
    assert PLACE not in scene.ledger.reservations


def test_the_node_of_the_place_is_gone_after_the_eviction() -> None:
    """The replacement is placed like any other pod."""
    scene = Scene()
    scene.plan_move()
    scene.leave()
    scene.state.delete_node("b")
    scene.pass_time(0.2)
    scene.pod("web-2", 400, owner="rs")
    assert "ns/web-2" not in scene.ledger.reservations


def test_one_pod_leaves_for_two() -> None:
    """One place is reserved, and it stays while one of them waits."""
    scene = Scene()
    scene.change("large", pod_class=sized(600))
    scene.pod("second", 400)
    scene.node("a", cpu=1000)
    scene.plan_move()
    scene.plan("second", "a", PlanEviction("ns/web-1", "u-web-1", "a", EvictionKind.MIGRATION, to="b"))
    assert set(scene.ledger.reservations) == {"ns/large", "ns/second", PLACE}
    scene.gone("large")
    scene.pass_time(0.2)
    assert set(scene.ledger.reservations) == {"ns/second", PLACE}
    assert scene.evictions() == ["web-1"]


def test_two_places_on_one_node_that_has_room_for_one() -> None:
    """Both are reserved, or none, and then nobody leaves."""
    scene = Scene()
    scene.pod("web-3", 400, node_name="a", usage=sized(400).requests, owner="rs")
    scene.node("b", cpu=700)
    moves = [
        PlanEviction(f"ns/{name}", f"u-{name}", "a", EvictionKind.MIGRATION, to="b") for name in ("web-1", "web-3")
    ]
    scene.plan("large", "a", *moves)
    assert not scene.ledger.reservations
    scene.node("b", cpu=800)
    scene.plan("large", "a", *moves)
    assert set(scene.ledger.reservations) == {"ns/large", PLACE, "ns/web-3~u-web-3"}


def test_moves_count_for_an_hour() -> None:
    """Under way until the replacement has its node; a move that comes to nothing does not count."""
    scene = Scene()
    scene.plan_move()
    move = RecentMove("own", "a", "ns", "rs", 0.0, under_way=True)
    assert scene.moves() == (move,)
    scene.leave()
    scene.pass_time(0)
    scene.pass_time(10)
    assert scene.moves() == (msgspec.structs.replace(move, seconds_ago=10.0),)
    scene.pod("web-2", 400, owner="rs")
    assert scene.moves()[0].under_way
    scene.plan("web-2", "b")
    assert isinstance(scene.state.effects[-1], Bind)
    assert scene.moves()[0].under_way
    scene.change("web-2", node_name="b", usage=sized(400).requests)
    assert scene.moves() == (msgspec.structs.replace(move, seconds_ago=10.0, under_way=False),)
    scene.pass_time(3580)
    assert len(scene.moves()) == 1
    scene.pass_time(20)
    assert scene.moves() == ()


def test_a_place_has_a_key_that_no_pod_has() -> None:
    """A name of a pod has no ~."""
    assert place_key(Scene().state.pods["ns/web-1"]) == PLACE


# --- evictions that nobody waits for ---


def plan_alone(scene: Scene, to: str = "b", **fields: Any) -> None:
    """A round has the pod leave by itself."""
    told = {"to": to, "reason": "its node lost a label", **fields}
    eviction = PlanEviction("ns/web-1", "u-web-1", "a", EvictionKind.RULE, **told)
    scene.state.take_changes()
    scene.state.apply(PlanMade(1, scene.state.generation, (), evictions=[eviction]))
    scene.state.look_after()


def test_a_pod_leaves_by_itself() -> None:
    """Its place is reserved before; it is evicted once, its Event says why, and its replacement takes the place."""
    scene = Scene()
    plan_alone(scene)
    plan_alone(scene)
    scene.pass_time(0.2)
    (write,) = [each for each in scene.state.effects if isinstance(each, Evict)]
    said = "Evicted from node a: its node lost a label. Room for its replacement is reserved on node b."
    assert (write.message, write.departure) == (said, Departure.RULE)
    scene.leave()
    scene.pod("web-2", 400, owner="rs")
    assert scene.phases() == {"ns/web-2": (Phase.HELD, "b")}
    scene.gone("web-1")
    assert not scene.ledger.victims


@pytest.mark.parametrize("change", [LOST["the node changed"], LOST["the room is taken"]])
def test_a_pod_whose_place_is_lost_does_not_leave_by_itself(change: Callable[[Scene], object]) -> None:
    """The eviction is not wanted any more; the next round judges again."""
    scene = Scene()
    plan_alone(scene)
    change(scene)
    assert not scene.evictions()
    scene.pass_time(0.2)
    assert not scene.ledger.reservations
    assert not scene.ledger.victims


def test_a_pod_leaves_though_its_replacement_has_no_place() -> None:
    """Where the plan says so: it is evicted, and counts as a move."""
    scene = Scene()
    plan_alone(scene, to="")
    assert scene.evictions() == ["web-1"]
    assert [each.under_way for each in scene.moves()] == [False]
    scene.change("web-1", deleting=True)
    scene.pass_time(0.2)
    assert not scene.evictions()
    assert not scene.state.shell.state.moves.without_place


@pytest.mark.parametrize("to", ["b", ""])
def test_no_pod_leaves_by_itself_while_the_operator_ends(to: str) -> None:
    """Its eviction does not begin."""
    scene = Scene()
    scene.ledger.ends = True
    plan_alone(scene, to)
    assert not scene.evictions()


@pytest.mark.parametrize("to", ["b", ""])
def test_a_policy_that_observes_evicts_nobody(to: str) -> None:
    """Whether its replacement has a place or not, the plan is not carried out."""
    scene = Scene()
    scene.state.policies.offer("own", "u", 3, {"selects": {"podSelector": {}}, "delivery": "Observe"})
    plan_alone(scene, to)
    assert not scene.evictions()
    assert not scene.ledger.reservations
    assert not scene.state.shell.state.moves.without_place


CALLED_OFF: dict[str, Callable[[Scene], object]] = {
    "the policy observes": lambda scene: scene.state.policies.offer(
        "own",
        "u",
        3,
        {"selects": {"podSelector": {}}, "delivery": "Observe", "duringExecution": {"rules": "Evict"}},
    ),
    "the policy ignores rules": lambda scene: scene.state.policies.offer(
        "own", "u", 3, {"selects": {"podSelector": {}}}
    ),
    "its node changed": lambda scene: scene.node("a", labels=(("zone", "a"),)),
}


@pytest.mark.parametrize("to", ["b", ""])
@pytest.mark.parametrize("change", CALLED_OFF.values(), ids=list(CALLED_OFF))
def test_an_eviction_for_a_rule_is_called_off(change: Callable[[Scene], object], to: str) -> None:
    """An eviction that was not sent yet is not wanted any more, and not asked for again."""
    scene = Scene()
    plan_alone(scene, to)
    assert scene.evictions() == ["web-1"]
    change(scene)
    assert not scene.evictions()
    scene.pass_time(0.2)
    assert not scene.ledger.reservations
    assert not scene.state.shell.state.moves.without_place
    assert not scene.moves()


@pytest.mark.parametrize("to", ["b", ""])
def test_a_refused_eviction_of_a_pod_by_itself(to: str) -> None:
    """The pod stays, does not count as moved, and no plan evicts it for a while."""
    scene = Scene()
    plan_alone(scene, to)
    (write,) = [each for each in scene.state.effects if isinstance(each, Evict)]
    scene.state.shell.answered(write, Answer.RETRYING, "a budget")
    assert not scene.evictions()
    assert not scene.ledger.reservations
    assert not scene.moves()
    assert scene.ledger.unevictable["u-web-1"].reason == "a budget"


def test_a_pod_that_another_controller_evicts() -> None:
    """Only the place of its replacement is ours to reserve. It ends if the pod stays after all."""
    scene = Scene()
    plan_alone(scene, by_controller=True)
    scene.pass_time(10)
    assert not scene.evictions()
    assert scene.phases() == {PLACE: (Phase.AWAITING_REPLACEMENT, "b")}
    scene.change("web-1", deleting=True)
    scene.pod("web-2", 400, owner="rs")
    assert scene.phases() == {"ns/web-2": (Phase.HELD, "b")}
    again = Scene()
    plan_alone(again, by_controller=True)
    again.pass_time(REPLACEMENT_TIMEOUT + 1)
    assert not again.ledger.reservations


def test_a_pod_that_moves_counts_once_for_its_queue() -> None:
    """It counts until it is gone, then the place of its replacement does."""
    scene = Scene()
    scene.state.cluster.queues.put("q", Queue("q", pods=LabelSelector()))

    def counted() -> dict[str, int]:
        state = scene.state.shell.state
        queues = operator_round_input(state, (), 0.0, 0.0, lambda _: None, None).complete().queues
        assert queues is not None
        usage = queues.usage["q"]
        return dict(Counter(dict(usage.used)) - Counter(dict(usage.twice)))

    scene.plan_move()
    assert counted() == {"cpu": 400 + 800, "pods": 2}
    scene.leave()
    assert counted() == {"cpu": 400 + 800, "pods": 2}
    scene.gone("web-1")
    assert PLACE in scene.ledger.reservations
    assert counted() == {"cpu": 400 + 800, "pods": 2}
