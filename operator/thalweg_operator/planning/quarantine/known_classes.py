"""KnownClasses: classes of pods that could be planned before."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class KnownClasses:
    """The classes that were planned last. Only their hashes are kept: a class may have a hundred terms.

    Attributes:
        maxlen: how many are remembered.
    """

    maxlen = 10_000

    def __init__(self) -> None:
        #: Of each class the hashes of its namespace and of all of it, the last planned last.
        self._classes: dict[tuple[int, int], None] = {}

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, pod_class: tuple[Hashable, ...]) -> bool:
        return _short(pod_class) in self._classes

    def planned(self, classes: Iterable[tuple[Hashable, ...]]) -> None:
        """Notes that these classes could be planned. A class begins with its namespace."""
        for key in map(_short, classes):
            self._classes.pop(key, None)
            self._classes[key] = None
        while len(self._classes) > self.maxlen:
            del self._classes[next(iter(self._classes))]

    def failed(self, pod_class: tuple[Hashable, ...]) -> None:
        """A round with pods of this class failed."""
        self._classes.pop(_short(pod_class), None)

    @property
    def namespaces(self) -> set[int]:
        """Hashes of those of which a class could be planned."""
        return {namespace for namespace, _ in self._classes}


def _short(pod_class: tuple[Hashable, ...]) -> tuple[int, int]:
    return hash(pod_class[0]), hash(pod_class)
