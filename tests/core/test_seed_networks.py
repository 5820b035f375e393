"""The figures of the seeds, drawn arc by arc as a model's network: each gives the plan of the engine's own construct.

pod-affinity-and-gangs.md: figures 1 to 11. firmament-poseidon-overview.md: figure 1. node-selector-and-affinity.md:
figures 1 to 3. taints-and-tolerations.md: figure 2. Every pod has the arc to UNSCHEDULED that is implied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec
import pytest
from support.model import GI, amounts, node, pod, snapshot
from support.safety import check_capacity, check_complete, check_costs, check_filters, plan_and_check

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.costs.network_model import UNSCHEDULED, Arc, Network, NetworkCostModel, NetworkView
from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global
from flowcore.model.cost_policy import CostPolicy, Preferences
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.nodes import Node, Taint
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PreferredTerm
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement
from flowcore.planning.round import RoundResult, run_round

ZONE, RACK = "topology.kubernetes.io/zone", "rack"
EVERY = LabelSelector()
Draw = Callable[[NetworkView], Iterable[Arc]]


class Drawn(NetworkCostModel):
    """The network that a function draws."""

    name = "Drawn"

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def network(self, view: NetworkView) -> Network:
        return Network.of(self._draw(view))


def machine(name: str, cpu: int = 4000, **fields: object) -> Node:
    labels = {HOSTNAME: name, **fields.pop("labels", {})}
    return node(name, cpu, 32 * GI, labels=tuple(sorted(labels.items())), **fields)


def machines(count: int, cpu: int = 4000) -> list[Node]:
    return [machine(f"M{at}", cpu) for at in range(count)]


def task(name: str, cpu: int = 1000, app: str = "app", policy: str = "p", **fields: object) -> PendingPod:
    return pod(name, cpu, GI, policy=policy, kind=PodSignature("default", (("app", app),)), **fields)


def tasks(count: int, cpu: int = 1000, app: str = "app", **fields: object) -> list[PendingPod]:
    return [task(f"{app}-T{at}", cpu, app, **fields) for at in range(count)]


def cluster(nodes: Sequence[Node], pending: Sequence[PendingPod], **taken: int) -> Snapshot:
    return snapshot(nodes, pending, [(name, amounts(cpu), ()) for name, cpu in taken.items()])


def drawn(state: Snapshot, draw: Draw, preferences: Preferences = Preferences.SCALED, **others: Policy) -> RoundResult:
    """The plan by the network; policy p has it, pods of others are planned as always."""
    policies = {"p": Policy("p", cost=CostPolicy("Drawn", preferences=preferences)), **others}
    result = run_round(state, policies, {**MODELS, "Drawn": Drawn(draw)})
    check_complete(state, result)
    check_capacity(state, result)
    check_filters(state, result)
    check_costs(result)
    return result


def placed(result: RoundResult) -> dict[str, str]:
    return {placement.pod.uid: placement.node for placement in result.placements}


def kinds(result: RoundResult) -> Counter[tuple[str, str]]:
    """How many pods of which app are on each node: pods of one app are interchangeable."""
    return Counter((dict(each.pod.signature.labels)["app"], each.node) for each in result.placements)


def same(
    state: Snapshot, draw: Draw, *constraints: Constraint, preferences: Preferences = Preferences.SCALED
) -> Counter[tuple[str, str]]:
    """The plan by the network, which must be the engine's under constraints of its own."""
    by_network = drawn(state, draw, preferences)
    policy = Policy("p", constraints=constraints, cost=CostPolicy(preferences=preferences))
    by_engine = plan_and_check(state, {"p": policy})
    assert kinds(by_network) == kinds(by_engine)
    assert by_network.certified
    return kinds(by_network)


def named(view: NetworkView, *names: str) -> list[Node]:
    return [each for each in view.nodes if each.name in names]


# -- pod-affinity-and-gangs.md -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [3000, 4000])
def test_figure_1_machine_id(taken: int) -> None:
    """T0 has one arc, to M0: it goes there though M1 is empty, and waits where M0 is full."""

    def draw(view: NetworkView) -> Iterable[Arc]:
        return [Arc(pods, each) for pods in view.pods for each in named(view, "M0")]

    state = cluster(machines(2), [task("T0", node_selector=((HOSTNAME, "M0"),))], M0=taken)
    assert same(state, draw) == (Counter({("app", "M0"): 1}) if taken == 3000 else Counter())
    free = cluster(machines(2), [task("T0")], M0=taken)
    assert placed(drawn(free, draw)) == ({"T0": "M0"} if taken == 3000 else {})


def test_machine_metadata() -> None:
    """Arcs to all machines with the metadata, and no others."""
    nodes = [machine(f"M{at}", labels={"disk": disk}) for at, disk in enumerate(["ssd", "ssd", "hdd"])]

    def draw(view: NetworkView) -> Iterable[Arc]:
        return [Arc(pods, each) for pods in view.pods for each in view.by_label("disk")["ssd"]]

    state = cluster([*nodes, machine("M3")], tasks(5, 2000, node_selector=(("disk", "ssd"),)))
    assert same(state, draw) == {("app", "M0"): 2, ("app", "M1"): 2}


def apart(view: NetworkView, most: int = 1) -> list[Arc]:
    """Figures 2 and 3: all tasks to one class EC, EC to each machine with a maximum."""
    return [
        *(Arc(pods, "EC") for pods in view.pods),
        *(Arc("EC", each, maximum=most) for each in view.nodes),
    ]


@pytest.mark.parametrize(("web", "expected"), [(1, 2), (2, 2)])
def test_figure_2_conflicts(web: int, expected: int) -> None:
    """Two tasks that must not share a machine, of whatever Deployment; the third waits."""
    state = cluster(machines(2), [*tasks(web, app="web"), *tasks(1, app="api")])
    found = drawn(state, apart)
    both = Conflict("c", LabelSelector((Requirement("app", "In", ("web", "api")),)), HOSTNAME)
    engine = plan_and_check(state, {"p": Policy("p", constraints=(both,))})
    assert sorted(each.node for each in found.placements) == sorted(each.node for each in engine.placements)
    assert len(found.placements) == expected


def test_figure_3_global() -> None:
    """EC to each machine with a minimum and a maximum of 1: one runs on every machine, no matter what."""

    def draw(view: NetworkView) -> Iterable[Arc]:
        yield from (Arc(pods, "EC") for pods in view.pods)
        able = {each.name: each for pods in view.pods for each in view.takes(pods)}
        yield from (Arc("EC", each, minimum=1, maximum=1) for each in able.values())

    everywhere = Global("g", EVERY, EVERY)
    assert same(cluster(machines(5), tasks(5)), draw, everywhere) == {("app", f"M{at}"): 1 for at in range(5)}
    assert same(cluster(machines(5), tasks(7), M2=4000), draw, everywhere).keys() == {
        ("app", f"M{at}") for at in (0, 1, 3, 4)
    }


def test_figure_3_what_cannot_be_everywhere_is_refused() -> None:
    """A minimum on a full machine is not met in silence by something else: the tasks wait, and are told which arc."""

    def draw(view: NetworkView) -> Iterable[Arc]:
        yield from (Arc(pods, "EC") for pods in view.pods)
        yield from (Arc("EC", each, minimum=1, maximum=1) for each in view.nodes)

    result = drawn(cluster(machines(3), tasks(3), M2=4000), draw)
    assert not result.placements
    told = (
        "The network of cost model Drawn is refused: arc EC -> M2 needs at least 1 and gets 0 where least is lacking."
    )
    assert {(left.reason, left.code) for left in result.unplaced} == {(told, "NetworkRefused")}
    assert [(each.policy, f"T{each.sentence[1:]}.") for each in result.contradictions] == [("p", told)]


def test_figures_4_and_5_replace() -> None:
    """T0 keeps only its arc to UNSCHEDULED, T1 has one to T0's machine: T1 runs there and T0 does not.

    Here both are tasks of the round, as Firmament has it. The engine's own construct evicts T0, which runs.
    """

    def before(view: NetworkView) -> Iterable[Arc]:
        return [Arc(pods, each) for pods in view.pods for each in named(view, "M0")]

    def after(view: NetworkView) -> Iterable[Arc]:
        new = [pods for pods in view.pods if pods.labels["app"] == "new"]
        return [Arc(pods, each) for pods in new for each in named(view, "M0")]

    t0, t1 = task("T0", 4000, "old", priority=10), task("T1", 4000, "new")
    assert placed(drawn(cluster(machines(2), [t0]), before)) == {"T0": "M0"}
    assert placed(drawn(cluster(machines(2), [t0, t1]), after)) == {"T1": "M0"}


def preferring(name: str, weight: int) -> PendingPod:
    term = NodeSelectorTerm((Requirement("hardware", "In", ("gpu",)),))
    return task(name, app=name, preferred_affinity=(PreferredTerm(weight, term),))


def by_preference(view: NetworkView) -> list[Arc]:
    """An arc to each machine that costs what the pod's own preferences say."""
    return [
        Arc(pods, each, cost=int(pods.costs[view.table.index[each.name]])) for pods in view.pods for each in view.nodes
    ]


@pytest.mark.parametrize(("taken", "expected"), [(1000, "M0"), (4000, "M1")])
def test_figure_5_soft_constraints(taken: int, expected: str) -> None:
    """The arc to the machine that T0 prefers costs less than the other."""
    nodes = [machine("M0", labels={"hardware": "gpu"}), machine("M1")]
    state = cluster(nodes, [preferring("T0", 50)], M0=taken)
    assert same(state, by_preference) == {("T0", expected): 1}


def test_the_gpu_goes_to_the_one_that_wants_it_more() -> None:
    """The seed's contention case: two tasks prefer the one GPU machine, the later one more."""
    nodes = [machine("gpu", 1000, labels={"hardware": "gpu"}), machine("M1", 1000)]
    state = cluster(nodes, [preferring("first", 20), preferring("second", 80)])
    plan = same(state, by_preference, preferences=Preferences.POINTS)
    assert plan == {("second", "gpu"): 1, ("first", "M1"): 1}


@pytest.mark.parametrize(("taken", "expected"), [({"M1": 3000}, {"T0", "T1"}), ({"M2": 4000}, {"T0"})])
def test_figure_6_hard_constraints(taken: dict[str, int], expected: set[str]) -> None:
    """Arcs from T0 to M0 and M1, from T1 to M2."""
    nodes = [machine(f"M{at}", labels={"kind": kind}) for at, kind in enumerate("aab")]
    pending = [
        task("T0", app="T0", node_selector=(("kind", "a"),)),
        task("T1", app="T1", node_selector=(("kind", "b"),)),
    ]

    def draw(view: NetworkView) -> Iterable[Arc]:
        for pods in view.pods:
            for each in view.by_label("kind")["a" if pods.labels["app"] == "T0" else "b"]:
                yield Arc(pods, each, cost=int(1000 * view.taken(each)))

    assert {app for app, _ in same(cluster(nodes, pending, **taken), draw)} == expected


def xor(p: int, r: int) -> Draw:
    """Figures 7 and 8: EC_G to EC_O with a maximum of p, EC_O to each machine with one of r.

    The arcs to a machine are r with a maximum of 1 each and rising costs, so that the tasks spread as the engine's do.
    """

    def draw(view: NetworkView) -> Iterable[Arc]:
        yield from (Arc(pods, "EC_G") for pods in view.pods)
        yield Arc("EC_G", "EC_O", maximum=p)
        yield from (Arc("EC_O", each, cost=100 * (at + 1), maximum=1) for each in view.nodes for at in range(r))

    return draw


@pytest.mark.parametrize(("p", "r"), [(1, 1), (1, 5), (3, 1), (4, 2), (9, 2)])
def test_figure_7_at_most_p_in_all_and_r_on_a_machine(p: int, r: int) -> None:
    """With p = 1 and any r it is xor: one of them, or none."""
    state = cluster(machines(3), tasks(8))
    found = drawn(state, xor(p, r))
    limit = Exclusive("x", (EVERY, LabelSelector((Requirement("app", "In", ("none",)),))), HOSTNAME, r, p)
    engine = plan_and_check(state, {"p": Policy("p", constraints=(limit,))})
    assert sorted(Counter(placed(found).values()).values()) == sorted(Counter(placed(engine).values()).values())
    assert len(found.placements) == min(p, 3 * r)


@pytest.mark.parametrize("count", [2, 3])
def test_figure_8_three_tasks_on_three_machines(count: int) -> None:
    """A maximum of one on each arc from EC_O to a machine."""
    assert sum(same(cluster(machines(count), tasks(3)), xor(3, 1), Conflict("c", EVERY, HOSTNAME)).values()) == count


def and_construct(p: int) -> Draw:
    """Together p tasks or none: p units reach G, of which p - 1 end in E, and the last counts for all p.

    E leads to UNSCHEDULED, and costs nothing: what waits costs its price, however its unit went.
    """

    def draw(view: NetworkView) -> Iterable[Arc]:
        yield from (Arc(pods, "G") for pods in view.pods)
        yield Arc("G", "E", minimum=p - 1, maximum=p - 1)
        yield Arc("E", UNSCHEDULED)
        yield Arc("G", "A", maximum=1, gain=p)
        yield from (Arc("A", each) for each in view.nodes)

    return draw


def gang(count: int, **fields: object) -> list[PendingPod]:
    return tasks(count, app="g", **fields)


def as_gang(state: Snapshot, gang: Gang) -> Snapshot:
    """The same pods as a gang that the engine knows."""
    member = [
        msgspec.structs.replace(each, gangs=(gang.name,)) if each.uid.startswith("g-") else each
        for each in state.pending
    ]
    return replace(state, pending=tuple(member), gangs={gang.name: gang})


DEAR = [task(f"d{at}", app="d", policy="dear", priority=1_000_000) for at in range(2)]


@pytest.mark.parametrize(("slots", "running"), [(5, 5), (4, 2), (3, 2)])
def test_figure_9_gang(slots: int, running: int) -> None:
    """With the gain of p the gang is in or out by what it is worth; dearer pods of another policy keep their room."""
    state = cluster(machines(slots, 1000), [*gang(3), *DEAR])
    found = drawn(state, and_construct(3), dear=Policy("dear"))
    engine = plan_and_check(as_gang(state, Gang("g", 3)), {"p": Policy("p"), "dear": Policy("dear")})
    assert Counter(app for app, _ in kinds(found).elements()) == Counter(app for app, _ in kinds(engine).elements())
    assert len(found.placements) == running
    assert {each.atomic_group for each in found.placements if each.pod.policy == "p"} <= {"network of policy p"}


def test_figure_9_with_a_minimum() -> None:
    """With a minimum alone the gang runs whatever that costs, as the seed says: a dearer task of its network waits."""

    def draw(view: NetworkView) -> Iterable[Arc]:
        for pods in view.pods:
            yield Arc(pods, "EC_G" if pods.labels["app"] == "g" else "C")
        yield Arc("EC_G", "EC_E", minimum=3)
        yield from (Arc(each, node) for each in ("EC_E", "C") for node in view.nodes)

    dear = [msgspec.structs.replace(each, policy="p") for each in DEAR]
    found = drawn(cluster(machines(4, 1000), [*gang(3), *dear]), draw)
    assert Counter(app for app, _ in kinds(found).elements()) == {"g": 3, "d": 1}
    assert not drawn(cluster(machines(2, 1000), [*gang(3), *dear]), draw).placements


@pytest.mark.parametrize(("sizes", "expected"), [((1000, 1000), 0), ((1000, 2000), 2), ((1999, 1999), 0)])
@pytest.mark.parametrize("apps", [("g", "g"), ("g", "h")])
def test_figure_10_co_located_or_unscheduled(sizes: tuple[int, int], expected: int, apps: tuple[str, str]) -> None:
    """One aggregator A for each machine, a gain of 2 from G to it: both tasks on one machine, or none.

    It makes no difference whether the two are of one kind: a unit that ends in E may be that of either.
    """

    def draw(view: NetworkView) -> Iterable[Arc]:
        yield from (Arc(pods, "G") for pods in view.pods)
        yield Arc("G", "E", minimum=1, maximum=1)
        yield Arc("E", UNSCHEDULED)
        for each in view.nodes:
            yield Arc("G", f"A of {each.name}", maximum=1, gain=2)
            yield Arc(f"A of {each.name}", each)

    nodes = [machine(name, cpu) for name, cpu in zip("ab", sizes, strict=True)]
    pending = [task(f"g-{at}", app=app) for at, app in enumerate(apps)]
    state = cluster(nodes, pending)
    found = drawn(state, draw)
    pair = Gang("g", 2, topology_key=HOSTNAME)
    engine = plan_and_check(as_gang(state, pair), {"p": Policy("p")})
    assert kinds(found) == kinds(engine)
    assert len(found.placements) == expected
    assert found.certified or not expected


def test_figure_10_for_a_dearer_task_both_wait() -> None:
    """M0 has room for two: a dearer task takes one place, and with it the other is no use to the pair."""

    def draw(view: NetworkView) -> Iterable[Arc]:
        yield from and_construct(2)(replace(view, pods=tuple(p for p in view.pods if p.labels["app"] == "g")))
        yield from (Arc(p, each) for p in view.pods if p.labels["app"] == "d" for each in view.nodes)

    dear = msgspec.structs.replace(DEAR[0], policy="p")
    found = drawn(cluster(machines(1, 2000), [*gang(2), dear]), draw)
    assert placed(found) == {"d0": "M0"}
    cheap = task("d0", app="d")
    assert placed(drawn(cluster(machines(1, 2000), [*gang(2), cheap]), draw)).keys() == {"g-T0", "g-T1"}


def zones(**sizes: int) -> list[Node]:
    return [machine(f"{zone}{at}", labels={ZONE: zone}) for zone, size in sizes.items() for at in range(size)]


def by_zone(r: int) -> Draw:
    """EC to each AV with a maximum of r, and to its machines at what is in use there."""

    def draw(view: NetworkView) -> Iterable[Arc]:
        yield from (Arc(pods, "EC") for pods in view.pods)
        for zone, members in view.by_label(ZONE).items():
            yield Arc("EC", f"AV_{zone}", maximum=r)
            yield from (Arc(f"AV_{zone}", each, cost=int(1000 * view.taken(each))) for each in members)

    return draw


def test_figure_11_one_a_zone_on_its_freest_node() -> None:
    """Three tasks, three zones, r = 1: in each zone the machine with the least in use."""
    state = cluster(zones(a=2, b=2, c=2), tasks(3), a0=2000, b1=2000, c0=1000)
    assert same(state, by_zone(1), Conflict("az", EVERY, ZONE)) == {
        ("app", "a1"): 1,
        ("app", "b0"): 1,
        ("app", "c1"): 1,
    }


@pytest.mark.parametrize(
    ("sizes", "r", "taken", "expected"),
    [
        ({"a": 1, "b": 2, "c": 6}, 1, {}, {"a": 1, "b": 1, "c": 1}),
        ({"a": 1, "b": 2, "c": 6}, 3, {}, {"a": 3, "b": 3, "c": 3}),
        ({"a": 1, "b": 1, "c": 1}, 3, {"c0": 3500}, {"a": 3, "b": 3, "c": 1}),
        ({"a": 2, "b": 2}, 2, {}, {"a": 2, "b": 2}),
    ],
)
def test_figure_11_zones(sizes: dict[str, int], r: int, taken: dict[str, int], expected: dict[str, int]) -> None:
    """Uneven zones take as many each; a full one takes what it has room for; what is beyond r waits."""
    state = cluster(zones(**sizes), tasks(9, 500), **taken)
    engine = plan_and_check(state, {"p": Policy("p", constraints=(Conflict("az", EVERY, ZONE, r),))})
    found = drawn(state, by_zone(r))
    assert Counter(each.node[0] for each in found.placements) == expected
    assert Counter(each.node[0] for each in engine.placements) == expected


# -- firmament-poseidon-overview.md ------------------------------------------------------------------------------------


def test_overview_figure_1() -> None:
    """Five pods, four nodes in two racks: direct arcs, an arc to a rack, arcs to the cluster, and to UNSCHEDULED.

    Each node has room for one. P3 is the cheapest to leave, so it waits; the others get what they prefer.
    """
    nodes = [machine(f"N{at}", 1000, labels={RACK: f"R{at // 2}"}) for at in range(4)]

    def prefers(name: str, key: str, value: str, priority: int = 1) -> PendingPod:
        term = PreferredTerm(100, NodeSelectorTerm((Requirement(key, "In", (value,)),)))
        return task(name, app=name, priority=priority, preferred_affinity=(term,))

    plain = [task("P2", app="P2", priority=1), task("P3", app="P3")]
    pending = [prefers("P0", HOSTNAME, "N0"), prefers("P1", HOSTNAME, "N2"), *plain, prefers("P4", RACK, "R1")]

    def draw(view: NetworkView) -> Iterable[Arc]:
        direct = {"P0": named(view, "N0"), "P1": named(view, "N2"), "P4": ["R1"]}
        for pods in view.pods:
            yield from (Arc(pods, end) for end in direct.get(pods.labels["app"], ()))
            yield Arc(pods, "C", cost=100)
        for rack, members in view.by_label(RACK).items():
            yield Arc("C", rack)
            yield from (Arc(rack, each) for each in members)

    assert same(cluster(nodes, pending), draw) == {
        (f"P{at}", f"N{on}"): 1 for at, on in ((0, 0), (1, 2), (2, 1), (4, 3))
    }


# -- node-selector-and-affinity.md, taints-and-tolerations.md ----------------------------------------------------------


def with_slots(view: NetworkView, allowed: Callable[[Node], bool], extra: Callable[[Node], int]) -> Iterable[Arc]:
    """A task EC, machine ECs with a maximum of 1 and rising costs, machines: the CPU-Memory cost model's diagram."""
    for pods in view.pods:
        yield Arc(pods, "task EC")
    for each in filter(allowed, view.nodes):
        for at in range(2):
            machine_ec = f"{each.name}EC{at + 1}"
            yield Arc("task EC", machine_ec, cost=100 * (at + 1) + extra(each), maximum=1)
            yield Arc(machine_ec, each, maximum=1)


@pytest.mark.parametrize(("count", "expected"), [(3, [1, 1, 1]), (6, [2, 2, 2]), (7, [2, 2, 2])])
def test_node_selector_figure_1_slots(count: int, expected: list[int]) -> None:
    """Three machines with a capacity of two, costs of 100 and 200: one each, then two each, then no more."""

    def draw(view: NetworkView) -> Iterable[Arc]:
        return with_slots(view, lambda _: True, lambda _: 0)

    found = same(cluster(machines(3, 2000), tasks(count)), draw)
    assert sorted(found.values()) == expected


def test_node_selector_figure_2() -> None:
    """Arcs only to the machine ECs of machines with the label."""
    nodes = [machine(f"M{at}", 2000, labels={"disk": "ssd"} if at < 2 else {}) for at in range(3)]

    def draw(view: NetworkView) -> Iterable[Arc]:
        ssd = {each.name for each in view.by_label("disk")["ssd"]}
        return with_slots(view, lambda each: each.name in ssd, lambda _: 0)

    state = cluster(nodes, tasks(5, node_selector=(("disk", "ssd"),)))
    assert same(state, draw) == {("app", "M0"): 2, ("app", "M1"): 2}


def test_node_selector_figure_3_hard_and_soft() -> None:
    """M0 and M1 meet the hard constraint; M1 has more weight of the soft ones, so its arcs cost less."""
    nodes = [machine("M0", 2000, labels={"kind": "a"}), machine("M1", 2000, labels={"kind": "a", "fast": "yes"})]
    term = PreferredTerm(100, NodeSelectorTerm((Requirement("fast", "In", ("yes",)),)))
    pending = tasks(2, node_selector=(("kind", "a"),), preferred_affinity=(term,))

    def draw(view: NetworkView) -> Iterable[Arc]:
        suited = {each.name for each in view.by_label("kind")["a"]}
        fast = {each.name for each in view.by_label("fast")["yes"]}
        return with_slots(view, lambda each: each.name in suited, lambda each: 0 if each.name in fast else 1000)

    assert same(cluster([*nodes, machine("M2")], pending), draw) == {("app", "M1"): 2}


def test_taints_figure_2_a_machine_with_an_intolerable_taint() -> None:
    """Each PreferNoSchedule taint that the pods do not tolerate makes the arcs to its machine dearer."""
    taint = Taint("key", "value", "PreferNoSchedule")
    nodes = [machine("M0", 2000, taints=(taint,)), machine("M1", 2000), machine("M2", 2000)]

    def draw(view: NetworkView) -> Iterable[Arc]:
        return with_slots(view, lambda _: True, lambda each: 1000 * len(each.taints))

    assert same(cluster(nodes, tasks(4)), draw) == {("app", "M1"): 2, ("app", "M2"): 2}
    assert same(cluster(nodes, tasks(5)), draw)[("app", "M0")] == 1
