"""Finds leaks: what can be reached from an object, container by container."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, GenericAlias, MethodType, ModuleType
from typing import Any

import msgspec
import numpy as np

#: Neither state of the operator nor anything that input can make grow.
_CODE = (type, GenericAlias, ModuleType, FunctionType, CodeType)
_PLAIN = (str, bytes, int, float, bool, type(None))


def tracked_objects(**roots: Any) -> Counter[str]:
    """Entries of all containers that can be reached from these objects, by the path of attributes to each container.

    All entries of a container share one path, so that nested dictionaries are one sum. Arrays count their elements.
    """
    found: Counter[str] = Counter()
    for path, each in _walk(roots):
        if isinstance(each, np.ndarray):
            found[path] += each.size
        elif not isinstance(each, _PLAIN) and hasattr(each, "__len__"):
            found[path] += len(each)
    return +found


def nbytes(**roots: Any) -> int:
    """Bytes of all objects that can be reached from these, each counted once.

    Dicts and sets count by their entries: their tables stay as large as they were until the next entries come.
    """
    return sum(map(_size, (each for _, each in _walk(roots))))


def _size(each: Any) -> int:
    if isinstance(each, np.ndarray):
        return each.nbytes + 112
    if isinstance(each, (dict, set)):
        return 64 + 104 * len(each)
    return sys.getsizeof(each, 0)


def grown_containers(
    before: Counter[str], after: Counter[str], *, allowed: float = 0.1, slack: int = 1
) -> dict[str, tuple[int, int]]:
    """What has more entries than before, by more than the allowed share and slack: path -> before, after."""
    paths = before.keys() | after.keys()
    return {
        path: (before[path], after[path])
        for path in sorted(paths)
        if after[path] > before[path] * (1 + allowed) + slack
    }


def _walk(roots: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Path and object, each object once. What has a bound of its own (``maxlen``), as a deque may, is left out."""
    seen: set[int] = set()
    todo = list(roots.items())
    while todo:
        path, each = todo.pop()
        if id(each) in seen or isinstance(each, _CODE):
            continue
        if getattr(each, "maxlen", None) is not None:
            continue
        seen.add(id(each))
        yield path, each
        todo.extend(_children(path, each))


def _children(path: str, each: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(each, (*_PLAIN, np.ndarray)):
        return
    if isinstance(each, MethodType):
        yield path, each.__self__
    elif isinstance(each, Mapping):
        for key, value in each.items():
            yield f"{path}[key]", key
            yield f"{path}[]", value
    elif isinstance(each, msgspec.Struct):
        for name in each.__struct_fields__:
            yield f"{path}.{name}", getattr(each, name)
    elif isinstance(each, (list, tuple, set, frozenset)) or type(each).__name__ == "deque":
        for value in each:
            yield f"{path}[]", value
    for name in _slots(each):
        if hasattr(each, name):
            yield f"{path}.{name}", getattr(each, name)
    for name, value in getattr(each, "__dict__", {}).items():
        yield f"{path}.{name}", value


def _slots(each: Any) -> Iterator[str]:
    if isinstance(each, msgspec.Struct):
        return
    for base in type(each).__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
