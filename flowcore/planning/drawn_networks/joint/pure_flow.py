"""Networks in which no unit is lost or won and in which counts of pods say what fits: minimum-cost flows.

Exact: the flow is whole, of least cost, and proven to be so by potentials of our own (``solve.potentials``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.drawn_networks.joint.graph import Graph, NetworkRefused, Supply
from flowcore.planning.drawn_networks.joint.solution import NetworkSolution, shortage
from flowcore.planning.solvers import potentials, solve
from flowcore.planning.solvers.slots import FlowNetwork
from flowcore.rules.filters.node_resources_fit import count_fitting

#: A node takes any number of what can reach it.
_ANY = 2**40


def node_limits(graph: Graph, free: Int64s) -> Int64s | None:
    """int64[V]: how many of the pods that can reach a node it takes; None: that depends on which pods come.

    Args:
        free: int64[N, R], what is free on each node.
    """
    limits = np.full(len(graph.names), _ANY, dtype=np.int64)
    vertices_by_reach: dict[int, list[int]] = {}
    for vertex in np.nonzero(graph.nodes >= 0)[0].tolist():
        vertices_by_reach.setdefault(graph.reached_by[vertex], []).append(vertex)
    for bits, vertices in vertices_by_reach.items():
        supplies = [supply for number, supply in enumerate(graph.supplies) if bits >> number & 1]
        nodes = graph.nodes[vertices]
        if len(supplies) == 1:
            limits[vertices] = supplies[0].fits[nodes]
        elif supplies:
            together = _limits_together(supplies, np.maximum(free[nodes], 0))
            if together is None:
                return None
            for supply in supplies:
                if (supply.fits[nodes] < np.minimum(supply.count, together)).any():
                    return None  # one of the pods is let in less than others: the node must know whose unit comes
            limits[vertices] = together
    return limits


def _limits_together(supplies: Sequence[Supply], free: Int64s) -> Int64s | None:
    """int64[M]: how many of these pods each node has room for, in any mixture; None: that depends on the mixture.

    Args:
        free: int64[M, R], what is free on each node.
    """
    if sum(each.host_ports for each in supplies) > 1:
        return None
    # In floats, as sums of large requests may pass int64; what is that close does not count as room for all.
    asked = sum(each.requests.astype(np.float64) * each.count for each in supplies)
    room_for_all = (asked <= free * (1 - 1e-9)).all(axis=1)
    if room_for_all.all():
        return np.full(len(free), _ANY, dtype=np.int64)
    requests = supplies[0].requests
    if any((each.requests != requests).any() for each in supplies[1:]):
        return None
    return np.where(room_for_all, _ANY, count_fitting(requests, free))


def solve_pure(graph: Graph, limits: Int64s) -> NetworkSolution:
    """The flow of least cost, whatever groups there are.

    Args:
        limits: int64[V] (``node_limits``).

    Raises:
        NetworkRefused: no flow meets the minimums and maximums.
    """
    # A minimum is sent in any case: it is taken from the maximum, and is supply at the head and demand at the tail.
    ends, supplies = _ends(graph), _supplies(graph)
    np.subtract.at(supplies, graph.tails, graph.minimums)
    np.add.at(supplies, ends, graph.minimums)
    to_sink = _arcs_to_sink(graph, limits, [each.prices for each in graph.supplies])
    rest = graph.maximums - graph.minimums
    network = _flow_network((graph.tails, ends, rest, graph.costs), to_sink, supplies=supplies)
    solution = solve(network)
    if solution.flows is None:
        raise NetworkRefused(_shortage(graph, limits))
    flows = solution.flows[: len(graph.tails)] + graph.minimums
    unproven = NetworkSolution(graph, flows, _placements(graph, flows), 0)
    return replace(unproven, bound=unproven.cost) if potentials(network, solution.flows) is not None else unproven


def _shortage(graph: Graph, limits: Int64s) -> str:
    """What keeps all flows out: the least that minimums must be lowered by."""
    ends, binding = _ends(graph), np.nonzero(graph.minimums)[0]
    free_of_charge = np.zeros(len(ends), dtype=np.int64)
    rest = graph.tails, ends, graph.maximums - graph.minimums, free_of_charge
    wanted = graph.tails[binding], ends[binding], graph.minimums[binding], free_of_charge[binding] - 1
    to_sink = _arcs_to_sink(graph, limits, [each.prices * 0 for each in graph.supplies])
    solution = solve(_flow_network(wanted, rest, to_sink, supplies=_supplies(graph)))
    if solution.flows is None:
        return f"the solver found no flow through it: {solution.status}"
    met, flows = solution.flows[: len(binding)], solution.flows[len(binding) :]
    return shortage(graph, {arc: int(met[row] + flows[arc]) for row, arc in enumerate(binding.tolist())})


#: Arcs as arrays: tails, heads, capacities, costs.
_Arcs = tuple[Int64s, Int64s, Int64s, Int64s]


def _sink(graph: Graph) -> int:
    return len(graph.names) + len(graph.supplies)


def _ends(graph: Graph) -> Int64s:
    """The heads, with UNSCHEDULED as one vertex for each of the pods: what a unit costs there depends on its pod."""
    return np.where(graph.heads == graph.unscheduled, len(graph.names) + graph.tails, graph.heads)


def _supplies(graph: Graph) -> Int64s:
    units = np.zeros(_sink(graph) + 1, dtype=np.int64)
    units[: len(graph.supplies)] = [supply.count for supply in graph.supplies]
    units[-1] = -units.sum()
    return units


def _arcs_to_sink(graph: Graph, limits: Int64s, prices: Sequence[Int64s]) -> _Arcs:
    """From nodes, and from the pods that wait at their prices."""
    nodes, total = np.nonzero(graph.nodes >= 0)[0], sum(each.count for each in graph.supplies)
    runs = [np.unique(each, return_counts=True) for each in prices]
    owners = [np.full(len(values), len(graph.names) + run) for run, (values, _) in enumerate(runs)]
    tails = np.concatenate([nodes, *owners]).astype(np.int64)
    capacities = np.concatenate([np.minimum(limits[nodes], total), *(counts for _, counts in runs)])
    costs = np.concatenate([np.zeros(len(nodes), dtype=np.int64), *(values for values, _ in runs)])
    return tails, np.full(len(tails), _sink(graph)), capacities.astype(np.int64), costs.astype(np.int64)


def _flow_network(*arcs: _Arcs, supplies: Int64s) -> FlowNetwork:
    tails, heads, capacities, costs = (np.concatenate(each) for each in zip(*arcs, strict=True))
    nothing = np.zeros(0, dtype=np.int64)
    return FlowNetwork(tails, heads, capacities, costs, supplies, placement_arcs=0, arc_class=nothing, arc_node=nothing)


def _placements(graph: Graph, flows: Int64s) -> dict[tuple[int, int], int]:
    """Units by class and node. Aggregators do not say whose units they pass on, so the first come first."""
    here: list[list[tuple[int, int]]] = [[] for _ in graph.names]
    for number, supply in enumerate(graph.supplies):
        here[number].append((number, supply.count))
    for vertex in graph.order:
        units = here[vertex]
        for arc in graph.out_arcs[vertex]:
            wanted, head = int(flows[arc]), here[graph.arcs[arc].head]
            while wanted:
                number, count = units.pop()
                taken = min(count, wanted)
                head.append((number, taken))
                wanted -= taken
                if count > taken:
                    units.append((number, count - taken))
    placed: dict[tuple[int, int], int] = {}
    for vertex in np.nonzero(graph.nodes >= 0)[0].tolist():
        for number, count in here[vertex]:
            key = number, int(graph.nodes[vertex])
            placed[key] = placed.get(key, 0) + count
    return placed
