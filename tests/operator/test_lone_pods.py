"""Pods that come alone: a place by the last plan's prices without a round, and never where a round would say more."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from math import log
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.claims import claiming
from support.fake_cluster.cluster import FakeCluster
from support.fake_cluster.eviction_scene import EvictionScene
from support.fake_cluster.steered import SteeredCluster
from support.profiles import examples
from thalweg_extender.answers import FilterOutcome
from thalweg_extender.extender_limits import DEFAULT_LIMITS
from thalweg_operator.delivery import extender_view
from thalweg_operator.delivery.extender_view import ExtenderView
from thalweg_operator.planning.planned_placements import PriceReader
from thalweg_operator.planning.worker import node_prices
from thalweg_operator.planning.worker.messages import PendingEntry, RoundReply, RoundRequest
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica
from thalweg_operator.reservations.effects import Bind, Effect, Nominate, RequestRound
from thalweg_operator.reservations.events import (
    ObjectSet,
    PlanMade,
    PodPut,
    PodsUnplaced,
    PricesPlanned,
    PricesUnknown,
    SchedulerAsks,
    TimePassed,
    UnplacedPod,
)
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.advise import advise
from thalweg_operator.reservations.steering.lone_pods import APART, PRICES_HOLD, QUESTION_WITHIN
from thalweg_operator.reservations.steering.records.planned_prices import NO_ROOM, PlannedPrices, cheapest_nodes

from flowcore.cluster.changes import ClusterChanges
from flowcore.cluster.kinds import QUEUES, SERVICES
from flowcore.costs.scale import OMEGA
from flowcore.model.advice import ExtenderPod
from flowcore.model.constraints import Conflict, OneDomain
from flowcore.model.cost_policy import CostPolicy, UnscheduledPrice
from flowcore.model.default_spread import NO_SPREAD
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import (
    HOSTNAME,
    AffinityTerm,
    InterPodConstraints,
    SpreadConstraint,
    WeightedTerm,
)
from flowcore.model.node_usage import NodeUsage
from flowcore.model.nodes import Node
from flowcore.model.numa import NumaNeeds
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME, Delivery, Policy, Selects
from flowcore.model.queues import Queue
from flowcore.model.resource_claims import ClaimingPod, PodClaim
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.services import Service
from flowcore.model.volumes import ZONE, ClaimVolume
from flowcore.model.workload_kinds import Machines

CLASS, LARGE = PodClass(requests=(("cpu", 100),)), PodClass(requests=(("cpu", 400),))
BINDER = Policy("bound", selects=Selects(scheduler_names=(SCHEDULER_NAME,)), delivery=Delivery.BINDER)
LIMITED = Policy(
    "limited",
    selects=Selects(scheduler_names=("limited",)),
    delivery=Delivery.EXTENDER,
    constraints=(Conflict("few", LabelSelector((Requirement("app", "In", ("web",)),)), HOSTNAME, 2),),
)
EXTENDER = Policy("steered", selects=Selects(scheduler_names=(STEERED_NAME,)), delivery=Delivery.EXTENDER)
NAMES = ("a", "b", "c")
WEB = LabelSelector((Requirement("app", "In", ("web",)),))
APART_FROM_WEB = InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, WEB, (NAMESPACE,)),))
NEAR_DB = AffinityTerm(ZONE, LabelSelector((Requirement("app", "In", ("db",)),)), (NAMESPACE,))
#: What pods say of others, with the labels that they have themselves.
RULES: dict[str, dict[str, Any]] = {
    "apart": {"constraints": APART_FROM_WEB, "labels": (("app", "web"),)},
    "shy": {"constraints": APART_FROM_WEB},
    "counted": {"labels": (("app", "web"),)},
    "spread": {
        "constraints": InterPodConstraints(spread=(SpreadConstraint(ZONE, 1, WEB),)),
        "labels": (("app", "web"),),
    },
    "near": {"constraints": InterPodConstraints(affinity=(NEAR_DB,)), "labels": (("app", "db"),)},
    "beside": {"constraints": InterPodConstraints(affinity=(NEAR_DB,))},
    "away": {
        "constraints": InterPodConstraints(anti_affinity=(AffinityTerm(ZONE, WEB, (NAMESPACE,)),)),
        "labels": (("app", "db"),),
    },
    "drawn": {
        "constraints": InterPodConstraints(
            preferred=(WeightedTerm(10, NEAR_DB), WeightedTerm(-5, AffinityTerm(HOSTNAME, WEB, (NAMESPACE,)))),
            soft_spread=(SpreadConstraint(ZONE, 1, WEB),),
        ),
        "labels": (("app", "web"),),
    },
}


def make_node(name: str, cpu: int = 400) -> Node:
    zone = "north" if name == "a" else "south"
    return Node(name, labels=((HOSTNAME, name), (ZONE, zone)), allocatable=(("cpu", cpu), ("pods", 10)))


def world_of(*policies: Policy) -> FakeCluster:
    """A world in which a round has planned a pod of each policy just now."""
    world = FakeCluster([make_node(name) for name in NAMES], policies)
    for policy in policies:
        world.create_pod(f"first-{policy.name}", **fields_of(policy))
    world.show()
    world.make_plan()
    world.deliver(10)
    world.now += 2 * APART
    return world


def fields_of(policy: Policy) -> dict[str, Any]:
    return {"pod_class": CLASS, "scheduler_name": policy.selects.scheduler_names[0]}


def come(world: FakeCluster, name: str = "p", policy: Policy = BINDER, **fields: Any) -> list[Effect]:
    """A pod comes, and what follows."""
    world.create_pod(name, **{**fields_of(policy), **fields})
    effects: list[Effect] = []
    while world.watch:
        effects += world.apply(world.watch.popleft())
    return effects


def all_cheap(world: FakeCluster, pod_class: PodClass) -> None:
    """A plan says that one more pod of the class that we bind costs the same on all nodes."""
    positions = {name: position for position, name in enumerate(NAMES)}
    world.apply(PricesPlanned(pod_class, BINDER.name, positions, 0, 1, [0, 0, 0], 1, world.cluster.generation))


def is_bound(effects: list[Effect]) -> bool:
    return any(isinstance(each, Bind) for each in effects)


def rounds(effects: list[Effect]) -> list[RequestRound]:
    return [each for each in effects if isinstance(each, RequestRound)]


# --- pods that we bind ---


def test_bound_without_a_round() -> None:
    """To a node of the plan's cheapest; reserved, so that the next round sees it. No round is asked for."""
    world = world_of(BINDER)
    effects = come(world)
    assert is_bound(effects)
    assert not rounds(effects)
    reservation = world.ledger.reservations[f"{NAMESPACE}/p"]
    assert (reservation.owner, reservation.phase) == (Owner.BINDER, Phase.BINDING)
    assert reservation.node in {use.node for use in world.cluster.take_changes().complete().usage}


def test_no_two_pods_get_a_node_by_the_same_price() -> None:
    """Each place takes its node's price away; then a round is asked for, at once."""
    world = world_of(BINDER)
    nodes: set[str] = set()
    for number in range(len(NAMES)):
        effects = come(world, f"p{number}")
        nodes.update(each.node for each in effects if isinstance(each, Bind))
        world.now += 2 * APART
    assert len(nodes) == len(NAMES)
    assert rounds(come(world, "last"))[0].at_once


def test_a_pod_whose_claim_is_still_to_be_made_is_no_other_that_waits() -> None:
    """No round plans it yet: the pod that comes is alone."""
    world = world_of(BINDER)
    claims = ClaimingPod(NAMESPACE, "claims", "first", (PodClaim("gpu", template="t"),))
    come(world, "claims", pod_class=msgspec.structs.replace(CLASS, devices=claims))
    world.now += 2 * APART
    assert is_bound(come(world))


def test_room_that_came_free_with_it_gets_its_round() -> None:
    """The watch may show the end of a pod and its successor of the same name as one change: others may have moved."""
    world = world_of(BINDER)
    running = {"pod_class": LARGE, "scheduler_name": "theirs", "node_name": "a", "usage": LARGE.requests}
    world.create_pod("p", **running)
    world.show()
    world.now += 2 * APART
    key = f"{NAMESPACE}/p"
    world.api[key] = Pod(NAMESPACE, "p", "successor", **fields_of(BINDER))
    effects = world.apply(PodPut(world.api[key]))
    assert is_bound(effects)
    assert rounds(effects)


REASONS: dict[str, dict[str, Any]] = {
    "another class": {"pod_class": LARGE},
    "a gang": {"gang": GangRef(GangKey(GangSource.THALWEG, NAMESPACE, "g"), GangSpec(min_member=1))},
    "a pod that it replaces": {"replaces": "other"},
    "volumes": {"pod_class": msgspec.structs.replace(CLASS, volumes=(ClaimVolume(NAMESPACE, "data"),))},
    "devices": {
        "pod_class": msgspec.structs.replace(CLASS, devices=claiming(NAMESPACE, "p", "first", "gpu", template=False))
    },
    "tried in vain": {"unschedulable_message": "0/3 nodes are available"},
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_round_says_more(reason: str) -> None:
    """Where not only the node's price counts, a round plans the pod."""
    effects = come(world_of(BINDER), **REASONS[reason])
    assert not is_bound(effects)
    assert rounds(effects)[0].at_once


CHANGES: dict[str, Callable[[FakeCluster], object]] = {
    "prices of long ago": lambda world: world.pass_time(PRICES_HOLD + 1),
    "another pod that waits": lambda world: come(world, "large", pod_class=LARGE),
    "a pod a moment ago": lambda world: come(world, "one"),
    "a node that came": lambda world: world.put_node(make_node("d")),
    "a node that changed": lambda world: world.put_node(make_node("c", 4000)),
    "a policy that changed": lambda world: world.set_policies([BINDER, EXTENDER]),
}


def count_web(world: FakeCluster) -> None:
    """A pod that may not be bound beside too many others is on its way."""
    spread = InterPodConstraints(spread=(SpreadConstraint(HOSTNAME, 1, WEB),))
    world.create_pod("counts", **{**fields_of(BINDER), "constraints": spread, "labels": (("app", "web"),)})
    world.show()
    world.make_plan()
    world.deliver(10)
    world.now += 2 * APART


CHANGES |= {
    "a reserved pod that counts it": count_web,
    "a queue that it is of": lambda world: world.apply(ObjectSet(QUEUES, "q", Queue("q", pods=WEB))),
    "the end of the operator": lambda world: setattr(world.ledger, "ends", True),
    "a plan in hand": lambda world: world.apply(PlanMade(99, world.cluster.generation, (), last=False)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_plan_does_not_hold_any_more(change: str) -> None:
    """Then a round plans the pod."""
    world = world_of(BINDER)
    CHANGES[change](world)
    world.show()
    effects = come(world, labels=(("app", "web"),))
    assert not is_bound(effects)
    assert any(each.at_once for each in rounds(effects))


ZONES_OF = {"a": "north", "b": "north", "c": "south", "d": "south", "e": "west"}


def among_others(others: list[tuple[str, str]], policy: Policy = BINDER) -> FakeCluster:
    """Nodes in zones where pods run, by node and controller; a round has planned a pod just now.

    To this world's prices all nodes are alike. So they are to a round: no pod is as much as a thousandth of a node.
    """
    allocatable = (("cpu", 10_000_000), ("pods", 20))
    nodes = [
        Node(name, labels=((HOSTNAME, name), (ZONE, zone)), allocatable=allocatable) for name, zone in ZONES_OF.items()
    ]
    world = FakeCluster(nodes, [policy])
    for number, (name, owner) in enumerate(others):
        labels = (("app", owner),)
        world.create_pod(f"other-{number}", pod_class=CLASS, node_name=name, labels=labels, spread_owner=owner)
    world.create_pod("first", **fields_of(policy))
    world.show()
    world.make_plan()
    world.deliver(10)
    world.now += 2 * APART
    return world


def test_a_policy_without_default_spread() -> None:
    """A replica is placed at once as any pod of its class: other replicas make no node dearer."""

    def chosen(others: list[tuple[str, str]], policy: Policy) -> str:
        world = among_others(others, policy)
        assert is_bound(come(world, spread_owner="web"))
        return world.ledger.reservations[f"{NAMESPACE}/p"].node

    policy = msgspec.structs.replace(BINDER, cost=CostPolicy(default_spread=NO_SPREAD))
    cheapest = chosen([], policy)
    assert chosen([(cheapest, "web")], policy) == cheapest
    assert chosen([(cheapest, "web")], BINDER) != cheapest


@given(others=st.lists(st.tuples(st.sampled_from(sorted(ZONES_OF)), st.sampled_from(["web", "db"])), max_size=9))
@settings(max_examples=examples(20))
def test_a_replica_that_comes_alone_goes_where_a_round_would_put_it(others: list[tuple[str, str]]) -> None:
    """Other pods of its controller make nodes dearer by the same formula, and no round is waited for."""
    world, planned = among_others(others), among_others(others)
    assert is_bound(come(world, spread_owner="web"))
    planned.now += PRICES_HOLD + 1
    assert not is_bound(come(planned, spread_owner="web"))
    planned.make_plan()
    planned.deliver(10)
    web = Counter(name for name, owner in others if owner == "web")
    in_zones = Counter(ZONES_OF[name] for name in web.elements())
    # kube-scheduler's score of five nodes in three zones.
    crowding = {name: round(web[name] * log(7) + in_zones[zone] * log(5)) for name, zone in ZONES_OF.items()}
    chosen = [crowding[each.ledger.reservations[f"{NAMESPACE}/p"].node] for each in (world, planned)]
    assert chosen == [min(crowding.values())] * 2


def test_replicas_that_come_one_after_the_other_see_each_other() -> None:
    """Each goes to the emptiest zone, though no round was there in between."""
    world = among_others([])
    for number in range(3):
        world.now += 2 * APART
        assert is_bound(come(world, f"web-{number}", spread_owner="web"))
    nodes = [world.ledger.reservations[f"{NAMESPACE}/web-{number}"].node for number in range(3)]
    assert sorted(ZONES_OF[node] for node in nodes) == ["north", "south", "west"]


def test_a_full_zone_makes_the_others_no_more_alike() -> None:
    """As with kube-scheduler, crowding is scaled over nodes that have room: west is dearer, and has fewer replicas."""
    world = among_others([("a", "web")] * 15 + [("c", "web")] * 3 + [("e", "web")])
    positions = {name: position for position, name in enumerate(ZONES_OF)}
    codes = [NO_ROOM, NO_ROOM, 0, 0, 100]
    world.apply(PricesPlanned(CLASS, BINDER.name, positions, 0, 1, codes, 1, world.cluster.generation))
    assert is_bound(come(world, spread_owner="web"))
    assert world.ledger.reservations[f"{NAMESPACE}/p"].node == "e"


def test_a_pod_of_a_service_is_spread_too() -> None:
    """Also where the Service comes after the pods that run."""
    world = among_others([("a", "web"), ("c", "web")])
    world.apply(ObjectSet(SERVICES, f"{NAMESPACE}/web", Service(NAMESPACE, "web", (("app", "web"),))))
    assert is_bound(come(world, labels=(("app", "web"),)))
    assert world.ledger.reservations[f"{NAMESPACE}/p"].node == "e"


def test_a_pod_that_may_wait_for_a_cheaper_node() -> None:
    """Only a round knows whether it does."""
    patient = Policy(
        "bound",
        selects=Selects(scheduler_names=(SCHEDULER_NAME,)),
        unscheduled=UnscheduledPrice(base=7),
    )
    assert not is_bound(come(world_of(patient)))


PICKY: dict[str, PodClass] = {
    "zones of its node": msgspec.structs.replace(CLASS, numa=NumaNeeds(pod=CLASS.requests)),
    "volumes": msgspec.structs.replace(CLASS, volumes=(ClaimVolume(NAMESPACE, "data"),)),
}


@pytest.mark.parametrize("needs", PICKY)
def test_a_pod_that_needs_more_of_its_node(needs: str) -> None:
    """Also where the last plan had such a pod."""
    world, pod_class = world_of(BINDER), PICKY[needs]
    all_cheap(world, pod_class)
    assert not is_bound(come(world, pod_class=pod_class))


@pytest.mark.parametrize(
    "says",
    [{"constraints": (OneDomain("near", WEB, HOSTNAME),)}, {"cost": CostPolicy(machines=Machines("gen", ()))}],
    ids=lambda says: next(iter(says)),
)
def test_a_policy_that_reads_more_than_the_class(says: dict[str, Any]) -> None:
    """Its prices differ from pod to pod, or it places pods together or not at all."""
    world = world_of(msgspec.structs.replace(BINDER, **says))
    all_cheap(world, CLASS)
    assert not is_bound(come(world, labels=(("app", "web"),)))


def test_a_node_that_got_a_pod_since_is_left_out() -> None:
    """Also where the pod is another scheduler's."""
    world = world_of(BINDER)
    for node in ("a", "b"):
        theirs = {"scheduler_name": "theirs", "node_name": node, "usage": CLASS.requests}
        world.create_pod(f"on-{node}", pod_class=CLASS, **theirs)
    world.show()
    assert [each.node for each in come(world) if isinstance(each, Bind)] == ["c"]


def test_a_node_that_got_a_pod_while_the_plan_was_made_is_left_out() -> None:
    """The plan does not know of it. What the plan itself places is in its prices."""
    world = FakeCluster([make_node(name) for name in NAMES], [BINDER])
    world.create_pod("first", **fields_of(BINDER))
    world.show()
    world.make_plan()
    assert world.plan is not None
    [planned] = [each.node for each in world.plan.placements]
    other = next(name for name in NAMES if name != planned)
    world.create_pod("theirs", pod_class=CLASS, scheduler_name="theirs", node_name=other, usage=CLASS.requests)
    world.show()
    world.deliver(10)
    nodes: set[str] = set()
    for number in range(len(NAMES)):
        world.now += 2 * APART
        nodes.update(each.node for each in come(world, f"p{number}") if isinstance(each, Bind))
    assert nodes == set(NAMES) - {other}


def test_a_plan_that_is_being_made_does_not_count_on_it() -> None:
    """A pod of the plan that must not be beside it is planned again."""
    world = world_of(BINDER)
    begun = world.begin_plan()
    assert begun is not None
    [node] = [each.node for each in come(world, labels=(("app", "web"),)) if isinstance(each, Bind)]
    world.create_pod("shy", **{**fields_of(BINDER), "pod_class": LARGE, "constraints": APART_FROM_WEB})
    world.show()
    signature = world.cluster.waiting[f"{NAMESPACE}/shy"].signature
    nodes, index = world.cluster.nodes, world.cluster.occupancy.pod_index
    assert world.ledger.drift.conflicts(signature, nodes[node], nodes, index, already_counted=False)


@given(
    kinds=st.lists(
        st.sampled_from(["bound", "steered", "steered", "large", "leaves", "plan", "limited", "limited"]),
        min_size=5,
        max_size=30,
    ),
    rules=st.lists(st.sampled_from(sorted(RULES)), max_size=4, unique=True),
    choose=st.randoms(use_true_random=False),
)
@settings(max_examples=examples(60))
def test_no_node_is_overcommitted_and_no_rule_is_broken(
    kinds: list[str], rules: list[str], choose: random.Random
) -> None:
    """Whoever comes, asks and leaves, in whatever order; the world checks each step (``LedgerChecks``)."""
    world = world_of(BINDER, EXTENDER, LIMITED)
    for number, kind in enumerate(kinds):
        world.now += 2 * APART
        if kind == "plan":
            world.make_plan()
            world.deliver(10)
        elif kind == "leaves":
            world.remove_pod(choose.choice(sorted(world.api) or [""]))
        else:
            policy = {"steered": EXTENDER, "limited": LIMITED}.get(kind, BINDER)
            ruled = RULES[choose.choice(rules)] if rules and choose.random() < 0.7 else {}
            pod_class = LARGE if kind == "large" else CLASS
            world.create_pod(f"p{number}", **{**fields_of(policy), "pod_class": pod_class, **ruled})
        if choose.random() < 0.9:
            world.show()
        for key in world.schedulable():
            if world.api[key].scheduler_name in (STEERED_NAME, "limited"):
                world.attempt(key, choose.sample(NAMES, 2))
                world.end_attempt(key, fails=choose.random() < 0.1)
        while world.writes and choose.random() < 0.7:
            world.send(choose.randrange(len(world.writes)))
    world.settle()
    for name in NAMES:
        assert sum(dict(pod.usage).get("cpu", 0) for pod in world.api.values() if pod.node_name == name) <= 400


def request_of(pods: int, used: list[int], number: int = 1) -> RoundRequest:
    """A round of alike pods on nodes that are used so far."""
    return RoundRequest(
        number=number,
        generation=number,
        now=0.0,
        reset=number == 1,
        changes=ClusterChanges(
            nodes=[Node(f"n{at}", allocatable=(("cpu", 4000), ("pods", 100))) for at in range(len(used))],
            usage=[NodeUsage(f"n{at}", (("cpu", cpu),), 1, cpu, 0, ()) for at, cpu in enumerate(used) if cpu],
            namespaces={NAMESPACE: ()},
        ),
        policies=[BINDER],
        classes=[CLASS],
        signatures=[PodSignature(NAMESPACE, ())],
        pending=[PendingEntry(f"{NAMESPACE}/p{at}", 0, 0, 0.0, 0) for at in range(pods)],
        budget=0.0,
        steps=3,
    )


def cheapest_of(reply: RoundReply, reader: PriceReader | None = None) -> Sequence[str]:
    """The cheapest nodes by the prices of a reply, of one class."""
    read = (reader or PriceReader()).read
    [event] = read(request_of(1, []), reply, [Pod(NAMESPACE, "p0", "u", CLASS)])
    return cheapest_nodes(
        PlannedPrices(
            event.positions, event.base, event.step, event.codes, event.tolerance, event.generation, arrival=0
        )
    )


@given(used=st.lists(st.integers(0, 39).map(lambda each: 100 * each), min_size=2, max_size=6))
@settings(max_examples=examples(30))
def test_the_cheapest_nodes_are_those_that_a_round_would_take(used: list[int]) -> None:
    """The next round places its only pod on one of them, or on a node that is as good."""
    reply = run_request(Replica(), request_of(1, used))
    [placed] = reply.placements
    used[int(placed.node[1:])] += 100
    names = cheapest_of(reply)
    after = run_request(Replica(), request_of(1, used))
    least = after.placements[0].price
    for name in names:
        alone = [cpu if f"n{at}" == name else 4000 for at, cpu in enumerate(used)]
        [found] = run_request(Replica(), request_of(1, alone)).placements
        there, price = found.node, found.price
        assert there == name
        assert price <= least + OMEGA // 100


def test_no_node_is_cheapest_where_many_come() -> None:
    """After a round of many pods nobody comes alone, and a full node is no cheap one."""
    assert not run_request(Replica(), request_of(20, [0, 0])).node_prices
    assert not cheapest_of(run_request(Replica(), request_of(1, [4000, 4000])))


def test_names_of_nodes_are_told_where_they_changed() -> None:
    """The prices of later replies are of the same nodes. A worker that was started again tells them anew."""
    replica, reader = Replica(), PriceReader()
    replies = [run_request(replica, request_of(1, used, number)) for number, used in enumerate(
        ([3000, 0], [3000, 0], [3000, 2000, 0]), start=1
    )]  # fmt: skip
    assert [reply.node_names for reply in replies] == [["n0", "n1"], None, ["n0", "n1", "n2"]]
    assert [list(cheapest_of(reply, reader)) for reply in replies] == [["n1"], ["n1"], ["n2"]]
    assert run_request(Replica(), request_of(1, [3000, 0])).node_names == ["n0", "n1"]


def test_a_cluster_without_nodes_has_no_prices() -> None:
    """Those of the plan before are forgotten: scores of nodes that are gone would fail."""
    replica, reader = Replica(), PriceReader()
    before = request_of(1, [0, 0])
    [planned] = reader.read(before, run_request(replica, before), [Pod(NAMESPACE, "p0", "u", CLASS)])
    assert isinstance(planned, PricesPlanned)
    gone = msgspec.structs.replace(
        request_of(1, [], number=2), changes=ClusterChanges(removed_nodes=["n0", "n1"])
    )  # fmt: skip
    reply = run_request(replica, gone)
    assert not reply.node_prices
    assert list(reader.read(gone, reply, [Pod(NAMESPACE, "p0", "u", CLASS)])) == [PricesUnknown(CLASS, BINDER.name)]


async def test_kube_scheduler_is_answered_where_a_node_is_back_before_its_round() -> None:
    """Nothing is known of the node, so it is not scored."""
    scene = EvictionScene()
    spec = {"selects": {"schedulerNames": [STEERED_NAME]}, "delivery": "Extender", "steering": "Prefer"}
    scene.policies.offer("prefers", "u", 2, spec)
    scene.node("a")
    scene.pod("p0", 100, scheduler_name=STEERED_NAME)
    await scene.turn(1)
    scene.state.delete_node("a")
    scene.pod("p1", 100, scheduler_name=STEERED_NAME)
    await scene.turn(1)
    scene.node("a")
    pod = scene.state.pods["ns/p1"]
    asked = ExtenderPod(pod.namespace, pod.name, pod.uid, dict(pod.labels), pod.scheduler_name, pod.nominated_node)
    advice = advise(scene.state.shell.state, asked, ["a"])
    assert (advice.managed, advice.scores) == (True, {})


def test_prices_of_other_nodes_are_not_read() -> None:
    """A reply whose prices are of more or fewer nodes than were told has none."""
    replica, reader = Replica(), PriceReader()
    first, second = request_of(1, [0, 0]), request_of(1, [0, 0, 0], number=2)
    pods = [Pod(NAMESPACE, "p0", "u", CLASS)]
    list(reader.read(first, run_request(replica, first), pods))
    reply = msgspec.structs.replace(run_request(replica, second), node_names=None)
    assert list(reader.read(second, reply, pods)) == [PricesUnknown(CLASS, BINDER.name)]


def test_prices_that_are_not_sent_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a class that is beyond what a reply takes, scores would be those of an older plan."""
    world = world_of(BINDER)
    request = request_of(1, [0, 0])
    monkeypatch.setattr(node_prices, "_MAX_BYTES", 3)
    records = world.shell.state.nominations
    assert records.prices_for(CLASS, BINDER.name) is not None
    for event in PriceReader().read(request, run_request(Replica(), request), [Pod(NAMESPACE, "p0", "u", CLASS)]):
        world.apply(event)
    assert records.prices_for(CLASS, BINDER.name) is None
    assert rounds(come(world))


# --- pods that kube-scheduler binds ---


def ask(world: FakeCluster, name: str, nodes: list[str]) -> tuple[FilterOutcome, list[str]]:
    return world.ask(f"{NAMESPACE}/{name}", nodes)


def test_answered_without_a_round() -> None:
    """kube-scheduler's first question finds it a place, which is reserved; nothing is nominated."""
    world = world_of(EXTENDER)
    assert not rounds(come(world, policy=EXTENDER))
    assert ask(world, "p", ["b", "c"]) == (FilterOutcome.STEERED, ["b"])
    reservation = world.ledger.reservations[f"{NAMESPACE}/p"]
    assert (reservation.node, reservation.phase) == ("b", Phase.PASSED)
    assert not [each for each in world.writes if isinstance(each, Nominate) and each.pod.name == "p"]


def test_a_question_before_any_prices_waits_for_a_round() -> None:
    """Nothing says yet which of its nodes the policy wants."""
    world = FakeCluster([make_node(name) for name in NAMES], [EXTENDER])
    come(world, policy=EXTENDER)
    pod = world.api[f"{NAMESPACE}/p"]
    asked = ExtenderPod(NAMESPACE, "p", pod.uid, {}, STEERED_NAME, "")
    effects = world.apply(SchedulerAsks(asked, ["b", "c"]))
    assert [(each.at_once, each.asked) for each in rounds(effects)] == [(True, True)]
    assert pod.key not in world.ledger.reservations


def test_a_pod_that_nobody_asks_about_gets_its_round() -> None:
    """kube-scheduler may be busy, or not there."""
    world = world_of(EXTENDER)
    come(world, policy=EXTENDER)
    assert not world.shell.state.nominations.unasked.keys() - {f"{NAMESPACE}/p"}
    world.now += QUESTION_WITHIN
    assert rounds(world.apply(TimePassed()))[0].at_once


def test_a_pod_that_another_round_has_planned_asks_for_none() -> None:
    """Something else asked for that round before kube-scheduler came to the pod."""
    world = world_of(EXTENDER)
    come(world, policy=EXTENDER)
    world.make_plan()
    world.deliver(10)
    assert world.shell.state.nominations.unasked
    world.now += QUESTION_WITHIN
    assert not rounds(world.apply(TimePassed()))
    assert not world.shell.state.nominations.unasked


def test_a_round_that_has_planned_it_meanwhile_changes_nothing() -> None:
    """The place by the question stands; that of the round is dropped."""
    world = world_of(EXTENDER)
    come(world, policy=EXTENDER)
    world.make_plan()
    assert world.plan is not None
    assert ask(world, "p", list(NAMES))[0] == FilterOutcome.STEERED
    before = dict(world.ledger.reservations)
    world.deliver(10)
    assert dict(world.ledger.reservations) == before


# --- answers that wait for a round ---


@pytest.fixture
def world() -> SteeredCluster:
    return SteeredCluster()


def question(pod: Pod) -> ExtenderPod:
    return ExtenderPod("ns", pod.name, pod.uid, {}, STEERED_NAME, "")


async def asking(view: ExtenderView, pod: Pod) -> asyncio.Task[None]:
    task = asyncio.create_task(view.until_planned(question(pod), ["a", "b"]))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def plan_made(world: SteeredCluster) -> None:
    """A round is over; what it planned was reserved before (``SteeredCluster.plan_pod``)."""
    world.state.apply(PlanMade(1, world.state.generation, (), ()))


async def waits_for_its_round(world: SteeredCluster, pod: Pod) -> None:
    """The watch shows a new pod, and a question about it is answered once a round has planned it for node a."""
    world.show()
    task = await asking(world.view, pod)
    assert not task.done()
    world.plan_pod(pod.key, "a")
    plan_made(world)
    await task


async def test_the_first_question_waits_for_the_first_round(world: SteeredCluster) -> None:
    """Then it is answered with the planned node: one attempt, and no nomination."""
    pod = world.pod()
    await waits_for_its_round(world, pod)
    assert world.schedule(pod.key) == (FilterOutcome.STEERED, ["a"])
    assert not world.write_kinds


async def test_a_round_without_the_pod_does_not_end_the_wait(world: SteeredCluster) -> None:
    """The pod came while it was made. The next one is for it."""
    pod = world.pod()
    world.show()
    task = await asking(world.view, pod)
    plan_made(world)
    await asyncio.sleep(0)
    assert not task.done()
    policy = world.cluster.policies.of(pod, world.state.namespaces)
    assert policy is not None
    world.state.apply(PodsUnplaced([UnplacedPod(pod, policy, "no room", "Unschedulable")]))
    await task
    assert world.schedule(pod.key) == (FilterOutcome.HELD, [])
    await asyncio.wait_for(world.view.until_planned(question(pod), ["a"]), 30)  # its round was in vain


async def test_a_question_before_our_watch_shows_the_pod(world: SteeredCluster) -> None:
    """It waits for the watch, and then for the round."""
    pod = world.pod()
    task = await asking(world.view, pod)
    world.show()
    await asyncio.sleep(0)
    assert not task.done()
    world.plan_pod(pod.key, "b")
    plan_made(world)
    await task
    assert world.schedule(pod.key) == (FilterOutcome.STEERED, ["b"])


async def test_nobody_waits_for_long(world: SteeredCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a wait in vain questions are answered at once, until a round is over."""
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 0.01)
    pod, other = world.pod(), world.pod("other", "v")
    world.show()
    await asyncio.wait_for(world.view.until_planned(question(pod), ["a"]), 30)
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 1000.0)
    await asyncio.wait_for(world.view.until_planned(question(other), ["a"]), 30)
    plan_made(world)
    task = await asking(world.view, other)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_questions_about_pods_that_are_not_there(world: SteeredCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may ask them. They wait once, and the questions about real pods wait for their rounds all the same."""
    gone = Pod("ns", "gone", "x", CLASS, scheduler_name=STEERED_NAME)
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 0.01)
    await asyncio.wait_for(world.view.until_planned(question(gone), ["a"]), 30)
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 1000.0)
    await asyncio.wait_for(world.view.until_planned(question(gone), ["a"]), 30)
    pod = world.pod()
    await waits_for_its_round(world, pod)


async def test_the_watch_is_waited_for_again_later(world: SteeredCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was late for a moment."""
    monkeypatch.setattr(extender_view, "WATCH_RESTS", 0.0)
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 0.01)
    pod = world.pod()
    await asyncio.wait_for(world.view.until_planned(question(pod), ["a"]), 30)
    monkeypatch.setattr(extender_view, "LONGEST_WAIT", 1000.0)
    task = await asking(world.view, pod)
    assert not task.done()
    world.show()
    world.plan_pod(pod.key, "a")
    plan_made(world)
    await task


async def test_waiting_answers_leave_room_for_others(world: SteeredCluster) -> None:
    """However many ask at once, most are answered: kube-scheduler's own question never finds the listener busy."""
    ghosts = [Pod("ns", f"gone-{number}", "x", CLASS, scheduler_name=STEERED_NAME) for number in range(64)]
    tasks = [await asking(world.view, ghost) for ghost in ghosts]
    assert sum(not task.done() for task in tasks) == extender_view.MOST_WAITING < DEFAULT_LIMITS.in_flight
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_long_rounds_hold_kube_scheduler_up_ever_more_rarely(
    world: SteeredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each further wait in vain twice as many rounds pass, up to a limit; one that helped makes it one again."""

    async def rounds_without_a_wait() -> int:
        """How many rounds end until an answer waits again; that it waits is in vain."""
        monkeypatch.setattr(extender_view, "LONGEST_WAIT", 0.001)
        await world.view.until_planned(question(pods[0]), ["a"])
        monkeypatch.setattr(extender_view, "LONGEST_WAIT", 1000.0)
        for passed in range(2 * extender_view.MOST_UNAWAITED):
            task = await asking(world.view, pods[0])
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                return passed
            plan_made(world)
        raise AssertionError("no answer waits any more")

    pods = [world.pod(), world.pod("other", "v")]
    world.show()
    found = [await rounds_without_a_wait() for _ in range(7)]
    assert found == [1, 2, 4, 8, 16, 16, 16]
    task = await asking(world.view, pods[1])
    world.plan_pod(pods[1].key, "a")
    plan_made(world)
    await task
    assert await rounds_without_a_wait() == 1


async def test_pods_of_others_do_not_wait(world: SteeredCluster) -> None:
    """Nor those of a gang that lacks pods."""
    theirs = world.pod("theirs", "v", scheduler_name="default-scheduler")
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    member = world.pod("member", "w", gang=gang)
    world.set_policy(delivery="Extender", selects={"schedulerNames": [STEERED_NAME], "podSelector": {}})
    world.show()
    for pod in (theirs, member):
        await asyncio.wait_for(world.view.until_planned(question(pod), ["a"]), 30)
