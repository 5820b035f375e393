"""A flow through few ways, and what of the waiting pods finds room beside it by any way.

Units that end in UNSCHEDULED turn off to the way that saves most, one way after the other. Through an arc with a gain
one unit may place several pods. Pods of absent groups stay: one of them alone is no use.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import lcm

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.declared_networks.programs.ways import Float64s, Ways, gain_of
from flowcore.planning.declared_networks.programs.work import Work

#: Searches for the cheapest way at most.
_MOST_STEPS = 400
#: A node has room for any number of pods that ask for nothing.
_ANY = 2**40


def complete(ways: Ways, free: Int64s, units: Int64s, work: Work) -> Int64s:
    """int64[E]: a flow with more pods on nodes, where that lowers its cost.

    Args:
        free: int64[N, R], what is free on each node.
        units: int64[E], a flow.
    """
    completion = _Completion(ways, free, units)
    for _ in range(_MOST_STEPS):
        if not completion.step():
            break
        work.scan(len(ways))
    return completion.units


class _Completion:
    """A flow that grows.

    Attributes:
        units: int64[E].
    """

    def __init__(self, ways: Ways, free: Int64s, units: Int64s) -> None:
        graph = ways.graph
        self._ways, self._graph, self.units = ways, graph, units.copy()
        supplies = range(len(graph.supplies))
        self._requests = np.array([supply.requests for supply in graph.supplies], dtype=np.int64)
        arriving = ways.nodes >= 0
        placed = np.zeros((len(graph.supplies), len(free)), dtype=np.int64)
        np.add.at(placed, (ways.supplies[arriving], ways.nodes[arriving]), units[arriving])
        self._counts = placed.sum(axis=1)
        self._room = free - placed.T @ self._requests
        self._fits = np.array([supply.fits for supply in graph.supplies], dtype=np.int64) - placed
        for node in range(len(free)):
            self._note_room(node)
        self._flows = np.zeros(len(graph.tails), dtype=np.int64)
        np.add.at(self._flows, ways.arcs[~ways.leaves], units[~ways.leaves])
        self._unscheduled = np.nonzero((graph.heads[ways.arcs] == graph.unscheduled) & ways.ends[ways.heads])[0]
        self._open = np.ones(len(ways), dtype=np.bool_)
        self._open[self._unscheduled] = False
        closed = [member for group in graph.groups if self._stays(group.members) for member in group.members]
        closed += [member for group in graph.groups if group.domains for member in group.members]
        self._open[arriving & np.isin(ways.supplies, closed)] = False
        self._carried = ways.least_arrivals()[ways.tails] * ways.factors
        self._prices = [np.append(graph.supplies[number].prices, 0) for number in supplies]

    def step(self) -> bool:
        """Sends units along the way that saves most, or closes one that is too narrow; False: none saves anything."""
        ways, graph = self._ways, self._graph
        spare = self._unscheduled[self.units[self._unscheduled] > 0]
        spare = spare[(self._flows - graph.minimums)[ways.arcs[spare]] > 0]
        if not len(spare):
            return False
        is_open = self._open & (ways.leaves | (graph.maximums > self._flows)[ways.arcs])
        arriving = np.nonzero(is_open & (ways.nodes >= 0))[0]
        waiting = np.array([supply.count for supply in graph.supplies]) - self._counts
        most = np.minimum(self._fits[ways.supplies[arriving], ways.nodes[arriving]], waiting[ways.supplies[arriving]])
        is_open[arriving] = most >= self._carried[arriving]
        paid = np.where(is_open, np.where(ways.leaves, 0, graph.costs[ways.arcs]), np.inf)
        next_prices = np.array([prices[count] for prices, count in zip(self._prices, self._counts, strict=True)])
        paid[arriving] -= next_prices[ways.supplies[arriving]]
        costs = ways.costs(paid)
        saved = graph.costs[ways.arcs[spare]] - costs[ways.tails[spare]]
        best = int(np.argmax(saved))
        if saved[best] <= 0 or not np.isfinite(saved[best]):
            return False
        terminal = int(spare[best])
        path = list(self._cheapest(int(ways.tails[terminal]), paid, costs))
        count = self._most(terminal, path)
        if count:
            self._send(terminal, path, count)
        else:
            self._open[path[-1][0]] = False
        return True

    def _stays(self, members: tuple[int, ...]) -> bool:
        return not any(self._counts[member] for member in members)

    def _cheapest(self, state: int, paid: Float64s, costs: Float64s) -> Iterator[tuple[int, Fraction]]:
        """The ways from a state to a node, and how many units enter each for one unit at the state."""
        ways, factor = self._ways, Fraction(1)
        while not ways.ends[state]:
            onward = np.nonzero(ways.tails == state)[0]
            way = int(onward[np.argmin(paid[onward] + ways.factors[onward] * costs[ways.heads[onward]])])
            yield way, factor
            factor *= gain_of(ways, way)
            state = int(ways.heads[way])

    def _most(self, terminal: int, path: list[tuple[int, Fraction]]) -> int:
        """How many units may turn off from an end to a path, and save something."""
        ways, graph = self._ways, self._graph
        last, arrive = path[-1]
        number, node = int(ways.supplies[last]), int(ways.nodes[last])
        prices, placed = self._prices[number], int(self._counts[number])
        waiting = len(prices) - 1 - placed
        alike = int((prices[placed:-1] == prices[placed]).sum())
        most = min(int(self.units[terminal]), int((self._flows - graph.minimums)[ways.arcs[terminal]]))
        for way, factor in path:
            if not ways.leaves[way]:
                arc = ways.arcs[way]
                most = min(most, int(int(graph.maximums[arc] - self._flows[arc]) / factor))
        most = min(most, int(min(int(self._fits[number, node]), waiting) / arrive))
        whole = lcm(*(factor.denominator for _, factor in path))
        if most * arrive > alike:
            # Pods of a lower price would follow: as few as possible, if they save anything together.
            most = max(whole, int(alike / arrive)) if most >= whole else 0
            worth = int(prices[placed : placed + int(most * arrive)].sum())
            cost = sum(int(graph.costs[ways.arcs[way]]) * factor for way, factor in path if not ways.leaves[way])
            most = most if worth > (cost - int(graph.costs[ways.arcs[terminal]])) * most else 0
        return most // whole * whole

    def _send(self, terminal: int, path: list[tuple[int, Fraction]], count: int) -> None:
        ways = self._ways
        for way, units in ((terminal, -count), *((way, int(count * factor)) for way, factor in path)):
            self.units[way] += units
            if not ways.leaves[way]:
                self._flows[ways.arcs[way]] += units
        last, factor = path[-1]
        number, node, placed = int(ways.supplies[last]), int(ways.nodes[last]), int(count * factor)
        self._counts[number] += placed
        self._room[node] -= self._requests[number] * placed
        self._fits[number, node] -= placed
        self._note_room(node)

    def _note_room(self, node: int) -> None:
        """No more pods fit than the node has room for."""
        asked = self._requests > 0
        room = np.where(asked, np.maximum(self._room[node], 0) // np.maximum(self._requests, 1), _ANY)
        self._fits[:, node] = np.minimum(self._fits[:, node], room.min(axis=1, initial=_ANY))
