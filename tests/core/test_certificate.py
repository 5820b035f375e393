"""Node potentials prove a flow optimal, and prove nothing else; columns left out at first change nothing in the end."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from support.large_snapshots import large_snapshots
from support.networks import DrawnNetwork, networks
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.planning.methods import flow
from flowcore.planning.methods.supplies import FlowSupply, supplies_of
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round.round import DEFAULT_POLICIES
from flowcore.planning.solvers import UNREACHABLE, potentials, solve
from flowcore.planning.solvers.slots import FlowNetwork


def proves_optimal(network: FlowNetwork, flows: Int64s, distance: Int64s) -> bool:
    """Whether ``flows`` is a feasible flow of the network and ``distance`` proves that none costs less."""
    if (flows < 0).any() or (flows > network.capacities).any():
        return False
    balance = network.supplies.copy()
    np.subtract.at(balance, network.tails, flows)
    np.add.at(balance, network.heads, flows)
    if balance.any():
        return False
    known = (distance[network.tails] < UNREACHABLE) & (distance[network.heads] < UNREACHABLE)
    reduced = network.costs + distance[network.heads] - distance[network.tails]
    forward, backward = flows < network.capacities, flows > 0
    # An arc out of a node that cannot reach the sink into one that can would be a path: there is none.
    lost = forward & (distance[network.tails] >= UNREACHABLE) & (distance[network.heads] < UNREACHABLE)
    return not (lost.any() or (reduced[known & forward] < 0).any() or (reduced[known & backward] > 0).any())


@given(networks())
def test_what_the_solver_calls_optimal_proves_optimal(case: DrawnNetwork) -> None:
    """Potentials exist and no residual arc has a negative reduced cost."""
    network = case.network()
    solution = solve(network)
    assert solution.flows is not None
    distance = potentials(network, solution.flows)
    assert distance is not None
    assert proves_optimal(network, solution.flows, distance)


@given(networks())
def test_a_dearer_flow_has_no_certificate(case: DrawnNetwork) -> None:
    """All pods left out is a feasible flow; where placing one is cheaper, no potentials vouch for it."""
    network = case.network()
    best = solve(network)
    assert best.flows is not None
    idle = np.zeros_like(best.flows)
    sink = len(network.supplies) - 1
    leaving = (network.heads == sink) & (network.tails < len(case.candidates))
    idle[leaving] = network.capacities[leaving]
    assume(int((idle * network.costs).sum()) > best.cost)
    assert potentials(network, idle) is None
    of_the_best = potentials(network, best.flows)
    assert of_the_best is not None
    assert not proves_optimal(network, idle, of_the_best)


@settings(max_examples=examples(150))
@given(large_snapshots())
def test_column_generation_ends_at_the_optimum_of_the_full_network(crowd: Snapshot) -> None:
    """Starting from a single arc a class costs no more than starting from all of them."""
    room = Plan(crowd)
    demands = demands_of(crowd, Plan(crowd).load(), DEFAULT_POLICIES)
    supplies = supplies_of(demands, [demand.count for demand in demands], room)
    assume(supplies)
    whole = _proposal(supplies, room)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "_FIRST_ARCS", 0)
        patch.setattr(flow, "_FEWEST", 1)
        patch.setattr(flow, "_LEAST_GAIN", -1)
        patch.setattr(flow, "_MOST_PRICINGS", 1000)
        grown = _proposal([*supplies], room)
    assert whole is not None
    assert grown is not None
    assert grown.cost == whole.cost


def _proposal(supplies: list[FlowSupply], room: Plan) -> flow._Proposal | None:
    going = flow._propose(supplies, room, ())
    while True:
        try:
            next(going)
        except StopIteration as end:
            proposal, _ = end.value
            return proposal
