"""Node potentials prove a flow optimal, and prove nothing else; columns left out at first change nothing in the end."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from support.crowds import crowds
from support.networks import Drawn, drawn

from flowcore.model.snapshot import Snapshot
from flowcore.rounds import flow
from flowcore.rounds.demands import demands_of
from flowcore.rounds.room import Room
from flowcore.rounds.round import DEFAULT_POLICIES
from flowcore.solve import is_certified, potentials, solve


@given(drawn())
def test_what_the_solver_calls_optimal_is_certified(case: Drawn) -> None:
    """Potentials exist and no residual arc has a negative reduced cost."""
    network = case.network()
    solution = solve(network)
    assert solution.flows is not None
    distance = potentials(network, solution.flows)
    assert distance is not None
    assert is_certified(network, solution.flows, distance)


@given(drawn())
def test_a_dearer_flow_has_no_certificate(case: Drawn) -> None:
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
    assert not is_certified(network, idle, of_the_best)


@given(drawn())
def test_a_flow_that_is_none_has_no_certificate(case: Drawn) -> None:
    """Something must leave each class and arrive; no arc carries more than it can."""
    network = case.network()
    best = solve(network)
    assert best.flows is not None
    distance = potentials(network, best.flows)
    assert distance is not None
    assume(best.flows.any())
    busiest = int(best.flows.argmax())
    for change in (-1, int(network.capacities[busiest])):
        broken = best.flows.copy()
        broken[busiest] += change
        assert not is_certified(network, broken, distance)


@settings(max_examples=150)
@given(crowds())
def test_column_generation_ends_at_the_optimum_of_the_full_network(crowd: Snapshot) -> None:
    """Starting from a single arc a class costs no more than starting from all of them."""
    room = Room(crowd)
    supplies = [
        flow._Supply(at, demand, demand.count, room.counts(demand))
        for at, demand in enumerate(demands_of(crowd, Room(crowd).load(), DEFAULT_POLICIES))
    ]
    supplies = [supply for supply in supplies if supply.fitting.any()]
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


def _proposal(supplies: list[flow._Supply], room: Room) -> flow._Proposal | None:
    going = flow._propose(supplies, room, ())
    while True:
        try:
            next(going)
        except StopIteration as end:
            proposal, _ = end.value
            return proposal
