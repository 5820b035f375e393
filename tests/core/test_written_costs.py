"""What the author of a pod writes decides between its nodes, never about which pods are placed."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import GI, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.costs.arcs import MOST_WRITTEN
from flowcore.model.cost_policy import CostPolicy, DataLocality, UnscheduledPrice
from flowcore.model.data import DataPlace, DataSource, Level
from flowcore.model.pods import PreferredTerm
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import run_round

NOW, DAY = 10.0**6, 86_400.0
READS = "reads"
ON = {f"n{at}": (("on", f"n{at}"),) for at in range(4)}


def policies(base: int = UnscheduledPrice().base) -> dict[str, Policy]:
    """The built-in one, and one that moves data; ``base`` counts for both."""
    price = UnscheduledPrice(base=base)
    near = CostPolicy(data_locality=DataLocality())
    return {
        BUILT_IN.name: Policy(BUILT_IN.name, unscheduled=price),
        READS: Policy(READS, unscheduled=price, cost=near),
    }


def data(place: str, gib: int) -> tuple[DataSource, ...]:
    return (DataSource((DataPlace(Level.NODE, place),), gib * GI),)


def likes(place: str, terms: int) -> tuple[PreferredTerm, ...]:
    one = PreferredTerm(100, NodeSelectorTerm((Requirement("on", "In", (place,)),)))
    return (one,) * terms


def cluster(pending: Sequence[PendingPod], nodes: int = 2) -> Snapshot:
    machines = [node(f"n{at}", 10_000, labels=ON[f"n{at}"]) for at in range(nodes)]
    return snapshot(machines, pending, now=NOW)


def demands(pending: Sequence[PendingPod], base: int = 100_000, nodes: int = 2) -> dict[str, Demand]:
    """The demand of each pod, by its name."""
    found = Problem(cluster(pending, nodes), policies(base), MODELS).demands
    return {each.uid: demand for demand in found for each in demand.group.pods}


WRITTEN = [{}, {"data": data("n0", 10**9)}, {"preferred_affinity": likes("n0", 256)}]


@pytest.mark.parametrize("written", WRITTEN, ids=["nothing", "data", "preferred affinity"])
@pytest.mark.parametrize("large", [{"priority": 100_000}, {"created": NOW - DAY}], ids=["urgent", "waits since a day"])
def test_one_pod_does_not_turn_the_priority_of_others_off(written: dict, large: dict) -> None:
    """A large pod of a high priority, or of a great age, goes before ten small ones, whatever another pod writes."""
    pending = [
        pod("large", 10_000, node_selector=ON["n0"], **large),
        *(pod(f"small{at}", 1000, node_selector=ON["n0"], created=NOW - 60) for at in range(10)),
        pod("poison", 1000, node_selector=ON["n1"], policy=READS, created=NOW - 60, **written),
    ]
    result = run_round(cluster(pending), policies())
    assert {each.pod.uid: each.node for each in result.placements} == {"large": "n0", "poison": "n1"}


_written = st.fixed_dictionaries(
    {},
    optional={
        "data": st.tuples(st.sampled_from([*ON, "gone"]), st.integers(0, 10**9)).map(lambda drawn: data(*drawn)),
        "preferred_affinity": st.tuples(st.sampled_from([*ON]), st.integers(1, 256)).map(lambda drawn: likes(*drawn)),
    },
)
_others = st.lists(
    st.tuples(
        st.sampled_from((500, 2000, 5000, 10_000)),
        st.sampled_from((-20_000, 0, 10, 100_000)),
        st.sampled_from((1.0, 100.0, DAY)),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(60), deadline=None)
@given(_others, _written, st.sampled_from((0, 2000, 100_000)))
def test_what_a_pod_writes_changes_nothing_for_pods_that_need_other_nodes(
    others: list[tuple[int, int, float]], written: dict, base: int
) -> None:
    """Neither what they cost on nodes, nor what leaving them costs, nor which of them are placed."""
    theirs = [
        pod(f"p{at}", cpu, priority=priority, created=NOW - age, node_selector=ON["n0"])
        for at, (cpu, priority, age) in enumerate(others)
    ]
    mine = {"node_selector": ON["n1"], "policy": READS, "created": NOW - 60}
    quiet, loud = [*theirs, pod("mine", 1000, **mine)], [*theirs, pod("mine", 1000, **mine, **written)]
    before, after = demands(quiet, base), demands(loud, base)
    for each in theirs:
        assert (after[each.uid].arc == before[each.uid].arc).all()
    for name in before:
        assert (after[name].prices == before[name].prices).all()
    plans = [run_round(cluster(pending), policies(base)) for pending in (quiet, loud)]
    placed = [{each.pod.uid: each.node for each in plan.placements} for plan in plans]
    assert placed[0] == placed[1]


@settings(max_examples=examples(60), deadline=None)
@given(_written, st.sampled_from((0, 2000, 100_000)))
def test_a_pod_with_room_is_dearer_to_leave_than_any_of_its_nodes(written: dict, base: int) -> None:
    """Also where its policy says that leaving it costs nothing."""
    found = demands([pod("p", 1000, policy=READS, **written)], base, nodes=4)["p"]
    assert found.prices[0] > found.first_cost.max()


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*ON]), st.integers(0, 10**4)), min_size=1, max_size=6))
def test_the_bound_keeps_the_order_of_nodes(sources: list[tuple[str, int]]) -> None:
    """No node becomes dearer than another that was dearer, and the dearest one is at most so much above the others."""
    every = tuple(source for each in sources for source in data(*each))
    found = demands([pod("p", 1000, policy=READS, data=every)], nodes=4)["p"].arc
    plain = demands([pod("p", 1000, policy=READS)], nodes=4)["p"].arc
    costs = found - plain
    elsewhere = {name: sum(gib for place, gib in sources if place != name) for name in ON}
    order = np.argsort([elsewhere[name] for name in ON], kind="stable")
    assert (np.diff(costs[order]) >= 0).all()
    assert 0 <= costs.min() <= costs.max() <= MOST_WRITTEN


def test_data_that_costs_little_costs_what_it_says() -> None:
    """The bound changes nothing below it."""
    near = demands([pod("p", 1000, policy=READS, data=data("n0", 100))], nodes=4)["p"].arc
    plain = demands([pod("p", 1000, policy=READS)], nodes=4)["p"].arc
    assert (near - plain).tolist() == [0, 1000, 1000, 1000]


def test_pods_still_go_to_their_data_beyond_the_bound() -> None:
    """Of nodes that are all far from most of its data a pod takes the nearest."""
    far, near = data("gone", 10**6), data("n2", 300)
    result = run_round(cluster([pod("p", 1000, policy=READS, data=(*far, *near))], nodes=4), policies())
    assert [each.node for each in result.placements] == ["n2"]
