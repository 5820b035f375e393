"""A network as a linear program: some of its ways, its bounds, the room of the nodes, and pods that wait.

A column for each way that is chosen, joint minimums and maximums of arcs, and the resources of the nodes. Through an
arc with a gain units change hands: whose units leave it is free, as long as no more pods are placed than there are. So
two tasks may stand for each other there, as in figure 10 of the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.declared_networks.graph import SupplyGroup
from flowcore.planning.declared_networks.programs.ways import Float64s, Ways
from flowcore.planning.solvers import LinearProgram


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Any prices of what a program limits; whatever they are, they give a bound (``bounds.least_cost``).

    Attributes:
        arcs: float64[A], what a unit on an arc earns: positive where it helps to meet a minimum, negative at a maximum.
        room: float64[N, R], not negative: what an amount of a resource costs.
        pods: float64[C], what a pod that is placed earns.
        crowding: float64[E], not negative: what a unit pays on a way that is full for its pods.
        fits: float64[C, N], not negative: what a pod pays on a node that takes no more of its kind.
        arrivals: for each group and each of its gangs with domains float64[domains], not negative: what a pod pays that
            arrives in one.
        starts: float64[C], what a unit of each of the pods pays.
    """

    arcs: Float64s
    room: Float64s
    pods: Float64s
    crowding: Float64s
    fits: Float64s
    arrivals: tuple[tuple[Float64s, ...], ...]
    starts: Float64s


class Statement:
    """The program of some ways.

    Attributes:
        chosen: int64[K], the ways; the first K columns are theirs.
        costs: of all columns.
        lacking: by arc the columns for what its minimum lacks; empty where nothing may be lacking.
        stranded: columns for pods that have no way, one for each of the pods; empty where nothing may be lacking.
    """

    def __init__(
        self, ways: Ways, free: Int64s, chosen: Int64s, *, elastic: bool = False, lack_price: float = 0.0
    ) -> None:
        """The program.

        Args:
            elastic: whether what is lacking is all that costs, and any of it may be.
            lack_price: above zero: what each unit that is lacking costs beside all else.
        """
        self._ways, self._graph, self._free, self._elastic = ways, ways.graph, free, elastic
        self._lack_price = 1.0 if elastic else lack_price
        self.chosen = chosen
        costs = np.where(ways.leaves[chosen], 0, ways.graph.costs[ways.arcs[chosen]]) * (not elastic)
        self.costs: list[float] = costs.astype(np.float64).tolist()
        self._upper: list[float] = ways.maximums[chosen].astype(np.float64).tolist()
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []
        self._terms: list[tuple[int, int, int]] = []
        self.lacking: dict[int, int] = {}
        self.stranded: list[int] = []
        self._waiting: list[list[int]] = []
        #: By arc the column for whether any unit enters it, where none or enough do.
        self._wholes: dict[int, int] = {}
        #: Rows whose prices mean something: by arc, by pods, by node and resource with its unit, by gang and domain,
        #: by pods and node.
        self._arc_rows: dict[int, int] = {}
        self._count_rows: list[int] = []
        self._placed_rows: list[int] = []
        self._room_rows: list[tuple[int, int, int, int]] = []
        self._domain_rows: list[tuple[int, int, int, int]] = []
        #: For each group its column, and the columns of domains with those that arrive in them.
        self._there: list[int] = []
        self._chosen_domains: list[list[tuple[list[int], int]]] = []
        self._fits_rows: list[tuple[int, int, int]] = []
        self._columns = _Columns(ways, chosen)
        self._add_arcs()
        self._add_states()
        self._add_nodes()
        self._add_waiting()
        for number, group in enumerate(self._graph.groups):
            self._add_group(number, group)

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

    def nothing_placed(self) -> Float64s:
        """float64[V]: all pods wait, where their arcs allow it: a start for the solver."""
        values, upper, ways = np.zeros(len(self.costs)), np.array(self._upper), self._ways
        for columns in self._waiting:
            values[columns] = upper[columns]
        first = ways.tails[self.chosen] == ways.starts[ways.supplies[self.chosen]]
        terminal = np.nonzero(first & (ways.graph.heads[ways.arcs[self.chosen]] == ways.graph.unscheduled))[0]
        values[terminal] = upper[terminal]
        return values

    def units(self, values: Float64s) -> Int64s:
        """int64[E]: how many units take each way, of whole numbers."""
        units = np.zeros(len(self._ways), dtype=np.int64)
        units[self.chosen] = np.rint(values[: len(self.chosen)]).astype(np.int64)
        return units

    def values(self, units: Int64s) -> Float64s:
        """float64[V]: a flow of these ways as a solution: the cheapest pods wait, and groups with pods are there.

        Args:
            units: int64[E].
        """
        values, upper = np.zeros(len(self.costs)), np.array(self._upper)
        values[: len(self.chosen)] = units[self.chosen]
        counts = [int(sum(values[column] for column in placed)) for placed in self._columns.placed]
        for supply, count, runs in zip(self._graph.supplies, counts, self._waiting, strict=True):
            left = supply.count - count
            for column in runs:
                values[column] = min(left, upper[column])
                left -= int(values[column])
        for arc, column in self.lacking.items():
            flow = sum(values[entering] for entering in self._columns.entering.get(arc, ()))
            values[column] = max(0.0, float(self._graph.minimums[arc]) - flow)
        for arc, column in self._wholes.items():
            values[column] = float(any(values[entering] for entering in self._columns.entering[arc]))
        for number, column in enumerate(self.stranded):
            gone = sum(values[first] for first in self._columns.gone.get(number, ()))
            values[column] = float(self._graph.supplies[number].count) - gone
        for group, column_of_group, domains in zip(self._graph.groups, self._there, self._chosen_domains, strict=True):
            values[column_of_group] = float(any(counts[member] for member in group.members))
            for columns, column in domains:
                values[column] = float(any(values[each] for each in columns))
        return values

    def prices(self, program: LinearProgram, duals: Float64s) -> Prices:
        """What the rows' duals mean; zero where the program has no row."""
        ways, graph = self._ways, self._graph
        arcs = np.zeros(len(graph.tails))
        arcs[list(self._arc_rows)] = duals[list(self._arc_rows.values())]
        room = np.zeros(self._free.shape)
        for row, node, resource, unit in self._room_rows:
            room[node, resource] = max(0.0, -duals[row] / unit)
        reduced = program.costs.copy()
        np.subtract.at(reduced, program.columns, program.coefficients * duals[program.rows])
        crowding = np.zeros(len(ways))
        crowding[self.chosen] = np.maximum(0.0, -reduced[: len(self.chosen)])
        fits = np.zeros((len(graph.supplies), len(self._free)))
        for row, number, node in self._fits_rows:
            fits[number, node] = max(0.0, -duals[row])
        arrivals = tuple(
            tuple(np.zeros(int(domains.max(initial=-1)) + 1) for _, domains in group.domains) for group in graph.groups
        )
        for row, number, gang, domain in self._domain_rows:
            arrivals[number][gang][domain] = max(0.0, -duals[row])
        return Prices(arcs, room, duals[self._placed_rows], crowding, fits, arrivals, duals[self._count_rows])

    # --- columns and rows ---

    def _add_column(self, cost: float, upper: float) -> int:
        self.costs.append(cost)
        self._upper.append(upper)
        return len(self.costs) - 1

    def _add_row(self, lower: float, upper: float, terms: Sequence[tuple[int, int]]) -> int:
        row = len(self._row_lower)
        self._row_lower.append(lower)
        self._row_upper.append(upper)
        self._terms += [(row, column, coefficient) for column, coefficient in terms]
        return row

    def _add_arcs(self) -> None:
        """What enters arcs is within their bounds, and what leaves those with a gain is that many times as much."""
        graph, columns = self._graph, self._columns
        for arc in sorted(columns.entering.keys() | set(np.nonzero(graph.minimums)[0].tolist())):
            entering = columns.entering.get(arc, [])
            minimum, maximum = int(graph.minimums[arc]), int(graph.maximums[arc])
            terms = [(column, 1) for column in entering]
            if whole := int(graph.wholes[arc]):
                entered = self._wholes[arc] = self._add_column(0.0, 1.0)
                self._add_row(0, inf, [*terms, (entered, -whole)])
                self._add_row(-inf, 0, [*terms, (entered, -maximum)])
            if self._lack_price and minimum:
                self.lacking[arc] = self._add_column(self._lack_price, float(minimum))
                lacking = [(self.lacking[arc], 1)]
                self._arc_rows[arc] = self._add_row(minimum, inf, [*terms, *lacking])
                minimum = 0
                if sum(self._upper[column] for column in entering) > maximum:
                    self._add_row(0, maximum, terms)
            elif minimum or sum(self._upper[column] for column in entering) > maximum:
                self._arc_rows[arc] = self._add_row(minimum, maximum, terms)
        for arc in sorted(columns.entering.keys() | columns.leaving.keys()):
            gain = graph.gains[arc]
            if gain != 1:
                terms = [(column, gain.denominator) for column in columns.leaving.get(arc, [])]
                terms += [(column, -gain.numerator) for column in columns.entering.get(arc, [])]
                self._add_row(0, 0, terms)

    def _add_states(self) -> None:
        """All pods go somewhere, and what comes to an aggregator goes on."""
        ways, columns = self._ways, self._columns
        for number, supply in enumerate(self._graph.supplies):
            terms = [(column, 1) for column in columns.gone.get(number, [])]
            if self._lack_price:
                self.stranded.append(self._add_column(self._lack_price, float(supply.count)))
                terms.append((self.stranded[-1], 1))
            self._count_rows.append(self._add_row(supply.count, supply.count, terms))
        for state in sorted(columns.come.keys() | columns.gone.keys()):
            if ways.waypoints[state]:
                terms = [(column, 1) for column in columns.come.get(state, [])]
                self._add_row(0, 0, [*terms, *((column, -1) for column in columns.gone.get(state, []))])

    def _add_nodes(self) -> None:
        """Nodes have room for what comes."""
        supplies = self._graph.supplies
        for node, come in self._columns.arriving.items():
            for number, columns in come.items():
                if len(columns) > 1:
                    terms = [(column, 1) for column in columns]
                    row = self._add_row(0, int(supplies[number].fits[node]), terms)
                    self._fits_rows.append((row, number, node))
            for resource, unit in enumerate(self._ways.units[node].tolist()):
                asked = {number: int(supplies[number].requests[resource]) for number in come}
                asked = {number: ask for number, ask in asked.items() if ask}
                capacity = int(self._free[node, resource])
                # A node that is overcommitted in what no pod asks for is like any other.
                if (
                    not asked
                    or sum(ask * int(supplies[number].fits[node]) for number, ask in asked.items()) <= capacity
                ):
                    continue
                terms = [(column, ask // unit) for number, ask in asked.items() for column in come[number]]
                row = self._add_row(0, max(capacity, 0) // unit, terms)
                self._room_rows.append((row, node, resource, unit))

    def _add_waiting(self) -> None:
        """Pods that have no node wait, at their prices."""
        for number, supply in enumerate(self._graph.supplies):
            values, counts = np.unique(supply.prices, return_counts=True)
            runs = [
                self._add_column(0.0 if self._elastic else float(value), float(count))
                for value, count in zip(values.tolist(), counts.tolist(), strict=True)
            ]
            self._waiting.append(runs)
            placed = self._columns.placed[number]
            row = self._add_row(supply.count, supply.count, [(column, 1) for column in (*placed, *runs)])
            self._placed_rows.append(row)

    def _add_group(self, number: int, group: SupplyGroup) -> None:
        """A group is there or not: enough of each of its gangs, each in one domain where it must be, or nobody."""
        supplies, presence = self._graph.supplies, self._add_column(0.0, 1.0)
        self._there.append(presence)
        self._chosen_domains.append([])
        for member in group.members:
            count = supplies[member].count
            terms = [(column, 1) for column in self._waiting[member]]
            self._add_row(count, inf, [*terms, (presence, count)])
        for members, need in group.needs:
            count = sum(supplies[member].count for member in members)
            terms = [(column, 1) for member in members for column in self._waiting[member]]
            self._add_row(0, count, [*terms, (presence, need)])
        for gang, (members, domains) in enumerate(group.domains):
            arriving: dict[int, list[int]] = {}
            for member in members:
                for column in self._columns.placed[member]:
                    arriving.setdefault(int(domains[self._ways.nodes[self.chosen[column]]]), []).append(column)
            count = sum(supplies[member].count for member in members)
            chosen = list[int]()
            for domain, columns in sorted(arriving.items()):
                most = count if domain >= 0 else 0
                chosen.append(self._add_column(0.0, float(domain >= 0)))
                self._chosen_domains[-1].append((columns, chosen[-1]))
                row = self._add_row(-inf, 0, [*((column, 1) for column in columns), (chosen[-1], -most)])
                if domain >= 0:
                    self._domain_rows.append((row, number, gang, domain))
            self._add_row(-inf, 0, [*((column, 1) for column in chosen), (presence, -1)])


class _Columns:
    """The columns of chosen ways, by where they begin and end.

    Attributes:
        entering, leaving: by arc.
        come, gone: by state.
        arriving: by node and pods.
        placed: for each of the pods, those that end at nodes.
    """

    def __init__(self, ways: Ways, chosen: Int64s) -> None:
        self.entering: dict[int, list[int]] = {}
        self.leaving: dict[int, list[int]] = {}
        self.come: dict[int, list[int]] = {}
        self.gone: dict[int, list[int]] = {}
        self.arriving: dict[int, dict[int, list[int]]] = {}
        self.placed: list[list[int]] = [[] for _ in ways.graph.supplies]
        arrays = ways.arcs, ways.supplies, ways.leaves, ways.tails, ways.heads, ways.nodes
        for column, (arc, supply, leaves, tail, head, node) in enumerate(
            zip(*(array[chosen].tolist() for array in arrays), strict=True)
        ):
            (self.leaving if leaves else self.entering).setdefault(arc, []).append(column)
            self.gone.setdefault(tail, []).append(column)
            self.come.setdefault(head, []).append(column)
            if node >= 0:
                self.arriving.setdefault(node, {}).setdefault(supply, []).append(column)
                self.placed[supply].append(column)
