"""Which pods the rules of planned pods count: if such a pod went elsewhere, the plan might not hold any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from flowcore.model.pod_index import AffinityMatch, PodMatch, PodSignature
from flowcore.model.selector_index import ScopedIndex
from flowcore.model.selectors import Labels
from flowcore.rules.topology.domain_limits import limit_match
from thalweg_operator.reservations.steering.records.linked_chains import ordering_matches


class CountedPods:
    """What affinity, spread and limits count, and what anti-affinity speaks of where nobody asks that node by node.

    Attributes:
        known: whether ``learn`` was called since ``forget``.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Other pods are planned, or by other policies."""
        self.known = False
        self._index: ScopedIndex[PodMatch] = ScopedIndex()
        self._counting: dict[PodMatch, set[PodSignature]] = {}

    def learn(self, signatures: Iterable[PodSignature], *, apart: bool = False) -> None:
        """Takes the signatures of all planned pods with rules.

        Args:
            apart: whether their anti-affinity is among the rules.
        """
        self.known = True
        for signature in dict.fromkeys(signatures):
            for match in _matches(signature, apart=apart):
                self._index.add(match)
                self._counting.setdefault(match, set()).add(signature)

    def unlearn(self, signature: PodSignature, *, apart: bool = False) -> None:
        """No planned pod has this signature any more; ``apart`` as it was learned."""
        for match in _matches(signature, apart=apart):
            counting = self._counting.get(match, set())
            counting.discard(signature)
            if match in self._counting and not counting:
                del self._counting[match]
                self._index.remove(match)

    def by_others(self, signature: PodSignature, namespaces: Mapping[str, Labels]) -> bool:
        """Whether the rules of other pods than those of this signature count pods of this signature."""
        namespace = signature.namespace
        return any(
            match.includes(signature, namespaces) and self._counting[match] != {signature}
            for match in self._index.find(namespace, namespaces.get(namespace, ()), signature.labels)
        )


def _matches(signature: PodSignature, *, apart: bool) -> Iterator[PodMatch]:
    yield from ordering_matches(signature)
    if signature.constraints is not None:
        yield from (limit_match(limit) for limit in signature.constraints.limits)
        if apart:
            yield from (AffinityMatch((term,)) for term in signature.constraints.anti_affinity)
