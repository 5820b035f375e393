"""What an object holds, as values: two snapshots are equal where nothing that can be reached from it changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

#: What is remembered of computations, by class and attribute: it changes no answer.
CACHES = frozenset(
    {
        ("InFlight", "_newer"),
        ("PolicyIndex", "_matching"),
    }
)
_PLAIN = (str, bytes, int, float, bool, type(None))


def state_snapshot(thing: Any) -> Any:
    """All that can be reached from an object, without ``CACHES``; an object that is met again is a number."""
    return _snapshot(thing, {})


def _snapshot(thing: Any, numbers: dict[int, int]) -> Any:
    if isinstance(thing, _PLAIN) or callable(thing):
        return thing
    if id(thing) in numbers:
        return numbers[id(thing)]
    numbers[id(thing)] = len(numbers)
    if isinstance(thing, Mapping):
        return tuple((_snapshot(key, numbers), _snapshot(value, numbers)) for key, value in thing.items())
    if isinstance(thing, (list, tuple, deque)):
        return tuple(_snapshot(value, numbers) for value in thing)
    if isinstance(thing, AbstractSet):
        return frozenset(thing)
    names = thing.__struct_fields__ if isinstance(thing, msgspec.Struct) else _attributes(thing)
    kind = type(thing).__name__
    return kind, tuple(
        (name, _snapshot(getattr(thing, name), numbers))
        for name in names
        if (kind, name) not in CACHES and hasattr(thing, name)
    )


def _attributes(thing: Any) -> list[str]:
    slots = [name for base in type(thing).__mro__ for name in getattr(base, "__slots__", ())]
    return [*slots, *getattr(thing, "__dict__", {})]
