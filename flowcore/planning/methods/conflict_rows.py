"""Rules that only forbid, as rows of a program in whole numbers: anti-affinity and the caps of policies' constraints.

Where pods may all be together by such rules, so may any part of them, in any order: each placement of the program's
answer is allowed at its turn. What a rule asks of a class holds for every domain in which it has pods, so a 0/1 column
says of a class and a domain whether it has any; where a rule binds all whom it counts alike, none is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.assignment_program import Pairs
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.free_capacity import FreeCapacity
from flowcore.planning.solvers import LinearProgram
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import remaining
from flowcore.rules.topology.domains import Domains


@dataclass(slots=True, eq=False)
class _ConflictClass:
    """Classes with the same limits that raise the same counters: whether one of them is somewhere says it for all.

    Attributes:
        columns: int64[K], their columns of the program.
        indicators: for domains of a topology that were asked about, the 0/1 column of each.
    """

    limits: dict[DomainCounter, int]
    columns: Int64s
    indicators: dict[Domains, dict[int, int]] = field(default_factory=dict)


class _Rows:
    """Rows and 0/1 columns that come to a program."""

    def __init__(self, program: LinearProgram, pairs: Pairs) -> None:
        self._program, self._pairs = program, pairs
        self.indicators: list[Int64s] = []
        self._upper: list[float] = []
        self._entries: list[tuple[Int64s, Float64s]] = []

    def add(self, columns: Sequence[int] | Int64s, coefficients: Sequence[float] | Float64s, upper: float) -> None:
        """A row: the sum of these is at most so much."""
        self._entries.append((np.asarray(columns, dtype=np.int64), np.asarray(coefficients, dtype=np.float64)))
        self._upper.append(upper)

    def indicator_columns(self, conflict_class: _ConflictClass, domains: Domains) -> dict[int, int]:
        """The columns that say in which domains classes have any pods, with the rows that make them so."""
        columns_of = conflict_class.indicators.get(domains)
        if columns_of is None:
            columns_of = conflict_class.indicators[domains] = {}
            for domain, columns in self.by_domain(conflict_class.columns, domains).items():
                columns_of[domain] = len(self._program.costs) + len(self.indicators)
                self.indicators.append(columns)
                self.add(
                    [*columns, columns_of[domain]], [*np.ones(len(columns)), -self._pairs.max_pods[columns].sum()], 0.0
                )
        return columns_of

    def by_domain(self, columns: Int64s, domains: Domains) -> dict[int, Int64s]:
        """Columns by the domain that their nodes are in; those in none left out."""
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
        old, count = self._program, len(self.indicators)
        numbers = np.repeat(np.arange(len(self._entries)), [len(columns) for columns, _ in self._entries])
        return replace(
            old,
            costs=np.concatenate([old.costs, np.zeros(count)]),
            variable_upper=np.concatenate([old.variable_upper, np.ones(count)]),
            row_lower=np.concatenate([old.row_lower, np.full(len(self._upper), -np.inf)]),
            row_upper=np.concatenate([old.row_upper, np.array(self._upper)]),
            rows=np.concatenate([old.rows, len(old.row_upper) + numbers]),
            columns=np.concatenate([old.columns, *(columns for columns, _ in self._entries)]),
            coefficients=np.concatenate([old.coefficients, *(each for _, each in self._entries)]),
        )


def with_conflict_rows(
    program: LinearProgram, pairs: Pairs, demands: Sequence[Demand], capacity: FreeCapacity
) -> tuple[LinearProgram, list[Int64s]]:
    """A placing program with what its classes may not do together.

    Args:
        program: its first columns are those of ``pairs``.
        pairs: demands and nodes.
        capacity: with all pods whose place is not decided.

    Returns:
        The program, with 0/1 columns after its own, and for each of those the pairs that it speaks of: it is 1 where
        any of them has pods.
    """
    rows = _Rows(program, pairs)
    reading, incrementing = _readers_and_incrementers(pairs, demands)
    exclude: dict[Domains, list[tuple[_ConflictClass, _ConflictClass]]] = {}
    for counter, readers in reading.items():
        incrementers = incrementing.get(counter, [])
        if not incrementers:
            continue
        pods = rows.by_domain(np.sort(np.concatenate([each.columns for each in incrementers])), counter.domains)
        counts = capacity.domain_counts.of(counter)
        limits = {each.limits.get(counter) for each in incrementers}
        most = limits.pop()
        if most is not None and not limits:
            # All that are counted are bound alike: who else is there does not matter.
            for domain, columns in pods.items():
                slack = int(remaining(most, counts[domain]))
                if pairs.max_pods[columns].sum() > slack:
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
                over = float(pairs.max_pods[columns].sum()) - slack
                if over > 0:
                    rows.add([*columns, opened], [*np.ones(len(columns)), over], slack + over)
    for domains, couples in exclude.items():
        for clique in _cliques(couples):
            opened_of = [rows.indicator_columns(each, domains) for each in clique]
            for domain in dict.fromkeys(domain for opened in opened_of for domain in opened):
                here = [opened[domain] for opened in opened_of if domain in opened]
                if len(here) > 1:
                    rows.add(here, np.ones(len(here)), 1.0)
    return rows.program(), rows.indicators


def _readers_and_incrementers(
    pairs: Pairs, demands: Sequence[Demand]
) -> tuple[dict[DomainCounter, list[_ConflictClass]], dict[DomainCounter, list[_ConflictClass]]]:
    """Who is bound by each counter, and who raises it."""
    present = np.unique(pairs.classes).tolist()
    limits = {index: demands[index].constraints.limits for index in present}
    read = {counter for each in limits.values() for counter in each}
    by_limits: dict[object, list[int]] = {}
    for index in present:
        feeds = frozenset(counter for counter in demands[index].constraints.increments if counter in read)
        if feeds or limits[index]:
            by_limits.setdefault((feeds, frozenset(limits[index].items())), []).append(index)
    reading: dict[DomainCounter, list[_ConflictClass]] = {}
    incrementing: dict[DomainCounter, list[_ConflictClass]] = {}
    for members in by_limits.values():
        conflict_class = _ConflictClass(limits[members[0]], np.nonzero(np.isin(pairs.classes, members))[0])
        for counter in conflict_class.limits:
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
