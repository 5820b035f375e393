"""Answers that were asked for lately, within a limit in bytes.

Source: generational garbage collection. There are two generations. An entry that is asked for moves to the newer one.
When a generation ends, all entries of the older one are forgotten: they were not read during a whole generation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
#: Bytes of an entry beside its key and its value: a place in a dict, a tuple.
_ENTRY = 160


def estimate_bytes(value: object) -> int:
    """About how many bytes a value of the model holds. Parts that several values share count for each."""
    if isinstance(value, str):
        return 56 + len(value)
    if isinstance(value, tuple):
        return 56 + sum(8 + estimate_bytes(each) for each in value)
    if isinstance(value, msgspec.Struct):
        return 64 + sum(8 + estimate_bytes(getattr(value, name)) for name in value.__struct_fields__)
    return sys.getsizeof(value)


class GenerationalCache(Generic[K, V]):
    """A mapping that forgets entries that were not read during a whole generation.

    Args:
        max_bytes: bytes that end a generation. At most about twice as many are held.
    """

    __slots__ = ("_bytes", "_most", "_newer", "_older")

    def __init__(self, max_bytes: int) -> None:
        self._most = max_bytes
        self._bytes = 0
        self._newer: dict[K, tuple[V, int]] = {}
        self._older: dict[K, tuple[V, int]] = {}

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def __contains__(self, key: K) -> bool:
        """Whether a key has a value; it does not count as read."""
        return key in self._newer or key in self._older

    def __iter__(self) -> Iterator[K]:
        yield from self._older
        yield from self._newer

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return self._bytes + sum(nbytes for _, nbytes in self._older.values())

    def get(self, key: K) -> V | None:
        """The value of a key; None: there is none. The entry counts as read."""
        entry = self._newer.get(key)
        if entry is None:
            entry = self._older.pop(key, None)
            if entry is None:
                return None
            self._newer[key] = entry
            self._bytes += entry[1]
        return entry[0]

    def __getitem__(self, key: K) -> V:
        """The value of a key that is there. This does not count as asking for it."""
        return (self._newer.get(key) or self._older[key])[0]

    def put(self, key: K, value: V, nbytes: int) -> list[K]:
        """Takes a value for a key.

        Args:
            nbytes: how much the value holds. The key is weighed here.

        Returns:
            The keys that are forgotten for it.
        """
        self.pop(key)
        forgotten = self.age() if self._bytes > self._most else []
        held = nbytes + estimate_bytes(key) + _ENTRY
        self._newer[key] = value, held
        self._bytes += held
        return forgotten

    def renew(self, key: K, value: V) -> None:
        """Takes another value, about as large as the one before, for a key that ``get`` has just found."""
        self._newer[key] = value, self._newer[key][1]

    def pop(self, key: K) -> None:
        """Forgets a key."""
        if self._older.pop(key, None) is None:
            entry = self._newer.pop(key, None)
            if entry is not None:
                self._bytes -= entry[1]

    def clear(self) -> None:
        """Forgets all keys."""
        self._newer, self._older, self._bytes = {}, {}, 0

    def age(self) -> list[K]:
        """Ends a generation; the keys that are forgotten."""
        forgotten = list(self._older)
        self._older, self._newer, self._bytes = self._newer, {}, 0
        return forgotten

    def mapped(self, change: Callable[[K, V], V | None]) -> GenerationalCache[K, V]:
        """The same keys with other values of about the same size; without those whose value becomes None."""
        cache: GenerationalCache[K, V] = GenerationalCache(self._most)
        for entries, changed_entries in ((self._older, cache._older), (self._newer, cache._newer)):
            for key, (value, nbytes) in entries.items():
                changed = change(key, value)
                if changed is not None:
                    changed_entries[key] = changed, nbytes
        cache._bytes = sum(nbytes for _, nbytes in cache._newer.values())
        return cache
