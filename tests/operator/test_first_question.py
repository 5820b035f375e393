"""kube-scheduler's first question finds a new pod a place, whoever waits beside it, unless the plan loses by that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.cluster import FakeCluster, asked
from support.fake_cluster.eviction_scene import EvictionScene
from support.fake_cluster.steered import SteeredCluster
from thalweg_extender.answers import FilterOutcome
from thalweg_operator.delivery import extender_view
from thalweg_operator.planning.turns import TurnSelection
from thalweg_operator.reservations.effects import CountHeld, Nominate
from thalweg_operator.reservations.events import Event, ObjectSet, PlanAsked, PlanMade, PricesPlanned
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.lone_pods import PRICES_HOLD

from flowcore.cluster.kinds import SERVICES
from flowcore.model.backfill_history import BackfillRecord
from flowcore.model.constraints import Conflict
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.default_spread import DefaultSpread
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import STEERED_NAME, Delivery, Policy, PreemptionMode, PreemptionPolicy, Selects
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.services import Service
from flowcore.model.volumes import ClaimVolume

CLASS, LARGE = PodClass(requests=(("cpu", 100),)), PodClass(requests=(("cpu", 200),))
HUGE = PodClass(requests=(("cpu", 4000),))
STEERED = Policy("steered", selects=Selects(scheduler_names=(STEERED_NAME,)), delivery=Delivery.EXTENDER)
NAMES = ("a", "b", "c")
LABELS = (("app", "web"),)
WEB = LabelSelector((Requirement("app", "In", ("web",)),))
NEAR_WEB = (AffinityTerm(HOSTNAME, WEB, (NAMESPACE,)),)
NEAR_DB = (AffinityTerm(HOSTNAME, LabelSelector((Requirement("app", "In", ("db",)),)), (NAMESPACE,)),)
LIMITED = Policy(
    "limited",
    selects=Selects(scheduler_names=("limited",)),
    delivery=Delivery.EXTENDER,
    constraints=(Conflict("apart", WEB, HOSTNAME),),
)
KEY = f"{NAMESPACE}/p"


def gang(size: int) -> GangRef:
    return GangRef(GangKey(GangSource.THALWEG, NAMESPACE, "g"), GangSpec(min_member=size))


def world_of(*waiting: dict[str, Any], policies: tuple[Policy, ...] = (STEERED, LIMITED)) -> FakeCluster:
    """The last plan had a small pod; the next one, for these pods, is being made."""
    nodes = [Node(name, labels=((HOSTNAME, name),), allocatable=(("cpu", 400), ("pods", 10))) for name in NAMES]
    world = FakeCluster(nodes, policies)
    create(world, "first")
    world.show()
    world.make_plan()
    world.deliver(10)
    world.now += 1
    for number, fields in enumerate(waiting):
        create(world, f"w{number}", **fields)
    world.show()
    world.make_plan()
    return world


def create(world: FakeCluster, name: str, **fields: Any) -> Pod:
    return world.create_pod(name, **{"pod_class": CLASS, "scheduler_name": STEERED_NAME, **fields})


def price(world: FakeCluster, *codes: int, policy: Policy = STEERED) -> None:
    """A plan says what the nodes cost one more small pod."""
    world.ledger.begin_plan()
    positions = {name: number for number, name in enumerate(NAMES)}
    world.apply(PricesPlanned(CLASS, policy.name, positions, 0, 1, codes, 1, world.cluster.generation))


def first_question(
    world: FakeCluster, nodes: tuple[str, ...] = NAMES, *, late: bool = True, **fields: Any
) -> tuple[FilterOutcome, list[str]]:
    """A pod comes, and kube-scheduler asks about it; ``late``: the answer waits for no plan."""
    create(world, "p", **{"labels": LABELS, **fields})
    world.show()
    world.answers_late = late
    return world.ask(KEY, nodes)


def causes(world: FakeCluster) -> list[str]:
    """Why attempts came to nothing."""
    return [each.cause for each in world.effects if isinstance(each, CountHeld)]


# --- what the plan loses nothing by ---

LOSES_NOTHING: dict[str, list[dict[str, Any]]] = {
    "a pod without rules": [{"pod_class": LARGE}],
    "a rule about others": [{"constraints": InterPodConstraints(anti_affinity=NEAR_DB)}],
    "a gang of a lower priority": [
        {"pod_class": msgspec.structs.replace(LARGE, priority=-1), "gang": gang(2)},
        {"pod_class": msgspec.structs.replace(LARGE, priority=-1), "gang": gang(2)},
    ],
}


@pytest.mark.parametrize("waiting", LOSES_NOTHING)
def test_a_late_plan_costs_no_attempt(waiting: str) -> None:
    """The pod gets a node of the question, and nothing is nominated. The plan has its places all the same."""
    world = world_of(*LOSES_NOTHING[waiting])
    assert first_question(world, ("b", "c")) == (FilterOutcome.STEERED, ["b"])
    reservation = world.ledger.reservations[KEY]
    assert (reservation.node, reservation.phase, reservation.owner) == ("b", Phase.PASSED, Owner.STEERING)
    assert not [each for each in world.writes if isinstance(each, Nominate)]
    assert not causes(world)
    world.deliver(10)
    governed = [key for key, pod in world.cluster.waiting.items() if pod.scheduler_name == STEERED_NAME]
    assert set(governed) == set(world.ledger.reservations)


def test_no_answer_waits_for_a_round() -> None:
    """A round is under way, and another pod waits for it."""
    world = world_of({"pod_class": LARGE})
    assert first_question(world, late=False)[0] == FilterOutcome.STEERED
    assert not causes(world)


def test_a_gang_that_was_planned_in_vain_stops_nobody() -> None:
    """The plan has no node for it now either; it would have kept the pods of others out for as long as it waits."""
    world = world_of({"pod_class": HUGE, "gang": gang(2)}, {"pod_class": HUGE, "gang": gang(2)})
    world.deliver(10)
    world.make_plan()
    assert first_question(world)[0] == FilterOutcome.STEERED


def test_a_dear_node_is_better_than_none() -> None:
    """kube-scheduler asks about some nodes only, and would have taken one of these itself."""
    world = world_of({"pod_class": LARGE})
    price(world, 0, 10, 5)
    assert first_question(world, ("b", "c")) == (FilterOutcome.STEERED, ["c"])


def test_room_that_is_reserved_for_others_is_theirs() -> None:
    """Not what the last plan promised, nor what another pod got by a late answer."""
    world = world_of(*({"pod_class": LARGE} for _ in range(5)))
    world.deliver(10)  # 1,100 of 1,200 are reserved
    create(world, "late", pod_class=LARGE)
    world.show()
    world.make_plan()
    [free] = [name for name in NAMES if sum(world.cluster.occupancy.usage_of(name).amounts.values()) < 400]
    price(world, 0, 0, 0)
    assert first_question(world) == (FilterOutcome.STEERED, [free])
    create(world, "q")
    world.show()
    assert world.ask(f"{NAMESPACE}/q", NAMES)[0] == FilterOutcome.HELD


# --- what comes first ---

COMES_FIRST: dict[str, list[dict[str, Any]]] = {
    "a higher priority": [{"pod_class": msgspec.structs.replace(LARGE, priority=1)}],
    "a gang": [{"pod_class": LARGE, "gang": gang(2)}, {"pod_class": LARGE, "gang": gang(2)}],
    "anti-affinity to it": [{"constraints": InterPodConstraints(anti_affinity=NEAR_WEB)}],
    "affinity to it": [{"constraints": InterPodConstraints(affinity=NEAR_WEB), "labels": LABELS}],
    "a spread that counts it": [
        {"constraints": InterPodConstraints(spread=(SpreadConstraint(HOSTNAME, 1, WEB),)), "labels": LABELS}
    ],
    "a limit that counts it": [{"labels": LABELS, "scheduler_name": "limited"}],
}


@pytest.mark.parametrize("waiting", COMES_FIRST)
def test_what_a_plan_may_lose_a_place_by(waiting: str) -> None:
    """Then the pod waits for its plan. Once the other one was carried out, nothing stands in the way."""
    world = world_of(*COMES_FIRST[waiting])
    assert first_question(world) == (FilterOutcome.HELD, [])
    assert causes(world) == ["unplanned"]
    world.deliver(10)
    assert world.ledger.reservations.keys() >= {f"{NAMESPACE}/w{number}" for number in range(len(COMES_FIRST[waiting]))}
    create(world, "q")
    world.show()
    assert world.ask(f"{NAMESPACE}/q", NAMES)[0] == FilterOutcome.STEERED


@pytest.mark.parametrize("selected", [True, False], ids=["a Service selects them", "no Service does"])
def test_a_spread_by_services_counts_it(*, selected: bool) -> None:
    """A policy's own default spread: pods without a controller are spread with those of their Services."""
    required = (SpreadConstraint(HOSTNAME, 1, None, is_default=True),)
    spread = msgspec.structs.replace(STEERED, cost=CostPolicy(default_spread=DefaultSpread(required)))
    world = world_of(policies=(spread,))
    selector = LABELS if selected else (("app", "db"),)
    world.apply(ObjectSet(SERVICES, f"{NAMESPACE}/s", Service(NAMESPACE, "s", selector)))
    create(world, "w0", labels=(*LABELS, ("track", "canary")))
    world.show()
    world.make_plan()
    assert (first_question(world)[0] == FilterOutcome.HELD) == selected


@pytest.mark.parametrize("waiting", COMES_FIRST)
def test_what_came_since_the_plan_was_asked_for(waiting: str) -> None:
    """The next plan is for it, and may lose a place likewise: until that plan is made."""
    world = world_of({"pod_class": LARGE})
    for number, fields in enumerate(COMES_FIRST[waiting]):
        create(world, f"n{number}", **fields)
    assert first_question(world) == (FilterOutcome.HELD, [])
    world.deliver(10)
    for name, labels, outcome in (("q", LABELS, FilterOutcome.HELD), ("r", (), FilterOutcome.STEERED)):
        create(world, name, labels=labels)
        world.show()
        assert world.ask(f"{NAMESPACE}/{name}", NAMES)[0] == outcome
        world.make_plan()
        world.deliver(10)
    assert world.ledger.reservations.keys() >= {f"{NAMESPACE}/n{number}" for number in range(len(COMES_FIRST[waiting]))}


def test_who_has_its_place_waits_for_no_plan() -> None:
    """A pod of a higher priority that got a place by the last prices stands in nobody's way."""
    world = world_of({"pod_class": LARGE})
    urgent = msgspec.structs.replace(CLASS, priority=1)
    price(world, 0, 0, 0)
    positions = {name: at for at, name in enumerate(NAMES)}
    world.apply(PricesPlanned(urgent, STEERED.name, positions, 0, 1, (0, 0, 0), 1, world.cluster.generation))
    create(world, "urgent", pod_class=urgent)
    world.show()
    world.answers_late = True
    assert first_question(world)[0] == FilterOutcome.HELD
    assert world.ask(f"{NAMESPACE}/urgent", NAMES)[0] == FilterOutcome.STEERED
    create(world, "q")
    world.show()
    assert world.ask(f"{NAMESPACE}/q", NAMES)[0] == FilterOutcome.STEERED


@pytest.mark.parametrize("ended", [False, True], ids=["a plan under way", "between two plans"])
def test_room_that_is_kept_for_a_gang(*, ended: bool) -> None:
    """The operator does not know which room that is."""
    world = world_of()
    world.apply(PlanAsked([], keeps_room=not ended))
    if ended:
        world.apply(PlanMade(99, world.cluster.generation, (), keeps_room=True))
    create(world, "other", pod_class=LARGE)
    assert first_question(world)[0] == FilterOutcome.HELD


NEEDS_A_PLAN: dict[str, dict[str, Any]] = {
    "a gang": {"gang": gang(1)},
    "a policy without any prices": {"scheduler_name": "limited"},
    "a volume": {"pod_class": msgspec.structs.replace(CLASS, volumes=(ClaimVolume(NAMESPACE, "data"),))},
}


@pytest.mark.parametrize("needs", NEEDS_A_PLAN)
def test_a_pod_that_needs_a_plan(needs: str) -> None:
    """More than room and rules on a node count for it, or no plan has had a pod of its policy."""
    world = world_of({"pod_class": LARGE})
    assert first_question(world, **NEEDS_A_PLAN[needs])[0] == FilterOutcome.HELD


def test_nodes_change_all_the_time(world: SteeredCluster) -> None:
    """The price of such a node is not known any more. It comes after those that did not change."""
    world.put_node(Node("a", allocatable=(("cpu", 200), ("pods", 10))))
    pods = [world.pod(f"p{number}", f"u{number}") for number in range(3)]
    world.show()
    world.answers_late = True
    answers = [world.ask(pod.key, nodes)[1] for pod, nodes in zip(pods, (["a"], NAMES, NAMES), strict=True)]
    assert answers == [["a"], ["b"], ["c"]]


CHANGES: dict[str, Callable[[FakeCluster], object]] = {
    "prices of long ago": lambda world: world.pass_time(PRICES_HOLD + 1),
    "a plan in hand": lambda world: world.apply(PlanMade(99, world.cluster.generation, (), last=False)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_prices_that_hold_no_more(change: str) -> None:
    """Then nothing is known without a plan."""
    world = world_of({"pod_class": LARGE})
    CHANGES[change](world)
    assert first_question(world)[0] == FilterOutcome.HELD


# --- pods that no plan had a node for ---

ALL = PodClass(requests=(("cpu", 400),))
IN_VAIN: dict[str, list[dict[str, Any]]] = {
    "a larger pod": [{"pod_class": ALL}],
    "a higher priority": [{"pod_class": msgspec.structs.replace(ALL, priority=1)}],
    "a gang": [{"pod_class": LARGE, "gang": gang(2)}, {"pod_class": LARGE, "gang": gang(2)}],
    "a gang of a higher priority": [
        {"pod_class": msgspec.structs.replace(LARGE, priority=1), "gang": gang(2)},
        {"pod_class": msgspec.structs.replace(LARGE, priority=1), "gang": gang(2)},
    ],
}
NEVER = msgspec.structs.replace(STEERED, preemption=PreemptionPolicy(PreemptionMode.NEVER))
RUNS = f"{NAMESPACE}/runs-c"


def full_world(*in_vain: dict[str, Any]) -> FakeCluster:
    """On each node 100 are free at most, so a plan has no node for these pods."""
    world = world_of(policies=(NEVER,))
    world.deliver(10)
    world.remove_pod(f"{NAMESPACE}/first")
    most = PodClass(requests=(("cpu", 300),))
    for name in NAMES:
        world.create_pod(f"runs-{name}", pod_class=most, node_name=name, usage=most.requests)
    for number, fields in enumerate(in_vain):
        create(world, f"w{number}", **fields)
    world.show()
    world.make_plan()
    world.deliver(10)
    price(world, 0, 0, 0)
    return world


def answered(world: FakeCluster, name: str, nodes: tuple[str, ...] = ("c",)) -> FilterOutcome:
    """What kube-scheduler is answered about a pod that comes now."""
    pod = create(world, name)
    world.show()
    return world.ask(pod.key, nodes)[0]


@pytest.mark.parametrize("waiting", IN_VAIN)
def test_room_that_comes_free_is_for_those_that_waited_for_it(waiting: str) -> None:
    """Not for a pod that is new, or they might wait for ever."""
    world = full_world(*IN_VAIN[waiting])
    assert answered(world, "before", ("a",)) == FilterOutcome.STEERED
    world.remove_pod(RUNS)
    assert answered(world, "p") == FilterOutcome.HELD
    world.make_plan()
    assert answered(world, "q") == FilterOutcome.HELD
    world.deliver(10)
    nodes = [world.ledger.reservations[f"{NAMESPACE}/w{number}"].node for number in range(len(IN_VAIN[waiting]))]
    assert set(nodes) == {"c"}


def test_room_that_comes_free_while_a_plan_is_made() -> None:
    """The plan does not know of it. So it is for the next plan, which has those pods again."""
    world = full_world({"pod_class": ALL})
    world.make_plan()
    world.remove_pod(RUNS)
    assert answered(world, "p") == FilterOutcome.HELD
    world.deliver(10)
    assert answered(world, "q") == FilterOutcome.HELD
    world.make_plan()
    world.deliver(10)
    assert world.ledger.reservations[f"{NAMESPACE}/w0"].node == "c"


def test_who_waits_with_a_lower_priority_stops_nobody() -> None:
    """As in kube-scheduler's queue."""
    world = full_world({"pod_class": msgspec.structs.replace(ALL, priority=-1)})
    world.remove_pod(RUNS)
    assert answered(world, "p") == FilterOutcome.STEERED


def test_a_pod_that_no_node_takes_stops_nobody_for_long() -> None:
    """Once a plan was made with all that had come free, answers are given at once again."""
    world = full_world({"pod_class": HUGE})
    world.remove_pod(RUNS)
    assert answered(world, "p") == FilterOutcome.HELD
    world.make_plan()
    world.deliver(10)
    price(world, 0, 0, 0)
    assert answered(world, "q") == FilterOutcome.STEERED
    world.make_plan()  # nothing helped it since, so it is in no one's way in this plan
    assert answered(world, "r") == FilterOutcome.STEERED


def test_a_pod_that_rests_stops_nobody_for_long() -> None:
    """A round that leaves it out has looked at what came free."""
    world = full_world({"pod_class": HUGE})
    world.remove_pod(RUNS)
    world.show()
    world.apply(PlanAsked([]))
    assert answered(world, "p") == FilterOutcome.STEERED


def test_a_plan_that_was_not_made_leaves_it_to_the_next_one() -> None:
    """The worker was lost, for example."""
    world = full_world({"pod_class": ALL})
    world.remove_pod(RUNS)
    world.show()
    for _ in range(2):
        world.apply(PlanAsked([(world.cluster.waiting[f"{NAMESPACE}/w0"], NEVER)]))
    assert answered(world, "p") == FilterOutcome.HELD


GOES: dict[str, Callable[[FakeCluster], object]] = {
    "it is gone": lambda world: world.remove_pod(f"{NAMESPACE}/w0"),
    "it runs": lambda world: world.change_pod(f"{NAMESPACE}/w0", node_name="elsewhere"),
    "it was nominated": lambda world: world.change_pod(f"{NAMESPACE}/w0", nominated_node="a"),
}


@pytest.mark.parametrize("made", [False, True], ids=["while the plan was made", "after it"])
@pytest.mark.parametrize("goes", GOES)
def test_a_pod_that_waits_no_more_stops_nobody(goes: str, *, made: bool) -> None:
    """Wherever it went. Nor does it if the plan that had no node for it was only being made."""
    world = full_world()
    create(world, "w0", pod_class=HUGE)
    world.show()
    world.make_plan()
    if made:
        world.deliver(10)
    GOES[goes](world)
    world.show()
    world.deliver(10)
    price(world, 0, 0, 0)
    world.remove_pod(RUNS)
    assert answered(world, "p") == FilterOutcome.STEERED


def test_who_has_no_turn_still_comes_first() -> None:
    """A plan that leaves pods to a later one has not used what helped them."""
    world = full_world({"pod_class": ALL})
    world.remove_pod(RUNS)
    world.show()
    for _ in range(2):
        world.apply(PlanAsked([], defers=True))
        assert answered(world, f"p{world.cluster.generation}") == FilterOutcome.HELD
        world.apply(PlanMade(99, world.cluster.generation, ()))
        assert answered(world, f"q{world.cluster.generation}") == FilterOutcome.HELD
    world.make_plan()
    world.deliver(10)
    assert world.ledger.reservations[f"{NAMESPACE}/w0"].node == "c"


def test_room_that_a_pod_gives_up_is_for_those_that_waited_for_it() -> None:
    """A planned pod goes to another node of the question, and its own is free."""
    world = full_world()
    for name in NAMES:
        world.remove_pod(f"{NAMESPACE}/runs-{name}")
    most = PodClass(requests=(("cpu", 300),))
    for name in ("a", "b"):
        world.create_pod(f"half-{name}", pod_class=most, node_name=name, usage=most.requests)
    create(world, "p")
    world.show()
    world.make_plan()
    world.deliver(10)
    assert world.ledger.reservations[KEY].node == "c"
    create(world, "w0", pod_class=ALL)
    world.show()
    world.make_plan()
    world.deliver(10)
    assert world.ask(KEY, ("a", "b")) == (FilterOutcome.STEERED, ["a"])
    assert answered(world, "q") == FilterOutcome.HELD
    world.make_plan()
    world.deliver(10)
    assert world.ledger.reservations[f"{NAMESPACE}/w0"].node == "c"


DROPPED: dict[str, list[dict[str, Any]]] = {
    "a higher priority": [{"pod_class": PodClass(requests=(("cpu", 300),), priority=1)}],
    "a gang": [{"pod_class": PodClass(requests=(("cpu", 300),)), "gang": gang(2)}] * 2,
}


@pytest.mark.parametrize("waiting", DROPPED)
def test_who_loses_a_place_of_the_plan_comes_first_in_the_next_one(waiting: str) -> None:
    """Somebody else's pod has come there meanwhile."""
    world = world_of(policies=(NEVER,))
    world.deliver(10)
    world.remove_pod(f"{NAMESPACE}/first")
    most, less = PodClass(requests=(("cpu", 300),)), PodClass(requests=(("cpu", 100),))
    for name, pod_class in (("a", most), ("b", less)):
        world.create_pod(f"runs-{name}", pod_class=pod_class, node_name=name, usage=pod_class.requests)
    world.show()
    price(world, 0, 0, 0)
    for number, fields in enumerate(DROPPED[waiting]):
        create(world, f"w{number}", **fields)
    world.show()
    world.make_plan()
    world.create_pod("foreign", pod_class=most, node_name="c", usage=most.requests)
    world.show()
    world.deliver(10)
    assert not world.ledger.reservations
    assert answered(world, "p", ("b",)) == FilterOutcome.HELD


# --- what happens while a round collects its pods ---


def test_who_comes_meanwhile_waits_for_the_next_plan() -> None:
    """It is in no plan yet, and nobody goes before it whom it comes before."""
    world = full_world()
    create(world, "w0", pod_class=msgspec.structs.replace(CLASS, priority=1))
    world.show()
    world.apply(PlanAsked([], looked_at=frozenset()))
    assert answered(world, "p") == FilterOutcome.HELD
    world.apply(PlanAsked([], looked_at=frozenset({f"{NAMESPACE}/w0", f"{NAMESPACE}/p"})))
    assert answered(world, "q") == FilterOutcome.STEERED


def test_room_that_comes_free_meanwhile_is_for_the_next_plan() -> None:
    """The round may have left out who waits for it."""
    world = full_world({"pod_class": ALL})
    before = world.ledger.helped.total
    world.remove_pod(RUNS)
    world.show()
    world.apply(PlanAsked([], helped=before))
    assert answered(world, "p") == FilterOutcome.HELD


# --- who asks, and who plans ---


@pytest.fixture
def world() -> SteeredCluster:
    """The last plan had prices for small pods, and a large pod waits for a round."""
    world = SteeredCluster()
    world.pod("other", "v", pod_class=LARGE)
    world.show()
    price(world, 0, 0, 0)
    world.now += 1
    return world


async def test_the_answer_waits_before(world: SteeredCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """And while no answer waits for rounds, the next pod gets its place at once."""
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 0.01)
    slow, next_pod = world.pod("slow", "s"), world.pod("next", "n")
    world.show()
    await world.view.until_planned(asked(slow), NAMES)
    assert world.schedule(slow.key)[0] == FilterOutcome.STEERED
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 1000.0)
    await world.view.until_planned(asked(next_pod), NAMES)
    assert world.schedule(next_pod.key)[0] == FilterOutcome.STEERED
    assert not world.write_kinds
    assert not causes(world)


async def test_a_plan_in_time_is_followed(world: SteeredCluster) -> None:
    """No place is looked for beside it."""
    pod = world.pod()
    world.show()
    world.plan_pod(pod.key, "c")
    await world.view.until_planned(asked(pod), NAMES)
    assert world.schedule(pod.key, NAMES) == (FilterOutcome.STEERED, ["c"])


async def test_who_leads_no_more_reserves_nothing(world: SteeredCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the answer waited, another replica took over."""
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 0.01)
    pod = world.pod()
    world.show()
    world.view.unavailable = lambda: "another replica leads"
    await world.view.until_planned(asked(pod), NAMES)
    assert pod.key not in world.ledger.reservations


def test_why_attempts_come_to_nothing(world: SteeredCluster) -> None:
    """A place elsewhere, or no place at all."""
    pod, waits = world.pod(), world.pod("waits", "w")
    world.show()
    assert world.plan_pod(pod.key, "a")
    world.set_free(waits)
    world.ask(pod.key, ["unknown"])
    world.ask(waits.key, NAMES)
    assert causes(world) == ["elsewhere", "waiting"]


async def test_a_round_says_which_pods_it_plans() -> None:
    """Which pods were new by then, and whether room is kept for a gang, by what the round before said."""
    scene, events = EvictionScene(), list[Event]()
    scene.state.shell.observers.append(events.append)
    scene.node("n")
    scene.pod("p", 100, scheduler_name=STEERED_NAME)
    await scene.turn(1)
    scene.loop._builder.backfill_records = (BackfillRecord("gang", scene.now + 60, 0.0, 1.0),)
    scene.pod("q", 100)
    await scene.turn(1)
    told = [each for each in events if isinstance(each, PlanAsked) and each.pods]
    named = [([(pod.name, policy.name) for pod, policy in each.pods], each.keeps_room) for each in told]
    assert named == [([("p", "steered")], False), ([("q", "own")], True)]
    assert [each.looked_at for each in told] == [{f"{NAMESPACE}/p"}, {f"{NAMESPACE}/q"}]
    assert all(each.helped is not None for each in told)
    made = [each.keeps_room for each in events if isinstance(each, PlanMade) and each.last]
    assert made == [False, True]


async def test_a_round_says_that_pods_wait_for_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are none of those that it looked at."""
    scene, events = EvictionScene(), list[Event]()
    scene.state.shell.observers.append(events.append)

    def first_alone(pods: Sequence[Pod], *_: object) -> TurnSelection:
        return TurnSelection(pods[:1], pods[1:], (), more=bool(pods[1:]), owes=bool(pods[1:]))

    monkeypatch.setattr(scene.loop._turns, "choose", first_alone)
    scene.node("n")
    for name in ("p", "q"):
        scene.pod(name, 100, scheduler_name=STEERED_NAME)
    await scene.turn(1)
    told = next(each for each in events if isinstance(each, PlanAsked) and each.pods)
    planned = {pod.key for pod, _ in told.pods}
    assert told.defers
    assert len(planned) == 1
    assert told.looked_at == planned
