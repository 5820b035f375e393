"""The flow network: what is built keeps its promises, and flows are read back as they were sent."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.networks import DrawnNetwork, ints, networks

from flowcore.planning.solvers import solve
from flowcore.planning.solvers.slots import FlowNetwork, build_network, decode_flows, slot_widths


@given(st.integers(0, 100_000))
def test_levels_cover_as_many_pods_as_are_asked_for(deepest: int) -> None:
    """One slot a level up to sixteen, then wider ones, without a gap, and few of them."""
    widths = slot_widths(deepest)
    assert widths.sum() >= deepest
    assert (widths[:16] == 1).all()
    assert len(widths) <= 16 + 6 * max(deepest, 1).bit_length()


@given(networks())
def test_what_is_built_is_a_network(case: DrawnNetwork) -> None:
    """Arcs join what exists, capacities are positive, supplies cancel, every pod may stay unscheduled."""
    network, sink = case.network(), len(case.candidates) + len(case.limits)
    assert network.supplies.sum() == 0
    assert -network.supplies[sink] == case.pods
    assert (network.capacities > 0).all()
    assert ((network.tails >= 0) & (network.tails < sink) & (network.heads <= sink)).all()
    assert len({len(a) for a in (network.tails, network.heads, network.capacities, network.costs)}) == 1
    for at, prices in enumerate(case.prices):
        stay = (network.tails == at) & (network.heads == sink)
        assert network.capacities[stay].sum() == len(prices)
    for at, limit in enumerate(case.limits):
        slots = (network.tails == len(case.candidates) + at) & (network.heads == sink)
        used = any(at in found for found in case.candidates)
        assert network.capacities[slots].sum() == (min(limit, case.widths.sum()) if used else 0)


@given(networks())
def test_a_flow_of_least_cost_reads_back_as_a_plan(case: DrawnNetwork) -> None:
    """No class gets more than its pods, no arc more than its capacity, no node more than its slots; costs agree."""
    network = case.network()
    solution = solve(network)
    assert solution.status == "OPTIMAL"
    assert solution.flows is not None
    assert (solution.flows >= 0).all()
    assert (solution.flows <= network.capacities).all()
    classes, nodes, counts = decode_flows(network, solution.flows)
    assert (counts > 0).all()
    cost = 0
    for at, prices in enumerate(case.prices):
        placed = int(counts[classes == at].sum())
        assert placed <= len(prices)
        cost += int(prices[placed:].sum())  # the cheapest to leave are left
    for at, node, count in zip(classes, nodes, counts, strict=True):
        where = list(case.candidates[at]).index(node)
        assert count <= case.capacities[at][where]
        cost += int(count) * int(case.costs[at][where])
    for at, limit in enumerate(case.limits):
        there = int(counts[nodes == at].sum())
        assert there <= limit
        cost += int(np.repeat(case.slot_costs[at], case.widths)[:there].sum())  # slots fill in order
    assert cost == solution.cost


@given(networks())
def test_pods_stay_out_only_where_all_is_full(case: DrawnNetwork) -> None:
    """With prices above every way to place a pod, no class has both a pod left and an arc with room to a free slot."""
    network = case.network()
    solution = solve(network)
    assert solution.flows is not None
    classes, nodes, counts = decode_flows(network, solution.flows)
    taken = {(int(c), int(n)): int(count) for c, n, count in zip(classes, nodes, counts, strict=True)}
    for at, prices in enumerate(case.prices):
        if sum(count for (c, _), count in taken.items() if c == at) == len(prices):
            continue
        for node, capacity in zip(case.candidates[at], case.capacities[at], strict=True):
            full = sum(count for (_, n), count in taken.items() if n == node) >= min(
                case.limits[node], case.widths.sum()
            )
            assert full or taken.get((at, int(node)), 0) == capacity


def test_no_classes_is_an_empty_network() -> None:
    """Nothing to place is not an error."""
    nothing = np.zeros((0, 1), dtype=np.int64)
    network = build_network(
        node_count=0,
        candidates=[],
        arc_costs=[],
        arc_capacities=[],
        unscheduled=[],
        slots_of=lambda nodes: nothing[nodes],
        slot_widths=np.ones(1, dtype=np.int64),
        slot_limits=np.zeros(0, dtype=np.int64),
    )
    solution = solve(network)
    assert solution.flows is not None
    assert decode_flows(network, solution.flows)[2].size == 0


def test_an_impossible_network_is_a_value() -> None:
    """Supplies without a way out come back as a status, not as an exception."""
    network = FlowNetwork(
        tails=ints([0]),
        heads=ints([1]),
        capacities=ints([1]),
        costs=ints([1]),
        supplies=ints([5, -5]),
        placement_arcs=1,
        arc_class=ints([0]),
        arc_node=ints([0]),
    )
    solution = solve(network)
    assert solution.flows is None
    assert solution.status == "INFEASIBLE"
