"""Arcs of a network with their flow, and what stands for them where they are more than people read.

Of the values of a label, and of other points of a kind, those keep arcs of their own that tell most. The others are one
point together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from flowcore.model.amount_text import counted
from flowcore.model.networks import UNSCHEDULED

#: States of an arc, what matters most first.
STATES: Final = ("over", "short", "full", "")
#: How points are put together: those of an aggregator, and where that is not enough all of them.
_GROUPINGS: Final[tuple[Callable[[str], str], ...]] = (lambda name: name.partition(" ")[0], lambda _name: "points")


class FlowArc(msgspec.Struct, frozen=True, rename="camel"):
    """An arc of a network, or one for several with the same ends, with its flow.

    Attributes:
        tail: where it begins: pods, a workload, or an aggregator with the value of its label; or many of these, such as
            "rack: 95 more".
        head: where it ends: an aggregator, a node or a group of nodes, or Unscheduled; or many of these.
        flow: units that enter it.
        minimum: units that must enter it.
        maximum: units that may enter it; null: any number.
        gain: units that leave it for each that enters, such as "1/2".
        price: of the next unit, the lowest of several arcs or kinds of pods; null: no further unit may enter, or the
            cost model says it. To Unscheduled it is what pods pay that wait, and what is drawn where none does. Where
            the policy draws nothing it is what pods of the plan pay on average.
        highest_price: the highest of several.
        state: "full": the flow is the maximum, of each of several; "over": it is above; "short": it is below the
            minimum, of any of several; "": none of these.
        arcs: how many it stands for.
        full: how many of these are full or over.
        whole_or_none: no unit may enter it too, in place of the minimum.
        from_pods, to_nodes: whether it begins at pods, and ends at nodes.
    """

    tail: str = msgspec.field(name="from")
    head: str = msgspec.field(name="to")
    flow: int
    minimum: int = 0
    maximum: int | None = None
    gain: str = "1"
    price: int | None = None
    highest_price: int | None = None
    state: str = ""
    arcs: int = 1
    full: int = 0
    whole_or_none: bool = False
    from_pods: bool = False
    to_nodes: bool = False

    @property
    def start(self) -> str:
        """Where it begins, by a name that no other point has."""
        return f"{'pods' if self.from_pods else 'point'} {self.tail}"

    @property
    def end(self) -> str:
        """Where it ends, by a name that no other point has; nodes that are listed together differ by the start."""
        return f"nodes of {self.start}: {self.head}" if self.to_nodes else f"point {self.head}"


def together(arcs: Sequence[FlowArc], tail: str, head: str) -> FlowArc:
    """One arc for several of the same gain."""
    first, most = arcs[0], [arc.maximum for arc in arcs]
    states = [arc.state for arc in arcs]
    full, count = sum(arc.full for arc in arcs), sum(arc.arcs for arc in arcs)
    return FlowArc(
        tail,
        head,
        sum(arc.flow for arc in arcs),
        sum(arc.minimum for arc in arcs),
        None if None in most else sum(each for each in most if each is not None),
        first.gain,
        min((arc.price for arc in arcs if arc.price is not None), default=None),
        max((arc.highest_price for arc in arcs if arc.highest_price is not None), default=None),
        next((each for each in ("over", "short") if each in states), "full" if full == count else ""),
        count,
        full,
        first.whole_or_none,
        first.from_pods,
        first.to_nodes,
    )


def rank(arc: FlowArc) -> tuple[int, bool, bool, int]:
    """The key that sorts what tells most first: above or below a limit, at it, to Unscheduled, then by the flow."""
    return STATES.index(arc.state), not arc.full, arc.head != UNSCHEDULED, -arc.flow


def summed(arcs: Sequence[FlowArc], most: int) -> list[FlowArc]:
    """At most so many arcs that stand for all, what tells most first; all as they are where they are not more.

    Arcs between points that are one together are in none. Where arcs of many gains remain, those that tell least are in
    none either.
    """
    if len(arcs) <= most:
        return list(arcs)
    ranked, rows = sorted(arcs, key=rank), list[FlowArc]()
    for grouping in _GROUPINGS:
        kept = most
        while kept:
            kept = kept * 3 // 4
            rows = _with_points(ranked, kept, grouping)
            if len(rows) <= most:
                return sorted(rows, key=rank)
    return sorted(rows, key=rank)[:most]


def _with_points(ranked: Sequence[FlowArc], kept: int, grouping: Callable[[str], str]) -> list[FlowArc]:
    """The arcs with so many points of each group; the others of a group are one.

    Args:
        ranked: what tells most first.
    """
    names = _named(_points(ranked, grouping), kept)
    of_kept = ((arc.end, arc.head, arc.start) for arc in ranked if arc.to_nodes and names[arc.start] == arc.tail)
    nodes = _named(of_kept, max(1, kept))
    merged: dict[tuple[str, str, str, bool, bool], list[FlowArc]] = {}
    for arc in ranked:
        head = names.get(arc.end, arc.head)
        if arc.to_nodes:  # nodes that are one together are told by their number
            head = arc.head if nodes.get(arc.end) == arc.head else ""
        ends_of_row = names[arc.start], head, arc.gain, arc.from_pods, arc.to_nodes
        if ends_of_row != (head, head, arc.gain, False, False):
            merged.setdefault(ends_of_row, []).append(arc)
    return [
        together(rows, tail, head or counted(sum(arc.arcs for arc in rows), "node"))
        for (tail, head, *_), rows in merged.items()
    ]


def _points(arcs: Iterable[FlowArc], grouping: Callable[[str], str]) -> Iterator[tuple[str, str, str]]:
    """Key, name and group of the ends of arcs that are pods or aggregators."""
    for arc in arcs:
        yield arc.start, arc.tail, "pods" if arc.from_pods else grouping(arc.tail)
        if not arc.to_nodes and arc.head != UNSCHEDULED:
            yield arc.end, arc.head, grouping(arc.head)


def _named(points: Iterable[tuple[str, str, str]], kept: int) -> dict[str, str]:
    """The name of each point by its key, where each group keeps so many names; the others share one.

    Args:
        points: key, name and group, those first that are kept.
    """
    known: dict[str, tuple[str, str]] = {}
    for key, name, group in points:
        known.setdefault(key, (name, group))
    counts, seen = Counter(group for _, group in known.values()), Counter[str]()
    names: dict[str, str] = {}
    for key, (name, group) in known.items():
        seen[group] += 1
        rest = counts[group] - kept
        others = f"{group}: {rest:,}{' more' if kept else ''}"
        names[key] = name if rest <= 1 or seen[group] <= kept else others
    return names
