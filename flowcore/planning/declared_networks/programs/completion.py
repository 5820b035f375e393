"""A plan of few ways, and what of the waiting pods finds room beside it by any way.

Pods that wait take the cheapest way that is open for them, one after the other: the pods that gain most by it come
first. Arcs with gains are closed, and pods of absent groups stay: for both a single pod changes more than itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.declared_networks.programs.ways import Ways
from flowcore.planning.declared_networks.solution import NetworkSolution

Float64s = NDArray[np.float64]
#: Ways that are added at most: each is a search for the cheapest one.
_MOST_STEPS = 300
#: A node has room for any number of pods that ask for nothing.
_ANY = 2**40


def complete(ways: Ways, free: Int64s, solution: NetworkSolution) -> NetworkSolution:
    """The solution with more pods on nodes where that lowers its cost.

    Args:
        free: int64[N, R], what is free on each node.
    """
    completion = _Completion(ways, free, solution)
    for _ in range(_MOST_STEPS):
        if not completion.step():
            break
    return replace(solution, flows=completion.flows, placed=completion.placed)


class _Completion:
    """A flow that grows.

    Attributes:
        flows: int64[A].
        placed: pods by supply and node.
    """

    def __init__(self, ways: Ways, free: Int64s, solution: NetworkSolution) -> None:
        graph = ways.graph
        self._ways, self._graph = ways, graph
        self.flows, self.placed = solution.flows.copy(), dict(solution.placed)
        self._counts = solution.placed_counts
        self._requests = np.array([supply.requests for supply in graph.supplies], dtype=np.int64)
        self._room = free.copy()
        self._fits = np.array([supply.fits for supply in graph.supplies], dtype=np.int64)
        for (number, node), count in self.placed.items():
            self._room[node] -= self._requests[number] * count
            self._fits[number, node] -= count
        for node in range(len(free)):
            self._note_room(node)
        gaining = np.array([gain != 1 for gain in graph.gains], dtype=np.bool_)
        ends_at_nodes = graph.heads[ways.arcs] != graph.unscheduled
        self._plain = ~gaining[ways.arcs] & ends_at_nodes
        closed = {member for group in graph.groups for member in group.members if not self._may_grow(group.members)}
        closed |= {member for group in graph.groups if group.domains for member in group.members}
        self._open = [number for number in range(len(graph.supplies)) if number not in closed]
        self._waits = {
            number: self._arcs_of_waiting(number) for number in self._open if graph.supplies[number].count
        }

    def step(self) -> bool:
        """Sends pods along the way that gains most; False: none does."""
        ways, graph = self._ways, self._graph
        is_open = self._plain & (graph.maximums - self.flows > 0)[ways.arcs]
        arriving = np.nonzero(is_open & (ways.nodes >= 0))[0]
        is_open[arriving] = self._fits[ways.supplies[arriving], ways.nodes[arriving]] > 0
        paid = np.where(is_open, graph.costs[ways.arcs], np.inf)
        costs = ways.costs(paid)
        gains = [(self._gain(number, float(costs[number])), number) for number in self._open]
        gain, number = max(gains, key=lambda each: each[0], default=(0.0, -1))
        if gain <= 0:
            return False
        self._send(number, list(self._cheapest(number, paid, costs)), float(costs[number]))
        return True

    def _may_grow(self, members: tuple[int, ...]) -> bool:
        return any(self._counts[member] for member in members)

    def _arcs_of_waiting(self, number: int) -> list[int]:
        """The arcs from these pods to UNSCHEDULED."""
        graph = self._graph
        return [arc for arc in graph.out_arcs[number] if graph.heads[arc] == graph.unscheduled and graph.gains[arc] == 1]

    def _spare(self, number: int) -> tuple[int, int]:
        """The arc on which most pods wait that may leave it, and how many."""
        graph = self._graph
        arcs = [(int(self.flows[arc] - graph.minimums[arc]), arc) for arc in self._waits.get(number, ())]
        count, arc = max(arcs, default=(0, -1))
        return arc, count

    def _gain(self, number: int, cost: float) -> float:
        supply, placed = self._graph.supplies[number], self._counts[number]
        arc, spare = self._spare(number)
        if spare <= 0 or placed >= supply.count or not np.isfinite(cost):
            return 0.0
        return float(supply.prices[placed]) + float(self._graph.costs[arc]) - cost

    def _cheapest(self, number: int, paid: Float64s, costs: Float64s) -> Iterator[int]:
        """The ways from the pods to a node."""
        ways, state = self._ways, number
        while not ways.ends[state]:
            onward = np.nonzero(ways.tails == state)[0]
            way = int(onward[np.argmin(paid[onward] + costs[ways.heads[onward]])])
            yield way
            state = int(ways.heads[way])

    def _send(self, number: int, path: list[int], cost: float) -> None:
        ways, graph, supply = self._ways, self._graph, self._graph.supplies[number]
        waiting, spare = self._spare(number)
        arcs, node = [int(ways.arcs[way]) for way in path], int(ways.nodes[path[-1]])
        most = min(spare, int(self._fits[number, node]), *(int(graph.maximums[arc] - self.flows[arc]) for arc in arcs))
        left = supply.prices[self._counts[number] :][:most]
        count = max(1, int((left + int(graph.costs[waiting]) > cost).sum()))
        for arc in arcs:
            self.flows[arc] += count
        self.flows[waiting] -= count
        self._counts[number] += count
        self.placed[number, node] = self.placed.get((number, node), 0) + count
        self._room[node] -= self._requests[number] * count
        self._fits[number, node] -= count
        self._note_room(node)

    def _note_room(self, node: int) -> None:
        """No more pods fit than the node has room for."""
        asked = self._requests > 0
        room = np.where(asked, np.maximum(self._room[node], 0) // np.maximum(self._requests, 1), _ANY)
        self._fits[:, node] = np.minimum(self._fits[:, node], room.min(axis=1, initial=_ANY))
