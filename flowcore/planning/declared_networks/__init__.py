"""Networks that cost models declare, solved: exactly, or refused with a sentence."""

from __future__ import annotations

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.declared_networks.graph import Graph, NetworkRefused, Supply, to_graph
from flowcore.planning.declared_networks.program import solve_program
from flowcore.planning.declared_networks.pure_flow import node_limits, solve_pure
from flowcore.planning.declared_networks.solution import NetworkSolution, check_solution

__all__ = ["Graph", "NetworkRefused", "NetworkSolution", "Supply", "solve_network", "to_graph"]


def solve_network(graph: Graph, free: Int64s, *, seed: int = 0) -> NetworkSolution:
    """The flow of least cost, or the best that the time of a round allows.

    A minimum-cost flow where no arc has a gain and no node must tell sizes of pods apart, else an integer program.

    Args:
        free: int64[N, R], what is free on each node.

    Raises:
        NetworkRefused: no flow meets the minimums and maximums, or none was found in time.
    """
    limits = node_limits(graph, free) if graph.is_pure and _waits_at_its_own_price(graph) else None
    solution = solve_program(graph, free, seed=seed) if limits is None else solve_pure(graph, limits)
    check_solution(solution, free)
    return solution


def _waits_at_its_own_price(graph: Graph) -> bool:
    """Whether only pods have arcs to UNSCHEDULED: a unit from an aggregator does not say whose it is."""
    tails = graph.tails[graph.heads == graph.unscheduled]
    return bool((tails < len(graph.supplies)).all())
