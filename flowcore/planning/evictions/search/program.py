"""Who leaves, who comes and where the moved go, as one integer program over a few nodes.

Residents of a node that are alike (usage, priority, budgets, owner) are one count, and so are the waiting pods of a
demand: the arcs of figure 1 of the seed firmament-poseidon-overview.md, staying at no cost, leaving and moving at
theirs. In this order the program maximises what the pods count for that get a node (by size and age), and minimises
what it is to lose the victims, and the number of moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.solvers import LinearProgram, solve_mip
from flowcore.planning.solvers.linear import Float64s

#: What the program pays: for a move, and for each unit that a victim loses.
_MOVE, _VICTIM = 1, 1_000


@dataclass(frozen=True, slots=True)
class Incoming:
    """Waiting pods of one demand.

    Attributes:
        requests: int64[R].
        possible: bool[S], of the program's nodes.
        count: how many wait.
        group: number of the atomic group that needs all of them; -1: each by itself.
        are_placed: they have nodes, and all of them keep one that is free without anybody leaving.
        worth: what one counts for among pods of its priority that wait, at least 1: by size and age.
    """

    requests: Int64s
    possible: Bools
    count: int
    group: int
    are_placed: bool = False
    worth: int = 1


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Residents of one node that are alike.

    Attributes:
        node: place among the program's nodes.
        usage: int64[R].
        loss: what it is to lose one, at least 1.
        most_victims, most_moved: how many may be evicted, and moved.
        kind: number of their class; moved pods of one class go wherever pods of the class may go.
        limits: numbers of the limits that each that leaves counts for.
        move_limits: numbers of the limits that each that is moved counts for too.
        count: how many there are.
    """

    node: int
    usage: Int64s
    loss: int
    most_victims: int
    most_moved: int
    kind: int
    limits: tuple[int, ...]
    move_limits: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class InOneDomain:
    """Waiting pods of a gang that all go to the same domain.

    Attributes:
        incoming: places among the program's incoming.
        domains: int64[S], the domain of each node.
    """

    incoming: Sequence[int]
    domains: Int64s


@dataclass(frozen=True, slots=True)
class EvictionProgram:
    """The program.

    Attributes:
        free, free_now: int64[S, R], what is free on each node, and what of it the moved may take; without the incoming.
        destinations: for each class bool[S], nodes that its moved pods may go to.
        limits: how many may leave that count for each limit.
        together: gangs that choose a domain each.
    """

    free: Int64s
    free_now: Int64s
    incoming: Sequence[Incoming]
    outgoing: Sequence[Outgoing]
    destinations: Sequence[Bools]
    limits: Sequence[int]
    together: Sequence[InOneDomain] = ()


@dataclass(frozen=True, slots=True)
class EvictionSolution:
    """Numbers of pods.

    Attributes:
        arrivals: int64[D, S], waiting pods of each demand on each node.
        victims, moved: int64[G], of each kind of residents.
        replacements: int64[K, S], moved pods of each class on each node.
    """

    arrivals: Int64s
    victims: Int64s
    moved: Int64s
    replacements: Int64s


class _Builder:
    """Columns and rows in coordinates."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.upper: list[float] = []
        self.row_lower: list[float] = []
        self.row_upper: list[float] = []
        self.entries: list[tuple[int, int, float]] = []

    def column(self, cost: float, upper: float) -> int:
        """A new variable."""
        self.costs.append(cost)
        self.upper.append(upper)
        return len(self.costs) - 1

    def row(self, terms: Iterable[tuple[int, float]], lower: float, upper: float) -> None:
        """A new constraint."""
        row_number = len(self.row_lower)
        self.entries += [(row_number, column, value) for column, value in terms if value]
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def program(self) -> LinearProgram:
        """All of it."""
        rows, columns, values = zip(*self.entries, strict=True) if self.entries else ((), (), ())
        return LinearProgram(
            np.array(self.costs),
            np.array(self.upper),
            np.array(self.row_lower),
            np.array(self.row_upper),
            np.array(rows, dtype=np.int64),
            np.array(columns, dtype=np.int64),
            np.array(values, dtype=np.float64),
        )


@dataclass(frozen=True, slots=True)
class _Columns:
    arrivals: dict[tuple[int, int], int]
    groups: dict[int, int]
    victims: dict[int, int]
    moved: dict[int, int]
    replacements: dict[tuple[int, int], int]
    domains: dict[tuple[int, int], int]


def size_of(this: EvictionProgram) -> int:
    """About how many variables the program has."""
    nodes = len(this.free)
    return nodes * (len(this.incoming) + len(this.destinations) + len(this.together)) + 2 * len(this.outgoing)


def solve_program(this: EvictionProgram, hint: EvictionSolution, *, work: float, seed: int) -> EvictionSolution | None:
    """A solution that is better than the hint; None: none was found.

    Args:
        hint: a solution that is known.
        work: CP-SAT's deterministic time, roughly seconds.
    """
    builder = _Builder()
    columns = _add_columns(builder, this)
    _add_rows(builder, this, columns)
    program = builder.program()
    known = _to_values(this, columns, hint, len(program.costs))
    solved = solve_mip(program, deterministic_time=work, seed=seed, hint=known)
    if solved is None or program.costs @ solved.values >= program.costs @ known - 0.5:
        return None
    return _from_values(this, columns, solved.values)


def _add_columns(builder: _Builder, this: EvictionProgram) -> _Columns:
    most_lost = sum(each.loss * each.most_victims for each in this.outgoing)
    placed_cost = float(_VICTIM * most_lost + _MOVE * sum(each.most_moved for each in this.outgoing) + 1)
    grouped: dict[int, int] = {}
    for demand in this.incoming:
        if demand.group >= 0:
            grouped[demand.group] = grouped.get(demand.group, 0) + demand.count * demand.worth
    return _Columns(
        arrivals={
            (index, node): builder.column(-placed_cost * demand.worth if demand.group < 0 else 0.0, demand.count)
            for index, demand in enumerate(this.incoming)
            for node in np.nonzero(demand.possible)[0].tolist()
        },
        groups={group: builder.column(-placed_cost * worth, 1) for group, worth in grouped.items()},
        victims={
            index: builder.column(_VICTIM * outgoing.loss, outgoing.most_victims)
            for index, outgoing in enumerate(this.outgoing)
            if outgoing.most_victims
        },
        moved={
            index: builder.column(_MOVE, outgoing.most_moved)
            for index, outgoing in enumerate(this.outgoing)
            if outgoing.most_moved
        },
        replacements={
            (kind, node): builder.column(0.0, 2**20)
            for kind, possible in enumerate(this.destinations)
            for node in np.nonzero(possible)[0].tolist()
        },
        domains={
            (gang, domain): builder.column(0.0, 1)
            for gang, together in enumerate(this.together)
            for domain in np.unique(together.domains).tolist()
        },
    )


def _add_rows(builder: _Builder, this: EvictionProgram, columns: _Columns) -> None:
    resources = this.free.shape[1]
    usage_of_kind = {each.kind: each.usage for each in this.outgoing if each.most_moved}
    for node in range(len(this.free)):
        leaving = [(index, outgoing) for index, outgoing in enumerate(this.outgoing) if outgoing.node == node]
        coming = [(index, demand) for index, demand in enumerate(this.incoming) if (index, node) in columns.arrivals]
        moving_in = [kind for kind in usage_of_kind if (kind, node) in columns.replacements]
        for resource in range(resources):
            moved_in = [(columns.replacements[kind, node], float(usage_of_kind[kind][resource])) for kind in moving_in]
            terms = [(columns.arrivals[index, node], float(demand.requests[resource])) for index, demand in coming]
            for index, outgoing in leaving:
                amount = -float(outgoing.usage[resource])
                terms += [(known[index], amount) for known in (columns.victims, columns.moved) if index in known]
            if any(value > 0 for _, value in (*terms, *moved_in)):
                builder.row([*terms, *moved_in], -np.inf, float(this.free[node, resource]))
            at_once = [term for term, (_, demand) in zip(terms, coming, strict=False) if demand.are_placed]
            if any(value > 0 for _, value in (*moved_in, *at_once)):
                builder.row([*moved_in, *at_once], -np.inf, float(max(0, this.free_now[node, resource])))
        for index, outgoing in leaving:
            both = [(known[index], 1.0) for known in (columns.victims, columns.moved) if index in known]
            if len(both) > 1:
                builder.row(both, 0.0, float(outgoing.count))
    for index, demand in enumerate(this.incoming):
        terms = [(column, 1.0) for (incoming, _), column in columns.arrivals.items() if incoming == index]
        if demand.group < 0:
            builder.row(terms, float(demand.count) if demand.are_placed else 0.0, float(demand.count))
        else:
            builder.row([*terms, (columns.groups[demand.group], -float(demand.count))], 0.0, 0.0)
    for kind in range(len(this.destinations)):
        terms = [
            (columns.moved[index], -1.0)
            for index, outgoing in enumerate(this.outgoing)
            if outgoing.kind == kind and index in columns.moved
        ]
        terms += [(column, 1.0) for (incoming_kind, _), column in columns.replacements.items() if incoming_kind == kind]
        builder.row(terms, 0.0, 0.0)
    for number, most in enumerate(this.limits):
        terms = []
        for index, outgoing in enumerate(this.outgoing):
            if number in outgoing.limits:
                terms += [(known[index], 1.0) for known in (columns.victims, columns.moved) if index in known]
            elif number in outgoing.move_limits and index in columns.moved:
                terms.append((columns.moved[index], 1.0))
        if terms:
            builder.row(terms, -np.inf, float(max(0, most)))
    _add_rows_of_domains(builder, this, columns)


def _add_rows_of_domains(builder: _Builder, this: EvictionProgram, columns: _Columns) -> None:
    """A gang has one domain at most, and its pods come to the nodes of that one only."""
    for gang, together in enumerate(this.together):
        chosen = {domain: column for (number, domain), column in columns.domains.items() if number == gang}
        builder.row([(column, 1.0) for column in chosen.values()], 0.0, 1.0)
        for index in together.incoming:
            inside: dict[int, list[tuple[int, float]]] = {}
            for node, domain in enumerate(together.domains.tolist()):
                if (index, node) in columns.arrivals:
                    inside.setdefault(domain, []).append((columns.arrivals[index, node], 1.0))
            for domain, terms in inside.items():
                builder.row([*terms, (chosen[domain], -float(this.incoming[index].count))], -np.inf, 0.0)


def _to_values(this: EvictionProgram, columns: _Columns, solution: EvictionSolution, count: int) -> Float64s:
    values = np.zeros(count)
    for (index, node), column in columns.arrivals.items():
        values[column] = solution.arrivals[index, node]
    for group, column in columns.groups.items():
        values[column] = all(
            int(solution.arrivals[index].sum()) == demand.count
            for index, demand in enumerate(this.incoming)
            if demand.group == group
        )
    for known, numbers in ((columns.victims, solution.victims), (columns.moved, solution.moved)):
        for index, column in known.items():
            values[column] = numbers[index]
    for (kind, node), column in columns.replacements.items():
        values[column] = solution.replacements[kind, node]
    for (gang, domain), column in columns.domains.items():
        inside = this.together[gang].domains == domain
        values[column] = solution.arrivals[np.ix_(this.together[gang].incoming, inside)].any()
    return values


def _from_values(this: EvictionProgram, columns: _Columns, values: Float64s) -> EvictionSolution:
    nodes = len(this.free)
    arrivals = np.zeros((len(this.incoming), nodes), dtype=np.int64)
    replacements = np.zeros((len(this.destinations), nodes), dtype=np.int64)
    victims, moved = (np.zeros(len(this.outgoing), dtype=np.int64) for _ in range(2))
    for (index, node), column in columns.arrivals.items():
        arrivals[index, node] = round(values[column])
    for (kind, node), column in columns.replacements.items():
        replacements[kind, node] = round(values[column])
    for known, numbers in ((columns.victims, victims), (columns.moved, moved)):
        for index, column in known.items():
            numbers[index] = round(values[column])
    return EvictionSolution(arrivals, victims, moved, replacements)
