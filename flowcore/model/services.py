"""Services as the default spread of pods reads them (``model/default_spread.py``): by what labels they select pods.

Source: kube-scheduler plugins/helper/spread.go (GetPodServices, DefaultSelector).
"""

from __future__ import annotations

from collections import Counter

import msgspec

from flowcore.model.selector_index import SelectorIndex
from flowcore.model.selectors import Labels, LabelSelector, Requirement


class Service(msgspec.Struct, frozen=True, gc=False):
    """A Service, of whatever type. ``selector``: labels that its pods have; () selects no pod."""

    namespace: str
    name: str
    selector: Labels = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class ServiceIndex:
    """Services by namespace and by what they select. Services that select by the same labels are filed once.

    Attributes:
        objects: all Services by key.
        version: rises whenever other pods are selected.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Service] = {}
        self.version = 0
        self._by_namespace: dict[str, SelectorIndex[Labels]] = {}
        #: How many Services of a namespace select by the same labels.
        self._alike: Counter[tuple[str, Labels]] = Counter()

    def put(self, key: str, service: Service | None) -> bool:
        """Takes a new or changed Service; None: it is gone. Whether other pods are selected now."""
        before = self.objects.pop(key, None)
        if service is not None:
            self.objects[key] = service
        selected, selects = before.selector if before else (), service.selector if service else ()
        if selected == selects:
            return False
        self.version += 1
        namespace = key.partition("/")[0]
        if selects:
            self._file(namespace, selects)
        if selected:
            self._unfile(namespace, selected)
        return True

    def selector_of(self, namespace: str, labels: Labels) -> LabelSelector | None:
        """What all Services that select a pod with these labels select by together; None: none does."""
        index = self._by_namespace.get(namespace)
        if index is None:
            return None
        pairs = {pair for selector in index.find(labels) for pair in selector}
        return LabelSelector(_equal_to(sorted(pairs))) if pairs else None

    def _file(self, namespace: str, selector: Labels) -> None:
        self._alike[namespace, selector] += 1
        if self._alike[namespace, selector] == 1:
            index = self._by_namespace.setdefault(namespace, SelectorIndex())
            index.add(selector, LabelSelector(_equal_to(selector)))

    def _unfile(self, namespace: str, selector: Labels) -> None:
        self._alike[namespace, selector] -= 1
        if not self._alike[namespace, selector]:
            del self._alike[namespace, selector]
            self._by_namespace[namespace].remove(selector)
            if not len(self._by_namespace[namespace]):
                del self._by_namespace[namespace]


def _equal_to(pairs: list[tuple[str, str]] | Labels) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, "In", (value,)) for key, value in pairs)
