"""Decodes JSON from outside with one error type, so that no answer can end a task.

msgspec raises three types of errors for malformed bytes. It also refuses values nested deeper than Python's recursion
limit, even in fields that are not read. ``JsonReader`` raises one error and ignores deeply nested values.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from flowcore.api.nesting import without_depth

T = TypeVar("T")


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
