"""Which of its ways a pod takes, where two that lead to one node pass different limits: it depends on other pods.

The ways of pods are put into classes, in which no two ways to one node do. So the class and the node of a pod say which
arcs it passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.model.networks import NetworkWay
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm
from flowcore.planning.drawn_networks.ways.drawing import CountedArc, Drawing, NetworkRefused, NetworkStart
from flowcore.planning.drawn_networks.ways.placed_pods import placed_by
from flowcore.planning.drawn_networks.ways.pod_counts import least_pods, most_pods

#: A pod of more classes than this is refused: each is as another pod in the plan.
MOST_CLASSES = 16
#: More pods than any arc lets in.
_ANY = 2**40


class WayClasses:
    """The classes of ways of a network."""

    def __init__(self, drawing: Drawing, ways: Iterable[NetworkWay]) -> None:
        """``ways``: all of the network."""
        self._drawing = drawing
        count = len(drawing.mask(None))
        #: bool[N] by arc that counts its units: nodes that ways through it lead to.
        self._reached: list[Bools] = [np.zeros(count, dtype=np.bool_) for _ in drawing.counted]
        for way in ways:
            for number in way.arcs:
                self._reached[number] |= drawing.mask(way.nodes)
        self._meets: dict[tuple[int, NodeSelectorTerm | None], bool] = {}

    def of(self, ways: Iterable[NetworkWay]) -> list[list[NetworkWay]]:
        """The ways of a pod as classes, the cheapest first; without those that others are never worse than.

        Raises:
            NetworkRefused: there are too many.
        """
        classes = list[list[NetworkWay]]()
        for way in sorted(ways, key=lambda each: (each.cost, len(each.arcs))):
            if any(self._is_no_worse(cheaper, way) for of_class in classes for cheaper in of_class):
                continue
            fitting = (each for each in classes if not any(self.differ(way, second) for second in each))
            of_class = next(fitting, None)
            if of_class is not None:
                of_class.append(way)
                continue
            if len(classes) == MOST_CLASSES:
                ways_of_pod = f"more than {MOST_CLASSES} ways to a node that pass different limits"
                raise NetworkRefused(f"{way.path[0].name or way.path[0].arc.head}: its pods have {ways_of_pod}")
            classes.append([way])
        return classes

    def differ(self, way: NetworkWay, second: NetworkWay) -> bool:
        """Whether pods that may take both ways may pass other limits than their node says."""
        if way.unit != second.unit:
            return True
        one_way = any(self._leads_beyond(number, second) for number in way.arcs - second.arcs)
        return one_way or any(self._leads_beyond(number, way) for number in second.arcs - way.arcs)

    def _leads_beyond(self, number: int, way: NetworkWay) -> bool:
        """Whether a way leads to a node that ways through an arc lead to."""
        key = number, way.nodes
        if key not in self._meets:
            self._meets[key] = bool((self._reached[number] & self._drawing.mask(way.nodes)).any())
        return self._meets[key]

    def _is_no_worse(self, cheaper: NetworkWay, way: NetworkWay) -> bool:
        """Whether pods may as well take a cheaper way wherever a way leads."""
        if not cheaper.arcs <= way.arcs or any(
            self._drawing.counted[number].arc.minimum for number in way.arcs - cheaper.arcs
        ):
            return False
        alike = (cheaper.part, cheaper.weight, cheaper.unit) == (way.part, way.weight, way.unit)
        return alike and not (self._drawing.mask(way.nodes) & ~self._drawing.mask(cheaper.nodes)).any()


class RunningWays:
    """The ways of pods that have a node: each takes the cheapest of its ways that has room, where needed first."""

    def __init__(self, drawing: Drawing, ways: Sequence[tuple[NetworkStart, Sequence[NetworkWay]]]) -> None:
        """``ways``: by the pods that they begin at."""
        self._drawing, self._ways = drawing, ways
        self._domains = [drawing.domains(arc) for arc in drawing.counted]
        #: Pods in each domain, by arc.
        self._passed: list[Counter[int]] = [Counter() for _ in drawing.counted]

    def taken(self, policy: Policy, snapshot: Snapshot) -> Iterator[tuple[int, frozenset[int], int]]:
        """Position of the node, arcs that count units, and number of pods."""
        ways = self._ways
        own = [(start.selector, of_start) for start, of_start in ways if not start.runs]
        anybody = [(start.selector, of_start) for start, of_start in ways if start.runs]
        selectors: list[list[LabelSelector]] = [[selector for selector, _ in each] for each in (own, anybody)]
        of_selector = [of_start for _, of_start in (*own, *anybody)]
        placed = list[tuple[int, int, list[NetworkWay]]]()
        for node, count, matched in placed_by(snapshot, policy.selects, *selectors):
            leading = [
                way for number in sorted(matched) for way in of_selector[number] if self._drawing.mask(way.nodes)[node]
            ]
            if leading:
                placed.append((node, count, leading))
        # Who has fewest ways first: others leave them what room there is.
        for node, count, leading in sorted(placed, key=lambda each: len(each[2])):
            left = count
            while left:
                arcs, taken = self._take(leading, node, left)
                left -= taken
                if arcs:
                    yield node, arcs, taken

    def _take(self, leading: Sequence[NetworkWay], node: int, count: int) -> tuple[frozenset[int], int]:
        """The arcs of the way that the next of some pods take to a node, and how many of them take it."""
        with_room = [way for way in leading if self._least(way, node, _room)]
        way = min(with_room or leading, key=lambda way: (not self._least(way, node, _lack, max), way.cost))
        taken = min(count, self._least(way, node, _room) or count, self._least(way, node, _lack, max) or count)
        for number in way.arcs:
            self._passed[number][int(self._domains[number][node])] += taken
        return way.arcs, taken

    def _least(
        self,
        way: NetworkWay,
        node: int,
        measure: Callable[[CountedArc, int], int],
        choose: Callable[..., int] = min,
    ) -> int:
        """The least of what a way's arcs have room for, or the most of what they lack, where a node is."""
        counted = self._drawing.counted
        pods = ((counted[number], self._passed[number][int(self._domains[number][node])]) for number in way.arcs)
        return choose((measure(*each) for each in pods), default=_ANY if choose is min else 0)


def _room(arc: CountedArc, passed: int) -> int:
    """How many more pods may pass an arc."""
    most = most_pods(arc.arc, arc.size)
    return _ANY if most is None else max(0, most - passed)


def _lack(arc: CountedArc, passed: int) -> int:
    """How many more pods must pass an arc."""
    return max(0, least_pods(arc.arc, arc.size) - passed)
