"""Min-cost flow with OR-Tools' SimpleMinCostFlow (cost-scaling push-relabel, Goldberg and Tarjan).

The GIL is held for the whole solve: call it in a worker process, never in one that serves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ortools.graph.python import min_cost_flow

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.solvers.slots import FlowNetwork


@dataclass(frozen=True, slots=True)
class Solution:
    """Flows int64[A] of least cost, or none with the solver's status where it found none."""

    flows: Int64s | None
    cost: int
    status: str


def solve(network: FlowNetwork) -> Solution:
    """The flow of least cost through the network. A failure is a value, never an exception."""
    solver = min_cost_flow.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(network.tails, network.heads, network.capacities, network.costs)
    solver.set_nodes_supplies(np.arange(len(network.supplies)), network.supplies)
    status = solver.solve()
    if status != solver.OPTIMAL:
        return Solution(None, 0, status.name)
    return Solution(np.asarray(solver.flows(arcs), dtype=np.int64), int(solver.optimal_cost()), "OPTIMAL")
