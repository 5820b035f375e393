"""Networks that only a plan of the whole can keep to: solved as a flow or a program, or refused with a sentence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.drawn_networks.joint.graph import Graph, NetworkRefused, Supply, SupplyGroup
from flowcore.planning.drawn_networks.joint.program import bound_of_program, solve_program
from flowcore.planning.drawn_networks.joint.pure_flow import node_limits, solve_pure
from flowcore.planning.drawn_networks.joint.solution import NetworkSolution, check_solution, is_whole

__all__ = [
    "Graph",
    "NetworkRefused",
    "NetworkSolution",
    "Supply",
    "SupplyGroup",
    "bound_of_network",
    "solve_network",
]


def solve_network(graph: Graph, free: Int64s, *, seconds: float, seed: int = 0) -> NetworkSolution:
    """The flow of least cost, or the best that is found in time; groups that are begun come before that.

    A minimum-cost flow where no arc has a gain and no node must tell sizes of pods apart, and where it does not break
    pods that go together; else an integer program.

    Args:
        free: int64[N, R], what is free on each node.
        seconds: CP-SAT's deterministic time.

    Raises:
        NetworkRefused: it is too large, no flow meets the minimums and maximums, or none was found in time.
    """
    first = _with_begun_first(graph)
    solution = _solved(first, free, seconds, seed)
    if first is not graph:
        solution = replace(solution, graph=graph)
        solution = replace(solution, bound=min(solution.cost, bound_of_network(graph, free)))
    check_solution(solution, free)
    return solution


def bound_of_network(graph: Graph, free: Int64s) -> int:
    """A cost that no flow goes below.

    Args:
        free: int64[N, R], what is free on each node.

    Raises:
        NetworkRefused: no flow meets the minimums and maximums.
    """
    limits = _limits(graph, free)
    return bound_of_program(graph, free) if limits is None else solve_pure(graph, limits).bound


def _solved(graph: Graph, free: Int64s, seconds: float, seed: int) -> NetworkSolution:
    limits = _limits(graph, free)
    if limits is not None:
        relaxed = solve_pure(graph, limits)
        if all(is_whole(relaxed, group) for group in graph.groups):
            return relaxed
    return solve_program(graph, free, seconds=seconds, seed=seed)


def _with_begun_first(graph: Graph) -> Graph:
    """The graph in which it costs more to leave a pod that a begun group asks for than to leave all others."""
    begun = {member: count for group in graph.groups if group.is_begun for member, count in group.required}
    if not begun:
        return graph
    more, supplies = 1 + sum(int(supply.prices.sum()) for supply in graph.supplies), list(graph.supplies)
    for member, count in begun.items():
        first = np.arange(supplies[member].count) < count
        supplies[member] = replace(supplies[member], prices=supplies[member].prices + np.where(first, more, 0))
    return replace(graph, supplies=tuple(supplies))


def _limits(graph: Graph, free: Int64s) -> Int64s | None:
    """int64[V]: how many pods each vertex that is a node takes; None: a flow does not tell."""
    # A unit from an aggregator to UNSCHEDULED does not say whose it is, and so what its pod pays.
    waits_at_its_price = all(arc.tail < graph.unscheduled for arc in graph.arcs if arc.head == graph.unscheduled)
    return node_limits(graph, free) if graph.is_pure and waits_at_its_price else None
