"""Indexes of items by their label selectors, and by the namespaces that they are about."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from flowcore.model.selectors import Labels, LabelSelector, Requirement

_T = TypeVar("_T", bound=Hashable)


class Scope(NamedTuple):
    """The namespaces that an item is about: by name, and by a selector of their labels.

    Attributes:
        selector: None: it selects none.
    """

    names: tuple[str, ...]
    selector: LabelSelector | None = None

    def reaches_beyond(self, namespace: str) -> bool:
        """Whether there may be other namespaces than this one in it."""
        return self.selector is not None or (len(self.names) > 0 and set(self.names) != {namespace})


#: The scope of what is about all namespaces.
EVERYWHERE = Scope((), LabelSelector())


class Scoped(Hashable, Protocol):
    """An item about the pods that a selector selects in some namespaces."""

    @property
    def selector(self) -> LabelSelector | None:
        """None: it selects nothing."""

    @property
    def scope(self) -> Scope:
        """The namespaces of these pods."""


_S = TypeVar("_S", bound=Scoped)


class SelectorIndex(Generic[_T]):
    """Items with a selector, found by labels without a test of every item.

    An item is filed under one of its requirements: under each value of ``In``, or under the key of ``Exists``. Where it
    has several, the requirement with the fewest items decides. An item without such a requirement is tested each time.
    """

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str], dict[_T, LabelSelector]] = {}
        self._by_key: dict[str, dict[_T, LabelSelector]] = {}
        self._others: dict[_T, LabelSelector] = {}
        #: The requirement under which each item is filed.
        self._filed: dict[_T, Requirement | None] = {}

    def __len__(self) -> int:
        return len(self._filed)

    def __contains__(self, item: object) -> bool:
        return item in self._filed

    def add(self, item: _T, selector: LabelSelector | None) -> None:
        """Adds an item; without a selector it selects nothing and is never found."""
        if selector is None:
            return
        requirements = [each for each in selector.requirements if each.operator in ("In", "Exists")]
        requirement = min(requirements, key=self._items_beside) if len(requirements) > 1 else None
        if len(requirements) == 1:
            requirement = requirements[0]
        self._filed[item] = requirement
        if requirement is None:
            self._others[item] = selector
        elif requirement.operator == "Exists":
            self._by_key.setdefault(requirement.key, {})[item] = selector
        else:
            for value in requirement.values:
                self._by_pair.setdefault((requirement.key, value), {})[item] = selector

    def _items_beside(self, requirement: Requirement) -> int:
        """How many items are filed under a requirement, where there are most."""
        if requirement.operator == "Exists":
            return len(self._by_key.get(requirement.key, ()))
        return max((len(self._by_pair.get((requirement.key, value), ())) for value in requirement.values), default=0)

    def remove(self, item: _T) -> None:
        """Removes an item, if it is there."""
        requirement = self._filed.pop(item, None)
        if requirement is None:
            self._others.pop(item, None)
        elif requirement.operator == "Exists":
            _remove(self._by_key, requirement.key, item)
        else:
            for value in dict.fromkeys(requirement.values):
                _remove(self._by_pair, (requirement.key, value), item)

    def find(self, labels: Labels) -> Iterator[_T]:
        """The items that select these labels, each once."""
        if not self._filed:
            return
        values = dict(labels)
        for items in self._beside(labels, values):
            yield from _selecting(items, values)

    def candidates(self, labels: Labels) -> Iterator[_T]:
        """The items that ``find`` tests, each once: those that select these labels, and not many others."""
        for items in self._beside(labels, dict(labels)):
            yield from items

    def _beside(self, labels: Labels, values: Mapping[str, str]) -> Iterator[Mapping[_T, LabelSelector]]:
        for pair in labels if self._by_pair else ():
            yield self._by_pair.get(pair, {})
        for key in values if self._by_key else ():
            yield self._by_key.get(key, {})
        yield self._others


_K = TypeVar("_K")


def _remove(filed: dict[_K, dict[_T, LabelSelector]], place: _K, item: _T) -> None:
    del filed[place][item]
    if not filed[place]:
        del filed[place]


def _selecting(items: Mapping[_T, LabelSelector], values: Mapping[str, str]) -> Iterator[_T]:
    return (item for item, selector in items.items() if selector.selects(values))


class ScopedIndex(Generic[_S]):
    """Items about the pods of some namespaces, found by namespace and labels.

    An item that names its namespaces is looked at for pods of those only. Items with a selector of namespaces are found
    by labels first: each of them may have a selector of its own, and most of those may select the namespace.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, SelectorIndex[_S]] = {}
        self._with_selector: SelectorIndex[_S] = SelectorIndex()

    def add(self, item: _S) -> None:
        """Adds an item."""
        names, selector = item.scope
        for name in dict.fromkeys(names) if len(names) > 1 else names:
            index = self._by_name.get(name)
            if index is None:
                index = self._by_name[name] = SelectorIndex()
            index.add(item, item.selector)
        if selector is not None:
            self._with_selector.add(item, item.selector)

    def remove(self, item: _S) -> None:
        """Removes an item."""
        names, selector = item.scope
        for name in dict.fromkeys(names) if len(names) > 1 else names:
            index = self._by_name.get(name)
            if index is not None:
                index.remove(item)
                if not len(index):
                    del self._by_name[name]
        if selector is not None:
            self._with_selector.remove(item)

    def find(self, namespace: str, namespace_labels: Labels, labels: Labels) -> Iterator[_S]:
        """The items that are about pods with these labels in this namespace, each once."""
        named = self._by_name.get(namespace)
        if named is not None:
            yield from named.find(labels)
        if not len(self._with_selector):
            return
        values = dict(namespace_labels)
        for item in self._with_selector.find(labels):
            selector = item.scope.selector
            if selector is not None and selector.selects(values) and (named is None or item not in named):
                yield item


def label_pairs(selector: LabelSelector) -> set[tuple[str, str]] | None:
    """Labels such that each selected object has at least one of them; None: there is no such set."""
    for requirement in selector.requirements:
        if requirement.operator == "In":
            return {(requirement.key, value) for value in requirement.values}
    return None
