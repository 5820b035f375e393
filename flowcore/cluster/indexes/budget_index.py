"""PodDisruptionBudgets by namespace, and which of them protect a pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import islice
from typing import Final

from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.pods import Pod
from flowcore.model.selector_index import SelectorIndex
from flowcore.model.selectors import Labels

#: Budgets that are found for a pod. With two it cannot be evicted, and others need not be found.
_MOST: Final = 8
#: Budgets that are tested for a pod. If more may select it, it counts as selected by them: a namespace with very many
#: budgets that no label tells apart keeps its own pods from leaving, and costs others nothing.
MAX_TESTED: Final = 64
#: Kinds of pods that are tested with a changed budget. With more, some of them counts as selected.
_MAX_KINDS: Final = 256


class BudgetIndex:
    """PodDisruptionBudgets by namespace. A budget protects pods of its own namespace only.

    Attributes:
        objects: all budgets by key.
    """

    def __init__(self) -> None:
        self.objects: dict[str, DisruptionBudget] = {}
        #: By namespace: how many pods with a node have which labels.
        self._placed: dict[str, Counter[Labels]] = {}
        self._by_namespace: dict[str, SelectorIndex[str]] = {}
        self._changed: set[str] = set()

    def count_pod(self, pod: Pod, by: int) -> None:
        """Adds ``by`` pods like this with a node; below zero: fewer."""
        counts = self._placed.setdefault(pod.namespace, Counter())
        counts[pod.labels] += by
        if not counts[pod.labels]:
            del counts[pod.labels]
            if not counts:
                del self._placed[pod.namespace]
                self._changed.discard(pod.namespace)

    def set(self, key: str, budget: DisruptionBudget | None) -> bool:
        """Takes a new or changed budget; None: it is gone. Whether more pods with a node may be evicted now."""
        before = self.objects.pop(key, None)
        if budget is not None:
            self.objects[key] = budget
        same = (before and before.selector) == (budget and budget.selector)  # most changes are of the status
        if not same:
            self._file(key, budget)
        if before is None or (budget is not None and same and budget.allowed <= before.allowed):
            return False
        protected, placed = before.selector, self._placed.get(before.namespace, ())
        if protected is None:
            return False
        return len(placed) > _MAX_KINDS or any(protected.matches(labels) for labels in placed)

    def _file(self, key: str, budget: DisruptionBudget | None) -> None:
        namespace = key.partition("/")[0]
        index = self._by_namespace.setdefault(namespace, SelectorIndex())
        index.remove(key)
        if budget is not None:
            index.add(key, budget.selector)
        if not len(index):
            del self._by_namespace[namespace]
        if namespace in self._placed:
            self._changed.add(namespace)

    def of(self, pod: Pod) -> tuple[str, ...]:
        """Keys of the budgets that protect a pod, sorted; of very many only some."""
        index = self._by_namespace.get(pod.namespace)
        if index is None:
            return ()
        candidates = list(islice(index.candidates(pod.labels), MAX_TESTED + 1))
        names = candidates if len(candidates) > MAX_TESTED else index.find(pod.labels)
        return tuple(sorted(islice(names, _MOST)))

    def take_changed_namespaces(self) -> Collection[str]:
        """Namespaces where other budgets may protect a pod that has a node than at the last call."""
        changed, self._changed = self._changed, set()
        return changed
