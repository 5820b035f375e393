"""Networks that cost models declare: each is solved as trying all flows would, or refused with a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replace_policy
from support.constrained_snapshots import constrained_snapshots
from support.declared_networks import DeclaredNetwork, TooManySplits, declared_networks, pods
from support.large_snapshots import with_gangs
from support.model import amounts, node, pod, snapshot
from support.profiles import examples
from support.safety import (
    check_capacity,
    check_complete,
    check_constraints,
    check_costs,
    check_filters,
    check_gangs,
    check_host_ports,
)

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.costs.network_model import UNSCHEDULED, Arc, Network, NetworkCostModel, NetworkView
from flowcore.model.cost_policy import CostPolicy, Utilisation
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.declared_networks import NetworkRefused, NetworkSolution, Work, solve_network
from flowcore.planning.declared_networks.programs.program import MOST_COLUMNS, solve_program
from flowcore.planning.declared_networks.pure_flow import node_limits, solve_pure
from flowcore.planning.declared_networks.solution import check_solution
from flowcore.planning.round import run_round
from flowcore.rules.reasons.codes import CODES


def solved(case: DeclaredNetwork) -> NetworkSolution | None:
    try:
        return solve_network(case.graph(), case.capacity())
    except NetworkRefused:
        return None


def best_cost(case: DeclaredNetwork) -> int | None:
    try:
        return case.cheapest()
    except TooManySplits:
        assume(False)
        raise


@settings(max_examples=examples(150), deadline=None)
@given(declared_networks())
def test_what_is_solved_is_of_least_cost(case: DeclaredNetwork) -> None:
    """With minimums, maximums, gains, sizes of pods and nodes that they do not fit: the best of all flows, or none."""
    expected = best_cost(case)
    found = solved(case)
    assert (found is None) == (expected is None)
    if found is not None:
        assert found.cost == expected
        assert found.proven
        assert found.bound <= found.cost


@settings(max_examples=examples(150), deadline=None)
@given(declared_networks(gains=False, sizes=False))
def test_a_plain_network_is_a_flow_with_a_proof(case: DeclaredNetwork) -> None:
    """Without gains and sizes no integer program is needed; the bound is the cost, by potentials of our own."""
    expected = best_cost(case)
    try:
        graph = case.graph()
    except NetworkRefused:
        assert expected is None
        return
    limits = node_limits(graph, case.capacity())
    assert limits is not None
    try:
        found = solve_pure(graph, limits)
    except NetworkRefused:
        assert expected is None
        with pytest.raises(NetworkRefused):
            solve_program(graph, case.capacity(), seed=0, work=Work())
        return
    check_solution(found, case.capacity())
    assert found.cost == found.bound == expected
    program = solve_program(graph, case.capacity(), seed=0, work=Work())
    check_solution(program, case.capacity())
    assert program.cost == expected


# -- what is refused ---------------------------------------------------------------------------------------------------

WEB, DB = pods("web", [10, 10], nodes=2), pods("db", [20], nodes=2)
N0, N1 = Node("n0"), Node("n1")
STRANGER = pods("stranger", [1], nodes=2)


def drawn(*arcs: Arc) -> DeclaredNetwork:
    return DeclaredNetwork((WEB, DB), (N0, N1), ((1,), (1,)), ((4,), (4,)), arcs)


REFUSED: list[tuple[tuple[Arc, ...], str]] = [
    ((Arc(WEB, "a", minimum=3, maximum=2),), "arc web -> a has a minimum of 3 above its maximum of 2"),
    ((Arc(WEB, "a", minimum=3),), "arc web -> a has a minimum of 3, and at most 2 can reach it"),
    ((Arc(WEB, "a", gain=0),), "arc web -> a has the gain 0: it must be above 0, of numbers up to 1000000"),
    ((Arc(WEB, "a", gain=Fraction(-1, 2)),), "arc web -> a has the gain -1/2: it must be above 0, of numbers"),
    ((Arc(WEB, "a", gain=0.5),), "arc web -> a has the gain 0.5: it must be a whole number or a Fraction"),
    ((Arc(WEB, "a", cost=-1),), "arc web -> a has the cost -1: it must be a whole number from 0 to"),
    ((Arc(WEB, "a", cost=float("nan")),), "arc web -> a has the cost nan: it must be a whole number"),
    ((Arc(WEB, "a", cost=10**13),), "arc web -> a has the cost 10000000000000: it must be a whole number"),
    ((Arc(WEB, "a", minimum=1.5),), "arc web -> a has the minimum 1.5: it must be a whole number"),
    ((Arc(WEB, "a", maximum=-1),), "arc web -> a has the maximum -1: it must be a whole number from 0, or None"),
    (
        (Arc(WEB, "a"), Arc("a", "b"), Arc("b", "a", gain=2)),
        "its arcs form a cycle, in which flow could turn without a",
    ),
    ((Arc("a", "a"),), "its arcs form a cycle, in which flow could turn without a pod: a -> a"),
    ((Arc(WEB, Node("n9")),), "arc web -> n9 has an end that is not in the view: n9"),
    ((Arc(STRANGER, "a"),), "arc stranger -> a has an end that is not in the view: stranger"),
    ((Arc(WEB, None),), "arc web -> None has an end that is not in the view: None"),
    ((Arc(N0, "a"),), "arc n0 -> a begins where flow ends: arcs begin at pods and aggregators"),
    ((Arc(UNSCHEDULED, "a"),), "arc UNSCHEDULED -> a begins where flow ends"),
    ((Arc("a", WEB),), "arc a -> web ends at pods: arcs end at aggregators, nodes and UNSCHEDULED"),
    (("web to n0",), "the network has str among its arcs"),
    (
        (Arc(WEB, "a", gain=10**6), Arc("a", "b", gain=10**6), Arc("b", N0)),
        "its arcs let more than 2147483648 units of flow come to b",
    ),
    (
        (Arc(WEB, "a", maximum=1), Arc(WEB, UNSCHEDULED, maximum=0), Arc("a", N0)),
        "1 of the pods web can go nowhere, not even to UNSCHEDULED",
    ),
    (
        (Arc(WEB, "a", minimum=2), Arc("a", N0, maximum=1)),
        "arc web -> a needs at least 2 and gets 1 where least is lacking",
    ),
    (
        (Arc(WEB, "a", minimum=2), Arc("a", N0, maximum=1), Arc("a", "b", gain=2), Arc("b", N0, maximum=1)),
        "arc web -> a needs at least 2 and gets 1 where least is lacking",
    ),
]  # type: ignore[arg-type]


@pytest.mark.parametrize(("arcs", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_what_contradicts_itself_is_refused_with_a_sentence(arcs: tuple[Arc, ...], sentence: str) -> None:
    """The sentence names the arc and the field."""
    case = drawn(*arcs)
    with pytest.raises(NetworkRefused) as refused:
        solve_network(case.graph(), case.capacity())
    assert str(refused.value).startswith(sentence)


def test_many_nodes_are_no_reason_to_refuse() -> None:
    """Neither a plain flow nor a network with gains, of more ways than one program states."""
    nodes = tuple(Node(f"n{at}") for at in range(MOST_COLUMNS + 1))
    web = pods("web", [10, 10], nodes=len(nodes))
    free = tuple((1,) for _ in nodes)
    plain = DeclaredNetwork((web,), nodes, ((1,),), free, (Arc(web, "a"), *(Arc("a", each, 1) for each in nodes)))
    assert solve_network(plain.graph(), plain.capacity()).cost == 2
    gaining = replace(plain, arcs=(Arc(web, "a", 1, gain=2), *plain.arcs[1:]))
    found = solve_network(gaining.graph(), gaining.capacity())
    assert found.cost == found.bound == 3


def test_a_solution_that_is_none_is_not_carried_out() -> None:
    """Whatever a solver says: what passes a bound, a node's room or the number of pods is found out."""
    case = drawn(Arc(WEB, "a", maximum=1), Arc("a", N0), Arc(DB, N1, minimum=1))
    found = solve_network(case.graph(), case.capacity())
    check_solution(found, case.capacity())
    for flows, placed in (
        (found.flows + 1, found.placed),
        (found.flows, {**found.placed, (0, 1): 1}),
        (found.flows, {key: 2 * count for key, count in found.placed.items()}),
        (found.flows, {}),
    ):
        with pytest.raises(NetworkRefused, match="the solver's flow through"):
            check_solution(replace(found, flows=flows, placed=placed), case.capacity())
    with pytest.raises(NetworkRefused, match="without room"):
        check_solution(found, case.capacity() * 0)


# -- in the round ------------------------------------------------------------------------------------------------------

NETWORK_KINDS = st.sampled_from(["gains", "minimums", "plain", "nothing", "fails"])


class Odd(NetworkCostModel):
    """Some network for whatever pods there are."""

    name = "Odd"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def network(self, view: NetworkView) -> Network:
        if self._kind == "fails":
            raise ValueError("no network today")
        arcs = [Arc(each, "all", gain=2 if self._kind == "gains" else 1) for each in view.pods]
        for value, nodes in view.by_label("zone").items():
            arcs.append(Arc("all", value, cost=len(value), maximum=3, minimum=int(self._kind == "minimums")))
            arcs += [Arc(value, each, cost=int(100 * view.taken(each))) for each in nodes]
        return Network.of(arcs if self._kind != "nothing" else ())


@settings(max_examples=examples(40), deadline=None)
@given(with_gangs(constrained_snapshots()), NETWORK_KINDS, st.data())
def test_no_network_makes_a_plan_unsafe(crowd: Snapshot, kind: str, data: st.DataObject) -> None:
    """Whoever else waits, and whatever rules, ports and gangs there are: every safety property holds."""
    governed = st.booleans().map(lambda mine: "odd" if mine else BUILT_IN.name)
    pending = tuple(msgspec.structs.replace(each, policy=data.draw(governed)) for each in crowd.pending)
    crowd = replace(crowd, pending=pending)
    policies = {BUILT_IN.name: BUILT_IN, "odd": Policy("odd", cost=CostPolicy("Odd"))}
    result = run_round(crowd, policies, {**MODELS, "Odd": Odd(kind)})
    for check in (check_complete, check_capacity, check_host_ports, check_filters):
        check(crowd, result)
    check_constraints(crowd, result, policies)
    check_gangs(crowd, result)
    check_costs(result)
    assert result.lower_bound <= result.cost
    mine = [each for each in result.unplaced if each.pod.policy == "odd"]
    assert all(each.reason.endswith(".") and each.code in CODES for each in mine)
    if kind == "fails":
        told = "the network of cost model Odd is refused: its method network raised ValueError('no network today')"
        decided = [each for each in mine if each.reason.startswith("The network of")]
        assert {each.sentence for each in result.contradictions} == ({told} if decided else set())
        assert not [each for each in result.placements if each.pod.policy == "odd"]


def governed(names: Sequence[str], policy: str, **fields: object) -> list[PendingPod]:
    return [
        pod(name, 1000, policy=policy, kind=PodSignature("default", (("app", policy),)), **fields) for name in names
    ]


class Everywhere(NetworkCostModel):
    """Any node that has room."""

    name = "Everywhere"

    def network(self, view: NetworkView) -> Network:
        return Network.of(Arc(each, node, 1) for each in view.pods for node in view.nodes)


@pytest.mark.parametrize("arcs", [None, [], iter(())])
def test_arcs_that_are_no_tuple_are_refused(arcs: object) -> None:
    """Nobody else suffers: the other policy's pod has its node."""

    class Careless(Everywhere):
        def network(self, view: NetworkView) -> Network:
            return Network(arcs)  # type: ignore[arg-type]

    cluster = snapshot([node("n0")], [*governed(["a"], "net"), *governed(["b"], "other")])
    result = run_round(cluster, POLICIES, {**MODELS, "Everywhere": Careless()})
    assert [each.pod.policy for each in result.placements] == ["other"]
    assert "in place of a Network" in result.unplaced[0].reason


def test_a_node_that_is_overcommitted_in_what_nobody_asks_for() -> None:
    """Pods of different sizes that ask for no GPU, on a node with more GPUs in use than it has."""
    running = [("n0", amounts(500, gpu=2), ())]
    sizes = [pod("a", 700, policy="net"), pod("b", 900, policy="net"), pod("c", 1100, policy="net")]
    cluster = snapshot([node("n0", 2000, gpu=1)], sizes, running)
    assert (cluster.free < 0).any()
    assert len(run_round(cluster, POLICIES, WITH_EVERYWHERE).placements) == 1


def test_a_model_cannot_write_into_the_round() -> None:
    """It gets an error, and its pods wait."""

    class Greedy(Everywhere):
        def network(self, view: NetworkView) -> Network:
            view.load.taken[:] = 0
            return super().network(view)

    cluster = snapshot([node("n0")], governed(["a"], "net"))
    result = run_round(cluster, POLICIES, {**MODELS, "Everywhere": Greedy()})
    assert "read-only" in result.unplaced[0].reason


POLICIES = {"net": Policy("net", cost=CostPolicy("Everywhere")), "other": Policy("other")}
WITH_EVERYWHERE = {**MODELS, "Everywhere": Everywhere()}


@pytest.mark.parametrize(("priority", "first"), [(10, {"other": 2}), (-10, {"net": 2})])
def test_networks_have_their_turn_by_price(priority: int, first: dict[str, int]) -> None:
    """Room for dearer pods of others is kept, whatever the network would pay; cheaper ones get what it leaves."""
    waiting = [*governed(["a", "b"], "net"), *governed(["c", "d"], "other", priority=priority)]
    result = run_round(snapshot([node("n", 2000)], waiting), POLICIES, WITH_EVERYWHERE)
    assert Counter(each.pod.policy for each in result.placements) == first
    assert {each.code for each in result.unplaced} == {"NodeResourcesFit"}
    assert not result.certified


def test_a_gang_that_cannot_run_keeps_no_room_from_a_network() -> None:
    """Dearer pods of a gang that is too large for the cluster wait, and the network's pods take the node."""
    gang = [msgspec.structs.replace(each, gangs=("g",)) for each in governed(["c", "d", "e"], "other", priority=10)]
    state = snapshot([node("n", 2000)], [*governed(["a", "b"], "net"), *gang])
    result = run_round(replace(state, gangs={"g": Gang("g", 3)}), POLICIES, WITH_EVERYWHERE)
    assert Counter(each.pod.policy for each in result.placements) == {"net": 2}


def test_pods_that_a_network_leaves_out_though_nodes_have_room() -> None:
    """The reason says so: no filter keeps them out."""

    class One(NetworkCostModel):
        name = "Everywhere"

        def network(self, view: NetworkView) -> Network:
            return Network.of([*(Arc(each, "one") for each in view.pods), Arc("one", view.nodes[0], maximum=1)])

    state = snapshot([node("n")], governed(["a", "b", "c"], "net"))
    result = run_round(state, POLICIES, {**MODELS, "Everywhere": One()})
    told = "The network of cost model Everywhere places 1 of the 3 pods like this one, and leaves this one pending."
    assert {(each.reason, each.code) for each in result.unplaced} == {(told, "NetworkUnscheduled")}


@pytest.mark.parametrize(("key", "expected", "certified"), [(HOSTNAME, 7, True), ("zone", 3, False)])
def test_rules_between_pods_hold_in_a_network_that_does_not_know_them(
    key: str, expected: int, *, certified: bool
) -> None:
    """One a node is a maximum of what the node takes; for one a zone the network is solved again, without a proof."""
    alone = InterPodConstraints(
        anti_affinity=(AffinityTerm(key, LabelSelector((Requirement("app", "Exists"),)), ("default",)),)
    )
    kind = PodSignature("default", (("app", "x"),), constraints=alone)
    waiting = [msgspec.structs.replace(each, signature=kind) for each in governed([f"p{at}" for at in range(7)], "net")]
    nodes = [
        node(f"{zone}{at}", labels=((HOSTNAME, f"{zone}{at}"), ("zone", zone))) for zone in "abc" for at in range(20)
    ]
    result = run_round(snapshot(nodes, waiting), POLICIES, WITH_EVERYWHERE)
    places = [each.node if key == HOSTNAME else each.node[0] for each in result.placements]
    assert len(places) == len(set(places)) == expected
    assert result.certified == certified


def test_a_model_sees_what_runs_and_what_a_network_placed() -> None:
    """Pods by their labels on each node, those of a network that had its turn before among them."""
    seen: dict[str, dict[str, int]] = {}

    class Looking(Everywhere):
        def network(self, view: NetworkView) -> Network:
            seen[view.policy] = view.running({"app": "net"})
            assert [(each.labels, each.count) for each in view.pods] == [({"app": view.policy}, 2)]
            return super().network(view)

    index = PodIndex.of([("n", PodSignature("default", (("app", "net"), ("x", "y"))))])
    policies = {"net": POLICIES["net"], "later": replace_policy(POLICIES["net"], name="later")}
    waiting = [*governed(["a", "b"], "net", priority=1), *governed(["c", "d"], "later")]
    state = snapshot([node("n")], waiting, pod_index=index)
    result = run_round(state, policies, {**MODELS, "Everywhere": Looking()})
    assert len(result.placements) == 4
    assert seen == {"net": {"n": 1}, "later": {"n": 3}}


@pytest.mark.parametrize(("utilisation", "expected"), [(Utilisation.REQUESTED, "idle"), (Utilisation.MEASURED, "busy")])
def test_a_model_sees_the_load_that_its_policy_counts(utilisation: Utilisation, expected: str) -> None:
    """Pods that request much and use nothing: by measurement their node is the emptier one."""

    class Emptiest(Everywhere):
        def network(self, view: NetworkView) -> Network:
            arcs = [Arc(each, node, int(1000 * view.taken(node))) for each in view.pods for node in view.nodes]
            return Network.of(arcs)

    state = snapshot([node("busy"), node("idle")], governed(["a"], "net"), [("busy", amounts(2000), ())])
    state = replace(state, measured=np.array([[100.0, 0.0, np.nan], [3000.0, 0.0, np.nan]]))
    policies = {"net": Policy("net", cost=CostPolicy("Everywhere", utilisation=utilisation))}
    result = run_round(state, policies, {**MODELS, "Everywhere": Emptiest()})
    assert [each.node for each in result.placements] == [expected]


def test_labels_of_one_pod_alone_make_no_classes() -> None:
    """Pods of a StatefulSet or an indexed Job are one start of arcs."""
    kinds = [
        PodSignature("default", (("app", "x"), ("statefulset.kubernetes.io/pod-name", f"x-{at}"))) for at in range(3)
    ]
    waiting = [
        msgspec.structs.replace(each, signature=kind)
        for each, kind in zip(governed(["a", "b", "c"], "net"), kinds, strict=True)
    ]
    found: list[list[int]] = []

    class Counting(Everywhere):
        def network(self, view: NetworkView) -> Network:
            found.append([each.count for each in view.pods])
            return super().network(view)

    run_round(snapshot([node("n")], waiting), POLICIES, {**MODELS, "Everywhere": Counting()})
    assert found == [[3]]
