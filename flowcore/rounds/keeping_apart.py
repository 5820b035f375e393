"""Rules that only forbid, as rows of a program in whole numbers: anti-affinity and the caps of policies' constraints.

Where pods may all be together by such rules, so may any part of them, in any order: whoever carries the program's
answer out finds each placement allowed at its turn. What a rule asks of a class holds for every domain in which it has
pods, so a 0/1 column says of a class and a domain whether it has any; where a rule binds all whom it counts alike, none
is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Int64s
from flowcore.rounds.demands import Demand
from flowcore.rounds.placing import Pairs
from flowcore.rounds.room import Room
from flowcore.rounds.topology import Counter, Domains, Ties
from flowcore.solve import LinearProgram


def limits_of(ties: Ties) -> dict[Counter, int]:
    """How many pods each counter may count, the group's own included, in a domain in which the group has pods."""
    limits = {counter: int(counter in ties.feeds) for counter in ties.apart}
    for cap in ties.caps:
        limits[cap.counter] = min(cap.most, limits.get(cap.counter, cap.most))
    return limits


def most_in_all(ties: Ties, counts: Int64s) -> int:
    """How many pods of a group its own placements leave a place, if no others were placed.

    Args:
        counts: int64[N], how many each node takes by itself.
    """
    most = int(counts.sum())
    for counter, limit in limits_of(ties).items():
        if counter in ties.feeds:
            inside = np.bincount(counter.domains.codes, counts, len(counter.first)).astype(np.int64)
            taken = np.minimum(inside, np.maximum(limit - counter.first, 0))
            taken[-1] = inside[-1]  # in no domain: nothing is counted
            most = min(most, int(taken.sum()))
    return most


@dataclass(slots=True, eq=False)
class _Alike:
    """Classes with the same limits that raise the same counters: whether one of them is somewhere says it for all.

    Attributes:
        columns: int64[K], their columns of the program.
        opened: for domains of a topology that were asked about, the 0/1 column of each.
    """

    limits: dict[Counter, int]
    columns: Int64s
    opened: dict[Domains, dict[int, int]] = field(default_factory=dict)


class _Rows:
    """Rows and 0/1 columns that come to a program."""

    def __init__(self, program: LinearProgram, pairs: Pairs) -> None:
        self._program, self._pairs = program, pairs
        self.opens: list[Int64s] = []
        self._upper: list[float] = []
        self._entries: list[tuple[Int64s, Float64s]] = []

    def add(self, columns: Sequence[int] | Int64s, coefficients: Sequence[float] | Float64s, upper: float) -> None:
        """A row: the sum of these is at most so much."""
        self._entries.append((np.asarray(columns, dtype=np.int64), np.asarray(coefficients, dtype=np.float64)))
        self._upper.append(upper)

    def opened(self, alike: _Alike, domains: Domains) -> dict[int, int]:
        """The columns that say in which domains classes have any pods, with the rows that make them so."""
        found = alike.opened.get(domains)
        if found is None:
            found = alike.opened[domains] = {}
            for domain, columns in self.by_domain(alike.columns, domains).items():
                found[domain] = len(self._program.costs) + len(self.opens)
                self.opens.append(columns)
                self.add([*columns, found[domain]], [*np.ones(len(columns)), -self._pairs.most[columns].sum()], 0.0)
        return found

    def by_domain(self, columns: Int64s, domains: Domains) -> dict[int, Int64s]:
        """Columns by the domain that their nodes are in; those in none left out."""
        codes = domains.codes[self._pairs.places[columns]]
        order = np.argsort(codes, kind="stable")
        codes, columns = codes[order], columns[order]
        codes, starts = np.unique(codes, return_index=True)
        parts = np.split(columns, starts[1:])
        return {code: part for code, part in zip(codes.tolist(), parts, strict=True) if code < domains.count}

    def program(self) -> LinearProgram:
        """The program with them."""
        old, count = self._program, len(self.opens)
        numbers = np.repeat(np.arange(len(self._entries)), [len(columns) for columns, _ in self._entries])
        return replace(
            old,
            costs=np.concatenate([old.costs, np.zeros(count)]),
            most=np.concatenate([old.most, np.ones(count)]),
            lower=np.concatenate([old.lower, np.full(len(self._upper), -np.inf)]),
            upper=np.concatenate([old.upper, np.array(self._upper)]),
            rows=np.concatenate([old.rows, len(old.upper) + numbers]),
            columns=np.concatenate([old.columns, *(columns for columns, _ in self._entries)]),
            coefficients=np.concatenate([old.coefficients, *(each for _, each in self._entries)]),
        )


def with_rules(
    program: LinearProgram, pairs: Pairs, demands: Sequence[Demand], room: Room
) -> tuple[LinearProgram, list[Int64s]]:
    """A placing program with what its classes may not do together.

    Args:
        program: its first columns are those of ``pairs``.
        pairs: demands and nodes.
        room: with all pods whose place is not decided.

    Returns:
        The program, with 0/1 columns after its own, and for each of those the pairs that it speaks of: it is 1 where
        any of them has pods.
    """
    rows = _Rows(program, pairs)
    reading, feeding = _sides(pairs, demands)
    exclude: dict[Domains, list[tuple[_Alike, _Alike]]] = {}
    for counter, readers in reading.items():
        fed = feeding.get(counter, [])
        if not fed:
            continue
        pods = rows.by_domain(np.sort(np.concatenate([each.columns for each in fed])), counter.domains)
        there = room.together.of(counter)
        limits = {each.limits.get(counter) for each in fed}
        most = limits.pop()
        if most is not None and not limits:
            # All that are counted are bound alike: who else is there does not matter.
            for domain, columns in pods.items():
                slack = max(0, most - int(there[domain]))
                if pairs.most[columns].sum() > slack:
                    rows.add(columns, np.ones(len(columns)), slack)
            apart = [each for each in readers if each not in fed]
        else:
            apart = readers
        for each in apart:
            if not each.limits[counter]:
                exclude.setdefault(counter.domains, []).extend((each, other) for other in fed if other is not each)
                continue
            for domain, opened in rows.opened(each, counter.domains).items():
                columns = pods.get(domain, np.zeros(0, dtype=np.int64))
                slack = max(0, each.limits[counter] - int(there[domain]))
                over = float(pairs.most[columns].sum()) - slack
                if over > 0:
                    rows.add([*columns, opened], [*np.ones(len(columns)), over], slack + over)
    for domains, couples in exclude.items():
        for clique in _cliques(couples):
            opened_of = [rows.opened(each, domains) for each in clique]
            for domain in dict.fromkeys(domain for opened in opened_of for domain in opened):
                here = [opened[domain] for opened in opened_of if domain in opened]
                if len(here) > 1:
                    rows.add(here, np.ones(len(here)), 1.0)
    return rows.program(), rows.opens


def _sides(pairs: Pairs, demands: Sequence[Demand]) -> tuple[dict[Counter, list[_Alike]], dict[Counter, list[_Alike]]]:
    """Who is bound by each counter, and who raises it."""
    present = np.unique(pairs.classes).tolist()
    limits = {at: limits_of(demands[at].ties) for at in present}
    read = {counter for each in limits.values() for counter in each}
    kinds: dict[object, list[int]] = {}
    for at in present:
        feeds = frozenset(counter for counter in demands[at].ties.feeds if counter in read)
        if feeds or limits[at]:
            kinds.setdefault((feeds, frozenset(limits[at].items())), []).append(at)
    reading: dict[Counter, list[_Alike]] = {}
    feeding: dict[Counter, list[_Alike]] = {}
    for members in kinds.values():
        alike = _Alike(limits[members[0]], np.nonzero(np.isin(pairs.classes, members))[0])
        for counter in alike.limits:
            reading.setdefault(counter, []).append(alike)
        for counter in demands[members[0]].ties.feeds:
            if counter in read:
                feeding.setdefault(counter, []).append(alike)
    return reading, feeding


def _cliques(couples: Sequence[tuple[_Alike, _Alike]]) -> list[list[_Alike]]:
    """Sets of which any two exclude each other, so that each couple is in one; larger ones bind better."""
    against: dict[_Alike, dict[_Alike, None]] = {}
    for one, other in couples:
        against.setdefault(one, {})[other] = None
        against.setdefault(other, {})[one] = None
    found: list[list[_Alike]] = []
    covered: set[tuple[_Alike, _Alike]] = set()
    for one, other in couples:
        if (one, other) in covered:
            continue
        clique = [one, other]
        for third in against[one]:
            if third not in clique and all(third in against[each] for each in clique):
                clique.append(third)
        found.append(clique)
        covered.update((first, second) for first in clique for second in clique)
    return found
