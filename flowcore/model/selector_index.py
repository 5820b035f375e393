"""An index of items by their label selectors."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from flowcore.model.selectors import Labels, LabelSelector

_T = TypeVar("_T", bound=Hashable)


class SelectorIndex(Generic[_T]):
    """Items with a selector, found by labels that it selects without a test of every item."""

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str], dict[_T, LabelSelector]] = {}
        self._others: dict[_T, LabelSelector] = {}

    def add(self, item: _T, selector: LabelSelector | None) -> None:
        """Adds an item; without a selector it selects nothing and is never found."""
        if selector is not None:
            pairs = label_pairs(selector)
            for pair in pairs or ():
                self._by_pair.setdefault(pair, {})[item] = selector
            if pairs is None:
                self._others[item] = selector

    def remove(self, item: _T, selector: LabelSelector | None) -> None:
        """Removes an item."""
        for pair in (selector and label_pairs(selector)) or ():
            found = self._by_pair.get(pair, {})
            found.pop(item, None)
            if not found:
                self._by_pair.pop(pair, None)
        self._others.pop(item, None)

    def find(self, labels: Labels) -> Iterator[_T]:
        """The items that select these labels, each once."""
        for pair in labels if self._by_pair else ():
            for item, selector in self._by_pair.get(pair, {}).items():
                if selector.matches(labels):
                    yield item
        for item, selector in self._others.items():
            if selector.matches(labels):
                yield item


def label_pairs(selector: LabelSelector) -> set[tuple[str, str]] | None:
    """Labels of which a selected object has at least one; None where there is no such set."""
    for requirement in selector.requirements:
        if requirement.operator == "In":
            return {(requirement.key, value) for value in requirement.values}
    return None
