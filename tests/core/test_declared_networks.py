"""Networks that cost models declare: each is solved as trying all flows would, or refused with a sentence."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from support.declared_networks import DeclaredNetwork, TooManySplits, declared_networks
from support.profiles import examples

from flowcore.network import NetworkRefused, NetworkSolution, solve_network
from flowcore.network.program import solve_program
from flowcore.network.pure_flow import node_limits, solve_pure
from flowcore.network.solution import check_solution


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
            solve_program(graph, case.capacity())
        return
    check_solution(found, case.capacity())
    assert found.cost == found.bound == expected
    program = solve_program(graph, case.capacity())
    check_solution(program, case.capacity())
    assert program.cost == expected
