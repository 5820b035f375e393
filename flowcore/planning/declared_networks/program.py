"""Networks that are no plain minimum-cost flow: with gains, or with pods of different sizes on one node.

One integer program with a flow of each of the pods on each arc, joint minimums and maximums, and the resources of the
nodes. Through an arc with a gain units change hands: whose units leave it is free, as long as no more pods are placed
than there are. So two tasks may stand for each other there, as in figure 10 of the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, gcd, inf

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.declared_networks.graph import Graph, NetworkRefused
from flowcore.planning.declared_networks.solution import NetworkSolution, check_solution, shortage
from flowcore.planning.solvers import LinearProgram, LinearSolution, solve_lp, solve_mip

#: A larger program takes longer than a round has.
MOST_COLUMNS = 10_000
#: CP-SAT's deterministic time, and that for finding out why there is no flow: roughly seconds.
_WORK, _WORK_OF_REASON = 2.0, 0.5
#: A value of the linear program that is so near to a whole number is taken for it; what comes of it is checked.
_WHOLE = 1e-6
#: Sums of whole numbers below this are exact as floats, so that the solver's proof holds for the program as stated.
_EXACT = 2.0**53


def solve_program(graph: Graph, free: Int64s, *, seed: int = 0) -> NetworkSolution:
    """The best flow that is found in the time of a round; the solution says whether it is proven to be of least cost.

    Args:
        free: int64[N, R], what is free on each node.

    Raises:
        NetworkRefused: the program is too large, no flow meets the minimums and maximums, or none was found in time.
    """
    columns = sum(graph.reached_by[tail].bit_count() for tail in graph.tails.tolist())
    if columns > 8 * MOST_COLUMNS:  # of which many may go to nodes that do not take the pods
        raise NetworkRefused(_too_large(columns))
    stated = _Statement(graph, free, elastic=False)
    if len(stated.costs) > MOST_COLUMNS:
        raise NetworkRefused(_too_large(len(stated.costs)))
    program = stated.program()
    relaxed = solve_lp(program)
    bound = 0 if relaxed is None else _bound(program, relaxed)
    if relaxed is not None:
        whole = LinearSolution(np.rint(relaxed.values), relaxed.duals)
        flows, placed = stated.decode(whole)
        corner = NetworkSolution(graph, flows, placed, bound)
        # A corner of the relaxation is often whole.
        if np.abs(whole.values - relaxed.values).max(initial=0.0) < _WHOLE and _is_flow(corner, free):
            return replace(corner, bound=min(bound, corner.cost), proven=corner.cost <= bound)
    hint = stated.nothing_placed() if relaxed is None else np.rint(relaxed.values)
    solved = solve_mip(program, deterministic_time=_WORK, seed=seed, hint=hint)
    if solved is None:
        raise NetworkRefused(_reason(graph, free, seed))
    flows, placed = stated.decode(solved)
    solution = NetworkSolution(graph, flows, placed, bound)
    exact = float(np.abs(program.costs) @ program.variable_upper) < _EXACT
    proven = solution.cost <= bound or (solved.optimal and exact)
    return replace(solution, bound=min(bound, solution.cost), proven=proven)


def _is_flow(solution: NetworkSolution, free: Int64s) -> bool:
    try:
        check_solution(solution, free)
    except NetworkRefused:
        return False
    return True


def _too_large(columns: int) -> str:
    return (
        f"it is an integer program of {columns} columns, and a round has time for {MOST_COLUMNS}: use fewer arcs, no "
        "gains, or pods of one size for each node"
    )


def _reason(graph: Graph, free: Int64s, seed: int) -> str:
    """Why no flow was found: what is lacking at least, if that can be found out."""
    stated = _Statement(graph, free, elastic=True)
    program = stated.program()
    solved = solve_mip(program, deterministic_time=_WORK_OF_REASON, seed=seed, hint=stated.nothing_placed())
    if solved is None or not solved.optimal or not solved.values @ program.costs:
        return "no flow that meets its minimums and maximums was found in the time of a round"
    flows, _ = stated.decode(solved)
    met = {arc: int(flows[arc]) for arc in np.nonzero(graph.minimums)[0].tolist()}
    return shortage(graph, met, solved.values[stated.stranded].astype(np.int64))


def _bound(program: LinearProgram, relaxed: LinearSolution) -> int:
    """A cost that no solution goes below, whatever the multipliers of the rows: a Lagrangian bound of our own."""
    duals = np.where(np.isfinite(np.where(relaxed.duals > 0, program.row_lower, program.row_upper)), relaxed.duals, 0.0)
    sides = np.where(duals > 0, program.row_lower, program.row_upper)
    of_rows = duals * np.where(duals == 0, 0.0, sides)
    reduced = program.costs.copy()
    np.subtract.at(reduced, program.columns, program.coefficients * duals[program.rows])
    of_columns = np.minimum(reduced, 0.0) * program.variable_upper
    error = 1e-11 * float(np.abs(of_rows).sum() + np.abs(of_columns).sum())
    return max(0, ceil(float(of_rows.sum() + of_columns.sum() - error) - 1e-6))


class _Statement:
    """The program of a graph, column by column and row by row.

    Attributes:
        stranded: columns for pods that have no way, one for each of the pods; empty unless elastic.
    """

    def __init__(self, graph: Graph, free: Int64s, *, elastic: bool) -> None:
        """The program; elastic: what is lacking is all that costs, and any of it may be."""
        self._graph, self._free, self._elastic = graph, free, elastic
        self.costs: list[float] = []
        self._upper: list[float] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []
        self._terms: list[tuple[int, int, int]] = []
        self.stranded: list[int] = []
        #: For each arc: pods and column of what enters it, and of what leaves it.
        self._entering: list[dict[int, int]] = []
        self._leaving: list[dict[int, int]] = []
        self._waiting: list[list[int]] = []
        for arc in range(len(graph.tails)):
            self._add_arc(arc)
        self._add_vertices()
        self._add_waiting()

    def program(self) -> LinearProgram:
        """As arrays."""
        terms = np.array(self._terms, dtype=np.int64).reshape(-1, 3)
        return LinearProgram(
            costs=np.array(self.costs, dtype=np.float64),
            variable_upper=np.array(self._upper, dtype=np.float64),
            row_lower=np.array(self._row_lower, dtype=np.float64),
            row_upper=np.array(self._row_upper, dtype=np.float64),
            rows=terms[:, 0],
            columns=terms[:, 1],
            coefficients=terms[:, 2].astype(np.float64),
        )

    def nothing_placed(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """float64[V]: all pods wait, where their arcs allow it: a start for the solver."""
        values = np.zeros(len(self.costs))
        for columns in self._waiting:
            values[columns] = np.array(self._upper)[columns]
        for arc, (tail, head) in enumerate(zip(self._graph.tails, self._graph.heads, strict=True)):
            if head == self._graph.unscheduled and tail in self._entering[arc]:
                column = self._entering[arc][int(tail)]
                values[column] = self._upper[column]
        return values

    def decode(self, solution: LinearSolution) -> tuple[Int64s, dict[tuple[int, int], int]]:
        """Flows int64[A] and the pods on nodes."""
        values, graph = solution.values.astype(np.int64).tolist(), self._graph
        flows = np.array([sum(values[each] for each in columns.values()) for columns in self._entering], dtype=np.int64)
        placed: dict[tuple[int, int], int] = {}
        for arc, columns in enumerate(self._leaving):
            node = int(graph.nodes[graph.heads[arc]])
            for supply, column in columns.items() if node >= 0 else ():
                if values[column]:
                    placed[supply, node] = placed.get((supply, node), 0) + values[column]
        return flows, placed

    # --- columns and rows ---

    def _add_column(self, cost: float, upper: float) -> int:
        self.costs.append(cost)
        self._upper.append(upper)
        return len(self.costs) - 1

    def _add_row(self, lower: float, upper: float, terms: Sequence[tuple[int, int]]) -> None:
        row = len(self._row_lower)
        self._row_lower.append(lower)
        self._row_upper.append(upper)
        self._terms += [(row, column, coefficient) for column, coefficient in terms]

    def _add_arc(self, arc: int) -> None:
        graph = self._graph
        cost = 0.0 if self._elastic else float(graph.costs[arc])
        maximum, minimum, gain = int(graph.maximums[arc]), int(graph.minimums[arc]), graph.gains[arc]
        tail, head = int(graph.tails[arc]), int(graph.heads[arc])
        bits, node = graph.reached_by[tail], int(graph.nodes[head])
        pods = [supply for supply in range(len(graph.supplies)) if bits >> supply & 1]
        most = {supply: int(graph.supplies[supply].fits[node]) if node >= 0 else maximum * gain for supply in pods}
        limits = {supply: maximum if gain != 1 else min(maximum, most[supply]) for supply in pods}
        entering = {supply: self._add_column(cost, float(limits[supply])) for supply in pods if limits[supply] > 0}
        leaving = entering
        if gain != 1:
            leaving = {supply: self._add_column(0.0, float(min(int(maximum * gain), most[supply]))) for supply in pods}
            terms = [(column, gain.denominator) for column in leaving.values()]
            self._add_row(0, 0, [*terms, *((column, -gain.numerator) for column in entering.values())])
        self._entering.append(entering)
        self._leaving.append(leaving)
        terms = [(column, 1) for column in entering.values()]
        if self._elastic and minimum:
            terms.append((self._add_column(1.0, float(minimum)), 1))
            self._add_row(minimum, inf, terms)
            terms = terms[:-1]
            minimum = 0
        if minimum or sum(self._upper[column] for column, _ in terms) > maximum:
            self._add_row(minimum, maximum, terms)

    def _add_vertices(self) -> None:
        graph = self._graph
        come: list[dict[int, list[int]]] = [{} for _ in graph.names]
        gone: list[dict[int, list[int]]] = [{} for _ in graph.names]
        for arc, (tail, head) in enumerate(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)):
            for number, column in self._entering[arc].items():
                gone[tail].setdefault(number, []).append(column)
            for number, column in self._leaving[arc].items():
                come[head].setdefault(number, []).append(column)
        for number, supply in enumerate(graph.supplies):
            terms = [(column, 1) for column in gone[number].get(number, [])]
            if self._elastic:
                self.stranded.append(self._add_column(1.0, float(supply.count)))
                terms.append((self.stranded[-1], 1))
            self._add_row(supply.count, supply.count, terms)
        for vertex in range(graph.unscheduled + 1, len(graph.names)):
            node = int(graph.nodes[vertex])
            if node >= 0:
                self._add_node(node, come[vertex])
                continue
            for number in sorted(come[vertex].keys() | gone[vertex].keys()):
                terms = [(column, 1) for column in come[vertex].get(number, [])]
                self._add_row(0, 0, [*terms, *((column, -1) for column in gone[vertex].get(number, []))])

    def _add_node(self, node: int, come: dict[int, list[int]]) -> None:
        supplies = self._graph.supplies
        for number, columns in come.items():
            if len(columns) > 1:
                self._add_row(0, int(supplies[number].fits[node]), [(column, 1) for column in columns])
        for resource in range(self._free.shape[1]):
            asked = {
                supply: int(supplies[supply].requests[resource])
                for supply in come
                if supplies[supply].requests[resource]
            }
            capacity = int(self._free[node, resource])
            # A node that is overcommitted in what no pod asks for is like any other.
            if not asked or sum(ask * int(supplies[supply].fits[node]) for supply, ask in asked.items()) <= capacity:
                continue
            unit = gcd(*asked.values())
            terms = [(column, ask // unit) for supply, ask in asked.items() for column in come[supply]]
            self._add_row(0, max(capacity, 0) // unit, terms)

    def _add_waiting(self) -> None:
        """Pods that have no node wait, at their prices."""
        graph = self._graph
        placed: list[list[int]] = [[] for _ in graph.supplies]
        for arc, columns in enumerate(self._leaving):
            if graph.nodes[graph.heads[arc]] >= 0:
                for number, column in columns.items():
                    placed[number].append(column)
        for number, supply in enumerate(graph.supplies):
            values, counts = np.unique(supply.prices, return_counts=True)
            runs = [
                self._add_column(0.0 if self._elastic else float(value), float(count))
                for value, count in zip(values.tolist(), counts.tolist(), strict=True)
            ]
            self._waiting.append(runs)
            self._add_row(supply.count, supply.count, [(column, 1) for column in (*placed[number], *runs)])
