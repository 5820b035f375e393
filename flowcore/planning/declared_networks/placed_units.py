"""Pods that have a node already, in a network: the ways that their units take, before any waiting pod's.

They are where they are, so these units are constants: they lower what minimums still lack and what maximums still
leave. One way after the other is filled, the one that meets most minimums first, of these the cheapest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm

from flowcore.costs.network_model import Arc

#: An arc without a maximum takes any number of units.
_ANY = 2**40


@dataclass(frozen=True, slots=True, eq=False)
class PlacedStart:
    """Pods on one node.

    Attributes:
        node: the vertex of their node.
        count: how many they are.
        arcs: those that begin at them, each with the vertex where it ends.
    """

    node: int
    count: int
    arcs: Sequence[tuple[int, Arc]]


@dataclass(frozen=True, slots=True)
class _Step:
    """One arc of a way: ``units`` enter it for each that starts.

    Attributes:
        arc: position; of the pods' own arcs where it is ``own``.
    """

    arc: int
    own: bool
    units: Fraction


def placed_units(
    starts: Sequence[PlacedStart], arcs: Sequence[Arc], tails: Sequence[int], heads: Sequence[int], order: Sequence[int]
) -> tuple[list[int], dict[int, int]]:
    """How many units of placed pods enter each arc, and each of the pods' own arcs, by its identity.

    Args:
        arcs: of the network, without those of placed pods.
        tails, heads: their vertices.
        order: the vertices, each after all that lead to it.
    """
    placing = _Placing(arcs, tails, heads, order)
    for start in starts:
        placing.send(start)
    return placing.units, placing.sent


class _Placing:
    """Ways that fill.

    Attributes:
        units: that enter each arc.
        sent: that enter each of the pods' own arcs, by its identity.
    """

    def __init__(self, arcs: Sequence[Arc], tails: Sequence[int], heads: Sequence[int], order: Sequence[int]) -> None:
        self._arcs, self._tails, self._heads = arcs, tails, heads
        self.units = [0] * len(arcs)
        self.sent: dict[int, int] = {}
        self._left = [_most(arc) for arc in arcs]
        self._lacking = [int(arc.minimum) for arc in arcs]
        self._rank = {vertex: rank for rank, vertex in enumerate(order)}
        self._into: dict[int, list[int]] = {}
        for number, head in enumerate(heads):
            self._into.setdefault(head, []).append(number)

    def send(self, start: PlacedStart) -> None:
        """Sends a unit for each of the pods, as far as ways have room."""
        own_left = [_most(arc) for _, arc in start.arcs]
        closed, coming = set[int](), start.count
        while coming:
            way = self._best(start, own_left, closed)
            if not way:
                return
            arrive = way[-1].units * self._gain(start, way[-1])
            room = [own_left[step.arc] if step.own else self._left[step.arc] for step in way]
            whole = lcm(arrive.denominator, *(step.units.denominator for step in way))
            lacking = [self._lacking[step.arc] / step.units for step in way if not step.own]
            most = min(coming / arrive, *(left / step.units for left, step in zip(room, way, strict=True)))
            count = int(most) // whole * whole
            if any(lacking):
                count = min(count, ceil(max(lacking) / whole) * whole)
            if not count:
                if coming / arrive < whole:
                    return  # too few pods for a whole unit behind a gain
                narrow = min(range(len(way)), key=lambda place: room[place] / way[place].units)
                if way[narrow].own:
                    own_left[way[narrow].arc] = 0
                else:
                    closed.add(way[narrow].arc)
                continue
            for step in way:
                entering = int(count * step.units)
                if step.own:
                    own_left[step.arc] -= entering
                    key = id(start.arcs[step.arc][1])
                    self.sent[key] = self.sent.get(key, 0) + entering
                else:
                    self.units[step.arc] += entering
                    self._left[step.arc] -= entering
                    self._lacking[step.arc] = max(0, self._lacking[step.arc] - entering)
            coming -= int(count * arrive)

    def _gain(self, start: PlacedStart, step: _Step) -> Fraction:
        return Fraction((start.arcs[step.arc][1] if step.own else self._arcs[step.arc]).gain)

    def _best(self, start: PlacedStart, own_left: Sequence[int], closed: set[int]) -> list[_Step]:
        """The way that meets most minimums, of these the cheapest; empty: there is none with room."""
        onward = self._onward(start.node, closed)
        best: tuple[int, Fraction, int] | None = None
        for place, (head, arc) in enumerate(start.arcs):
            if own_left[place] and head in onward:
                met, cost, _ = onward[head]
                score = met, int(arc.cost) + arc.gain * cost, place
                best = score if best is None else min(best, score)
        if best is None:
            return []
        head, arc = start.arcs[best[2]]
        way = [_Step(best[2], own=True, units=Fraction(1))]
        units = Fraction(arc.gain)
        while head != start.node:
            number = onward[head][2]
            way.append(_Step(number, own=False, units=units))
            units *= Fraction(self._arcs[number].gain)
            head = self._heads[number]
        return way

    def _onward(self, node: int, closed: set[int]) -> dict[int, tuple[int, Fraction, int]]:
        """For each vertex with a way to a node: fewer for each minimum that it meets, what it costs, its first arc."""
        out: dict[int, list[int]] = {node: []}
        waiting = [node]
        while waiting:
            for number in self._into.get(waiting.pop(), ()):
                if self._left[number] and number not in closed:
                    tail = self._tails[number]
                    if tail not in out:
                        out[tail] = []
                        waiting.append(tail)
                    out[tail].append(number)
        onward = {node: (0, Fraction(0), -1)}
        for vertex in sorted(out, key=lambda each: -self._rank[each]):
            scores = []
            for number in out[vertex]:
                met, cost, _ = onward[self._heads[number]]
                arc = self._arcs[number]
                scores.append((met - (self._lacking[number] > 0), int(arc.cost) + arc.gain * cost, number))
            if scores:
                onward[vertex] = min(scores)
        return onward


def _most(arc: Arc) -> int:
    return _ANY if arc.maximum is None else int(arc.maximum)
