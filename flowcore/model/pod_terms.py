"""Terms of pods that have a node, found by the pods that they are about.

Any author of pods may write ``spec.nodeName``, so these terms are anybody's. A term is looked at for pods of its
namespaces only. How many terms the pods of one namespace may bring is limited, so that no namespace sets what a pod of
another one costs, nor holds up the operator with its own (docs/decisions/0065).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from flowcore.model.inter_pod_constraints import AffinityTerm, WeightedTerm
from flowcore.model.matching_pods import MatchingPods
from flowcore.model.selector_index import ScopedIndex
from flowcore.model.selectors import Labels

#: Distinct terms about other namespaces that running pods of one namespace bring, required and preferred ones each. Of
#: more, the later ones hold in their own namespace only.
MAX_TERMS_ABOUT_OTHERS: Final = 1_024
#: Distinct terms that hold in their own namespace only. Later ones hold for no pod.
MAX_TERMS_AT_HOME: Final = 8_192
#: Labels and terms in the answers that are kept.
_MOST_KEPT: Final = 65_536

T = TypeVar("T", AffinityTerm, WeightedTerm)


class _Filed(Generic[T]):
    """Terms, each with the pods that bring it."""

    def __init__(self) -> None:
        self.pods: dict[T, MatchingPods] = {}
        self.index: ScopedIndex[T] = ScopedIndex()

    def change(self, term: T, base: MatchingPods | None, node: str, delta: int, revision: int) -> bool:
        """Adds ``delta`` pods with a term on a node. Returns whether the term came or went."""
        pods = self.pods.get(term)
        came = pods is None
        if pods is None:
            pods = self.pods[term] = MatchingPods(revision, base)
            self.index.add(term)
        pods.change(node, delta, revision)
        if not pods.by_node:
            self.remove(term)
        return came or not pods.by_node

    def remove(self, term: T) -> None:
        """Removes a term that no pod brings any more."""
        del self.pods[term]
        self.index.remove(term)

    def find(self, namespace: str, namespace_labels: Labels, labels: Labels) -> Iterator[tuple[T, MatchingPods]]:
        """The terms that speak of pods with these labels in this namespace."""
        return ((term, self.pods[term]) for term in self.index.find(namespace, namespace_labels, labels))


class _Place(Enum):
    """Where a term holds: also for pods of other namespaces, at home only, or nowhere."""

    SHARED = "shared"
    HOME = "home"
    UNHEEDED = "unheeded"


#: Members of an Enum are slow to look up.
_SHARED, _HOME, _UNHEEDED = _Place.SHARED, _Place.HOME, _Place.UNHEEDED


class _OfNamespace(Generic[T]):
    """The terms that pods of one namespace bring.

    Attributes:
        shared: terms about other namespaces, each with the nodes of its pods and their number.
        home: terms that hold in the namespace only.
        unheeded: terms that hold nowhere, in the order in which they came.
        beyond: those of ``home`` and ``unheeded`` that are about other namespaces, in the order in which they came.
    """

    def __init__(self) -> None:
        self.shared: dict[T, dict[str, int]] = {}
        self.home: _Filed[T] = _Filed()
        self.unheeded: dict[T, MatchingPods] = {}
        self.beyond: dict[T, None] = {}

    def place(self, term: T) -> _Place | None:
        """Where a term holds; None: no pod brings it."""
        if term in self.shared:
            return _SHARED
        if term in self.home.pods:
            return _HOME
        return _UNHEEDED if term in self.unheeded else None

    def new_place(self, *, about_others: bool) -> _Place:
        """Where a term holds that comes now."""
        if about_others and len(self.shared) < MAX_TERMS_ABOUT_OTHERS:
            return _SHARED
        return _HOME if len(self.home.pods) < MAX_TERMS_AT_HOME else _UNHEEDED

    def __contains__(self, term: T) -> bool:
        return term in self.home.pods or term in self.shared or term in self.unheeded

    def __bool__(self) -> bool:
        return bool(self.shared or self.home.pods or self.unheeded)


class PodTerms(Generic[T]):
    """All terms of one kind: required anti-affinity, or what pods prefer.

    Args:
        namespaces: labels of the namespaces that are known, as they are at any time.
        base: terms that these are added to. It must not change as long as these are asked.
    """

    def __init__(self, namespaces: Mapping[str, Labels], base: PodTerms[T] | None = None) -> None:
        self._namespaces = namespaces
        self._base: PodTerms[T] | None = base
        #: The terms of all namespaces that hold for pods of others.
        self._shared: _Filed[T] = _Filed()
        self._of: dict[str, _OfNamespace[T]] = {}
        #: Answers by namespace and labels, until a term comes or goes that may be among them.
        self._answers: dict[str, dict[Labels, tuple[tuple[T, MatchingPods], ...]]] = {}
        self._kept = 0

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._of) or bool(self._base)

    def change(self, term: T, namespace: str, node: str, delta: int, revision: int) -> None:
        """Adds ``delta`` pods of a namespace with a term on a node; below zero: fewer."""
        own = self._of.get(namespace)
        if own is None:
            own = self._of[namespace] = _OfNamespace()
        pods = own.home.pods.get(term)
        if pods is not None:  # as for most terms of most pods
            pods.change(node, delta, revision)
            if not pods.by_node:
                own.home.remove(term)
                self.forget_answers(namespace)
                self._term_gone(own, term, namespace, revision)
            return
        known, about_others = self.place(term, namespace), term.scope.reaches_beyond(namespace)
        place = own.new_place(about_others=about_others) if known is None else known
        if about_others and place is not _SHARED and term not in own:
            own.beyond[term] = None
        self._count(own, place, term, namespace, node, delta, revision)
        if term not in own:
            self._term_gone(own, term, namespace, revision)

    def _term_gone(self, own: _OfNamespace[T], term: T, namespace: str, revision: int) -> None:
        """No pod of the namespace brings a term any more."""
        own.beyond.pop(term, None)
        if self._base is None:
            self._advance(own, namespace, revision)
        if not own:
            del self._of[namespace]

    def place(self, term: T, namespace: str) -> _Place | None:
        """Where a term of pods of a namespace holds; None: they do not bring it."""
        place = None if self._base is None else self._base.place(term, namespace)
        return self._of[namespace].place(term) if place is None and namespace in self._of else place

    def _count(
        self, own: _OfNamespace[T], place: _Place, term: T, namespace: str, node: str, delta: int, revision: int
    ) -> None:
        base = None if self._base is None else self._base.pods_at(place, term, namespace)
        if place is _SHARED:
            nodes = own.shared.setdefault(term, {})
            nodes[node] = nodes.get(node, 0) + delta
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del own.shared[term]
            if self._shared.change(term, base, node, delta, revision):
                names, selector = term.scope
                for name in names if selector is None else (None,):
                    self.forget_answers(name)
        elif place is _HOME:
            if own.home.change(term, base, node, delta, revision):
                self.forget_answers(namespace)
        else:
            pods = own.unheeded.get(term)
            if pods is None:
                pods = own.unheeded[term] = MatchingPods(revision, base)
            pods.change(node, delta, revision)
            if not pods.by_node:
                del own.unheeded[term]

    def _advance(self, own: _OfNamespace[T], namespace: str, revision: int) -> None:
        """Fills the place of a term that went with the first terms that had no place."""
        while own.beyond and len(own.shared) < MAX_TERMS_ABOUT_OTHERS:
            term = next(iter(own.beyond))
            del own.beyond[term]
            self._move(own, term, _SHARED, namespace, revision)
        while own.unheeded and len(own.home.pods) < MAX_TERMS_AT_HOME:
            self._move(own, next(iter(own.unheeded)), _HOME, namespace, revision)

    def _move(self, own: _OfNamespace[T], term: T, place: _Place, namespace: str, revision: int) -> None:
        before = _HOME if term in own.home.pods else _UNHEEDED
        pods = own.home.pods[term] if before is _HOME else own.unheeded[term]
        for node, count in list(pods.by_node.items()):
            self._count(own, before, term, namespace, node, -count, revision)
            self._count(own, place, term, namespace, node, count, revision)

    def pods_at(self, place: _Place, term: T, namespace: str) -> MatchingPods | None:
        """The pods that bring a term: of all namespaces where it is shared, else those of one."""
        pods = None
        if place is _SHARED:
            pods = self._shared.pods.get(term)
        elif namespace in self._of:
            own = self._of[namespace]
            pods = (own.home.pods if place is _HOME else own.unheeded).get(term)
        return self._base.pods_at(place, term, namespace) if pods is None and self._base is not None else pods

    def forget_answers(self, namespace: str | None = None) -> None:
        """Other terms may speak of the pods of a namespace now, or its labels are others; None: of all namespaces."""
        if namespace is None:
            self._answers.clear()
            self._kept = 0
        elif namespace in self._answers:
            answers = self._answers.pop(namespace)
            self._kept -= sum(_size(labels, answer) for labels, answer in answers.items())

    def find(self, namespace: str, labels: Labels) -> tuple[tuple[T, MatchingPods], ...]:
        """The terms that speak of pods with these labels in this namespace, with the pods that bring them.

        A term may come twice where only some of its pods are within the limit.
        """
        if not self:
            return ()
        answers = self._answers.get(namespace)
        answer = None if answers is None else answers.get(labels)
        if answer is None:
            answer = self._find(namespace, labels)
            if self._kept > _MOST_KEPT:
                self.forget_answers()
            self._answers.setdefault(namespace, {})[labels] = answer
            self._kept += _size(labels, answer)
        return answer

    def _find(self, namespace: str, labels: Labels) -> tuple[tuple[T, MatchingPods], ...]:
        asked = namespace, self._namespaces.get(namespace, ()), labels
        terms = list(self._shared.find(*asked))
        own = self._of.get(namespace)
        if own is not None:
            terms += own.home.find(*asked)
        if self._base is None:
            return tuple(terms)
        for term, pods in self._base.find(namespace, labels):
            at_home = self._base.pods_at(_HOME, term, namespace) is pods
            known = self._shared if not at_home else None if own is None else own.home
            if known is None or term not in known.pods:
                terms.append((term, pods))
        return tuple(terms)

    def beyond_limits(self, terms: Iterable[T], namespace: str) -> tuple[int, int]:
        """Counts terms of running pods of a namespace that hold there only, and terms that hold nowhere."""
        own = self._of.get(namespace)
        if self._base is None and (own is None or not (own.beyond or own.unheeded)):
            return 0, 0  # as in nearly every namespace
        places = [(self.place(term, namespace), term.scope.reaches_beyond(namespace)) for term in terms]
        at_home = sum(place is _HOME and about_others for place, about_others in places)
        return at_home, sum(place is _UNHEEDED for place, _ in places)


def limits_problem(at_home: int, nowhere: int) -> str:
    """What is said of a pod with terms that hold in its namespace only (first number) or nowhere (second)."""
    if not at_home and not nowhere:
        return ""
    return (
        f"of its pod affinity and anti-affinity terms {at_home} hold in its namespace only and {nowhere} for no pod: "
        f"the running pods of a namespace may bring {MAX_TERMS_ABOUT_OTHERS:,} about other namespaces and "
        f"{MAX_TERMS_AT_HOME:,} more"
    )


def _size(labels: Labels, answer: tuple[tuple[T, MatchingPods], ...]) -> int:
    return 1 + len(labels) + len(answer)
