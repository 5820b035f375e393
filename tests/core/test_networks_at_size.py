"""Networks of many ways: solved with few of them, as legally as with all; their bound holds for any prices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.declared_networks import DeclaredNetwork, TooManySplits, declared_networks, pods
from support.model import GI, node, pod, snapshot
from support.profiles import examples
from support.safety import check_capacity, check_complete, check_costs, check_filters

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.costs.network_model import UNSCHEDULED, Arc, Network, NetworkCostModel, NetworkView
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import Policy
from flowcore.planning.declared_networks import Graph, NetworkRefused, Work, solve_network
from flowcore.planning.declared_networks.programs import program, ways
from flowcore.planning.declared_networks.programs.bounds import least_alone, least_cost, weights
from flowcore.planning.declared_networks.programs.generation import generate, relax
from flowcore.planning.declared_networks.programs.program import bound_of_program
from flowcore.planning.declared_networks.programs.statement import Prices
from flowcore.planning.declared_networks.programs.ways import ways_of
from flowcore.planning.declared_networks.solution import check_solution
from flowcore.planning.round import RoundResult, run_round

PRICE = st.integers(-30, 60).map(float)


def cheapest(case: DeclaredNetwork) -> int | None:
    try:
        return case.cheapest()
    except TooManySplits:
        assume(False)
        raise


def graph_of(case: DeclaredNetwork) -> Graph:
    """The network, unless its arcs contradict themselves."""
    try:
        return case.graph()
    except NetworkRefused:
        assume(False)
        raise


def drawn_prices(data: st.DataObject, case: DeclaredNetwork) -> Prices:
    """Any prices that have the right signs."""
    graph = case.graph()
    found = ways_of(graph)

    def some(count: int, least: float = -np.inf) -> np.ndarray:
        values = data.draw(st.lists(PRICE, min_size=count, max_size=count))
        return np.maximum(np.array(values, dtype=np.float64), least)

    nodes, resources = case.capacity().shape
    return Prices(
        arcs=some(len(graph.tails)),
        room=some(nodes * resources, 0.0).reshape(nodes, resources),
        pods=some(len(graph.supplies)),
        crowding=some(len(found), 0.0),
        fits=some(len(graph.supplies) * nodes, 0.0).reshape(len(graph.supplies), nodes),
        arrivals=tuple(tuple(some(2, 0.0) for _ in group.domains) for group in graph.groups),
        starts=np.zeros(len(graph.supplies)),
    )


@settings(max_examples=examples(300), deadline=None)
@given(declared_networks(groups=True), st.data())
def test_no_flow_costs_less_than_the_bound_of_any_prices(case: DeclaredNetwork, data: st.DataObject) -> None:
    """Against all flows, with gains, minimums, sizes and pods that need each other."""
    best = cheapest(case)
    assume(best is not None)
    assert best is not None
    found, prices = ways_of(case.graph()), drawn_prices(data, case)
    paid = weights(found, prices, case.graph().costs)
    assert least_cost(found, case.capacity(), prices, paid) <= best


@settings(max_examples=examples(150), deadline=None)
@given(declared_networks(groups=True))
def test_no_flow_costs_less_than_pods_alone(case: DeclaredNetwork) -> None:
    """The bound that needs no solver, where a network is not solved in fractions."""
    best = cheapest(case)
    assume(best is not None)
    assert best is not None
    assert 0 <= least_alone(ways_of(case.graph())) <= best


def test_a_network_without_a_flow_in_time_has_a_bound() -> None:
    """Three pods pay 30 at least on their way to the node, or 10 and 20 of them less to wait."""
    kind = pods("p", [100, 20, 10], nodes=1)
    case = DeclaredNetwork((kind,), (Node("n0"),), ((1,),), ((4,),), (Arc(kind, "a"), Arc("a", Node("n0"), cost=30)))
    with patch.object(program, "_in_fractions", side_effect=NetworkRefused("it takes too long")):
        assert bound_of_program(graph_of(case), case.capacity(), seed=0, work=Work()) in (60, 90)


@settings(max_examples=examples(150), deadline=None)
@given(declared_networks(groups=True))
def test_few_ways_cost_in_fractions_what_all_cost(case: DeclaredNetwork) -> None:
    """The bound is that of all ways, no flow goes below it, and what is refused has none."""
    best, free = cheapest(case), case.capacity()
    found = ways_of(graph_of(case))
    everything = relax(found, free, np.arange(len(found)))
    try:
        few = generate(found, free, 0, Work())
    except NetworkRefused:
        assert everything is None
        assert best is None
        return
    assert everything is not None
    assert abs(few.bound - everything.bound) <= 1
    assert best is None or few.bound <= best


@settings(max_examples=examples(150), deadline=None)
@given(declared_networks(groups=True))
def test_a_plan_of_few_ways_is_a_flow(case: DeclaredNetwork) -> None:
    """It keeps all that the network and the nodes demand, and says no more of itself than is true."""
    best = cheapest(case)
    graph = graph_of(case)
    assume(not graph.wholes.any())  # with few columns, arcs that take none or enough are refused
    with patch.object(program, "MOST_COLUMNS", 0):
        try:
            found = solve_network(graph, case.capacity())
        except NetworkRefused:
            assert best is None
            return
    check_solution(found, case.capacity())
    assert best is not None
    assert found.bound <= best <= found.cost
    assert found.cost == best or not found.proven


def test_more_ways_than_a_round_has_time_for() -> None:
    """They are counted before anything is solved."""
    kinds = [pods(f"p{at}", [10], nodes=1) for at in range(4)]
    case = DeclaredNetwork(tuple(kinds), (Node("n0"),), ((1,),) * 4, ((4,),), tuple(Arc(each, "a") for each in kinds))
    case = replace(case, arcs=(*case.arcs, Arc("a", Node("n0"), gain=2)))
    with patch.object(ways, "MOST_WAYS", 11), pytest.raises(NetworkRefused, match="have 12 ways through its arcs"):
        solve_network(case.graph(), case.capacity())


# -- in the round ------------------------------------------------------------------------------------------------------


class Large(NetworkCostModel):
    """A maximum for each rack, a pod at least on some nodes, the emptiest first; every fifth kind comes in pairs."""

    name = "Large"

    def network(self, view: NetworkView) -> Network:
        return Network.of(self._arcs(view))

    def _arcs(self, view: NetworkView) -> Iterator[Arc]:
        for each in view.pods:
            number = int(each.labels["app"].removeprefix("app-"))
            if number % 5:
                yield Arc(each, "all")
                continue
            yield Arc(each, f"pairs {number}")
            yield Arc(f"pairs {number}", UNSCHEDULED)
            for machine in view.nodes:
                shared = f"pairs {number} on {machine.name}"
                yield Arc(f"pairs {number}", shared, cost=2 * int(1000 * view.taken(machine)), gain=2)
                yield Arc(shared, machine)
        for rack, machines in view.by_label("rack").items():
            yield Arc("all", rack, maximum=sum(each.count for each in view.pods) // 5)
            for at, machine in enumerate(machines):
                cost = int(1000 * view.taken(machine))
                yield Arc(rack, machine, cost=cost, minimum=int(at % 3 == 0), maximum=2)
                yield Arc(rack, machine, cost=cost + 150)


def large_cluster(nodes: int, kinds: int, count: int) -> Snapshot:
    """Nodes of two sizes in ten racks, some in use; pods of so many kinds, each of a size of its own."""
    draw = np.random.default_rng(7)
    machines = [
        node(f"n{at:04}", 4000 + 4000 * (at % 2), 16 * GI, labels=(("rack", f"r{at % 10}"),)) for at in range(nodes)
    ]
    running = [
        (machine.name, (("cpu", int(draw.integers(1, 20)) * 100),), ()) for machine in machines if draw.random() < 0.5
    ]
    return snapshot(machines, [waiting(f"p{at:05}", at % kinds) for at in range(count)], running)


def waiting(name: str, kind: int) -> PendingPod:
    signature = PodSignature("default", (("app", f"app-{kind}"),))
    return pod(name, 300 + 110 * kind, (1 + kind % 4) * GI // 2, policy="large", kind=signature)


def planned(state: Snapshot, model: NetworkCostModel | None = None) -> RoundResult:
    policies = {"large": Policy("large", cost=CostPolicy("Large"))}
    result = run_round(state, policies, {**MODELS, "Large": model or Large()})
    for check in (check_complete, check_capacity, check_filters):
        check(state, result)
    check_costs(result)
    assert not result.contradictions
    assert 0 < result.lower_bound <= result.cost
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "kinds", "count"), [(200, 30, 420), (200, 50, 800), (1000, 50, 4000)])
def test_minimums_and_gains_on_many_nodes(nodes: int, kinds: int, count: int) -> None:
    """Not refused, within all bounds, and near to what is proven."""
    state = large_cluster(nodes, kinds, count)
    result = planned(state)
    on = {name: [each for each in result.placements if each.node == name] for name in state.table.index}
    by_rack = [[each.name for each in state.table.nodes if dict(each.labels)["rack"] == f"r{at}"] for at in range(10)]
    wanted = [name for names in by_rack for name in names[::3]]
    assert all(any(_kind(each.pod) % 5 for each in on[name]) for name in wanted)
    for placements in on.values():
        in_pairs = [_kind(each.pod) for each in placements if _kind(each.pod) % 5 == 0]
        assert all(in_pairs.count(kind) % 2 == 0 for kind in in_pairs)
    most = count // 5
    assert all(sum(_kind(each.pod) % 5 > 0 for name in names for each in on[name]) <= most for names in by_rack)
    assert result.gap < 0.2


def _kind(waiting_pod: PendingPod) -> int:
    return int(dict(waiting_pod.signature.labels)["app"].removeprefix("app-"))


class Counting(Large):
    """The same bounds, in which pods that run count too."""

    def _arcs(self, view: NetworkView) -> Iterator[Arc]:
        yield from super()._arcs(view)
        for number in range(50):
            for alike in view.placed({"app": f"app-{number}"}):
                yield Arc(alike, "all")


@pytest.mark.slow
def test_running_pods_on_many_nodes() -> None:
    """A thousand nodes, fifty kinds, two thousand pods that run: nothing is refused, and they meet minimums."""
    state = large_cluster(1000, 50, 3000)
    draw = np.random.default_rng(11)
    places = draw.integers(0, 1000, 2000)
    kinds = [number for number in range(50) if number % 5]
    index = PodIndex.of(
        (state.table.nodes[place].name, PodSignature("default", (("app", f"app-{kinds[number % len(kinds)]}"),)))
        for number, place in enumerate(places.tolist())
    )
    state = replace(state, pod_index=index)
    result = planned(state, Counting())
    runs = {state.table.nodes[place].name for place in places.tolist()}
    alone = {placement.node for placement in result.placements if _kind(placement.pod) % 5}
    by_rack = [[each.name for each in state.table.nodes if dict(each.labels)["rack"] == f"r{at}"] for at in range(10)]
    assert all(name in runs | alone for names in by_rack for name in names[::3])
    # Of the room there is, not of pods: the price of waiting counts size, so a large pod is worth several small ones.
    placed = sum(dict(each.pod.pod_class.requests)["cpu"] for each in result.placements)
    assert placed > 0.85 * (state.allocatable - state.used)[:, state.resources.index("cpu")].sum()
