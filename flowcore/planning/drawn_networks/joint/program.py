"""Networks that are no plain minimum-cost flow: with gains, with gangs, or with pods of different sizes on one node.

An integer program. A column says how many units of some pods take an arc. Through an arc with a gain units change
hands: whose units leave it is free, as long as no more pods are placed than there are. So two tasks may stand for each
other there, as in figure 10 of the seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import gcd, inf

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.drawn_networks.joint.graph import Graph, NetworkRefused, SupplyGroup
from flowcore.planning.drawn_networks.joint.solution import NetworkSolution, check_solution, shortage
from flowcore.planning.solvers import LinearProgram, solve_lp, solve_mip

#: A program of more ways takes longer than a round has: a way is an arc with the pods that may take it.
MOST_WAYS = 10_000
#: Which part of the time that there is CP-SAT has for finding out why there is no flow.
_PART_FOR_REASON = 0.25

#: A value of the linear program that is so near to a whole number is taken for it; what comes of it is checked.
_WHOLE = 1e-6


def solve_program(graph: Graph, free: Int64s, *, seconds: float, seed: int) -> NetworkSolution:
    """The best flow that is found in time.

    Args:
        free: int64[N, R], what is free on each node.
        seconds: CP-SAT's deterministic time.

    Raises:
        NetworkRefused: there are too many ways, no flow meets the minimums and maximums, or none was found in time.
    """
    ways = count_ways(graph)
    if ways > MOST_WAYS:
        problem = f"its pods have {ways} ways through its arcs, and a round has time for {MOST_WAYS}"
        raise NetworkRefused(f"{problem}: draw fewer arcs, or read fewer labels")
    stated = _Statement(graph, free)
    program = stated.program()
    relaxed = solve_lp(program)
    if relaxed is None:
        raise _why_none(graph, free, seconds * _PART_FOR_REASON, seed)
    bound = program.least_cost(relaxed.duals)
    hint = np.rint(relaxed.values)
    # A corner of the relaxation is often whole.
    corner = stated.solution(hint, bound)
    is_whole = np.abs(hint - relaxed.values).max(initial=0.0) < _WHOLE
    if is_whole and corner.cost <= bound and _is_flow(corner, free):
        return replace(corner, bound=corner.cost)
    solved = solve_mip(program, deterministic_time=seconds, seed=seed, hint=hint)
    if solved is None:
        raise _why_none(graph, free, seconds * _PART_FOR_REASON, seed)
    solution = stated.solution(solved.values, bound)
    return replace(solution, bound=min(bound, solution.cost))


def bound_of_program(graph: Graph, free: Int64s) -> int:
    """A cost that no flow goes below."""
    if count_ways(graph) > MOST_WAYS:
        return 0
    program = _Statement(graph, free).program()
    relaxed = solve_lp(program)
    return 0 if relaxed is None else program.least_cost(relaxed.duals)


def count_ways(graph: Graph) -> int:
    """How many ways a graph has, those through gains counted once."""
    return sum(graph.reached_by[arc.tail].bit_count() for arc in graph.arcs)


def _is_flow(solution: NetworkSolution, free: Int64s) -> bool:
    try:
        check_solution(solution, free)
    except NetworkRefused:
        return False
    return True


def _why_none(graph: Graph, free: Int64s, seconds: float, seed: int) -> NetworkRefused:
    """Why no flow was found: what is lacking at least, if that can be found out."""
    stated = _Statement(graph, free, elastic=True)
    program = stated.program()
    solved = solve_mip(program, deterministic_time=seconds, seed=seed, hint=np.zeros(len(program.costs)))
    if solved is None or not solved.optimal or not solved.values @ program.costs:
        return NetworkRefused("no flow that meets its minimums and maximums was found in the time of a round")
    flows = stated.solution(solved.values, 0).flows
    met = {arc: int(flows[arc]) for arc in np.nonzero(graph.minimums)[0].tolist()}
    return NetworkRefused(shortage(graph, met))


class _Statement:
    """The program of all ways."""

    def __init__(self, graph: Graph, free: Int64s, *, elastic: bool = False) -> None:
        """The program.

        Args:
            elastic: whether what minimums lack is all that costs, and any of it may be lacking.
        """
        self._graph, self._free, self._elastic = graph, free, elastic
        self._costs: list[float] = []
        self._upper: list[float] = []
        self._rows: list[tuple[float, float]] = []
        self._terms: list[tuple[int, int, int]] = []
        self._waiting: list[list[int]] = []
        #: The columns of units that enter an arc, come to a vertex as some pods and go on from there, and are placed.
        self._entering: list[list[int]] = [[] for _ in graph.arcs]
        self._come: dict[tuple[int, int], list[int]] = {}
        self._gone: dict[tuple[int, int], list[int]] = {}
        self._placed: dict[tuple[int, int], list[int]] = {}
        for number in range(len(graph.arcs)):
            self._add_arc(number)
        self._add_states()
        self._add_nodes()
        self._add_waiting()
        for group in graph.groups:
            self._add_group(group)

    def program(self) -> LinearProgram:
        """As arrays."""
        terms, rows = np.array(self._terms, dtype=np.int64).reshape(-1, 3), np.array(self._rows).reshape(-1, 2)
        return LinearProgram(
            costs=np.array(self._costs, dtype=np.float64),
            variable_upper=np.array(self._upper, dtype=np.float64),
            row_lower=rows[:, 0],
            row_upper=rows[:, 1],
            rows=terms[:, 0],
            columns=terms[:, 1],
            coefficients=terms[:, 2].astype(np.float64),
        )

    def solution(self, values: Iterable[float], bound: int) -> NetworkSolution:
        """What whole numbers of the columns say."""
        units = np.rint(np.asarray(values)).astype(np.int64)
        flows = np.array([units[columns].sum() for columns in self._entering], dtype=np.int64)
        placed = {key: int(units[columns].sum()) for key, columns in self._placed.items()}
        return NetworkSolution(self._graph, flows, {key: count for key, count in placed.items() if count}, bound)

    # --- columns and rows ---

    def _add_column(self, cost: float, upper: float) -> int:
        self._costs.append(cost)
        self._upper.append(upper)
        return len(self._costs) - 1

    def _add_row(self, lower: float, upper: float, *terms: tuple[Iterable[int], int]) -> None:
        """Some sums of columns, each so many times, are within bounds."""
        row = len(self._rows)
        self._rows.append((lower, upper))
        self._terms += [(row, column, coefficient) for columns, coefficient in terms for column in columns]

    def _add_arc(self, number: int) -> None:
        """What enters is within bounds, and what leaves an arc with a gain is that many times as much."""
        graph, arc = self._graph, self._graph.arcs[number]
        most, entering, leaving = int(graph.maximums[number]), self._entering[number], list[int]()
        for kind in _kinds(graph.reached_by[arc.tail]):
            column = self._add_column(0.0 if self._elastic else float(arc.cost), float(most))
            entering.append(column)
            self._gone.setdefault((arc.tail, kind), []).append(column)
            if arc.gain != 1:
                column = self._add_column(0.0, float(int(most * arc.gain)))
                leaving.append(column)
            self._come.setdefault((arc.head, kind), []).append(column)
            if graph.nodes[arc.head] >= 0:
                node = int(graph.nodes[arc.head])
                self._placed.setdefault((kind, node), []).append(column)
                self._upper[column] = min(self._upper[column], float(graph.supplies[kind].fits[node]))
        if arc.gain != 1:
            self._add_row(0, 0, (leaving, arc.gain.denominator), (entering, -arc.gain.numerator))
        if whole := int(graph.wholes[number]):
            entered = [self._add_column(0.0, 1.0)]
            self._add_row(0, inf, (entering, 1), (entered, -whole))
            self._add_row(-inf, 0, (entering, 1), (entered, -most))
        minimum = int(graph.minimums[number])
        if minimum and self._elastic:
            self._add_row(minimum, inf, (entering, 1), ([self._add_column(1.0, float(minimum))], 1))
            minimum = 0
        if minimum or sum(self._upper[column] for column in entering) > most:
            self._add_row(minimum, most, (entering, 1))

    def _add_states(self) -> None:
        """All pods go somewhere, and what comes to an aggregator goes on."""
        graph = self._graph
        for kind, supply in enumerate(graph.supplies):
            self._add_row(supply.count, supply.count, (self._gone.get((kind, kind), []), 1))
        for vertex in range(graph.unscheduled + 1, len(graph.names)):
            for kind in _kinds(graph.reached_by[vertex]) if graph.nodes[vertex] < 0 else ():
                come, gone = self._come.get((vertex, kind), []), self._gone.get((vertex, kind), [])
                self._add_row(0, 0, (come, 1), (gone, -1))

    def _add_nodes(self) -> None:
        """Nodes have room for what comes."""
        supplies, arriving = self._graph.supplies, dict[int, dict[int, list[int]]]()
        for (kind, node), columns in self._placed.items():
            arriving.setdefault(node, {})[kind] = columns
            if len(columns) > 1:
                self._add_row(0, int(supplies[kind].fits[node]), (columns, 1))
        for node, come in arriving.items():
            for resource, free in enumerate(self._free[node].tolist()):
                asked = {kind: int(supplies[kind].requests[resource]) for kind in come}
                asked = {kind: ask for kind, ask in asked.items() if ask}
                # A node that is overcommitted in what no pod asks for is like any other.
                if sum(ask * int(supplies[kind].fits[node]) for kind, ask in asked.items()) > max(free, 0):
                    unit = gcd(*asked.values())
                    terms = ((come[kind], ask // unit) for kind, ask in asked.items())
                    self._add_row(0, max(free, 0) // unit, *terms)

    def _add_waiting(self) -> None:
        """Pods that have no node wait, at their prices."""
        placed = [list[int]() for _ in self._graph.supplies]
        for (kind, _), columns in self._placed.items():
            placed[kind] += columns
        for kind, supply in enumerate(self._graph.supplies):
            values, counts = np.unique(supply.prices, return_counts=True)
            self._waiting.append(
                [
                    self._add_column(0.0 if self._elastic else float(value), float(count))
                    for value, count in zip(values.tolist(), counts.tolist(), strict=True)
                ]
            )
            self._add_row(supply.count, supply.count, (placed[kind], 1), (self._waiting[kind], 1))

    def _add_group(self, group: SupplyGroup) -> None:
        """A group is there or not: enough of each of its gangs, each in one domain where it must be, or nobody."""
        supplies, presence = self._graph.supplies, [self._add_column(0.0, 1.0)]
        for member in group.members:
            count = supplies[member].count
            self._add_row(count, inf, (self._waiting[member], 1), (presence, count))
        for members, need in group.needs:
            count = sum(supplies[member].count for member in members)
            self._add_row(0, count, *((self._waiting[member], 1) for member in members), (presence, need))
        for members, domains in group.domains:
            count, arriving = sum(supplies[member].count for member in members), dict[int, list[int]]()
            for (kind, node), columns in self._placed.items():
                if kind in members:
                    arriving.setdefault(int(domains[node]), []).extend(columns)
            chosen = list[int]()
            for domain, columns in sorted(arriving.items()):
                chosen.append(self._add_column(0.0, float(domain >= 0)))
                self._add_row(-inf, 0, (columns, 1), (chosen[-1:], -count))
            self._add_row(-inf, 0, (chosen, 1), (presence, -1))


def _kinds(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
