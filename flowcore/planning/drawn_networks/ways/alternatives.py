"""Ways of the same pods to the same nodes that pass different limits, as one way with a price that rises.

Where an arc with a maximum lies beside a dearer way without it, pods beyond the maximum pay the difference. A way with
more limits that is not cheaper is no use. Otherwise pods have a choice (``way_classes``), which costs a plan more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from flowcore.model.networks import NetworkWay, Segment
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.planning.drawn_networks.ways.drawing import Drawing
from flowcore.planning.drawn_networks.ways.pod_counts import most_pods, pod_segments

_OPPOSITES = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}


class HasChoice(Exception):
    """It depends on all pods together which way one takes."""


class Alternatives:
    """Makes of ways some such that those which lead to one node pass the same limits."""

    def __init__(self, drawing: Drawing) -> None:
        self._arcs, self._mask = drawing.counted, drawing.mask
        #: By arc: what a pod pays more beside it, and the ways through it that have such another one.
        self._beside: dict[int, tuple[int, list[NetworkWay]]] = {}

    def of(self, ways: Sequence[NetworkWay]) -> list[NetworkWay]:
        """Ways in place of these, which are of the same pods.

        Raises:
            HasChoice: it depends on all pods together which one a pod takes.
        """
        kept = list[NetworkWay]()
        for way in sorted(ways, key=lambda each: (each.cost, len(each.arcs))):
            terms = [way.nodes]
            for cheaper in kept:
                if self._is_instead(cheaper, way):
                    terms = [rest for term in terms for rest in _without(term, cheaper.nodes)]
            pieces = (msgspec.structs.replace(way, nodes=term) for term in terms)
            kept += [way] if terms == [way.nodes] else [each for each in pieces if self._mask(each.nodes).any()]
        return kept

    def check(self, ways: Sequence[NetworkWay]) -> None:
        """All ways through an arc that is passed beyond its maximum have another one beside them.

        Raises:
            HasChoice: some have none, so its maximum holds for their pods.
        """
        for number, (_, escaping) in self._beside.items():
            if any(number in way.arcs and all(way is not each for each in escaping) for way in ways):
                raise HasChoice

    def priced(self, number: int) -> tuple[int | None, tuple[Segment, ...]]:
        """The maximum and the segments of an arc, in pods."""
        counted = self._arcs[number]
        most, segments = most_pods(counted.arc, counted.size), pod_segments(counted.arc, counted.size)
        if number not in self._beside:
            return most, segments
        beyond, _ = self._beside[number]
        # Of a price that does not rise the ways have all.
        costs = [min(each.cost, beyond) for each in segments] if len(segments) > 1 else [0]
        ends = [each.up_to for each in segments]
        until = [end if most is None or (end is not None and end < most) else most for end in ends]
        priced = list[Segment]()
        for cost, end in zip((*costs, beyond), (*until, None), strict=True):
            if not priced or (priced[-1].up_to is not None and (end is None or end > priced[-1].up_to)):
                priced.append(Segment(cost, end))
        return None, tuple(priced)

    def _is_instead(self, first: NetworkWay, way: NetworkWay) -> bool:
        """Whether pods take a way that costs no more, or the arcs of both as one price, where both lead.

        Raises:
            HasChoice: it depends on other pods.
        """
        overlap = self._mask(way.nodes) & self._mask(first.nodes)
        if way.arcs == first.arcs or not overlap.any():
            return False
        more, fewer = way.arcs - first.arcs, first.arcs - way.arcs
        if (way.part, way.weight, way.unit) != (first.part, first.weight, first.unit) or (more and fewer):
            raise HasChoice
        if any(self._arcs[number].arc.minimum for number in (*more, *fewer)):
            raise HasChoice
        if more:
            return True
        if len(fewer) > 1 or bool((self._mask(first.nodes) & ~overlap).any()):
            raise HasChoice
        (number,) = fewer
        beyond, escaping = self._beside.setdefault(number, (way.cost - first.cost, []))
        if beyond != way.cost - first.cost:
            raise HasChoice
        escaping.append(first)
        return True


def _without(term: NodeSelectorTerm | None, taken: NodeSelectorTerm | None) -> Iterator[NodeSelectorTerm]:
    """Terms that select what one selects and a second one does not.

    Raises:
        HasChoice: no terms say it.
    """
    before = NodeSelectorTerm() if term is None else term
    for number, wanted in enumerate(() if taken is None else (*taken.expressions, *taken.fields)):
        if wanted.operator not in _OPPOSITES:
            raise HasChoice
        opposite = Requirement(wanted.key, _OPPOSITES[wanted.operator], wanted.values)
        if taken is not None and number < len(taken.expressions):
            yield NodeSelectorTerm((*before.expressions, opposite), before.fields)
        else:
            yield NodeSelectorTerm(before.expressions, (*before.fields, opposite))
