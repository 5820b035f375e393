"""Pods that have a node, as rules between pods see them: how many of each kind on each node.

A kind is all that such a rule can read of a pod. Every pod may be of its own (a StatefulSet labels each with its name),
and there may be far more of them than anybody asks about. So pods are only counted as they come and go; the places
of those that a rule speaks of are put together when it is first asked about, and kept up to date from then on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from flowcore.model.recent import Recent
from flowcore.model.rules import AffinityTerm, Rules, WeightedTerm
from flowcore.model.selectors import Labels, LabelSelector, Requirement

_T = TypeVar("_T", bound=Hashable)
#: Bytes of the crowds that are kept up to date, twice: rules of pods that are gone must not pile up.
_CROWD_BYTES = 2**26
#: Bytes of a crowd, and of each node in it.
_CROWD, _CROWD_NODE = 600, 100


class Kind(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """All that rules between pods can read of a pod, running or waiting.

    Attributes:
        leaving: it is being deleted: spread passes it over, affinity does not.
        rules: what it demands of others; None, as for most pods: nothing.
    """

    namespace: str = ""
    labels: Labels = ()
    leaving: bool = False
    rules: Rules | None = None


#: A pod without labels and rules.
ANY_KIND = Kind()


def term_matches(term: AffinityTerm, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
    """Whether the term of a running pod speaks of a pod with these labels in this namespace."""
    if term.selector is None:
        return False
    in_scope = namespace in term.namespaces or (
        term.namespace_selector is not None and term.namespace_selector.matches(namespace_labels)
    )
    return in_scope and term.selector.matches(labels)


def own_term_matches(term: AffinityTerm, kind: Kind, namespaces: Mapping[str, Labels]) -> bool:
    """Whether the term of a waiting pod speaks of pods of this kind.

    kube-scheduler looks for the namespaces that the selector selects, and then asks the selector once more about a
    namespace without labels (mergeAffinityTermNamespacesIfNotEmpty changes a copy): what accepts that accepts all.
    """
    return term_matches(term, kind.namespace, kind.labels, namespaces.get(kind.namespace, ())) or term_matches(
        term, kind.namespace, kind.labels, ()
    )


class Together(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Pods that each of these terms of a waiting pod, at least one, speaks of."""

    terms: tuple[AffinityTerm, ...]

    @property
    def selector(self) -> LabelSelector | None:
        """What their labels must meet at least."""
        return self.terms[0].selector

    @property
    def reads_namespaces(self) -> bool:
        """Whether labels of namespaces decide who is among them."""
        return any(term.namespace_selector is not None for term in self.terms)

    def includes(self, kind: Kind, namespaces: Mapping[str, Labels]) -> bool:
        """Whether pods of this kind are among them."""
        return all(own_term_matches(term, kind, namespaces) for term in self.terms)


class Alike(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Pods of a namespace that a spread constraint counts: those that the selector selects and that stay."""

    namespace: str
    selector: LabelSelector | None
    reads_namespaces: ClassVar[bool] = False

    def includes(self, kind: Kind, _namespaces: Mapping[str, Labels]) -> bool:
        """Whether pods of this kind are among them."""
        # An empty selector counts no running pod (countPodsMatchSelector), although it selects the new one.
        if self.selector is None or not self.selector.requirements:
            return False
        return kind.namespace == self.namespace and not kind.leaving and self.selector.matches(kind.labels)


class Described(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Pods that a policy's constraint counts: any of the selectors selects them, in namespaces with such labels."""

    selectors: tuple[LabelSelector, ...]
    namespaces: LabelSelector | None

    @property
    def selector(self) -> LabelSelector:
        """What their labels must meet at least."""
        return _at_least(self.selectors)

    @property
    def reads_namespaces(self) -> bool:
        """Whether labels of namespaces decide who is among them."""
        return self.namespaces is not None

    def includes(self, kind: Kind, namespaces: Mapping[str, Labels]) -> bool:
        """Whether pods of this kind are among them."""
        if self.namespaces is not None and not self.namespaces.matches(namespaces.get(kind.namespace, ())):
            return False
        return any(selector.matches(kind.labels) for selector in self.selectors)


#: What pods are counted by.
Description = Together | Alike | Described


def _at_least(selectors: tuple[LabelSelector, ...]) -> LabelSelector:
    """What whatever any of these selects has at least: one of the values that they want of a label, if all want one."""
    if len(selectors) == 1:
        return selectors[0]
    wanted = [{each.key: each.values for each in found.requirements if each.operator == "In"} for found in selectors]
    for key in wanted[0] if wanted else ():
        if all(key in each for each in wanted):
            values = dict.fromkeys(value for each in wanted for value in each[key])
            return LabelSelector((Requirement(key, "In", tuple(values)),))
    return LabelSelector()


class SelectorIndex(Generic[_T]):
    """Things with a selector, found by the labels that it selects without asking every one of them."""

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str], dict[_T, LabelSelector]] = {}
        self._others: dict[_T, LabelSelector] = {}

    def add(self, thing: _T, selector: LabelSelector | None) -> None:
        """Takes one in; one without a selector selects nothing and is never found."""
        if selector is not None:
            pairs = _pairs(selector)
            for pair in pairs or ():
                self._by_pair.setdefault(pair, {})[thing] = selector
            if pairs is None:
                self._others[thing] = selector

    def remove(self, thing: _T, selector: LabelSelector | None) -> None:
        """Takes one out again."""
        for pair in (selector and _pairs(selector)) or ():
            found = self._by_pair.get(pair, {})
            found.pop(thing, None)
            if not found:
                self._by_pair.pop(pair, None)
        self._others.pop(thing, None)

    def find(self, labels: Labels) -> Iterator[_T]:
        """Those that select these labels, each once."""
        for pair in labels if self._by_pair else ():
            for thing, selector in self._by_pair.get(pair, {}).items():
                if selector.matches(labels):
                    yield thing
        for thing, selector in self._others.items():
            if selector.matches(labels):
                yield thing


def _wishes(rules: Rules) -> Iterator[WeightedTerm]:
    """What a running pod would rather have near; a pod that it must have near is one (hardPodAffinityWeight 1)."""
    yield from rules.preferred
    for term in rules.affinity:
        yield WeightedTerm(1, term)


def _pairs(selector: LabelSelector) -> set[tuple[str, str]] | None:
    """Pairs of which a selected object has one; None where nothing of the kind can be said."""
    for requirement in selector.requirements:
        if requirement.operator == "In":
            return {(requirement.key, value) for value in requirement.values}
    return None


class Crowd:
    """How many pods of some description run on each node.

    Attributes:
        by_node: node name -> pods, zeros left out; without those that ran there before what ``Neighbours.plus`` added.
        made, came, went: when it was put together, when a pod last came, when one last went, as ``Neighbours`` counts
            its changes: a crowd for which these are the same has not changed.
    """

    __slots__ = ("_arrays", "_below", "_index", "by_node", "came", "made", "went")

    def __init__(self, made: int = 0, below: Crowd | None = None) -> None:
        self.by_node: dict[str, int] = {}
        self.made = made
        self.came = self.went = 0
        self._below = below
        self._index: Mapping[str, int] | None = None
        self._arrays: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def change(self, node: str, by: int, when: int) -> None:
        """Counts so many more (or fewer) there."""
        if by > 0:
            self.came = when
        else:
            self.went = when
        self._add(node, by)

    def start_with(self, node: str, pods: int) -> None:
        """Counts pods that were there before it was put together."""
        self._add(node, pods)

    def _add(self, node: str, by: int) -> None:
        count = self.by_node.get(node, 0) + by
        if count:
            self.by_node[node] = count
        else:
            self.by_node.pop(node, None)
        self._arrays = None

    def on(self, index: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """int64[K] positions, int64[K] counts, of the nodes that ``index`` (NodeTable.index) knows; some come twice."""
        if self._arrays is None or self._index is not index:
            known = [(index[node], count) for node, count in self.by_node.items() if node in index]
            found = np.array(known, dtype=np.int64).reshape(len(known), 2)
            self._arrays, self._index = (found[:, 0], found[:, 1]), index
        if self._below is None:
            return self._arrays
        positions, counts = self._below.on(index)
        positions = np.concatenate([positions, self._arrays[0]])
        counts = np.concatenate([counts, self._arrays[1]])
        if (self._arrays[1] < 0).any():
            # Whoever asks where pods are must not find a node that the last one has left.
            positions, at = np.unique(positions, return_inverse=True)
            sums = np.zeros(len(positions), dtype=np.int64)
            np.add.at(sums, at, counts)
            positions, counts = positions[sums != 0], sums[sums != 0]
        return positions, counts

    def __bool__(self) -> bool:
        return bool(self.by_node) or bool(self._below)


class Neighbours:
    """All pods that have a node, known or not, and the labels of the namespaces that are known."""

    def __init__(self, namespaces: Mapping[str, Labels] | None = None, below: Neighbours | None = None) -> None:
        self._namespaces: dict[str, Labels] = dict(namespaces or {})
        self._below = below
        self._changes = self._forgotten = 0
        self._counts: dict[Kind, dict[str, int]] = {}
        #: For label keys that were asked about: value -> kinds.
        self._by_label: dict[str, dict[str, dict[Kind, None]]] = {}
        self._crowds: Recent[Description, Crowd] = Recent(_CROWD_BYTES)
        self._interested: SelectorIndex[Description] = SelectorIndex()
        self._repelling: dict[AffinityTerm, Crowd] = {}
        self._repelling_index: SelectorIndex[AffinityTerm] = SelectorIndex()
        self._attracting: dict[WeightedTerm, Crowd] = {}
        self._attracting_index: SelectorIndex[WeightedTerm] = SelectorIndex()

    @classmethod
    def of(cls, pods: Iterable[tuple[str, Kind]], namespaces: Mapping[str, Labels] | None = None) -> Neighbours:
        """Node name and kind of each pod that has not ended."""
        found = cls(namespaces)
        for node, kind in pods:
            found.change(kind, node, 1)
        return found

    def plus(self, placed: Iterable[tuple[str, Kind]], gone: Iterable[tuple[str, Kind]] = ()) -> Neighbours:
        """These and more pods, less some of them, by node name and kind.

        Costs what is placed and gone, and holds until these change.
        """
        found = Neighbours(self._namespaces, below=self)
        for node, kind in placed:
            found.change(kind, node, 1)
        for node, kind in gone:
            found.change(kind, node, -1)
        return found

    @property
    def forgotten(self) -> int:
        """How often crowds were forgotten that nobody asked about: one that is made anew is another than before."""
        return self._forgotten

    @property
    def namespaces(self) -> Mapping[str, Labels]:
        """Namespace -> labels."""
        return self._namespaces

    def counts(self) -> Iterator[tuple[Kind, str, int]]:
        """Kind, node name and number of pods; without those of before ``plus``."""
        for kind, on in self._counts.items():
            for node, count in on.items():
                yield kind, node, count

    # --- changes ---

    def change(self, kind: Kind, node: str, by: int) -> None:
        """So many more (or fewer) pods of a kind run on a node."""
        self._changes += 1
        on = self._counts.get(kind)
        if on is None:
            on = self._counts[kind] = {}
            self._come(kind)
        count = on.get(node, 0) + by
        if count:
            on[node] = count
        else:
            on.pop(node, None)
        for crowd in self._interested.find(kind.labels):
            if crowd.includes(kind, self._namespaces):
                self._crowds[crowd].change(node, by, self._changes)
        # One pod may name a term twice; it is counted once a pod.
        for term in set(kind.rules.anti_affinity) if kind.rules is not None else ():
            self._repel(term, node, by)
        for wish in _wishes(kind.rules) if kind.rules is not None else ():
            self._attract(wish, node, by)
        if not on:
            del self._counts[kind]
            self._go(kind)

    def set_namespace(self, name: str, labels: Labels | None) -> None:
        """Takes a namespace's labels; None: it is gone."""
        if self._namespaces.get(name) == labels:
            return
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        self._changes += 1
        for of in [of for of in self._crowds if of.reads_namespaces]:
            self._crowds.pop(of)
            self._interested.remove(of, of.selector)

    def age(self) -> None:
        """To be called now and then: forgets the rules that nobody asked about since the last call but one."""
        self._forget(self._crowds.age())
        selectors = (of.selector for of in self._crowds)
        used = {key for each in selectors if each is not None for key, _ in _pairs(each) or ()}
        self._by_label = {key: kinds for key, kinds in self._by_label.items() if key in used}

    def _come(self, kind: Kind) -> None:
        if self._by_label:
            for key, value in kind.labels:
                if key in self._by_label:
                    self._by_label[key].setdefault(value, {})[kind] = None

    def _go(self, kind: Kind) -> None:
        if self._by_label:
            for key, value in kind.labels:
                if key in self._by_label:
                    kinds = self._by_label[key][value]
                    del kinds[kind]
                    if not kinds:
                        del self._by_label[key][value]

    def _repel(self, term: AffinityTerm, node: str, by: int) -> None:
        crowd = self._repelling.get(term)
        if crowd is None:
            crowd = self._repelling[term] = Crowd(
                self._changes, None if self._below is None else self._below.bringing(term)
            )
            self._repelling_index.add(term, term.selector)
        crowd.change(node, by, self._changes)
        if not crowd.by_node:
            del self._repelling[term]
            self._repelling_index.remove(term, term.selector)

    def _attract(self, wish: WeightedTerm, node: str, by: int) -> None:
        crowd = self._attracting.get(wish)
        if crowd is None:
            crowd = self._attracting[wish] = Crowd(
                self._changes, None if self._below is None else self._below.wishing(wish)
            )
            self._attracting_index.add(wish, wish.selector)
        crowd.change(node, by, self._changes)
        if not crowd.by_node:
            del self._attracting[wish]
            self._attracting_index.remove(wish, wish.selector)

    # --- questions ---

    @property
    def attracts(self) -> bool:
        """Whether any of these pods would rather have others near, or far."""
        return bool(self._attracting) or (self._below is not None and self._below.attracts)

    def attracted(self, kind: Kind) -> list[tuple[WeightedTerm, Crowd]]:
        """What these pods would rather have of a kind, with the pods that bring it, each as often as it says so.

        Preferred terms, and required affinity with a weight of 1 (hardPodAffinityWeight).
        """
        labels = self._namespaces.get(kind.namespace, ())
        found = [
            (wish, self._attracting[wish])
            for wish in self._attracting_index.find(kind.labels)
            if term_matches(wish.term, kind.namespace, kind.labels, labels)
        ]
        if self._below is None:
            return found
        return found + [each for each in self._below.attracted(kind) if each[0] not in self._attracting]

    @property
    def repelling(self) -> frozenset[AffinityTerm]:
        """Distinct required anti-affinity terms of these pods."""
        own = frozenset(self._repelling)
        return own if self._below is None else own | self._below.repelling

    def repelled(self, kind: Kind) -> list[tuple[AffinityTerm, Crowd]]:
        """Anti-affinity terms of these pods that speak of a kind, with the pods that bring them."""
        labels = self._namespaces.get(kind.namespace, ())
        found = [
            (term, self._repelling[term])
            for term in self._repelling_index.find(kind.labels)
            if term_matches(term, kind.namespace, kind.labels, labels)
        ]
        if self._below is None:
            return found
        return found + [each for each in self._below.repelled(kind) if each[0] not in self._repelling]

    def bringing(self, term: AffinityTerm) -> Crowd | None:
        """The pods that bring a required anti-affinity term."""
        found = self._repelling.get(term)
        return self._below.bringing(term) if found is None and self._below is not None else found

    def wishing(self, wish: WeightedTerm) -> Crowd | None:
        """The pods that would rather have others near in these words."""
        found = self._attracting.get(wish)
        return self._below.wishing(wish) if found is None and self._below is not None else found

    def crowd(self, of: Description) -> Crowd:
        """The pods of a description; up to date for as long as this is asked again."""
        found = self._crowds.get(of)
        if found is None:
            found = Crowd(self._changes, None if self._below is None else self._below.crowd(of))
            for kind in self._candidates(of.selector):
                if of.includes(kind, self._namespaces):
                    for node, count in self._counts[kind].items():
                        found.start_with(node, count)
            self._forget(self._crowds.put(of, found, _CROWD + _CROWD_NODE * len(found.by_node)))
            self._interested.add(of, of.selector)
        return found

    def _forget(self, crowds: Sequence[Description]) -> None:
        self._forgotten += bool(crowds)
        for of in crowds:
            self._interested.remove(of, of.selector)

    def _candidates(self, selector: LabelSelector | None) -> list[Kind]:
        """Kinds that the selector may select, and not many others."""
        if selector is None:
            return []
        pairs = _pairs(selector)
        if pairs is None:
            return list(self._counts)
        return [kind for key, value in pairs for kind in self._of_label(key).get(value, ())]

    def _of_label(self, key: str) -> dict[str, dict[Kind, None]]:
        found = self._by_label.get(key)
        if found is None:
            found = self._by_label[key] = {}
            for kind in self._counts:
                for name, value in kind.labels:
                    if name == key:
                        found.setdefault(value, {})[kind] = None
        return found
