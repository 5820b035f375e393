"""Networks of many ways: a program of few of them, to which those are added that lower its cost.

Column generation (Ford and Fulkerson 1958: multicommodity flows): the program of the ways at hand gives prices, and at
these prices the cheapest paths of all pods say which ways it lacks. Once no path costs less than its pods pay already,
no way is missing: the program costs what that of all ways would cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.declared_networks.graph import NetworkRefused, NoFlowInTime
from flowcore.planning.declared_networks.programs.bounds import least_cost, weights
from flowcore.planning.declared_networks.programs.statement import Prices, Statement
from flowcore.planning.declared_networks.programs.ways import Ways
from flowcore.planning.declared_networks.programs.work import Work
from flowcore.planning.declared_networks.solution import shortage
from flowcore.planning.solvers import LinearProgram, LinearSolution, solve_lp

#: Programs that are solved at most, to find a flow and then to lower its cost.
_TURNS_TO_A_FLOW, _TURNS = 40, 25
#: How many last ways are chosen for each of the pods, at first and then in each turn.
_FIRST, _EACH = 50, 30
#: A program that costs at most so much more than the bound, as a part of its cost, is as good as that of all ways.
_CLOSE = 1e-4
#: What is lacking less than this is nothing.
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class RelaxedNetwork:
    """A network in fractions.

    Attributes:
        bound: a cost that no flow goes below.
    """

    stated: Statement
    program: LinearProgram
    solution: LinearSolution
    bound: int


def generate(ways: Ways, free: Int64s, seed: int, work: Work) -> RelaxedNetwork:
    """A program of ways that are worth something, solved in fractions.

    Raises:
        NetworkRefused: no flow meets the minimums and maximums, or none was found in time.
    """
    return _Generation(ways, free, seed, work).run()


def relax(ways: Ways, free: Int64s, chosen: Int64s) -> RelaxedNetwork | None:
    """The program of these ways in fractions; None: the solver finds no flow."""
    stated = Statement(ways, free, chosen, elastic=False)
    program = stated.program()
    solution = solve_lp(program)
    if solution is None:
        return None
    prices = stated.prices(program, solution.duals)
    bound = least_cost(ways, free, prices, weights(ways, prices, ways.graph.costs))
    return RelaxedNetwork(stated, program, solution, bound)


class _Generation:
    def __init__(self, ways: Ways, free: Int64s, seed: int, work: Work) -> None:
        self._ways, self._free, self._work = ways, free, work
        self._ranks = np.random.default_rng(seed).permutation(len(ways))
        self._chosen = self._cheapest()

    def run(self) -> RelaxedNetwork:
        if self._ways.graph.minimums.any() or not self._may_all_wait():
            self._find_flow()
        best, bound = None, 0
        # The rest is for whole pods.
        enough = self._work.left // 2
        for _ in range(_TURNS):
            if best is not None and self._work.left <= enough:
                break
            self._work.program(len(self._ways), len(self._chosen))
            relaxed = relax(self._ways, self._free, self._chosen)
            if relaxed is None:
                break
            bound = max(bound, relaxed.bound)
            best = replace(relaxed, bound=bound)
            cost = float(relaxed.program.costs @ relaxed.solution.values)
            prices = relaxed.stated.prices(relaxed.program, relaxed.solution.duals)
            if cost - bound <= _CLOSE * cost or not self._add(prices, self._ways.graph.costs):
                break
        if best is None:
            raise NoFlowInTime
        return best

    def _may_all_wait(self) -> bool:
        """Whether pods have ways to UNSCHEDULED that take all of them."""
        graph, ways = self._ways.graph, self._ways
        terminal = graph.heads[ways.arcs] == graph.unscheduled
        terminal &= ways.tails < len(graph.supplies)
        room = np.zeros(len(graph.supplies), dtype=np.int64)
        np.add.at(room, ways.supplies[terminal], ways.maximums[terminal])
        return all(int(most) >= supply.count for most, supply in zip(room, graph.supplies, strict=True))

    def _cheapest(self) -> Int64s:
        """Ways on paths that are cheap by the arcs' costs, and all to UNSCHEDULED."""
        ways, graph = self._ways, self._ways.graph
        nothing = np.zeros(len(graph.tails), dtype=np.bool_)
        paid = np.where(ways.leaves, 0, graph.costs[ways.arcs]).astype(np.float64)
        paths = ways.cheap_paths(paid, None, count=_FIRST, pressed=nothing, ranks=self._ranks, least=0.0)
        terminal = np.nonzero((graph.heads[ways.arcs] == graph.unscheduled) & (ways.tails < len(graph.supplies)))[0]
        return np.union1d(paths, terminal)

    def _find_flow(self) -> None:
        """Adds ways until nothing is lacking.

        Raises:
            NetworkRefused: something is lacking whatever is added, or after as many turns as a round has time for.
        """
        graph = self._ways.graph
        free_of_charge = np.zeros_like(graph.costs)
        for _ in range(_TURNS_TO_A_FLOW):
            self._work.demand(len(self._ways))
            self._work.program(len(self._ways), len(self._chosen))
            stated = Statement(self._ways, self._free, self._chosen, elastic=True)
            program = stated.program()
            solution = solve_lp(program)
            if solution is None:
                break
            if program.costs @ solution.values < _NOTHING:
                return
            if not self._add(stated.prices(program, solution.duals), free_of_charge):
                flows = {
                    arc: int(graph.minimums[arc]) - max(1, round(float(solution.values[column])))
                    for arc, column in stated.lacking.items()
                    if solution.values[column] > _NOTHING
                }
                without_way = np.ceil(solution.values[stated.stranded] - _NOTHING).astype(np.int64)
                raise NetworkRefused(shortage(graph, flows, without_way))
        raise NoFlowInTime

    def _add(self, prices: Prices, costs: Int64s) -> bool:
        """Adds ways on paths that cost less than their pods pay; False: there are none."""
        paid = weights(self._ways, prices, costs)
        least = 1e-7 * float(np.abs(prices.starts).max(initial=1.0))
        added = self._ways.cheap_paths(
            paid, prices.starts, count=_EACH, pressed=prices.arcs > 0, ranks=self._ranks, least=least
        )
        chosen = np.union1d(self._chosen, added)
        grown = len(chosen) > len(self._chosen)
        self._chosen = chosen
        return grown
