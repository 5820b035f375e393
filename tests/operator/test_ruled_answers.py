"""Pods with rules that kube-scheduler asks about: a node of the question at once, and no rule is broken by it.

The world checks the rules of each such place anew (``LedgerChecks``).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.cluster import FakeCluster, asked
from thalweg_extender.answers import FilterOutcome
from thalweg_operator.reservations.effects import RequestRound
from thalweg_operator.reservations.events import PlanAsked, PlanMade, PoliciesChanged, PricesPlanned, SchedulerAsks
from thalweg_operator.reservations.steering.records.planned_prices import NO_ROOM
from thalweg_operator.reservations.steering.shifts import MOST_TERMS

from flowcore.model.constraints import Conflict
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import (
    HOSTNAME,
    AffinityTerm,
    InterPodConstraints,
    SpreadConstraint,
    WeightedTerm,
)
from flowcore.model.networks import NetworkSpec
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass, PreferredTerm, Toleration
from flowcore.model.policies import STEERED_NAME, Delivery, Policy, Selects
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement
from flowcore.model.volumes import ZONE
from flowcore.rules import rules_at_hand

CLASS, OTHER = PodClass(requests=(("cpu", 100),)), PodClass(requests=(("cpu", 150),))
STEERED = Policy("steered", selects=Selects(scheduler_names=(STEERED_NAME,)), delivery=Delivery.EXTENDER)
ZONES = {"a": "north", "b": "north", "c": "south", "d": "south", "e": "west", "f": "west"}
NAMES = tuple(ZONES)


def labelled(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


def term(app: str, key: str) -> AffinityTerm:
    return AffinityTerm(key, labelled(app), (NAMESPACE,))


WEB = (("app", "web"),)
WISHES_WEST = (PreferredTerm(10, NodeSelectorTerm((Requirement(ZONE, "In", ("west",)),))),)
SHAPES: dict[str, InterPodConstraints] = {
    "apart": InterPodConstraints(anti_affinity=(term("web", HOSTNAME),)),
    "spread": InterPodConstraints(spread=(SpreadConstraint(ZONE, 1, labelled("web")),)),
    "spread over nodes": InterPodConstraints(spread=(SpreadConstraint(HOSTNAME, 1, labelled("web")),)),
    "one zone": InterPodConstraints(affinity=(term("web", ZONE),)),
    "preferred": InterPodConstraints(preferred=(WeightedTerm(10, term("web", ZONE)),)),
    "spread if possible": InterPodConstraints(soft_spread=(SpreadConstraint(ZONE, 1, labelled("web")),)),
}


def world_of(*policies: Policy) -> FakeCluster:
    """The last plan had small pods of each policy; to them nodes cost the same."""
    nodes = [
        Node(name, labels=((HOSTNAME, name), (ZONE, zone)), allocatable=(("cpu", 10_000), ("pods", 20)))
        for name, zone in ZONES.items()
    ]
    policies = policies or (STEERED,)
    world = FakeCluster(nodes, policies)
    world.show()
    world.ledger.begin_plan()
    for policy in policies:
        positions = {name: position for position, name in enumerate(NAMES)}
        world.apply(PricesPlanned(CLASS, policy.name, positions, 0, 1, [0] * 6, 10, world.cluster.generation))
    return world


def come(world: FakeCluster, name: str, **fields: Any) -> Pod:
    """A pod comes 30 ms after the one before."""
    world.now += 0.03
    pod = world.create_pod(name, **{"pod_class": CLASS, "scheduler_name": STEERED_NAME, "labels": WEB, **fields})
    world.show()
    return pod


def runs(world: FakeCluster, name: str, node: str, **fields: Any) -> None:
    """A pod of somebody else's runs there."""
    pod_class = fields.pop("pod_class", CLASS)
    world.create_pod(name, pod_class=pod_class, node_name=node, usage=pod_class.requests, **fields)
    world.show()


def rounds(world: FakeCluster, name: str, **fields: Any) -> list[RequestRound]:
    """Which rounds are asked for as a pod comes and kube-scheduler asks about it."""
    world.now += 0.03
    pod = world.create_pod(name, **{"pod_class": CLASS, "scheduler_name": STEERED_NAME, "labels": WEB, **fields})
    effects = list(world.apply(world.watch.popleft()))
    effects += world.apply(SchedulerAsks(asked(pod), NAMES))
    return [each for each in effects if isinstance(each, RequestRound)]


def answer(world: FakeCluster, pod: Pod, nodes: tuple[str, ...] = NAMES) -> str:
    """The node that kube-scheduler is told; "": none."""
    return "".join(world.ask(pod.key, nodes)[1])


@pytest.mark.parametrize("names_itself", [False, True], ids=["a Deployment's", "a StatefulSet's"])
@pytest.mark.parametrize("shape", SHAPES)
def test_pods_that_come_one_by_one_need_no_round(shape: str, *, names_itself: bool) -> None:
    """All of them are answered at once; pods of a StatefulSet differ by a label."""
    world = world_of()
    for number in range(6):
        labels = (*WEB, ("pod", f"web-{number}")) if names_itself else WEB
        assert not rounds(world, f"web-{number}", labels=labels, constraints=SHAPES[shape])
        key = f"{NAMESPACE}/web-{number}"
        node = answer(world, world.api[key])
        assert node
        world.change_pod(key, node_name=node, usage=CLASS.requests)
        world.show()


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_reserved_counts(shape: str) -> None:
    """kube-scheduler is told of pods faster than our watch shows their bindings, and shows all nodes each time."""
    world = world_of()
    nodes = [answer(world, come(world, f"web-{number}", constraints=SHAPES[shape])) for number in range(6)]
    zones = Counter(ZONES[node] for node in nodes)
    assert len(set(nodes)) == (6 if "zone" not in shape and shape != "preferred" else 2)
    assert max(zones.values()) == (2 if "zone" not in shape and shape != "preferred" else 6)


def test_a_pod_that_no_node_may_take_waits() -> None:
    """A round says why."""
    world = world_of()
    for number in range(6):
        answer(world, come(world, f"web-{number}", constraints=SHAPES["apart"]))
    assert [each.asked for each in rounds(world, "one-more", constraints=SHAPES["apart"])] == [True]
    assert world.ask(f"{NAMESPACE}/one-more", NAMES) == (FilterOutcome.HELD, [])


def test_reserved_pods_keep_others_away() -> None:
    """By their anti-affinity, which kube-scheduler does not know of yet."""
    world = world_of()
    first = answer(world, come(world, "shy", labels=(), constraints=SHAPES["apart"]))
    assert answer(world, come(world, "web"), (first, "f")) == "f"


def test_pods_that_run_keep_others_away() -> None:
    """So they do in kube-scheduler; our watch may be ahead of it."""
    world = world_of()
    runs(world, "shy", "a", constraints=SHAPES["apart"])
    assert answer(world, come(world, "web"), ("a", "b")) == "b"


def test_limits_of_a_policy() -> None:
    """kube-scheduler knows nothing of them."""
    few = Policy(
        "few",
        selects=Selects(scheduler_names=(STEERED_NAME,)),
        delivery=Delivery.EXTENDER,
        constraints=(Conflict("few", labelled("web"), ZONE, 2),),
    )
    world = world_of(few)
    nodes = [answer(world, come(world, f"web-{number}")) for number in range(7)]
    assert Counter(ZONES.get(node, "") for node in nodes) == {"north": 2, "south": 2, "west": 2, "": 1}


def test_a_class_that_no_plan_had() -> None:
    """Prices of any class say more than none: each pod makes its node dearer."""
    world = world_of()
    nodes = [answer(world, come(world, f"web-{number}", pod_class=OTHER)) for number in range(6)]
    assert set(nodes) == set(NAMES)


def test_nodes_that_got_pods_get_others_again() -> None:
    """Once all prices are old, the node with the fewest pods since is the cheapest."""
    world = world_of()
    nodes = Counter(answer(world, come(world, f"web-{number}")) for number in range(18))
    assert nodes == dict.fromkeys(NAMES, 3)


def test_large_pods_that_came_make_nodes_dearer_than_small_ones() -> None:
    """Also if more of the small ones came."""
    world = world_of()
    runs(world, "large", "a", pod_class=PodClass(requests=(("cpu", 4000),)))
    for number in range(3):
        runs(world, f"small-{number}", "b")
    assert answer(world, come(world, "web"), ("a", "b")) == "b"


def test_a_pod_goes_where_it_wants() -> None:
    """What it prefers of others costs what it costs in a round."""
    world = world_of()
    runs(world, "db", "c", labels=(("app", "db"),))
    near = InterPodConstraints(preferred=(WeightedTerm(10, term("db", ZONE)),))
    away = InterPodConstraints(preferred=(WeightedTerm(-10, term("db", ZONE)),))
    assert ZONES[answer(world, come(world, "near", constraints=near))] == "south"
    assert ZONES[answer(world, come(world, "away", constraints=away), ("c", "d", "e"))] == "west"


def test_a_plan_under_way_loses_pods_like_those_that_go_first_to_the_next_plan() -> None:
    """Its places that do not hold beside them any more are planned again, and no rule is broken."""
    world = world_of()
    for number in range(6):
        come(world, f"web-{number}", constraints=SHAPES["spread"])
    world.make_plan()
    for number in range(3):
        assert world.ask(f"{NAMESPACE}/web-{number}", NAMES)[0] == FilterOutcome.STEERED
    world.deliver(10)
    world.make_plan()
    world.deliver(10)
    zones = Counter(ZONES[held.node] for held in world.ledger.reservations.values())
    assert zones == {"north": 2, "south": 2, "west": 2}


def test_a_policy_with_a_network_waits() -> None:
    """The network says where its pods go, or that they wait."""
    world = world_of(msgspec.structs.replace(STEERED, network=NetworkSpec()))
    assert world.ask(come(world, "web").key, NAMES)[0] == FilterOutcome.HELD


def test_a_policy_whose_cost_model_draws_a_network_waits() -> None:
    """Likewise."""
    drawn = msgspec.structs.replace(STEERED, cost=CostPolicy(model="Drawn"))
    world = world_of(drawn)
    world.apply(PoliciesChanged((drawn,), frozenset({"Drawn"})))
    assert world.ask(come(world, "web").key, NAMES)[0] == FilterOutcome.HELD


# --- rules that an answer does not look at ---


def apart_from(*apps: str) -> InterPodConstraints:
    return InterPodConstraints(anti_affinity=tuple(term(app, HOSTNAME) for app in apps))


MANY = tuple(f"app-{number}" for number in range(rules_at_hand.MOST_RULES + 1))


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A cluster of more nodes and kinds of pods than an answer searches. The watch shows that time passes."""
    monkeypatch.setattr(rules_at_hand, "MOST_NODES", 5)
    monkeypatch.setattr(rules_at_hand, "MOST_KINDS", 2)
    world = world_of()
    for number in range(3):
        runs(world, f"db-{number}", "a", labels=(("app", f"db-{number}"), ("tier", f"tier-{number}")))
    world.pass_time(1)
    return world


@pytest.mark.parametrize("shape", SHAPES)
def test_rules_that_nobody_has_read_wait_for_a_round(shape: str, large: FakeCluster) -> None:
    """They are read meanwhile, so the next such pods are answered at once."""
    assert [each.asked for each in rounds(large, "web-0", constraints=SHAPES[shape])][-1:] == [True]
    assert large.ask(f"{NAMESPACE}/web-0", NAMES) == (FilterOutcome.HELD, [])
    large.pass_time(1)
    large.pass_time(1)
    assert answer(large, come(large, "web-1", constraints=SHAPES[shape]))


def test_one_rule_is_read_a_second(large: FakeCluster) -> None:
    """What many pods wait for does not hold up the answers to others."""
    tier = AffinityTerm("", LabelSelector((Requirement("tier", "In", ("tier-0",)),)), (NAMESPACE,))
    both = InterPodConstraints(preferred=(WeightedTerm(1, term("web", "")), WeightedTerm(1, tier)))
    nodes = []
    for number in range(3):
        nodes.append(answer(large, come(large, f"web-{number}", constraints=both)))
        for _ in range(9):
            large.pass_time(0.11)
    assert nodes[:2] == ["", ""]
    assert nodes[2]


@pytest.mark.parametrize("count", [len(MANY) - 1, len(MANY)])
def test_a_pod_with_many_rules_waits_for_a_round(count: int) -> None:
    """However often they were read."""
    world, outcomes = world_of(), set[str]()
    for number in range(3):
        outcomes.add(world.ask(come(world, f"web-{number}", constraints=apart_from(*MANY[:count])).key, NAMES)[0])
        world.pass_time(1)
    assert outcomes == {FilterOutcome.STEERED if count < len(MANY) else FilterOutcome.HELD}


def test_terms_of_an_affinity_count_each() -> None:
    """They are looked at one by one, though together they count one set of pods."""
    world = world_of()
    near = InterPodConstraints(affinity=tuple(AffinityTerm(ZONE, labelled("web"), (NAMESPACE, app)) for app in MANY))
    assert not answer(world, come(world, "web", constraints=near))


@pytest.mark.parametrize("more", [False, True])
def test_a_pod_that_many_rules_of_others_speak_of_waits_for_a_round(*, more: bool) -> None:
    """Any author of pods may write such rules."""
    world = world_of()
    for number in range(MOST_TERMS + more):
        selector = LabelSelector((Requirement("app", "In", ("web", f"app-{number}")),))
        away = InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, selector, (NAMESPACE,)),))
        runs(world, f"shy-{number}", "a", constraints=away)
    assert answer(world, come(world, "web"), ("a", "b")) == ("" if more else "b")
    assert answer(world, come(world, "other", labels=(("app", "other"),)), ("b",)) == "b"


def planned(world: FakeCluster, name: str, rules: InterPodConstraints) -> FilterOutcome:
    """What kube-scheduler is answered about a planned pod if it asks about other nodes.

    The pod is a gang of its own, so nothing but its plan gives it a place.
    """
    gang = GangRef(GangKey(GangSource.THALWEG, NAMESPACE, name), GangSpec(min_member=1))
    pod = come(world, name, constraints=rules, gang=gang)
    world.make_plan()
    world.deliver(10)
    node = world.ledger.reservations[pod.key].node
    return world.ask(pod.key, [each for each in NAMES if each != node])[0]


def test_a_planned_pod_with_many_rules_goes_to_its_node_only() -> None:
    """Whether another node is as good, an answer does not look."""
    assert planned(world_of(), "web", apart_from(*MANY[:-1])) == FilterOutcome.STEERED
    assert planned(world_of(), "web", apart_from(*MANY)) == FilterOutcome.HELD


def test_a_planned_pod_whose_rules_nobody_has_read_goes_to_its_node_only(large: FakeCluster) -> None:
    """Until they are read."""
    assert planned(large, "web-0", apart_from("web", "db-0")) == FilterOutcome.HELD
    large.pass_time(1)
    large.pass_time(1)
    assert planned(large, "web-1", apart_from("web", "db-1")) == FilterOutcome.STEERED


# -- what pods prefer --------------------------------------------------------------------------------------------------


def test_spread_counts_on_nodes_that_changed_since_the_plan() -> None:
    """As upstream's test of it does: two nodes get a label, one of them has all pods so far."""
    world = world_of()
    for name, value in (("a", "full"), ("f", "empty")):
        labels = ((HOSTNAME, name), (ZONE, ZONES[name]), ("score", value))
        world.put_node(Node(name, labels=labels, allocatable=(("cpu", 10_000), ("pods", 20))))
    for at in range(4):
        runs(world, f"before{at}", "a", labels=WEB)
    spread = InterPodConstraints(soft_spread=(SpreadConstraint("score", 1, labelled("web")),))
    assert answer(world, come(world, "new", constraints=spread), ("a", "f")) == "f"


def test_a_node_without_a_price_may_be_the_one_that_is_preferred() -> None:
    """It has room by now for pods of a class that it had none for: a round looks which node is better."""
    world = world_of()
    positions = {name: position for position, name in enumerate(NAMES)}
    codes = [0, 0, 0, 0, 0, NO_ROOM]
    world.apply(PricesPlanned(CLASS, "steered", positions, 0, 1, codes, 10, world.cluster.generation))
    for at in range(4):
        runs(world, f"before{at}", "a", labels=WEB)
    assert not answer(world, come(world, "new", constraints=SHAPES["spread if possible"]), ("a", "f"))
    assert answer(world, come(world, "plain"), ("a", "f")) == "a"
    wishes = msgspec.structs.replace(CLASS, preferred_affinity=WISHES_WEST)
    world.apply(PricesPlanned(wishes, "steered", positions, 0, 1, codes, 10, world.cluster.generation))
    assert not answer(world, come(world, "wishes", pod_class=wishes), ("a", "f"))
    assert answer(world, come(world, "wishes too", pod_class=wishes), ("a", "b")) == "b"


@pytest.mark.parametrize("freed", [False, True], ids=["nothing came free", "room came free"])
@pytest.mark.parametrize("prefers", ["nodes", "pods", "nothing"])
def test_a_pod_that_we_bind_waits_where_room_came_free_that_it_may_prefer(prefers: str, *, freed: bool) -> None:
    """The plan had no room left in its favourite zone, so its prices do not say how good a node there is."""
    bound = msgspec.structs.replace(STEERED, name="bound", delivery=Delivery.BINDER)
    world = world_of(bound)
    for at, node in enumerate("abcd"):
        runs(world, f"before{at}", node, labels=WEB)
    runs(world, "full", "e")
    wishes = msgspec.structs.replace(CLASS, preferred_affinity=WISHES_WEST if prefers == "nodes" else ())
    world.ledger.begin_plan()
    world.apply(PlanAsked([]))
    world.apply(PlanMade(9, world.cluster.generation, ()))
    positions = {name: position for position, name in enumerate(NAMES)}
    codes = [0, 0, 0, 0, NO_ROOM, NO_ROOM]
    world.apply(PricesPlanned(wishes, "bound", positions, 0, 1, codes, 10, world.cluster.generation))
    if freed:
        world.remove_pod(f"{NAMESPACE}/full")
        world.show()
    constraints = SHAPES["spread if possible"] if prefers == "pods" else None
    pod = come(world, "new", pod_class=wishes, constraints=constraints)
    assert (pod.key in world.ledger.reservations) == (not freed or prefers == "nothing")


@pytest.mark.parametrize(
    "fields",
    [
        {"preferred_affinity": WISHES_WEST},
        {"tolerations": (Toleration("slow", "Exists"),)},
        {"images": ("registry.example/web:1",)},
        {"node_selector": ((ZONE, "west"),)},
    ],
    ids=["node affinity", "tolerations", "images", "selector"],
)
def test_a_class_that_prefers_other_nodes_than_any_that_was_planned_waits(fields: dict[str, Any]) -> None:
    """The prices of another class do not know what it prefers; those of one that prefers the same do."""
    world = world_of()
    wishes = msgspec.structs.replace(OTHER, **fields)
    assert not answer(world, come(world, "first", pod_class=wishes))
    planned = msgspec.structs.replace(CLASS, **fields)
    positions = {name: position for position, name in enumerate(NAMES)}
    world.apply(PricesPlanned(planned, "steered", positions, 0, 1, [9, 9, 9, 9, 9, 0], 10, world.cluster.generation))
    assert answer(world, come(world, "second", pod_class=wishes)) == "f"
