"""A flow through a network, and what it does to pods; checked against the network by arithmetic of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.drawn_networks.joint.graph import Graph, NetworkRefused, SupplyGroup

#: Reasons that a sentence lists.
_LISTED = 3


@dataclass(frozen=True, slots=True, eq=False)
class NetworkSolution:
    """A flow of a graph.

    Attributes:
        flows: int64[A], units that enter each arc.
        placed: how many of the pods c go to the node at position n, by (c, n); none is zero.
        bound: a cost that no flow goes below, by our own arithmetic.
    """

    graph: Graph
    flows: Int64s
    placed: Mapping[tuple[int, int], int]
    bound: int

    @property
    def placed_counts(self) -> list[int]:
        """How many of each pods have a node."""
        counts = [0] * len(self.graph.supplies)
        for (number, _), count in self.placed.items():
            counts[number] += count
        return counts

    @property
    def flow_cost(self) -> int:
        """What the arcs cost."""
        return sum(cost * flow for cost, flow in zip(self.graph.costs.tolist(), self.flows.tolist(), strict=True))

    @property
    def cost(self) -> int:
        """What the arcs and the pods without a node cost."""
        supplies = zip(self.graph.supplies, self.placed_counts, strict=True)
        return self.flow_cost + sum(int(supply.prices[count:].sum()) for supply, count in supplies)


def check_solution(solution: NetworkSolution, free: Int64s) -> None:
    """Checks all that the network and the nodes demand.

    Args:
        free: int64[N, R], what is free on each node.

    Raises:
        NetworkRefused: the flow is none; whatever a solver said, no plan is made of it.
    """
    graph, flows = solution.graph, solution.flows
    within = (graph.minimums <= flows) & (flows <= graph.maximums)
    within &= (flows >= graph.wholes) | (flows == 0)
    _demand(bool(within.all()), graph, "passes a minimum or a maximum")
    come: list[int | Fraction] = [0] * len(graph.names)
    gone = [0] * len(graph.names)
    for arc, flow in zip(graph.arcs, flows.tolist(), strict=True):
        gone[arc.tail] += flow
        come[arc.head] += flow if arc.gain == 1 else flow * arc.gain
    arrived: dict[int, int] = {}
    used: dict[int, Int64s] = {}
    reached = {int(node): bits for node, bits in zip(graph.nodes, graph.reached_by, strict=True) if node >= 0}
    for (number, node), count in solution.placed.items():
        supply = graph.supplies[number]
        arrived[node] = arrived.get(node, 0) + count
        used[node] = used.get(node, np.zeros_like(supply.requests)) + supply.requests * count
        _demand(0 < count <= int(supply.fits[node]), graph, "has more pods on a node than fit there")
        _demand(bool(reached.get(node, 0) >> number & 1), graph, "has pods on a node that no arc leads them to")
    room = all(((asked <= free[node]) | (asked == 0)).all() for node, asked in used.items())
    _demand(room, graph, "has pods on a node without room for them")
    whole = all(is_whole(solution, group) for group in graph.groups)
    _demand(whole, graph, "places a part of pods that need each other")
    for vertex in range(len(graph.names)):
        if vertex < len(graph.supplies):
            kept = gone[vertex] == graph.supplies[vertex].count >= solution.placed_counts[vertex]
        elif vertex == graph.unscheduled:
            kept = True
        elif graph.nodes[vertex] >= 0:
            kept = come[vertex] == arrived.pop(int(graph.nodes[vertex]), 0)
        else:
            kept = come[vertex] == gone[vertex]
        _demand(kept, graph, f"loses or makes units of flow at {graph.names[vertex]}")


def is_whole(solution: NetworkSolution, group: SupplyGroup) -> bool:
    """Whether nobody of a group is placed, or enough of each of its gangs, each in one domain where it must be."""
    counts = solution.placed_counts
    if not any(counts[member] for member in group.members):
        return True
    domains = [
        {int(of[node]) for number, node in solution.placed if number in members} for members, of in group.domains
    ]
    enough = all(sum(counts[member] for member in members) >= need for members, need in group.needs)
    return enough and all(len(each) <= 1 and -1 not in each for each in domains)


def _demand(holds: bool, graph: Graph, problem: str) -> None:  # noqa: FBT001 - a condition and its message
    if not holds:
        raise NetworkRefused(f"the solver's flow through {len(graph.tails)} arcs {problem}")


def shortage(graph: Graph, flows: Mapping[int, int]) -> str:
    """Why no flow is possible, as a clause: pods may always wait, so minimums lack something.

    Args:
        flows: of arcs with a minimum, how much flow they get where as little as possible is lacking.
    """
    reasons = [
        f"arc {graph.arc_name(arc)} needs at least {graph.minimums[arc]} and gets {flow} where least is lacking"
        for arc, flow in flows.items()
        if flow < graph.minimums[arc]
    ]
    return "; ".join(reasons[:_LISTED]) + (f" and {len(reasons) - _LISTED} more" if len(reasons) > _LISTED else "")
