"""Solvers of the round's min-cost flow, side by side, on networks of real rounds.

    pip install -e '.[bench]'
    python bench/solvers.py              # ten minutes
    python bench/solvers.py --only 5,000 -n 3

Each network is the largest one of the flow step of a round (harness/instances.py makes the clusters). `cold` is a solve
from arrays to flows. `again` is a solve after a few more pods have come: one for each of ten classes. Solvers without
a warm start begin anew; our own successive shortest paths only send the new pods. Costs of all solvers are compared.
CPU seconds; the median of the runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from unittest.mock import patch

import click
import networkx as nx
import numpy as np
import pylmcf
from harness.conditions import conditions
from harness.instances import Size, make
from harness.tables import console, print_conditions
from ortools.pdlp import solve_log_pb2, solvers_pb2
from ortools.pdlp.python import pdlp
from rich.table import Table
from scipy.optimize import linprog
from scipy.sparse import csc_matrix

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs import MODELS
from flowcore.planning.methods import flow
from flowcore.planning.methods.constructive import FixedPart, fill
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round.round import DEFAULT_POLICIES
from flowcore.planning.solvers import potentials
from flowcore.planning.solvers.min_cost_flow import Solution, solve
from flowcore.planning.solvers.slots import FlowNetwork

SIZES = (
    (12_500, 100, 10, 150_000),
    (5_000, 1_000, 50, 50_000),
    (600, 10_000, 50, 0),
    (12_500, 20_000, 200, 150_000),
)
#: Classes that one more pod comes of.
MORE = 10
#: networkx is plain Python: of larger networks it takes minutes.
MOST_ARCS_OF_NETWORKX = 5_000
#: PDLP stops at such a relative error; the others are exact.
TOLERANCE = 1e-6

#: From a network, and the flows of the same network before the last pods came, to flows.
Solver = Callable[[FlowNetwork, Int64s | None], Int64s]


def largest_network(size: Size) -> FlowNetwork:
    """The network with most arcs of the flow step of a round."""
    problem = Problem(make(size).snapshot, DEFAULT_POLICIES, MODELS)
    seen: list[FlowNetwork] = []

    def noted(network: FlowNetwork) -> Solution:
        seen.append(network)
        return solve(network)

    with patch.object(flow, "solve", noted):
        for _ in flow.solve_by_flow(problem, FixedPart.none(problem), fill(problem)):
            pass
    return max(seen, key=lambda network: len(network.tails))


def with_more_pods(network: FlowNetwork, classes: Int64s) -> FlowNetwork:
    """One more pod of each of these classes; it may also stay pending."""
    sink = len(network.supplies) - 1
    supplies, capacities = network.supplies.copy(), network.capacities.copy()
    supplies[classes] += 1
    supplies[sink] -= len(classes)
    leaving = np.nonzero(network.heads == sink)[0]
    first = {int(network.tails[arc]): int(arc) for arc in leaving[::-1].tolist()}
    capacities[[first[at] for at in classes.tolist()]] += 1
    return replace(network, supplies=supplies, capacities=capacities)


def or_tools(network: FlowNetwork, _before: Int64s | None) -> Int64s:
    """Cost scaling by push and relabel."""
    flows = solve(network).flows
    assert flows is not None
    return flows


def lemon(network: FlowNetwork, _before: Int64s | None) -> Int64s:
    """LEMON's network simplex."""
    order = np.lexsort((network.heads, network.tails))
    graph = pylmcf.Graph(len(network.supplies), network.tails[order], network.heads[order])
    graph.set_node_supply(network.supplies)
    graph.set_edge_capacities(network.capacities[order])
    graph.set_edge_costs(network.costs[order])
    graph.solve()
    flows = np.empty_like(network.costs)
    flows[order] = graph.result()
    return flows


def link_cut_tree(network: FlowNetwork, _before: Int64s | None) -> Int64s:
    """Pylmcf's network simplex over link-cut trees."""
    found = pylmcf.lmcf_lct(network.supplies, network.tails, network.heads, network.capacities, network.costs)
    return np.asarray(found, dtype=np.int64)


def highs(network: FlowNetwork, _before: Int64s | None) -> Int64s:
    """The dual simplex of HiGHS, as scipy has it (highspy and OR-Tools do not load into one process)."""
    bounds = np.column_stack([np.zeros(len(network.tails)), network.capacities])
    found = linprog(network.costs, A_eq=_incidence(network), b_eq=network.supplies, bounds=bounds, method="highs-ds")
    return np.rint(found.x).astype(np.int64)


def first_order(network: FlowNetwork, _before: Int64s | None) -> Int64s:
    """OR-Tools' PDLP: a first-order method; its flows are fractions with a small error."""
    program = pdlp.QuadraticProgram()
    program.resize_and_initialize(len(network.tails), len(network.supplies))
    program.objective_vector = network.costs.astype(np.float64)
    program.constraint_matrix = _incidence(network)
    program.constraint_lower_bounds = program.constraint_upper_bounds = network.supplies.astype(np.float64)
    program.variable_lower_bounds = np.zeros(len(network.tails))
    program.variable_upper_bounds = network.capacities.astype(np.float64)
    options = solvers_pb2.PrimalDualHybridGradientParams()
    options.termination_criteria.simple_optimality_criteria.eps_optimal_relative = TOLERANCE
    options.termination_criteria.simple_optimality_criteria.eps_optimal_absolute = TOLERANCE
    found = pdlp.primal_dual_hybrid_gradient(program, options)
    assert found.solve_log.termination_reason == solve_log_pb2.TERMINATION_REASON_OPTIMAL
    return np.asarray(found.primal_solution)


def plain_python(network: FlowNetwork, _before: Int64s | None) -> Int64s:
    """The network simplex of networkx."""
    graph = nx.MultiDiGraph()
    for node, supply in enumerate(network.supplies.tolist()):
        graph.add_node(node, demand=-supply)
    ends = zip(
        *(each.tolist() for each in (network.tails, network.heads, network.capacities, network.costs)), strict=True
    )
    for arc, (tail, head, capacity, cost) in enumerate(ends):
        graph.add_edge(tail, head, key=arc, capacity=capacity, weight=cost)
    _, found = nx.network_simplex(graph)
    flows = np.zeros(len(network.tails), dtype=np.int64)
    for heads in found.values():
        for arcs in heads.values():
            flows[list(arcs)] = list(arcs.values())
    return flows


def shortest_paths(network: FlowNetwork, before: Int64s | None) -> Int64s:
    """Our own successive shortest paths: from the flows before, each new pod takes the shortest residual path.

    The distances come from ``flowcore.planning.solvers.potentials``, all nodes at once. Without flows before, OR-Tools
    makes them.
    """
    if before is None:
        return or_tools(network, None)
    flows, balance = before.copy(), network.supplies.copy()
    np.subtract.at(balance, network.tails, flows)
    np.add.at(balance, network.heads, flows)
    sink = len(balance) - 1
    for start in np.repeat(np.arange(sink), np.maximum(balance[:-1], 0)).tolist():
        _send(network, flows, start)
    return flows


def _send(network: FlowNetwork, flows: Int64s, start: int) -> None:
    """Sends a pod from a node to the sink on a shortest residual path with the fewest arcs."""
    distance = potentials(network, flows)
    assert distance is not None
    forward, backward = np.nonzero(flows < network.capacities)[0], np.nonzero(flows > 0)[0]
    arcs, sign = np.concatenate([forward, backward]), np.repeat([1, -1], [len(forward), len(backward)])
    tails = np.where(sign > 0, network.tails[arcs], network.heads[arcs])
    heads = np.where(sign > 0, network.heads[arcs], network.tails[arcs])
    tight = distance[tails] == sign * network.costs[arcs] + distance[heads]
    arcs, sign, tails, heads = arcs[tight], sign[tight], tails[tight], heads[tight]
    #: The arc by which each node goes on, the nodes nearest to the sink first.
    onward = np.full(len(distance), -1, dtype=np.int64)
    reached = np.zeros(len(distance), dtype=np.bool_)
    reached[-1] = True
    while not reached[start]:
        found = np.nonzero(reached[heads] & ~reached[tails])[0]
        onward[tails[found]] = found
        reached[tails[found]] = True
    at = start
    while at != len(distance) - 1:
        arc = onward[at]
        flows[arcs[arc]] += sign[arc]
        at = int(heads[arc])


def _incidence(network: FlowNetwork) -> csc_matrix:
    """What each arc takes from its tail and brings to its head."""
    arcs = np.arange(len(network.tails))
    ones = np.ones(len(arcs))
    rows, columns = np.concatenate([network.tails, network.heads]), np.concatenate([arcs, arcs])
    return csc_matrix((np.concatenate([ones, -ones]), (rows, columns)), shape=(len(network.supplies), len(arcs)))


SOLVERS: dict[str, Solver] = {
    "OR-Tools SimpleMinCostFlow": or_tools,
    "LEMON network simplex (pylmcf)": lemon,
    "network simplex, link-cut trees (pylmcf)": link_cut_tree,
    "HiGHS dual simplex": highs,
    "PDLP (OR-Tools)": first_order,
    "networkx network simplex": plain_python,
    "successive shortest paths, warm": shortest_paths,
}


@dataclass(frozen=True, slots=True)
class Row:
    """A solver on a network; seconds are None if it was left out."""

    case: str
    arcs: int
    solver: str
    cold: float | None
    again: float | None
    error: float | None


def measure(size: Size, repeat: int) -> Iterator[Row]:
    """All solvers on the network of a round."""
    network = largest_network(size)
    before = or_tools(network, None)
    classes = np.nonzero(network.supplies[:-1] > 0)[0][:MORE]
    changed = with_more_pods(network, classes)
    best = int(or_tools(changed, None) @ changed.costs)
    for name, solver in SOLVERS.items():
        if solver is plain_python and len(network.tails) > MOST_ARCS_OF_NETWORKX:
            yield Row(str(size), len(network.tails), name, None, None, None)
            continue
        cold = _seconds(lambda solver=solver: solver(network, None), repeat)[0]
        again, flows = _seconds(lambda solver=solver: solver(changed, before), repeat)
        warm_only = solver is shortest_paths
        error = abs(float(flows @ changed.costs) - best) / best
        yield Row(str(size), len(network.tails), name, None if warm_only else cold, again, error)


def _seconds(run: Callable[[], Int64s], repeat: int) -> tuple[float, Int64s]:
    taken = []
    for _ in range(repeat):
        begun = time.process_time()
        flows = run()
        taken.append(time.process_time() - begun)
    return statistics.median(taken), flows


@click.command()
@click.option("--only", metavar="TEXT", default="", help="Sizes that have this in them, such as 12,500.")
@click.option("-n", "--repeat", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--load", default=0.7, show_default=True, help="Of the generated clusters.")
@click.option("--small", is_flag=True, help="One tiny cluster, to see that it works.")
def main(only: str, repeat: int, load: float, small: bool) -> None:  # noqa: FBT001 - click passes flags so
    """Solves the networks of rounds with each solver."""
    table = Table(title="Solvers of the min-cost flow", caption="case: nodes / pending / classes / running")
    for name in ("case", "arcs", "solver", "cold, CPU s", "again, CPU s", "cost"):
        table.add_column(name, justify="left" if name in ("case", "solver") else "right", no_wrap=True)
    for row in ((60, 100, 5, 100),) if small else SIZES:
        size = Size(*row, load=load)
        if only not in str(size):
            continue
        for each in measure(size, repeat):
            seconds = ("" if each.again is None else "-") if each.cold is None else f"{each.cold:.4f}"
            cost = "" if each.error is None else "same" if each.error < 1e-12 else f"{each.error:.0e} off"
            table.add_row(
                each.case, f"{each.arcs:,}", each.solver, seconds,
                "too slow" if each.again is None else f"{each.again:.4f}", cost,
            )  # fmt: skip
        table.add_section()
    console.print(table)
    print_conditions({**conditions(), "runs": f"median of {repeat}", "load": f"{load:g}"})


if __name__ == "__main__":
    main()
