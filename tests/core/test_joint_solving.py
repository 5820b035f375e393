"""Networks that are solved as a whole: as trying all flows would, or refused with a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from support.joint_graphs import SmallNetwork, TooManySplits, small_networks
from support.profiles import examples

from flowcore.planning.drawn_networks.joint import NetworkRefused, NetworkSolution, solve_network
from flowcore.planning.drawn_networks.joint.arcs import Arc
from flowcore.planning.drawn_networks.joint.program import solve_program
from flowcore.planning.drawn_networks.joint.solution import check_solution


def best_cost(case: SmallNetwork) -> int | None:
    try:
        return case.cheapest()
    except TooManySplits:
        assume(False)
        raise


def solved(case: SmallNetwork) -> NetworkSolution | None:
    try:
        return solve_network(case.graph(), case.capacity(), seconds=2.0)
    except NetworkRefused:
        return None


def check_best(case: SmallNetwork) -> None:
    """What is solved is of least cost, its bound is one, and what is refused has no flow."""
    expected, solution = best_cost(case), solved(case)
    assert (solution is None) == (expected is None)
    if solution is not None:
        assert solution.cost == expected
        assert 0 <= solution.bound <= solution.cost


@settings(max_examples=examples(150), deadline=None)
@given(small_networks())
def test_what_is_solved_is_of_least_cost(case: SmallNetwork) -> None:
    """With minimums, maximums, gains, sizes of pods and nodes that they do not fit: the best of all flows, or none."""
    check_best(case)


@settings(max_examples=examples(150), deadline=None)
@given(small_networks(groups=True))
def test_a_network_with_a_gang_is_of_least_cost(case: SmallNetwork) -> None:
    """Among all flows that place enough of it in one domain, or nobody."""
    check_best(case)


@settings(max_examples=examples(150), deadline=None)
@given(small_networks(gains=False, sizes=False))
def test_a_plain_network_is_a_flow_with_a_proof(case: SmallNetwork) -> None:
    """Without gains and sizes the bound is the cost, by potentials of our own; the integer program says the same."""
    expected, solution = best_cost(case), solved(case)
    if solution is None:
        assert expected is None
        return
    assert solution.cost == solution.bound == expected
    program = solve_program(case.graph(), case.capacity(), seconds=2.0, seed=0)
    check_solution(program, case.capacity())
    assert program.cost == expected


def test_a_solution_that_is_none_is_not_carried_out() -> None:
    """Whatever a solver says: what passes a bound, a node's room or the number of pods is found out."""
    # Two pods to a0 and n0, one of another kind to n1.
    arcs = (Arc(0, 3, maximum=1), Arc(3, 4), Arc(1, 5, minimum=1))
    case = SmallNetwork(((10, 10), (20,)), ((1,), (1,)), ((4,), (4,)), 1, arcs)
    solution = solve_network(case.graph(), case.capacity(), seconds=2.0)
    check_solution(solution, case.capacity())
    for flows, placed in (
        (solution.flows + 1, solution.placed),
        (solution.flows, {**solution.placed, (0, 1): 1}),
        (solution.flows, {key: 2 * count for key, count in solution.placed.items()}),
        (solution.flows, {}),
    ):
        with pytest.raises(NetworkRefused, match="the solver's flow through"):
            check_solution(replace(solution, flows=flows, placed=placed), case.capacity())
    with pytest.raises(NetworkRefused, match="without room"):
        check_solution(solution, case.capacity() * 0)
