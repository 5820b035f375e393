"""Planned pods go to the nodes that kube-scheduler asks about: what is left of the plan can still be carried out."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.checks import LedgerChecks
from support.fake_cluster.cluster import FakeCluster
from support.fake_cluster.steered import SteeredCluster
from support.profiles import examples
from thalweg_operator.reservations.events import PricesPlanned
from thalweg_operator.reservations.ledger.backoff import node_rejected
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering import nominations

from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass, Toleration
from flowcore.model.policies import STEERED_NAME, Delivery, Policy, Selects
from flowcore.model.resource_claims import ClaimingPod, PodClaim
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.volumes import ZONE, Claim, ClaimVolume

RACK = "rack"
SMALL, LARGE = PodClass(requests=(("cpu", 100),)), PodClass(requests=(("cpu", 200),))
IN_RACK_0 = {each: msgspec.structs.replace(each, node_selector=((RACK, "r0"),)) for each in (SMALL, LARGE)}
#: Of the size of SMALL, and of no class that another pod has.
ITS_OWN = msgspec.structs.replace(SMALL, tolerations=(Toleration("its"),))
#: What happens to a cluster with these pods, by key, and their places.
Happening: TypeAlias = Callable[[FakeCluster, list[str], list[str]], None]
POLICY = Policy("steered", selects=Selects(scheduler_names=(STEERED_NAME,)), delivery=Delivery.EXTENDER)


def rules(kind: str, selector: LabelSelector) -> InterPodConstraints | None:
    """Rules of a pod about the pods of its set."""
    match kind:
        case "apart":
            return InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, selector, (NAMESPACE,)),))
        case "racks apart":
            return InterPodConstraints(anti_affinity=(AffinityTerm(RACK, selector, (NAMESPACE,)),))
        case "spread":
            return InterPodConstraints(spread=(SpreadConstraint(RACK, 1, selector),))
        case "rack":
            return InterPodConstraints(affinity=(AffinityTerm(RACK, selector, (NAMESPACE,)),))
        case _:
            return None


class Scheduler:
    """kube-scheduler's filters for these rules, asked about the pods that it has placed."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.placed: list[tuple[Pod, str]] = []

    def passes(self, pod: Pod) -> list[str]:
        """Nodes that pass for a pod, by name."""
        return [name for name in self.nodes if self._passes(pod, name)]

    def _rack(self, name: str) -> str:
        return dict(self.nodes[name].labels)[RACK]

    def _passes(self, pod: Pod, name: str) -> bool:
        here = [other for other, node in self.placed if node == name]
        used = Counter(dict(pod.pod_class.requests))
        for other in here:
            used.update(dict(other.pod_class.requests))
        free = dict(self.nodes[name].allocatable)
        if not set(pod.pod_class.node_selector) <= set(self.nodes[name].labels):
            return False
        if used["cpu"] > free["cpu"] or len(here) + 1 > free["pods"]:
            return False
        mine = [node for other, node in self.placed if other.labels == pod.labels]
        racks = Counter({self._rack(node): 0 for node in self.nodes})
        racks.update(self._rack(node) for node in mine)
        constraints = pod.constraints or InterPodConstraints()
        for term in constraints.anti_affinity:
            if (name in mine) if term.topology_key == HOSTNAME else racks[self._rack(name)]:
                return False
        if constraints.spread and racks[self._rack(name)] + 1 - min(racks.values()) > 1:
            return False
        return not (constraints.affinity and mine and not racks[self._rack(name)])


@given(
    kinds=st.lists(st.sampled_from(["", "apart", "racks apart", "spread", "rack"]), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 6), min_size=4, max_size=4),
    racks=st.integers(2, 3),
    large=st.integers(0, 2),
    selective=st.integers(0, 4),
    gated=st.integers(0, 4),
    choose=st.randoms(use_true_random=False),
)
@settings(max_examples=examples(60))
def test_the_plan_is_carried_out_in_whatever_order_kube_scheduler_asks(
    kinds: list[str], sizes: list[int], racks: int, large: int, selective: int, gated: int, choose: random.Random
) -> None:
    """Every planned pod is bound without another plan, whatever samples of nodes kube-scheduler draws.

    The nodes all cost the same, so places shift as often as rules and room let them. Gates open in time.
    """
    nodes = [
        Node(f"n{at}", labels=((HOSTNAME, f"n{at}"), (RACK, f"r{at % racks}")), allocatable=(("cpu", 400), ("pods", 5)))
        for at in range(3 * racks)
    ]
    world, scheduler = FakeCluster(nodes, [POLICY]), Scheduler(nodes)
    fields = {"scheduler_name": STEERED_NAME}
    for at, (kind, size) in enumerate(zip(kinds, sizes, strict=False)):
        selector = LabelSelector((Requirement("set", "In", (str(at),)),))
        for number in range(size):
            pod_class = LARGE if at < large else SMALL
            world.create_pod(
                f"p{at}-{number}",
                pod_class=IN_RACK_0[pod_class] if at < selective and not kind else pod_class,
                labels=(("set", str(at)),),
                constraints=rules(kind, selector),
                gated=at < gated,
                **fields,
            )
    world.show()
    world.make_plan()
    world.deliver(100)
    planned = set(world.ledger.reservations)
    for _ in range(40):
        waiting = [key for key in world.schedulable() if key in planned]
        choose.shuffle(waiting)
        for key in waiting:
            passing = scheduler.passes(world.api[key])
            asked = [name for name in passing if choose.random() < 0.5]
            known = world.api[key].nominated_node
            world.attempt(key, [*asked, *({known} & set(passing) - set(asked))])
            node = world.attempts[key][1]
            world.end_attempt(key, fails=False, message="waiting for Thalweg's plan")
            if node:
                scheduler.placed.append((world.api[key], node[0]))
            if choose.random() < 0.5:
                world.show()
        world.settle()
        world.pass_time(1.0)
        if all(world.api[key].node_name for key in planned):
            break
    assert {key for key in planned if not world.api[key].node_name} == set()


def test_places_do_shift() -> None:
    """The property above speaks of something: a pod goes to a node that no pod was planned for."""
    nodes = [Node(name, labels=((HOSTNAME, name),), allocatable=(("cpu", 400), ("pods", 5))) for name in "ab"]
    world = FakeCluster(nodes, [POLICY])
    key = world.create_pod("p", pod_class=SMALL, scheduler_name=STEERED_NAME).key
    world.create_pod("other", pod_class=LARGE, scheduler_name=STEERED_NAME)
    world.show()
    world.make_plan()
    world.deliver(10)
    before = world.ledger.reservations[key].node
    after = "b" if before == "a" else "a"
    LedgerChecks.shifts.clear()
    world.ledger.helped.take_freed()
    assert world.ask(key, [after]) == ("steered", [after])
    assert LedgerChecks.shifts[1] == 1
    assert world.ledger.reservations[key].node == after
    assert world.ledger.helped.take_freed() == {before}, "pods that rest may have its place"


@pytest.mark.parametrize(("asked", "shifts"), [("its zone", True), ("another zone", False)])
def test_places_of_replicas_shift_within_their_zone(asked: str, *, shifts: bool) -> None:
    """A controller's pods are spread by default, in the plan and where kube-scheduler asks about other nodes."""
    nodes = [
        Node(f"{zone}{at}", labels=((HOSTNAME, f"{zone}{at}"), (ZONE, zone)), allocatable=(("cpu", 400), ("pods", 5)))
        for zone in "ab"
        for at in range(2)
    ]
    world = FakeCluster(nodes, [POLICY])
    world.create_pod("first", pod_class=SMALL, node_name="b0", usage=SMALL.requests, spread_owner="web")
    key = world.create_pod("p", pod_class=SMALL, scheduler_name=STEERED_NAME, spread_owner="web").key
    world.show()
    world.make_plan()
    world.deliver(10)
    planned = world.ledger.reservations[key].node
    assert planned in {"a0", "a1"}
    other = "b1" if asked == "another zone" else ({"a0", "a1"} - {planned}).pop()
    assert world.ask(key, [other]) == (("steered", [other]) if shifts else ("held", []))


@pytest.mark.parametrize(
    ("other", "exchanged"),
    [
        (SMALL, True),
        (msgspec.structs.replace(SMALL, tolerations=(Toleration("own"),)), True),
        (msgspec.structs.replace(SMALL, node_selector=((HOSTNAME, "b"),)), False),
        (msgspec.structs.replace(SMALL, priority=1), False),
        (LARGE, False),
    ],
    ids=["another app", "another class", "may not use the node", "another priority", "another size"],
)
def test_pods_of_one_size_exchange_their_nodes(*, other: PodClass, exchanged: bool) -> None:
    """A pod goes to the only node asked about, which is full with another pod's place; this one gets its node."""
    world, keys, (mine, theirs) = two_places(other)
    assert world.ask(keys[0], [theirs]) == (("steered", [theirs]) if exchanged else ("held", []))
    after = [theirs, mine] if exchanged else [mine, theirs]
    assert [world.ledger.reservations[key].node for key in keys] == after


def two_places(other: PodClass = SMALL) -> tuple[FakeCluster, list[str], list[str]]:
    """A cluster with two planned pods, p and another one named q, their keys and their nodes."""
    nodes = [Node(name, labels=((HOSTNAME, name),), allocatable=(("cpu", 200), ("pods", 3))) for name in "ab"]
    world = FakeCluster(nodes, [POLICY])
    keys = [
        world.create_pod(name, pod_class=pod_class, labels=(("app", name),), scheduler_name=STEERED_NAME).key
        for name, pod_class in (("p", ITS_OWN), ("q", other))
    ]
    world.show()
    world.make_plan()
    world.deliver(10)
    places = [world.ledger.reservations[key].node for key in keys]
    assert len(set(places)) == len(places)
    # The rest of the other pod's node is taken, so nobody can come there beside it.
    world.create_pod("there", pod_class=SMALL, node_name=places[1], usage=SMALL.requests)
    world.show()
    return world, keys, places


def of_app(name: str) -> LabelSelector:
    """Selects the pods with this label."""
    return LabelSelector((Requirement("app", "In", (name,)),))


def excluded_there(world: FakeCluster, keys: list[str], places: list[str]) -> None:
    """A pod that p's node is kept clear of came to q's node. kube-scheduler may not know of it yet."""
    apart = rules("apart", of_app("p"))
    world.create_pod("excluding", pod_class=PodClass(), node_name=places[1], constraints=apart)


def excluded_here(world: FakeCluster, keys: list[str], places: list[str]) -> None:
    """A pod that excludes q came to p's node."""
    world.create_pod("excluding", pod_class=PodClass(), node_name=places[0], constraints=rules("apart", of_app("q")))


def room_gone(world: FakeCluster, keys: list[str], places: list[str]) -> None:
    """Somebody else took the room on p's node."""
    world.create_pod("large", pod_class=LARGE, node_name=places[0], usage=LARGE.requests)


def rejected(world: FakeCluster, keys: list[str], places: list[str]) -> None:
    """kube-scheduler's filters rejected p's node for q a while ago."""
    node_rejected(world.cluster, world.ledger, world.cluster.pods[keys[1]], places[0], world.now)


@pytest.mark.parametrize("happens", [excluded_there, excluded_here, room_gone, rejected])
def test_pods_do_not_exchange_nodes_where_one_of_them_may_not_come(happens: Happening) -> None:
    """What the plan did not know stands against an exchange that the prices would allow."""
    world, keys, places = two_places()
    happens(world, keys, places)
    world.show()
    assert world.ask(keys[0], [places[1]]) == ("held", [])
    assert world.ledger.reservations[keys[1]].node == places[1]


def test_pods_that_exchange_nodes_save_what_their_own_preferences_say() -> None:
    """Another pod's saving counts with the difference of what the two pay for its node."""
    world, keys, (mine, theirs) = two_places()
    for key, saving in zip(keys, (1000, 1200), strict=True):
        world.ledger.change(key, saving=saving)
    generation = world.cluster.generation
    for pod_class, prices in ((ITS_OWN, {mine: 100, theirs: 300}), (SMALL, {mine: 50, theirs: 250})):
        positions = {name: at for at, name in enumerate(prices)}
        world.apply(PricesPlanned(pod_class, POLICY.name, positions, 0, 1, [*prices.values()], 1, generation))
    assert world.ask(keys[0], [theirs]) == ("steered", [theirs])
    assert [world.ledger.reservations[key].saving for key in keys] == [1200 + 300 - 250, 1000 + 50 - 100]


@pytest.mark.parametrize(
    ("price", "tolerance", "outcome"),
    [(1100, 10, "steered"), (1101, 10, "held"), (1150, 200, "steered"), (1000, 0, "steered"), (1001, 0, "held")],
    ids=["a tenth dearer", "more than a tenth", "as good", "the order counts, as dear", "the order counts, dearer"],
)
def test_how_much_dearer_a_node_may_be(price: int, tolerance: int, outcome: str) -> None:
    """The plan would save 1000 without the pod on its node; the question is about another one of this price."""
    nodes = [Node(name, labels=((HOSTNAME, name),), allocatable=(("cpu", 400), ("pods", 5))) for name in "ab"]
    world = FakeCluster(nodes, [POLICY])
    key = world.create_pod("p", pod_class=SMALL, scheduler_name=STEERED_NAME).key
    world.show()
    world.make_plan()
    assert world.plan is not None
    world.plan.placements = [msgspec.structs.replace(each, saving=1000) for each in world.plan.placements]
    generation = world.plan.generation
    world.deliver(10)
    world.apply(PricesPlanned(SMALL, POLICY.name, {"a": 0, "b": 1}, price, 1, [0, 0], tolerance, generation))
    other = "b" if world.ledger.reservations[key].node == "a" else "a"
    assert world.ask(key, [other]) == (outcome, [other] if outcome == "steered" else [])


@pytest.mark.parametrize(
    ("many", "phase"), [(3, Phase.RESERVED), (2, Phase.NOMINATED)], ids=["few nodes", "many nodes"]
)
def test_affinity_is_worth_a_nomination_among_many_nodes(
    monkeypatch: pytest.MonkeyPatch, many: int, phase: Phase
) -> None:
    """Among few nodes kube-scheduler finds those that pass as quickly as the API server takes a nomination."""
    monkeypatch.setattr(nominations, "MANY_NODES", many)
    room = (("cpu", 400), ("pods", 5))
    nodes = [Node(name, labels=((HOSTNAME, name), (RACK, "r")), allocatable=room) for name in "ab"]
    world = FakeCluster(nodes, [POLICY])
    selector = LabelSelector((Requirement("set", "In", ("s",)),))
    key = world.create_pod(
        "p", pod_class=SMALL, labels=(("set", "s"),), constraints=rules("rack", selector), scheduler_name=STEERED_NAME
    ).key
    world.show()
    world.make_plan()
    world.deliver(10)
    assert world.ledger.reservations[key].phase is phase


VOLUME = msgspec.structs.replace(SMALL, volumes=(ClaimVolume(NAMESPACE, "data"),))
IN_GANG = {"gang": GangRef(GangKey(GangSource.THALWEG, NAMESPACE, "g"), GangSpec(min_member=1))}
BOUND = Claim(NAMESPACE, "data", volume_name="v", bound=True)


def claiming(claim: PodClaim) -> PodClass:
    """A small pod with a claim to devices."""
    return msgspec.structs.replace(SMALL, devices=ClaimingPod(NAMESPACE, "p", "u", (claim,)))


@pytest.mark.parametrize(
    ("pod_class", "fields", "claim", "outcome"),
    [
        (claiming(PodClaim("gpu", template="t")), IN_GANG, None, "steered"),
        (claiming(PodClaim("gpu", claim="shared")), IN_GANG, None, "held"),
        (VOLUME, IN_GANG, BOUND, "steered"),
        (VOLUME, IN_GANG, msgspec.structs.replace(BOUND, bound=False), "held"),
        (VOLUME, {}, msgspec.structs.replace(BOUND, bound=False), "steered"),
    ],
    ids=["its own devices", "shared devices", "a volume", "a volume to come", "a volume to come of a single pod"],
)
def test_who_decides_where_others_go_does_not_shift(
    pod_class: PodClass, fields: dict[str, Any], claim: Claim | None, outcome: str
) -> None:
    """The others of its gang that share a claim may have room beside it on the planned node alone."""
    world = SteeredCluster()
    pod = world.pod(pod_class=pod_class, **fields)
    if claim is not None:
        world.state.upsert_storage(claim)
    world.show()
    assert world.plan_pod(pod.key, "a")
    world.ledger.change(pod.key, saving=0)
    current = world.cluster.waiting[pod.key].pod_class
    world.apply(PricesPlanned(current, "steered", {"a": 0, "b": 1}, 0, 1, [0, 0], 1, world.cluster.generation))
    assert world.ask(pod.key, ["b"]) == (outcome, ["b"] if outcome == "steered" else [])
