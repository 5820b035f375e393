"""Pods that have a node, as rules between pods see them: how many of each kind on each node.

A kind is all that such a rule can read of a pod. Every pod may be of its own (a StatefulSet labels each with its name),
and there may be far more of them than anybody asks about. So pods are only counted as they come and go; the places
of those that a rule speaks of are put together when it is first asked about, and kept up to date from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from flowcore.model.generational_cache import GenerationalCache
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, WeightedTerm
from flowcore.model.matching_pods import MatchingPods
from flowcore.model.pod_terms import PodTerms, limits_problem
from flowcore.model.selector_index import EVERYWHERE, Scope, ScopedIndex, label_pairs
from flowcore.model.selectors import Labels, LabelSelector, Requirement
from flowcore.model.services import ServiceIndex

#: Bytes of the crowds that are kept up to date, twice: rules of pods that are gone must not pile up.
_CACHE_BYTES = 2**26
#: Among a pod's labels, as rules between pods see them, its ReplicaSet, StatefulSet or ReplicationController: its uid.
#: No label has this key, and it comes before all of them.
CONTROLLER = "(controller)"
#: Bytes of a crowd, and of each node in it.
_ENTRY_BYTES, _NODE_BYTES = 600, 100


class PodSignature(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """All that rules between pods can read of a pod, running or waiting.

    Attributes:
        labels: its own, and its controller as one (``CONTROLLER``).
        deleting: it is being deleted: spread passes it over, affinity does not.
        constraints: what it demands of others; None, as for most pods: nothing.
    """

    namespace: str = ""
    labels: Labels = ()
    deleting: bool = False
    constraints: InterPodConstraints | None = None


#: A pod without labels and rules.
EMPTY_SIGNATURE = PodSignature()


def term_matches(term: AffinityTerm, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
    """Whether the term of a running pod speaks of a pod with these labels in this namespace."""
    if term.selector is None:
        return False
    in_scope = namespace in term.namespaces or (
        term.namespace_selector is not None and term.namespace_selector.matches(namespace_labels)
    )
    return in_scope and term.selector.matches(labels)


def incoming_term_matches(term: AffinityTerm, signature: PodSignature, namespaces: Mapping[str, Labels]) -> bool:
    """Whether the term of another pod, running or placed by the round, matches pods of this signature."""
    return term_matches(term, signature.namespace, signature.labels, namespaces.get(signature.namespace, ()))


def own_term_matches(term: AffinityTerm, signature: PodSignature, namespaces: Mapping[str, Labels]) -> bool:
    """Whether the term of a waiting pod speaks of pods of this kind.

    kube-scheduler before 1.37 looks for the namespaces that the selector selects, and then asks the selector once more
    about a namespace without labels (mergeAffinityTermNamespacesIfNotEmpty changes a copy): what accepts that accepts
    all.
    """
    if term.selector is None or not term.selector.matches(signature.labels):
        return False
    if signature.namespace in term.namespaces or term.accepts_every_namespace:
        return True
    selector, labels = term.namespace_selector, namespaces.get(signature.namespace)
    if selector is None or (labels is None and selector.requirements):
        return False
    return selector.matches(labels or ())


class AffinityMatch(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Pods that each of these terms of a waiting pod, at least one, speaks of."""

    terms: tuple[AffinityTerm, ...]

    @property
    def selector(self) -> LabelSelector | None:
        """What their labels must meet at least."""
        return self.terms[0].selector

    @property
    def scope(self) -> Scope:
        """Their namespaces, and maybe more; see ``own_term_matches``."""
        term = self.terms[0]
        selects_all = term.namespace_selector is not None and not term.namespace_selector.requirements
        return EVERYWHERE if term.accepts_every_namespace or selects_all else term.scope

    @property
    def reads_namespaces(self) -> bool:
        """Whether labels of namespaces decide who is among them."""
        return any(term.namespace_selector is not None for term in self.terms)

    def includes(self, signature: PodSignature, namespaces: Mapping[str, Labels]) -> bool:
        """Whether pods of this kind are among them."""
        return all(own_term_matches(term, signature, namespaces) for term in self.terms)


class SpreadMatch(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Pods of a namespace that a spread constraint counts: its selector selects them, and they stay."""

    namespace: str
    selector: LabelSelector | None
    reads_namespaces: ClassVar[bool] = False

    @property
    def scope(self) -> Scope:
        """Their namespace."""
        return Scope((self.namespace,))

    def includes(self, signature: PodSignature, _namespaces: Mapping[str, Labels]) -> bool:
        """Whether pods of this kind are among them."""
        # An empty selector counts no running pod (countPodsMatchSelector), although it selects the new one.
        if self.selector is None or not self.selector.requirements:
            return False
        return (
            signature.namespace == self.namespace and not signature.deleting and self.selector.matches(signature.labels)
        )


class ConstraintMatch(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Pods that a policy counts: any of the selectors selects them and none of ``unless``, in namespaces like that."""

    selectors: tuple[LabelSelector, ...]
    namespaces: LabelSelector | None
    unless: tuple[LabelSelector, ...] = ()

    @property
    def selector(self) -> LabelSelector:
        """What their labels must meet at least."""
        return _common_requirement(self.selectors)

    @property
    def scope(self) -> Scope:
        """Their namespaces."""
        return EVERYWHERE if self.namespaces is None else Scope((), self.namespaces)

    @property
    def reads_namespaces(self) -> bool:
        """Whether labels of namespaces decide who is among them."""
        return self.namespaces is not None

    def includes(self, signature: PodSignature, namespaces: Mapping[str, Labels]) -> bool:
        """Whether pods of this kind are among them."""
        if self.namespaces is not None and not self.namespaces.matches(namespaces.get(signature.namespace, ())):
            return False
        selected = any(selector.matches(signature.labels) for selector in self.selectors)
        return selected and not any(selector.matches(signature.labels) for selector in self.unless)


class StayingMatch(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The pods of another match that are not being deleted."""

    pods: AffinityMatch | ConstraintMatch

    @property
    def selector(self) -> LabelSelector | None:
        """What their labels must meet at least."""
        return self.pods.selector

    @property
    def scope(self) -> Scope:
        """Their namespaces."""
        return self.pods.scope

    @property
    def reads_namespaces(self) -> bool:
        """Whether labels of namespaces decide who is among them."""
        return self.pods.reads_namespaces

    def includes(self, signature: PodSignature, namespaces: Mapping[str, Labels]) -> bool:
        """Whether pods of this kind are among them."""
        return not signature.deleting and self.pods.includes(signature, namespaces)


#: What pods are counted by.
PodMatch = AffinityMatch | StayingMatch | SpreadMatch | ConstraintMatch


def _common_requirement(selectors: tuple[LabelSelector, ...]) -> LabelSelector:
    """A selector that selects at least what these select: by one label of which all want certain values."""
    if len(selectors) == 1:
        return selectors[0]
    wanted = [
        {requirement.key: requirement.values for requirement in selector.requirements if requirement.operator == "In"}
        for selector in selectors
    ]
    for key in wanted[0] if wanted else ():
        if all(key in each for each in wanted):
            values = dict.fromkeys(value for each in wanted for value in each[key])
            return LabelSelector((Requirement(key, "In", tuple(values)),))
    return LabelSelector()


def _preferred_terms(constraints: InterPodConstraints) -> Iterator[WeightedTerm]:
    """Preferred terms of a running pod; its required affinity terms are among them (hardPodAffinityWeight 1)."""
    yield from constraints.preferred
    for term in constraints.affinity:
        yield WeightedTerm(1, term)


class PodIndex:
    """All pods that have a node, known or not, the labels of the namespaces that are known, and the Services.

    Attributes:
        services: by which pods are selected that are counted together.
        anti_affinity: their required anti-affinity terms.
        preferred: their preferred terms, and required affinity with a weight of 1 (hardPodAffinityWeight).
    """

    def __init__(self, namespaces: Mapping[str, Labels] | None = None, base: PodIndex | None = None) -> None:
        self._namespaces: dict[str, Labels] = dict(namespaces or {})
        self._base = base
        self.services: ServiceIndex = ServiceIndex() if base is None else base.services
        self._revision = self._forgotten = 0
        self._counts: dict[PodSignature, dict[str, int]] = {}
        #: Kinds by namespace.
        self._by_namespace: dict[str, dict[PodSignature, None]] = {}
        #: For label keys that were asked about: value -> kinds.
        self._by_label: dict[str, dict[str, dict[PodSignature, None]]] = {}
        self._matching: GenerationalCache[PodMatch, MatchingPods] = GenerationalCache(_CACHE_BYTES)
        self._match_index: ScopedIndex[PodMatch] = ScopedIndex()
        self.anti_affinity: PodTerms[AffinityTerm] = PodTerms(
            self._namespaces, None if base is None else base.anti_affinity
        )
        self.preferred: PodTerms[WeightedTerm] = PodTerms(self._namespaces, None if base is None else base.preferred)

    @classmethod
    def of(cls, pods: Iterable[tuple[str, PodSignature]], namespaces: Mapping[str, Labels] | None = None) -> PodIndex:
        """Node name and kind of each pod that has not ended."""
        pod_index = cls(namespaces)
        for node, signature in pods:
            pod_index.change(signature, node, 1)
        return pod_index

    def with_changes(
        self, placed: Iterable[tuple[str, PodSignature]], gone: Iterable[tuple[str, PodSignature]] = ()
    ) -> PodIndex:
        """The index with more pods, and less some of its own.

        Costs what is placed and gone, and holds until these change.
        """
        changed = PodIndex(self._namespaces, base=self)
        for node, signature in placed:
            changed.change(signature, node, 1)
        for node, signature in gone:
            changed.change(signature, node, -1)
        return changed

    @property
    def forgotten(self) -> int:
        """How often unread crowds were forgotten: one that is made anew differs from the one before."""
        return self._forgotten

    @property
    def namespaces(self) -> Mapping[str, Labels]:
        """Namespace -> labels."""
        return self._namespaces

    def has_pods_of(self, namespace: str) -> bool:
        """Whether a pod of a namespace has a node; without those of before ``with_changes``."""
        return namespace in self._by_namespace

    def counts(self) -> Iterator[tuple[PodSignature, str, int]]:
        """Kind, node name and number of pods; without those of before ``with_changes``."""
        return ((signature, node, count) for signature, on in self._counts.items() for node, count in on.items())

    def copy_counts(self) -> dict[PodSignature, dict[str, int]]:
        """The same by kind and node name, as it is now."""
        return {signature: dict(on) for signature, on in self._counts.items()}

    # --- changes ---

    def change(self, signature: PodSignature, node: str, delta: int) -> None:
        """Adds ``delta`` pods of a kind on a node; below zero: fewer."""
        self._revision += 1
        self._count(signature, node, delta)
        if len(self._matching):
            for pod_match in self._matches(signature):
                self._matching[pod_match].change(node, delta, self._revision)
        if signature.constraints is not None:
            namespace = signature.namespace
            # One pod may name a term twice; it is counted once a pod.
            for term in dict.fromkeys(signature.constraints.anti_affinity):
                self.anti_affinity.change(term, namespace, node, delta, self._revision)
            for weighted_term in _preferred_terms(signature.constraints):
                self.preferred.change(weighted_term, namespace, node, delta, self._revision)

    def exchange(self, before: PodSignature, after: PodSignature, node: str) -> None:
        """A pod on a node is of another kind than before. What both kinds bring stays, and costs nothing."""
        if before == after:
            return
        if (before.namespace, before.constraints) != (after.namespace, after.constraints):
            self.change(before, node, -1)
            self.change(after, node, 1)
            return
        self._revision += 1
        self._count(before, node, -1)
        self._count(after, node, 1)
        if len(self._matching):
            left, came = set(self._matches(before)), set(self._matches(after))
            for pod_match in left - came:
                self._matching[pod_match].change(node, -1, self._revision)
            for pod_match in came - left:
                self._matching[pod_match].change(node, 1, self._revision)

    def _count(self, signature: PodSignature, node: str, delta: int) -> None:
        on = self._counts.get(signature)
        if on is None:
            on = self._counts[signature] = {}
            self._index(signature)
        if count := on.get(node, 0) + delta:
            on[node] = count
        else:
            on.pop(node, None)
        if not on:
            del self._counts[signature]
            self._unindex(signature)

    def _matches(self, signature: PodSignature) -> list[PodMatch]:
        """What was asked about and includes pods of a kind."""
        namespace, namespaces = signature.namespace, self._namespaces
        asked = self._match_index.find(namespace, namespaces.get(namespace, ()), signature.labels)
        return [pod_match for pod_match in asked if pod_match.includes(signature, namespaces)]

    def set_namespace(self, name: str, labels: Labels | None) -> None:
        """Takes a namespace's labels; None: it is gone."""
        if self._namespaces.get(name) == labels:
            return
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        self._revision += 1
        for pod_match in [of for of in self._matching if of.reads_namespaces]:
            self._matching.pop(pod_match)
            self._match_index.remove(pod_match)
        self.anti_affinity.forget_answers(name)
        self.preferred.forget_answers(name)

    def age(self) -> None:
        """Forgets the rules that were not read since the last call but one. To be called now and then."""
        self._forget(self._matching.age())
        self.anti_affinity.forget_answers()
        self.preferred.forget_answers()
        selectors = (of.selector for of in self._matching)
        used = {key for each in selectors if each is not None for key, _ in label_pairs(each) or ()}
        self._by_label = {key: signatures for key, signatures in self._by_label.items() if key in used}

    def _index(self, signature: PodSignature) -> None:
        self._by_namespace.setdefault(signature.namespace, {})[signature] = None
        for key, value in signature.labels if self._by_label else ():
            if key in self._by_label:
                self._by_label[key].setdefault(value, {})[signature] = None

    def _unindex(self, signature: PodSignature) -> None:
        kinds = self._by_namespace[signature.namespace]
        del kinds[signature]
        if not kinds:
            del self._by_namespace[signature.namespace]
        for key, value in signature.labels if self._by_label else ():
            if key in self._by_label:
                signatures = self._by_label[key][value]
                del signatures[signature]
                if not signatures:
                    del self._by_label[key][value]

    # --- questions ---

    @property
    def has_terms(self) -> bool:
        """Whether any of these pods has a rule about others that holds for them too."""
        return bool(self.anti_affinity or self.preferred)

    def preferred_terms_for(self, signature: PodSignature) -> tuple[tuple[WeightedTerm, MatchingPods], ...]:
        """What these pods would rather have of a kind, with the pods that bring it, each as often as it says so.

        Preferred terms, and required affinity with a weight of 1 (hardPodAffinityWeight).
        """
        return self.preferred.find(signature.namespace, signature.labels)

    def anti_affinity_terms_for(self, signature: PodSignature) -> tuple[tuple[AffinityTerm, MatchingPods], ...]:
        """Required anti-affinity terms of these pods that speak of a kind, with the pods that bring them."""
        return self.anti_affinity.find(signature.namespace, signature.labels)

    def terms_problem(self, signature: PodSignature) -> str:
        """Why rules of pods of this kind, which are among these, do not hold for all others; "": they do."""
        rules = signature.constraints
        if rules is None:
            return ""
        required = self.anti_affinity.beyond_limits(rules.anti_affinity, signature.namespace)
        preferred = self.preferred.beyond_limits(_preferred_terms(rules), signature.namespace)
        return limits_problem(required[0] + preferred[0], required[1] + preferred[1])

    def matching_pods(self, pod_match: PodMatch) -> MatchingPods:
        """The pods that match, kept up to date for as long as they are asked for."""
        matching = self._matching.get(pod_match)
        if matching is None:
            matching = MatchingPods(self._revision, None if self._base is None else self._base.matching_pods(pod_match))
            for signature in self._candidates(pod_match):
                if pod_match.includes(signature, self._namespaces):
                    for node, count in self._counts[signature].items():
                        matching.add_existing(node, count)
            self._forget(self._matching.put(pod_match, matching, _ENTRY_BYTES + _NODE_BYTES * len(matching.by_node)))
            self._match_index.add(pod_match)
        return matching

    def is_at_hand(self, pod_match: PodMatch, most: int) -> bool:
        """Whether ``matching_pods`` has its answer, or looks at so many kinds of pods at most.

        Of an index without changes of ``with_changes``.
        """
        if pod_match in self._matching or len(self._counts) <= most:
            return True
        pairs = () if pod_match.selector is None else label_pairs(pod_match.selector)
        if pairs is None:
            names, selector = pod_match.scope
            return selector is None and sum(len(self._by_namespace.get(name, ())) for name in set(names)) <= most
        if not all(key in self._by_label for key, _ in pairs):
            return False
        return sum(len(self._by_label[key].get(value, ())) for key, value in pairs) <= most

    def _forget(self, pod_matches: Sequence[PodMatch]) -> None:
        self._forgotten += bool(pod_matches)
        for pod_match in pod_matches:
            self._match_index.remove(pod_match)

    def _candidates(self, pod_match: PodMatch) -> list[PodSignature]:
        """Signatures that may match; all that do are among them, and few others."""
        if pod_match.selector is None:
            return []
        pairs = label_pairs(pod_match.selector)
        if pairs is None:
            names, selector = pod_match.scope
            if selector is not None:
                return list(self._counts)
            return [signature for name in dict.fromkeys(names) for signature in self._by_namespace.get(name, ())]
        return [signature for key, value in pairs for signature in self._of_label(key).get(value, ())]

    def _of_label(self, key: str) -> dict[str, dict[PodSignature, None]]:
        by_value = self._by_label.get(key)
        if by_value is None:
            by_value = self._by_label[key] = {}
            for signature in self._counts:
                for name, value in signature.labels:
                    if name == key:
                        by_value.setdefault(value, {})[signature] = None
        return by_value
