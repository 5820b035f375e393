"""Ways of the same pods to the same nodes that pass different limits, as one way with a price that rises.

Where an arc with a maximum lies beside a dearer way without it, pods beyond the maximum pay the difference. A way with
more limits that is not cheaper is no use. Otherwise it depends on all pods together which way a pod takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.model.networks import NetworkArc, NetworkWay, Segment
from flowcore.model.selectors import NodeSelectorTerm, Requirement

_OPPOSITES = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}


class IsJointError(Exception):
    """Only a network as a whole says what single pods may do."""


class Alternatives:
    """Makes of ways some such that those which lead to one node pass the same limits."""

    def __init__(self, arcs: Sequence[NetworkArc], mask: Callable[[NodeSelectorTerm | None], Bools]) -> None:
        """Limited arcs by number, and bool[N] of a term: the nodes that it selects."""
        self._arcs, self._mask = arcs, mask
        #: By arc: what a pod pays more beside it, and the ways through it that have such another one.
        self._beside: dict[int, tuple[int, list[NetworkWay]]] = {}

    def of(self, ways: Sequence[NetworkWay]) -> list[NetworkWay]:
        """Ways in place of these, which are of the same pods.

        Raises:
            IsJointError: it depends on all pods together which one a pod takes.
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
            IsJointError: some have none, so its maximum holds for their pods.
        """
        for number, (_, escaping) in self._beside.items():
            if any(number in way.arcs and all(way is not each for each in escaping) for way in ways):
                raise IsJointError

    def priced(self, number: int, size: int) -> tuple[int | None, tuple[Segment, ...]]:
        """The maximum and the segments of an arc, in pods.

        Args:
            size: how many pods one of its units is.
        """
        arc = self._arcs[number]
        most = None if arc.maximum is None else arc.maximum * size
        segments = tuple(
            Segment(each.cost // size, None if each.up_to is None else each.up_to * size) for each in arc.cost.segments
        )
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
            IsJointError: it depends on other pods.
        """
        overlap = self._mask(way.nodes) & self._mask(first.nodes)
        if way.arcs == first.arcs or not overlap.any():
            return False
        more, fewer = way.arcs - first.arcs, first.arcs - way.arcs
        if (way.part, way.weight, way.together) != (first.part, first.weight, first.together) or (more and fewer):
            raise IsJointError
        if any(self._arcs[number].minimum for number in (*more, *fewer)):
            raise IsJointError
        if more:
            return True
        if len(fewer) > 1 or bool((self._mask(first.nodes) & ~overlap).any()):
            raise IsJointError
        (number,) = fewer
        beyond, escaping = self._beside.setdefault(number, (way.cost - first.cost, []))
        if beyond != way.cost - first.cost:
            raise IsJointError
        escaping.append(first)
        return True


def _without(term: NodeSelectorTerm | None, taken: NodeSelectorTerm | None) -> Iterator[NodeSelectorTerm]:
    """Terms that select what one selects and a second one does not.

    Raises:
        IsJointError: no terms say it.
    """
    before = NodeSelectorTerm() if term is None else term
    for number, wanted in enumerate(() if taken is None else (*taken.expressions, *taken.fields)):
        if wanted.operator not in _OPPOSITES:
            raise IsJointError
        opposite = Requirement(wanted.key, _OPPOSITES[wanted.operator], wanted.values)
        if taken is not None and number < len(taken.expressions):
            yield NodeSelectorTerm((*before.expressions, opposite), before.fields)
        else:
            yield NodeSelectorTerm(before.expressions, (*before.fields, opposite))
