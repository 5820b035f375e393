"""JSON from outside, read so that no answer ends a task.

msgspec raises three kinds of errors for bytes that are not what they should be, and refuses values that are nested
deeper than Python's recursion limit even where nobody reads them. Here there is one error, and depth does no harm.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

#: Deeper than every field of Kubernetes' own types.
_DEEPEST = 100
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class NotReadable(Exception):
    """Bytes that are not JSON of the expected shape; the message says what is wrong."""


class Reader(Generic[T]):
    """Decodes JSON of one type."""

    def __init__(self, shape: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(shape)

    def read(self, raw: bytes | msgspec.Raw) -> T:
        """The value.

        Raises:
            NotReadable: the bytes are not JSON, or not of this shape.
        """
        try:
            try:
                return self._decoder.decode(raw)
            except RecursionError:
                return self._decoder.decode(without_depth(bytes(raw)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NotReadable(str(error)) from error


def without_depth(raw: bytes) -> bytes:
    """The same JSON, with null in place of each list and object that is nested deeper than 100 levels."""
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
