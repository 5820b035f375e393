"""How deep values are nested: what nobody reads may be nested deeper than Python can follow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

#: Levels. No field of a Kubernetes type is nested deeper.
DEEPEST: Final = 100
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def without_depth(raw: bytes) -> bytes:
    """The same JSON with null in place of each list and object at more than 100 levels."""
    kept, depth, start = [], 0, 0
    for token in _TOKEN.finditer(raw):
        match token.group()[:1]:
            case b"[" | b"{":
                depth += 1
                if depth == DEEPEST + 1:
                    kept.append(raw[start : token.start()])
            case b"]" | b"}":
                if depth == DEEPEST + 1:
                    kept.append(b"null")
                    start = token.end()
                depth -= 1
    return b"".join(kept) + (raw[start:] if depth <= DEEPEST else b"")


def is_deeper(value: Any, levels: int) -> bool:
    """Whether a value has lists and objects at more levels than these."""
    nested = [value]
    for _ in range(levels):
        nested = [inner for outer in nested for inner in _inner(outer)]
        if not nested:
            return False
    return any(isinstance(each, dict | list) for each in nested)


def _inner(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value
