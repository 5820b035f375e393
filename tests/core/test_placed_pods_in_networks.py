"""Pods that have a node already count in the bounds of a declared network, as its model draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.declared_networks import DeclaredNetwork, TooManySplits, pods
from support.model import node, pod, snapshot
from support.profiles import examples
from support.safety import check_capacity, check_complete, check_costs

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.costs.network_model import UNSCHEDULED, Arc, Network, NetworkCostModel, NetworkView, PlacedPods
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import Policy
from flowcore.planning.declared_networks import NetworkRefused, solve_network
from flowcore.planning.round import RoundResult, run_round

WEB = pods("web", [50, 40, 30], nodes=2)
N0, N1 = Node("n0"), Node("n1")


def running(count: int, on: Node = N0) -> PlacedPods:
    return PlacedPods({"app": "web"}, on, count)


def network(*arcs: Arc) -> DeclaredNetwork:
    return DeclaredNetwork((WEB,), (N0, N1), ((1,),), ((9,), (9,)), arcs)


def placed(*arcs: Arc) -> dict[int, int]:
    """How many of the three waiting pods go to each node."""
    case = network(*arcs)
    return {place: count for (_, place), count in solve_network(case.graph(), case.capacity()).placed.items()}


@pytest.mark.parametrize(("count", "expected"), [(0, 3), (2, 1), (3, 0), (7, 0)])
def test_a_maximum_has_what_running_pods_leave(count: int, expected: int) -> None:
    """Also where more run than it allows."""
    arcs = [Arc(WEB, "rack"), Arc("rack", N0, maximum=3)]
    here = running(count)
    assert placed(*arcs, Arc(here, "rack")).get(0, 0) == expected


@pytest.mark.parametrize(("count", "expected"), [(0, 3), (2, 1), (3, 0), (7, 0)])
def test_a_minimum_needs_what_running_pods_lack(count: int, expected: int) -> None:
    """The other node is cheaper, so no more than that go where the minimum is."""
    here = running(count)
    arcs = [Arc(WEB, "rack"), Arc("rack", N0, cost=9, minimum=3), Arc(WEB, N1, cost=1), Arc(here, "rack")]
    assert placed(*arcs).get(0, 0) == expected


@pytest.mark.parametrize(("count", "expected"), [(0, 2), (1, 2), (2, 0), (3, 0)])
def test_units_behind_a_gain_are_whole(count: int, expected: int) -> None:
    """One pair may run: two running pods are the pair, one of them is none."""
    here = running(count)
    arcs = [Arc(WEB, "pairs"), Arc("pairs", UNSCHEDULED), Arc("pairs", "pair", maximum=1, gain=2), Arc("pair", N0)]
    assert placed(*arcs, Arc(here, "pairs")).get(0, 0) == expected


def test_running_pods_meet_minimums_first_and_then_take_the_cheapest_way() -> None:
    """Four run: one meets the minimum, two take all of the cheap way, and the last one the dear way."""
    here = running(4)
    arcs = [
        Arc(WEB, "rack"), Arc("rack", "needed", cost=9, minimum=1), Arc("needed", N0),
        Arc("rack", "cheap", maximum=2), Arc("cheap", N0), Arc("rack", "dear", cost=5, maximum=3), Arc("dear", N0),
        Arc(here, "rack"),
    ]  # fmt: skip
    graph = network(*arcs).graph()
    by_name = {graph.arc_name(arc): arc for arc in range(len(graph.tails))}
    assert int(graph.minimums[by_name["rack -> needed"]]) == 0
    assert int(graph.maximums[by_name["rack -> cheap"]]) == 0
    assert int(graph.maximums[by_name["rack -> dear"]]) == 2


def test_a_way_of_their_own_counts_too() -> None:
    """A bound on an arc from running pods limits what is counted of them."""
    here = running(3)
    arcs = [Arc(WEB, "rack"), Arc("rack", N0, maximum=3), Arc(here, "rack", maximum=1)]
    assert placed(*arcs) == {0: 2}


def test_running_pods_cost_nothing_and_are_not_placed_again() -> None:
    """The cost of a plan is that of the waiting pods."""
    case = network(Arc(WEB, "rack"), Arc("rack", N0, cost=7), Arc(running(5), "rack", cost=8))
    solution = solve_network(case.graph(), case.capacity())
    assert solution.cost == solution.bound == 21
    assert solution.placed == {(0, 0): 3}


@pytest.mark.parametrize(
    ("arc", "sentence"),
    [
        (Arc(running(1), "a", minimum=1), "begins at pods that have a node, and has a minimum: such arcs have none"),
        (Arc("a", running(1)), "ends at pods: arcs end at aggregators, nodes and UNSCHEDULED"),
        (Arc(running(1, Node("n9")), "a"), "has an end that is not in the view: pods app=web on n9"),
    ],
)
def test_what_running_pods_cannot_have(arc: Arc, sentence: str) -> None:
    """The sentence names the arc."""
    with pytest.raises(NetworkRefused, match="arc .*" + sentence):
        network(arc).graph()


@st.composite
def networks_with_running_pods(draw: st.DrawFn) -> tuple[DeclaredNetwork, PlacedPods]:
    """Small networks in which one way leads from an aggregator to each node, and pods that run on a node."""
    nodes = (N0, N1)
    kinds = tuple(
        pods(f"p{kind}", draw(st.lists(st.integers(5, 40), min_size=1, max_size=2)), 2)
        for kind in range(draw(st.integers(1, 2)))
    )
    arcs = [
        Arc(kind, name, draw(st.integers(0, 5))) for kind in kinds for name in draw(st.sampled_from(["a", "b", "ab"]))
    ]
    for name in ("a", "b"):
        for place in nodes:
            minimum = draw(st.sampled_from([0, 0, 0, 1, 2]))
            maximum = draw(st.none() | st.integers(minimum, 3))
            arcs.append(Arc(name, place, draw(st.integers(0, 12)), minimum, maximum))
    here = PlacedPods({}, draw(st.sampled_from(nodes)), draw(st.integers(1, 3)))
    arcs.append(Arc(here, draw(st.sampled_from(["a", "b"]))))
    size = st.integers(1, 2)
    case = DeclaredNetwork(
        kinds, nodes, tuple((draw(size),) for _ in kinds), tuple((draw(st.integers(0, 4)),) for _ in nodes), tuple(arcs)
    )
    return case, here


#: To leave a running pod out costs more than all else.
_RUNS = 10**6


def as_waiting(case: DeclaredNetwork, here: PlacedPods) -> DeclaredNetwork:
    """The same network with the running pods as pods that ask for nothing and go to their node alone."""
    alike = pods("runs", [_RUNS] * here.count, 2)
    arcs = tuple(replace(arc, tail=alike) if arc.tail is here else arc for arc in case.arcs)
    elsewhere = frozenset((len(case.pods), place) for place, on in enumerate(case.nodes) if on is not here.node)
    free = tuple((*room, here.count * (on is here.node)) for room, on in zip(case.free, case.nodes, strict=True))
    requests = (*((*asked, 0) for asked in case.requests), (0, 1))
    return replace(case, pods=(*case.pods, alike), arcs=arcs, banned=elsewhere, free=free, requests=requests)


@settings(max_examples=examples(200), deadline=None)
@given(networks_with_running_pods())
def test_a_plan_beside_running_pods_is_of_least_cost(drawn: tuple[DeclaredNetwork, PlacedPods]) -> None:
    """Against all flows of running and waiting pods together in which all that can run where it is, does."""
    case, here = drawn
    try:
        best = as_waiting(case, here).cheapest()
    except TooManySplits:
        assume(False)
        raise
    (start,) = (arc for arc in case.arcs if arc.tail is here)
    (way,) = (arc for arc in case.arcs if arc.tail == start.head and arc.head is here.node)
    counted = here.count if way.maximum is None else min(here.count, way.maximum)
    try:
        solution = solve_network(case.graph(), case.capacity())
    except NetworkRefused:
        # Flows may exist in which a running pod makes place for another one.
        assert best is None or best // _RUNS > here.count - counted
        return
    assert best is not None
    assert best // _RUNS == here.count - counted
    assert solution.cost == best % _RUNS - counted * way.cost
    assert solution.bound <= solution.cost


# -- in the round ------------------------------------------------------------------------------------------------------


class Racks(NetworkCostModel):
    """So many pods in each rack, with those that run there; at least so many in the first one."""

    name = "Racks"
    pod_labels = ("app",)

    def __init__(self, most: int | None = None, least: int = 0) -> None:
        self._most, self._least = most, least

    def network(self, view: NetworkView) -> Network:
        arcs = []
        for rack, machines in view.by_label("rack").items():
            arcs += [Arc(waiting, f"to {rack}") for waiting in view.pods]
            here = [alike for alike in view.placed({"app": "web"}) if alike.node in machines]
            arcs += [Arc(alike, f"to {rack}") for alike in here]
            least = self._least if rack == "a" else 0
            arcs.append(Arc(f"to {rack}", rack, maximum=self._most, minimum=least))
            arcs += [Arc(rack, machine, cost=100 if rack == "a" else 1) for machine in machines]
        return Network.of(arcs)


SIGNATURE = PodSignature("default", (("app", "web"),))


def cluster(waiting: int, runs: Sequence[str]) -> Snapshot:
    machines = [node(name, labels=(("rack", name[0]),)) for name in ("a1", "a2", "b1")]
    index = PodIndex.of([(name, SIGNATURE) for name in runs])
    pending = [pod(f"p{number}", 100, policy="net", kind=SIGNATURE) for number in range(waiting)]
    return snapshot(machines, pending, pod_index=index)


def planned(state: Snapshot, model: NetworkCostModel) -> RoundResult:
    policies = {"net": Policy("net", cost=CostPolicy(model.name))}
    result = run_round(state, policies, {**MODELS, model.name: model})
    for check in (check_complete, check_capacity):
        check(state, result)
    check_costs(result)
    assert result.lower_bound <= result.cost
    return result


def test_a_round_counts_what_runs_in_a_maximum() -> None:
    """Three in each rack: two run in the first, so it gets one more, and the other three."""
    result = planned(cluster(7, ["a1", "a2"]), Racks(most=3))
    racks = [placement.node[0] for placement in result.placements]
    assert (racks.count("a"), racks.count("b")) == (1, 3)
    assert result.certified


def test_a_round_counts_what_runs_in_a_minimum() -> None:
    """Three at least in the dear rack: two run there, so one of two pods goes there, and nothing is refused."""
    result = planned(cluster(2, ["a1", "a2"]), Racks(least=3))
    assert sorted(placement.node[0] for placement in result.placements) == ["a", "b"]
    result = planned(cluster(2, ["a1"]), Racks(least=3))
    assert sorted(placement.node[0] for placement in result.placements) == ["a", "a"]
    result = planned(cluster(2, []), Racks(least=3))
    assert "has a minimum of 3, and at most 2 can reach it" in result.unplaced[0].reason


def test_what_a_network_before_placed_counts_like_running_pods() -> None:
    """Its places are taken as the second network is asked for."""
    state = cluster(4, [])
    second = replace(state, pending=tuple(
        pod(f"q{number}", 100, policy="second", kind=SIGNATURE, priority=-1) for number in range(4)
    ))  # fmt: skip
    state = replace(state, pending=(*state.pending, *second.pending))
    policies = {name: Policy(name, cost=CostPolicy("Racks")) for name in ("net", "second")}
    result = run_round(state, policies, {**MODELS, "Racks": Racks(most=3)})
    racks = [placement.node[0] for placement in result.placements]
    assert (racks.count("a"), racks.count("b")) == (3, 3)
    assert sum(placement.pod.policy == "net" for placement in result.placements) == 4
    assert np.all([left.pod.policy == "second" for left in result.unplaced])
