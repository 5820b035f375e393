"""Decodes JSON from outside with one error type, so that no answer can end a task.

msgspec raises three types of errors for malformed bytes. It also refuses values nested deeper than Python's recursion
limit, even in fields that are not read. ``JsonReader`` raises one error and ignores deeply nested values.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

#: Levels. No field of a Kubernetes type is nested deeper.
_DEEPEST = 100
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class UnreadableJson(Exception):
    """The bytes are not JSON of the expected type; the message says what is wrong."""


class JsonReader(Generic[T]):
    """Decodes JSON of one type."""

    def __init__(self, shape: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(shape)

    def read(self, raw: bytes | msgspec.Raw) -> T:
        """The decoded value.

        Raises:
            UnreadableJson: the bytes are not JSON, or not of this type.
        """
        try:
            try:
                return self._decoder.decode(raw)
            except RecursionError:
                return self._decoder.decode(without_depth(bytes(raw)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableJson(str(error)) from error


def without_depth(raw: bytes) -> bytes:
    """The same JSON with null in place of each list and object at more than 100 levels."""
    kept, depth, start = [], 0, 0
    for token in _TOKEN.finditer(raw):
        match token.group()[:1]:
            case b"[" | b"{":
                depth += 1
                if depth == _DEEPEST + 1:
                    kept.append(raw[start : token.start()])
            case b"]" | b"}":
                if depth == _DEEPEST + 1:
                    kept.append(b"null")
                    start = token.end()
                depth -= 1
    return b"".join(kept) + (raw[start:] if depth <= _DEEPEST else b"")
