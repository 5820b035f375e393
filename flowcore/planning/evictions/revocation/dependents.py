"""Pods that may have their node only because others are where they are.

Required affinity wants them near, and spread counts them. All other rules only forbid: they hold without others too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from flowcore.model.pod_index import AffinityMatch, PodSignature, SpreadMatch
from flowcore.model.selector_index import ScopedIndex
from flowcore.model.selectors import Labels


class Dependents:
    """Finds those of some pods that may need another one.

    Attributes:
        by_rule: by number of the rule, which of the pods have it.
    """

    def __init__(self, signatures: Iterable[PodSignature], namespaces: Mapping[str, Labels]) -> None:
        """``signatures``: of the pods; ``namespaces``: labels of those that are known."""
        self._namespaces = namespaces
        needing: dict[AffinityMatch | SpreadMatch, list[int]] = {}
        keys_of: dict[AffinityMatch | SpreadMatch, set[str]] = {}
        for number, signature in enumerate(signatures):
            for match, keys in _needed(signature):
                needing.setdefault(match, []).append(number)
                keys_of.setdefault(match, set()).update(keys)
        self._keys = tuple(keys_of.values())
        self.by_rule: tuple[Sequence[int], ...] = tuple(needing.values())
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

    def topology_keys(self, signature: PodSignature) -> set[str]:
        """Labels of the domains in which rules count pods of this signature."""
        return {key for rule in self.rules(signature) for key in self._keys[rule]}


def _needed(signature: PodSignature) -> Iterator[tuple[AffinityMatch | SpreadMatch, list[str]]]:
    """The pods that rules count, and the topology keys by which they do."""
    constraints = signature.constraints
    if constraints is not None:
        if constraints.affinity:
            yield AffinityMatch(constraints.affinity), [term.topology_key for term in constraints.affinity]
        for spread in constraints.spread:
            yield SpreadMatch(signature.namespace, spread.selector), [spread.topology_key]
