"""Networks that cost models declare, solved: exactly, or refused with a sentence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.declared_networks.flows_with_groups import broken_groups, with_whole_groups
from flowcore.planning.declared_networks.graph import (
    Graph,
    NetworkRefused,
    NetworkTooLarge,
    NoFlowInTime,
    Supply,
    SupplyGroup,
    to_graph,
)
from flowcore.planning.declared_networks.programs.program import MOST_COLUMNS, bound_of_program, solve_program
from flowcore.planning.declared_networks.programs.ways import count_ways
from flowcore.planning.declared_networks.programs.work import Work
from flowcore.planning.declared_networks.pure_flow import node_limits, solve_pure
from flowcore.planning.declared_networks.solution import NetworkSolution, check_solution

__all__ = [
    "Graph",
    "NetworkRefused",
    "NetworkSolution",
    "NetworkTooLarge",
    "NoFlowInTime",
    "Supply",
    "SupplyGroup",
    "Work",
    "bound_of_network",
    "solve_network",
    "to_graph",
]


def solve_network(graph: Graph, free: Int64s, *, seed: int = 0, work: Work | None = None) -> NetworkSolution:
    """The flow of least cost, or the best that the time of a round allows; groups that are begun come before that.

    A minimum-cost flow where no arc has a gain and no node must tell sizes of pods apart; else an integer program. Few
    pods that go together are an integer program too where the flow breaks them.

    Args:
        free: int64[N, R], what is free on each node.
        work: what it may take; None: as much as the networks of a round.

    Raises:
        NetworkRefused: no flow meets the minimums and maximums, or none was found in time.
    """
    work = work or Work()
    solution = _solved(graph, free, seed, work)
    begun = {member for group in graph.groups if group.is_begun for member, _ in group.required}
    if begun and _left(solution, begun):
        solution = _with_begun(solution, free, seed, work)
    check_solution(solution, free)
    return solution


def bound_of_network(graph: Graph, free: Int64s, *, seed: int = 0, work: Work | None = None) -> int:
    """A cost that no flow goes below.

    Args:
        free: int64[N, R], what is free on each node.
        work: what it may take; None: as much as the networks of a round.

    Raises:
        NetworkRefused: no flow meets the minimums and maximums, or none was found in time.
    """
    work, limits = work or Work(), _limits(graph, free)
    if limits is None:
        return bound_of_program(graph, free, seed=seed, work=work)
    work.flow(len(graph.tails))
    relaxed = solve_pure(graph, limits)
    if broken_groups(relaxed) and count_ways(graph) <= MOST_COLUMNS:
        return max(relaxed.bound, bound_of_program(graph, free, seed=seed, work=work))
    return relaxed.bound


def _solved(graph: Graph, free: Int64s, seed: int, work: Work) -> NetworkSolution:
    """The flow of least cost, or the best that is found.

    Raises:
        NetworkRefused: there is none.
    """
    limits = _limits(graph, free)
    if limits is None:
        return solve_program(graph, free, seed=seed, work=work)
    work.flow(len(graph.tails))
    relaxed = solve_pure(graph, limits)
    broken = broken_groups(relaxed)
    if not broken:
        return relaxed
    if count_ways(graph) > MOST_COLUMNS and not any(group.domains for group in graph.groups):
        whole = with_whole_groups(relaxed, limits, work)
        if whole is not None:
            return whole
    return solve_program(graph, free, seed=seed, work=work)


def _left(solution: NetworkSolution, members: set[int]) -> int:
    """How many of some pods that groups ask for have no node."""
    counts = solution.placed_counts
    required = [each for group in solution.graph.groups for each in group.required]
    return sum(max(0, count - counts[member]) for member, count in required if member in members)


def _with_begun(solution: NetworkSolution, free: Int64s, seed: int, work: Work) -> NetworkSolution:
    """A flow with more of the pods that groups which are begun ask for, if there is one: others wait for them.

    Args:
        solution: the best flow whatever is begun.
    """
    graph = solution.graph
    begun = dict(each for group in graph.groups if group.is_begun for each in group.required)
    # To leave one of them costs more than to leave all others.
    more = 1 + sum(int(supply.prices.sum()) for supply in graph.supplies)
    supplies = list(graph.supplies)
    for member, count in begun.items():
        prices = supplies[member].prices + np.where(np.arange(supplies[member].count) < count, more, 0)
        supplies[member] = replace(supplies[member], prices=prices)
    try:
        first = _solved(replace(graph, supplies=tuple(supplies)), free, seed, work)
    except NetworkRefused:  # in the time that is left
        return solution
    if _left(first, set(begun)) >= _left(solution, set(begun)):
        return solution
    better = NetworkSolution(graph, first.flows, first.placed, 0)
    return replace(better, bound=min(solution.bound, better.cost))


def _waits_at_its_own_price(graph: Graph) -> bool:
    """Whether only pods have arcs to UNSCHEDULED: a unit from an aggregator does not say whose it is."""
    tails = graph.tails[graph.heads == graph.unscheduled]
    return bool((tails < len(graph.supplies)).all())


def _limits(graph: Graph, free: Int64s) -> Int64s | None:
    """int64[V]: how many pods each vertex that is a node takes; None: a flow does not tell."""
    is_flow = graph.is_pure and _waits_at_its_own_price(graph)
    return node_limits(graph, free) if is_flow else None
