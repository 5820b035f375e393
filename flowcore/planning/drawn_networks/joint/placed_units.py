"""Pods that have a node already, in a network: the ways that their units take, before any waiting pod's.

They are where they are, so these units are constants: they lower what minimums still lack and what maximums still
leave. One way after the other is filled, the one that meets most minimums first, of these the cheapest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm

from flowcore.planning.drawn_networks.joint.arcs import Arc


@dataclass(slots=True, eq=False)
class PlacedStart:
    """Pods on one node.

    Attributes:
        node: the vertex of their node.
        lost: how many of them are not sent: all, and in the end those that no way has room for.
        arcs: where arcs lead that begin at them, and the number of the drawn arc that counts their units there.
    """

    node: int
    lost: int
    arcs: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Step:
    """One arc of a way: ``units`` enter it for each that starts."""

    arc: int
    units: Fraction


def placed_units(
    starts: Sequence[PlacedStart], arcs: Sequence[Arc], order: Sequence[int]
) -> tuple[list[int], Counter[int]]:
    """How many units of placed pods enter each arc, and each drawn arc that begins at them, by its number.

    Args:
        arcs: of the network, without those of placed pods.
        order: the vertices, each after all that lead to it.
    """
    placing, sent = _Placing(arcs, order), Counter[int]()
    for start in starts:
        placing.send(start, sent)
    return placing.units, sent


class _Placing:
    """Ways that fill.

    Attributes:
        units: that enter each arc.
    """

    def __init__(self, arcs: Sequence[Arc], order: Sequence[int]) -> None:
        self._arcs, self.units = arcs, [0] * len(arcs)
        self._left = [arc.maximum for arc in arcs]
        self._lacking = [arc.minimum for arc in arcs]
        self._rank = {vertex: rank for rank, vertex in enumerate(order)}
        self._into: dict[int, list[int]] = {}
        for number, arc in enumerate(arcs):
            self._into.setdefault(arc.head, []).append(number)

    def send(self, start: PlacedStart, sent: Counter[int]) -> None:
        """Sends a unit for each of the pods, as far as ways have room."""
        closed = set[int]()
        while start.lost:
            drawn, way, arrive = self._best(start, closed)
            if drawn is None:
                return
            room = [Fraction(self._left[step.arc]) / step.units for step in way]
            lacking = [self._lacking[step.arc] / step.units for step in way]
            whole = lcm(arrive.denominator, *(step.units.denominator for step in way))
            count = int(min([start.lost / arrive, *room])) // whole * whole
            if any(lacking):
                count = min(count, ceil(max(lacking) / whole) * whole)
            if not count:
                if start.lost / arrive < whole:
                    return  # too few pods for a whole unit behind a gain
                closed.add(min(zip(room, way, strict=True), key=lambda pair: pair[0])[1].arc)
                continue
            sent[drawn] += count
            for step in way:
                entering = int(count * step.units)
                self.units[step.arc] += entering
                self._left[step.arc] -= entering
                self._lacking[step.arc] = max(0, self._lacking[step.arc] - entering)
            start.lost -= int(count * arrive)

    def _best(self, start: PlacedStart, closed: set[int]) -> tuple[int | None, list[_Step], Fraction]:
        """The way that meets most minimums, of these the cheapest: its drawn arc, its arcs, and what arrives of a unit.

        The first is None where no way has room.
        """
        onward = self._onward(start.node, closed)
        best = min(
            ((*onward[head][:2], place) for place, (head, _) in enumerate(start.arcs) if head in onward),
            default=None,
        )
        way, units = list[_Step](), Fraction(1)
        if best is None:
            return None, way, units
        head, drawn = start.arcs[best[2]]
        while head != start.node:
            number = onward[head][2]
            way.append(_Step(number, units))
            units *= self._arcs[number].gain
            head = self._arcs[number].head
        return drawn, way, units

    def _onward(self, node: int, closed: set[int]) -> dict[int, tuple[int, Fraction, int]]:
        """For each vertex with a way to a node: fewer for each minimum that it meets, what it costs, its first arc."""
        out: dict[int, list[int]] = {node: []}
        waiting = [node]
        while waiting:
            for number in self._into.get(waiting.pop(), ()):
                if self._left[number] and number not in closed:
                    tail = self._arcs[number].tail
                    if tail not in out:
                        out[tail] = []
                        waiting.append(tail)
                    out[tail].append(number)
        onward = {node: (0, Fraction(0), -1)}
        for vertex in sorted(out, key=lambda each: -self._rank[each]):
            scores = []
            for number in out[vertex]:
                arc = self._arcs[number]
                met, cost, _ = onward[arc.head]
                scores.append((met - (self._lacking[number] > 0), arc.cost + arc.gain * cost, number))
            if scores:
                onward[vertex] = min(scores)
        return onward
