"""Networks that cost models declare, solved: exactly, or refused with a sentence."""

from __future__ import annotations

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.declared_networks.graph import Graph, NetworkRefused, Supply, SupplyGroup, to_graph
from flowcore.planning.declared_networks.programs.program import bound_of_program, solve_program
from flowcore.planning.declared_networks.programs.work import Work
from flowcore.planning.declared_networks.pure_flow import node_limits, solve_pure
from flowcore.planning.declared_networks.solution import NetworkSolution, check_solution

__all__ = [
    "Graph",
    "NetworkRefused",
    "NetworkSolution",
    "Supply",
    "SupplyGroup",
    "Work",
    "bound_of_network",
    "solve_network",
    "to_graph",
]


def solve_network(graph: Graph, free: Int64s, *, seed: int = 0, work: Work | None = None) -> NetworkSolution:
    """The flow of least cost, or the best that the time of a round allows.

    A minimum-cost flow where no arc has a gain, no pods go together and no node must tell sizes of pods apart; else an
    integer program.

    Args:
        free: int64[N, R], what is free on each node.
        work: what it may take; None: as much as one network in a round.

    Raises:
        NetworkRefused: no flow meets the minimums and maximums, or none was found in time.
    """
    limits = _limits(graph, free)
    if limits is None:
        solution = solve_program(graph, free, seed=seed, work=work or Work())
    else:
        solution = solve_pure(graph, limits)
    check_solution(solution, free)
    return solution


def _waits_at_its_own_price(graph: Graph) -> bool:
    """Whether only pods have arcs to UNSCHEDULED: a unit from an aggregator does not say whose it is."""
    tails = graph.tails[graph.heads == graph.unscheduled]
    return bool((tails < len(graph.supplies)).all())


def bound_of_network(graph: Graph, free: Int64s, *, seed: int = 0, work: Work | None = None) -> int:
    """A cost that no flow goes below.

    Args:
        free: int64[N, R], what is free on each node.
        work: what it may take; None: as much as one network in a round.

    Raises:
        NetworkRefused: no flow meets the minimums and maximums, or none was found in time.
    """
    limits = _limits(graph, free)
    if limits is None:
        return bound_of_program(graph, free, seed=seed, work=work or Work())
    return solve_pure(graph, limits).bound


def _limits(graph: Graph, free: Int64s) -> Int64s | None:
    """int64[V]: how many pods each vertex that is a node takes; None: a flow does not tell."""
    is_flow = graph.is_pure and not graph.groups and _waits_at_its_own_price(graph)
    return node_limits(graph, free) if is_flow else None
