"""Placements that may have their node only because others of the round are where they are.

Required affinity wants them near, and spread counts them. All other rules only forbid: they hold without others too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flowcore.model.pod_index import AffinityMatch, PodSignature, SpreadMatch
from flowcore.model.selector_index import ScopedIndex
from flowcore.model.selectors import Labels
from flowcore.planning.problem.result import Placement


class Dependents:
    """Finds the placements of a plan that may need a pod.

    Attributes:
        by_rule: by number of the rule, the placements that have it.
    """

    def __init__(self, placements: Sequence[Placement], namespaces: Mapping[str, Labels]) -> None:
        """``namespaces``: labels of the namespaces that are known."""
        self._namespaces = namespaces
        needing: dict[AffinityMatch | SpreadMatch, list[Placement]] = {}
        for placement in placements:
            for match in _needed(placement.pod.signature):
                needing.setdefault(match, []).append(placement)
        self.by_rule: tuple[Sequence[Placement], ...] = tuple(needing.values())
        self._numbers = {match: number for number, match in enumerate(needing)}
        self._index: ScopedIndex[AffinityMatch | SpreadMatch] = ScopedIndex()
        for match in needing:
            self._index.add(match)
        self._known: dict[PodSignature, tuple[int, ...]] = {}

    def rules(self, signature: PodSignature) -> tuple[int, ...]:
        """Numbers of the rules that speak of pods of this signature."""
        if not self.by_rule:
            return ()
        if signature not in self._known:
            labels = self._namespaces.get(signature.namespace, ())
            self._known[signature] = tuple(
                self._numbers[match]
                for match in self._index.find(signature.namespace, labels, signature.labels)
                if match.includes(signature, self._namespaces)
            )
        return self._known[signature]


def _needed(signature: PodSignature) -> Iterator[AffinityMatch | SpreadMatch]:
    constraints = signature.constraints
    if constraints is not None:
        if constraints.affinity:
            yield AffinityMatch(constraints.affinity)
        for spread in constraints.spread:
            yield SpreadMatch(signature.namespace, spread.selector)
