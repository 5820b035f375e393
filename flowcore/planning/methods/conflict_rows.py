"""Limits of nodes and domains as rows of a program in whole numbers: ports, anti-affinity, spread, caps of policies.

Where pods may all be together by rules that only forbid, so may any part of them, in any order: each placement of the
program's answer is allowed at its turn. Where a spread holds in the end, there is an order in which it always does, if
it counts only pods that it binds. What a rule asks of a class holds for every domain in which it has pods, so a 0/1
column says of a class and a domain whether it has any; where a rule binds all whom it counts alike, none is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.model.pods import ANY_ADDRESS, HostPort
from flowcore.planning.methods.assignment_program import Pairs
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.solvers import LinearProgram
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import UNLIMITED, remaining
from flowcore.rules.topology.domains import Domains
from flowcore.rules.topology.round_constraints.rising_price import Minimum
from flowcore.rules.topology.spread import Spread


@dataclass(slots=True, eq=False)
class _ConflictClass:
    """Classes with the same limits that raise the same counters: whether one of them is somewhere says it for all.

    Attributes:
        limits: how many pods each counter may count in a domain in which they have pods.
        skews: by how many pods more than in the emptiest domain.
        columns: int64[K], their columns of the program.
        indicators: for domains of a topology that were asked about, the 0/1 column of each.
    """

    limits: dict[DomainCounter, int]
    skews: dict[DomainCounter, Spread]
    columns: Int64s
    indicators: dict[Domains, dict[int, int]] = field(default_factory=dict)


class _Rows:
    """Rows and columns that come to a program."""

    def __init__(self, program: LinearProgram, pairs: Pairs) -> None:
        self._program, self._pairs = program, pairs
        #: Of each further column the most, and what it is where the columns of the pairs are known.
        self._most: list[float] = []
        self._costs: list[float] = []
        self._values: list[Callable[[Float64s], float]] = []
        self._upper: list[float] = []
        self._entries: list[tuple[Int64s, Float64s]] = []

    def add(self, columns: Sequence[int] | Int64s, coefficients: Sequence[float] | Float64s, upper: float) -> None:
        """A row: the sum of these is at most so much."""
        self._entries.append((np.asarray(columns, dtype=np.int64), np.asarray(coefficients, dtype=np.float64)))
        self._upper.append(upper)

    def add_column(self, most: float, value: Callable[[Float64s], float], cost: float = 0.0) -> int:
        """A column of a whole number from 0 to ``most``; ``value``: what it is, by the columns of the pairs."""
        self._most.append(most)
        self._costs.append(cost)
        self._values.append(value)
        return len(self._program.costs) + len(self._most) - 1

    @property
    def dearest(self) -> float:
        """More than the program costs before, whatever its columns are."""
        return 1.0 + float(np.maximum(self._program.costs, 0.0) @ self._program.variable_upper)

    def pods(self, columns: Int64s) -> float:
        """The most pods that some columns of pairs stand for."""
        return float(self._pairs.max_pods[columns].sum())

    def indicator_columns(self, conflict_class: _ConflictClass, domains: Domains) -> dict[int, int]:
        """The columns that say in which domains classes have any pods, with the rows that make them so."""
        columns_of = conflict_class.indicators.get(domains)
        if columns_of is None:
            columns_of = conflict_class.indicators[domains] = {}
            for domain, columns in self.by_domain(conflict_class.columns, domains).items():
                columns_of[domain] = self.add_column(1.0, partial(_is_any, columns))
                self.add([*columns, columns_of[domain]], [*np.ones(len(columns)), -self.pods(columns)], 0.0)
        return columns_of

    def counted(self, incrementers: Sequence[_ConflictClass], counter: DomainCounter) -> dict[int, Int64s]:
        """Columns of classes by the domain in which a counter counts their pods."""
        if not incrementers:
            return {}
        columns = np.sort(np.concatenate([each.columns for each in incrementers]))
        return self.by_domain(columns[counter.counted_nodes[self._pairs.places[columns]]], counter.domains)

    def by_domain(self, columns: Int64s, domains: Domains) -> dict[int, Int64s]:
        """Columns by the domain that their nodes are in; those in none left out."""
        if not len(columns):
            return {}
        codes = domains.codes[self._pairs.places[columns]]
        order = np.argsort(codes, kind="stable")
        codes, columns = codes[order], columns[order]
        codes, starts = np.unique(codes, return_index=True)
        parts = np.split(columns, starts[1:])
        return {
            code: columns_within
            for code, columns_within in zip(codes.tolist(), parts, strict=True)
            if code < domains.count
        }

    def program(self) -> LinearProgram:
        """The program with them."""
        old = self._program
        with_columns = replace(
            old,
            costs=np.concatenate([old.costs, np.array(self._costs)]),
            variable_upper=np.concatenate([old.variable_upper, np.array(self._most)]),
        )
        return with_columns.with_rows(self._entries, self._upper)

    def with_values(self, values: Float64s) -> Float64s:
        """Values of the columns before, and those of the further columns that follow from them."""
        return np.concatenate([values, [value(values) for value in self._values]])


def with_conflict_rows(
    program: LinearProgram, pairs: Pairs, demands: Sequence[Demand], capacity: Plan
) -> tuple[LinearProgram, Callable[[Float64s], Float64s]]:
    """A placing program with what its classes may not do together.

    Args:
        program: its first columns are those of ``pairs``.
        pairs: demands and nodes.
        capacity: with all pods whose place is not decided.

    Returns:
        The program, with columns after its own, and what adds their values to those of its own.
    """
    rows = _Rows(program, pairs)
    _add_ports(rows, pairs, demands)
    _add_rising(rows, pairs, demands, capacity)
    reading, incrementing = _readers_and_incrementers(pairs, demands)
    for counter, readers in reading.items():
        bound = [each for each in readers if counter in each.skews]
        for skew in {each.skews[counter].max_skew: each.skews[counter] for each in bound}.values():
            alike = [each for each in bound if each.skews[counter].max_skew == skew.max_skew]
            _add_spread(rows, skew, alike, incrementing.get(counter, []), capacity)
    reading = {counter: [each for each in readers if counter in each.limits] for counter, readers in reading.items()}
    exclude: dict[Domains, list[tuple[_ConflictClass, _ConflictClass]]] = {}
    for counter, readers in reading.items():
        incrementers = incrementing.get(counter, [])
        if not incrementers:
            continue
        pods = rows.counted(incrementers, counter)
        counts = capacity.domain_counts.of(counter)
        limits = {each.limits.get(counter) for each in incrementers}
        most = limits.pop()
        if most is not None and not limits:
            # All that are counted are bound alike: who else is there does not matter.
            for domain, columns in pods.items():
                slack = int(remaining(most, counts[domain]))
                if rows.pods(columns) > slack:
                    rows.add(columns, np.ones(len(columns)), slack)
            conflicting = [each for each in readers if each not in incrementers]
        else:
            conflicting = readers
        for reader in conflicting:
            if not reader.limits[counter]:
                exclude.setdefault(counter.domains, []).extend(
                    (reader, incrementer) for incrementer in incrementers if incrementer is not reader
                )
                continue
            for domain, opened in rows.indicator_columns(reader, counter.domains).items():
                columns = pods.get(domain, np.zeros(0, dtype=np.int64))
                slack = int(remaining(reader.limits[counter], counts[domain]))
                over = rows.pods(columns) - slack
                if over > 0:
                    rows.add([*columns, opened], [*np.ones(len(columns)), over], slack + over)
    for domains, couples in exclude.items():
        for clique in _cliques(couples):
            opened_of = [rows.indicator_columns(each, domains) for each in clique]
            for domain in dict.fromkeys(domain for opened in opened_of for domain in opened):
                here = [opened[domain] for opened in opened_of if domain in opened]
                if len(here) > 1:
                    rows.add(here, np.ones(len(here)), 1.0)
    return rows.program(), rows.with_values


def _add_ports(rows: _Rows, pairs: Pairs, demands: Sequence[Demand]) -> None:
    """A node gives each host port once; a port of every address counts beside those of single ones."""
    held: dict[HostPort, list[int]] = {}
    for index in np.unique(pairs.classes).tolist():
        for port in demands[index].group.pod_class.host_ports:
            held.setdefault(port, []).append(index)
    # Pods with many ports have them all in common, or none: one row for all of these.
    contending = {
        frozenset((*classes, *held.get(msgspec.structs.replace(port, ip=ANY_ADDRESS), ())))
        for port, classes in held.items()
    }
    for classes in sorted(sorted(each) for each in contending):
        holders = np.nonzero(np.isin(pairs.classes, classes))[0]
        for node in np.unique(pairs.places[holders]).tolist():
            columns = holders[pairs.places[holders] == node]
            if len(columns) > 1:
                rows.add(columns, np.ones(len(columns)), 1.0)


def _add_rising(rows: _Rows, pairs: Pairs, demands: Sequence[Demand], capacity: Plan) -> None:
    """Pods beyond each end of a price that rises with their number cost what it rises by."""
    present = np.unique(pairs.classes).tolist()
    for price in dict.fromkeys(price for index in present for price in demands[index].constraints.rising):
        counter, counts = price.counter, capacity.domain_counts.of(price.counter)
        raising = [index for index in present if counter in demands[index].constraints.increments]
        columns = np.nonzero(np.isin(pairs.classes, raising))[0]
        counted = columns[counter.counted_nodes[pairs.places[columns]]]
        by_domain = rows.by_domain(counted, counter.domains)
        if isinstance(price, Minimum):
            _add_minimum(rows, price, by_domain, counts)
            continue
        for domain, inside in by_domain.items():
            begun = int(counter.initial[domain])
            for end, rise in zip(price.ends.tolist(), np.diff(price.costs).tolist(), strict=True):
                # Arcs have what a pod pays as the round begins.
                slack = max(0, end - int(counts[domain]))
                if rise and end > begun and rows.pods(inside) > slack:
                    beyond = partial(_beyond, inside, slack)
                    column = rows.add_column(rows.pods(inside) - slack, beyond, float(rise))
                    rows.add([*inside, column], [*np.ones(len(inside)), -1.0], slack)


def _add_minimum(rows: _Rows, minimum: Minimum, by_domain: Mapping[int, Int64s], counts: Int64s) -> None:
    """Domains have enough pods, or lack some at a price; none are enough where the rule says so."""
    least = minimum.rule.min_pods
    for domain, inside in by_domain.items():
        lacking = least - int(counts[domain])
        if lacking <= 0:
            continue
        if not minimum.rule.or_none:
            lacks = rows.add_column(lacking, partial(_lacks, inside, lacking), rows.dearest)
            rows.add([*inside, lacks], -np.ones(len(inside) + 1), -lacking)
        elif counts[domain] == minimum.counter.initial[domain]:
            begun = rows.add_column(1.0, partial(_is_any, inside))
            lacks = rows.add_column(lacking, partial(_lacks_if_any, inside, lacking), rows.dearest)
            rows.add([*inside, begun], [*np.ones(len(inside)), -rows.pods(inside)], 0.0)
            rows.add([*inside, lacks, begun], [*-np.ones(len(inside) + 1), lacking], 0.0)


def _lacks(columns: Int64s, most: int, values: Float64s) -> float:
    """By how much the sum of some columns is below a number."""
    return max(0.0, most - float(values[columns].sum()))


def _lacks_if_any(columns: Int64s, most: int, values: Float64s) -> float:
    """The same; nothing where all of them are 0."""
    return _lacks(columns, most, values) if values[columns].any() else 0.0


def _beyond(columns: Int64s, slack: int, values: Float64s) -> float:
    """By how much the sum of some columns is above a number."""
    return max(0.0, float(values[columns].sum()) - slack)


def _add_spread(
    rows: _Rows,
    skew: Spread,
    readers: Sequence[_ConflictClass],
    incrementers: Sequence[_ConflictClass],
    capacity: Plan,
) -> None:
    """Where ``readers`` have pods, ``incrementers`` have at most so many more as in the emptiest domain."""
    counter, counts = skew.counter, capacity.domain_counts.of(skew.counter)
    pods = rows.counted(incrementers, counter)
    inside = [(pods[domain], int(counts[domain])) for domain in skew.eligible_domains.tolist() if domain in pods]
    # Domains that get no pods stay as they are: of thousands the emptiest one says it for all.
    as_they_are = np.setdiff1d(skew.eligible_domains, list(pods))
    least = int(counts[as_they_are].min(initial=UNLIMITED))
    most = min([least, *(before + rows.pods(columns) for columns, before in inside)])
    emptiest = rows.add_column(
        most, lambda values: min([least, *(before + float(values[columns].sum()) for columns, before in inside)])
    )
    for columns, before in inside:
        if before < most:
            rows.add([emptiest, *columns], [1.0, *-np.ones(len(columns))], before)
    is_alike = all(each in readers for each in incrementers)
    lowest = skew.global_minimum(counts)
    for reader in readers:
        opened_of = rows.by_domain(reader.columns, counter.domains)
        for domain in opened_of:
            columns, slack = pods.get(domain, np.zeros(0, dtype=np.int64)), skew.max_skew - int(counts[domain])
            over = rows.pods(columns) - slack
            row, coefficients = [*columns, emptiest], [*np.ones(len(columns)), -1.0]
            if is_alike and lowest + slack >= 0:
                # With no pods more the domain has few enough: what the rule asks of it holds anyway.
                rows.add(row, coefficients, slack)
            elif over > 0:
                opened = rows.indicator_columns(reader, counter.domains)[domain]
                rows.add([*row, opened], [*coefficients, over], slack + over)


def _is_any(columns: Int64s, values: Float64s) -> float:
    """1 where any of these columns is above 0."""
    return float(values[columns].any())


def _readers_and_incrementers(
    pairs: Pairs, demands: Sequence[Demand]
) -> tuple[dict[DomainCounter, list[_ConflictClass]], dict[DomainCounter, list[_ConflictClass]]]:
    """Who is bound by each counter, and who raises it."""
    present = np.unique(pairs.classes).tolist()
    limits, skews = dict[int, dict[DomainCounter, int]](), dict[int, dict[DomainCounter, Spread]]()
    for index in present:
        constraints = demands[index].constraints
        limits[index], skews[index] = dict(constraints.limits), {}
        for spread in constraints.spreads:
            if spread.fixed_minimum is None:
                known = skews[index].get(spread.counter, spread)
                skews[index][spread.counter] = min(known, spread, key=lambda each: each.max_skew)
            else:
                most = spread.fixed_minimum + spread.max_skew
                limits[index][spread.counter] = min(most, limits[index].get(spread.counter, most))
    read = {counter for index in present for counter in (*limits[index], *skews[index])}
    by_limits: dict[object, list[int]] = {}
    for index in present:
        feeds = frozenset(counter for counter in demands[index].constraints.increments if counter in read)
        if feeds or limits[index] or skews[index]:
            bound = frozenset((counter, each.max_skew) for counter, each in skews[index].items())
            by_limits.setdefault((feeds, frozenset(limits[index].items()), bound), []).append(index)
    reading: dict[DomainCounter, list[_ConflictClass]] = {}
    incrementing: dict[DomainCounter, list[_ConflictClass]] = {}
    for members in by_limits.values():
        first, columns = members[0], np.nonzero(np.isin(pairs.classes, members))[0]
        conflict_class = _ConflictClass(limits[first], skews[first], columns)
        for counter in dict.fromkeys((*conflict_class.limits, *conflict_class.skews)):
            reading.setdefault(counter, []).append(conflict_class)
        for counter in demands[members[0]].constraints.increments:
            if counter in read:
                incrementing.setdefault(counter, []).append(conflict_class)
    return reading, incrementing


def _cliques(conflicts: Sequence[tuple[_ConflictClass, _ConflictClass]]) -> list[list[_ConflictClass]]:
    """Sets of classes that exclude each other pairwise; each conflict is in one of them. Larger sets bind better."""
    adjacent: dict[_ConflictClass, dict[_ConflictClass, None]] = {}
    for first, second in conflicts:
        adjacent.setdefault(first, {})[second] = None
        adjacent.setdefault(second, {})[first] = None
    cliques: list[list[_ConflictClass]] = []
    covered: set[tuple[_ConflictClass, _ConflictClass]] = set()
    for first, second in conflicts:
        if (first, second) in covered:
            continue
        clique = [first, second]
        for third in adjacent[first]:
            if third not in clique and all(third in adjacent[each] for each in clique):
                clique.append(third)
        cliques.append(clique)
        covered.update((first, second) for first in clique for second in clique)
    return cliques
