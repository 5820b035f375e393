"""Groups in a network that is a minimum-cost flow but for them: it stays one where each is whole, or is made so.

The flow of least cost does not know groups. Where it happens to place each of them whole, or nobody of it, it is the
best flow with them too. Else those that it breaks are decided one after the other: with enough of their pods placed, or
with all of them left, whichever costs less. Each decision takes two more flows, so few are made; groups that are still
broken after them are left.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.declared_networks.graph import Graph, SupplyGroup
from flowcore.planning.declared_networks.programs.work import Work
from flowcore.planning.declared_networks.pure_flow import solve_within
from flowcore.planning.declared_networks.solution import NetworkSolution, is_whole

#: Groups that are decided by two flows each.
_DECIDED = 8


def broken_groups(solution: NetworkSolution) -> list[SupplyGroup]:
    """Groups of which a flow places a part that is no use."""
    return [group for group in solution.graph.groups if not is_whole(solution, group)]


def with_whole_groups(relaxed: NetworkSolution, limits: Int64s, work: Work) -> NetworkSolution | None:
    """A flow in which each group is whole or absent; None: none was found so.

    Args:
        relaxed: the flow of least cost, whatever becomes of groups. No group that it breaks chooses a domain.
        limits: int64[V] (``node_limits``).
        work: what it may take.
    """
    graph, decisions = relaxed.graph, _Decisions(relaxed.graph, limits, work)
    solution: NetworkSolution | None = relaxed
    for _ in range(_DECIDED):
        if solution is None or work.is_done or not (broken := broken_groups(solution)):
            break
        solution = decisions.decide(max(broken, key=lambda group: _worth(graph, group)))
    if solution is not None and broken_groups(solution):
        solution = decisions.settle(solution)
    if solution is None or broken_groups(solution):
        return None
    return replace(solution, bound=min(relaxed.bound, solution.cost), proven=solution.cost <= relaxed.bound)


def _worth(graph: Graph, group: SupplyGroup) -> int:
    """What it costs to leave the pods that a group asks for."""
    return sum(int(graph.supplies[member].prices[:count].sum()) for member, count in group.required)


class _Decisions:
    """Which groups are whole and which are absent, so far."""

    def __init__(self, graph: Graph, limits: Int64s, work: Work) -> None:
        self._graph, self._limits, self._work = graph, limits, work
        self._least = np.zeros(len(graph.supplies), dtype=np.int64)
        self._absent = np.zeros(len(graph.supplies), dtype=np.bool_)

    def decide(self, group: SupplyGroup) -> NetworkSolution | None:
        """The cheaper of two flows: the group is whole, or absent."""
        least, absent = self._least.copy(), self._absent.copy()
        for member, required in group.required:
            least[member] = required
        absent[list(group.members)] = True
        whole = self._flow(least, self._absent) if group.required else None
        without = self._flow(self._least, absent)
        if whole is not None and is_whole(whole, group) and (without is None or whole.cost <= without.cost):
            self._least = least
            return whole
        self._absent = absent
        return without

    def settle(self, solution: NetworkSolution) -> NetworkSolution | None:
        """The flow in which groups that this one places whole stay so, and no others are there."""
        counts = solution.placed_counts
        for group in self._graph.groups:
            if any(counts[member] for member in group.members) and is_whole(solution, group):
                for member, required in group.required:
                    self._least[member] = min(required, counts[member])
            else:
                self._absent[list(group.members)] = True
        return self._flow(self._least, self._absent)

    def _flow(self, least: Int64s, absent: Bools) -> NetworkSolution | None:
        self._work.flow(len(self._graph.tails))
        return solve_within(self._graph, self._limits, least, absent)
