"""Reads a long list in chunks, so that the event loop gets a turn between two of them.

An API server of its own, such as metrics-server, sends a whole list in one answer, whatever limit is asked for. To
decode the bytes of 150,000 objects at once would stop everything else for a quarter of a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from thalweg_operator.api.watch_messages import Garbled, ListMeta, read
from thalweg_operator.api.json_reading import JsonReader

#: Bytes that are decoded without a turn of the event loop, about.
_CHUNK = 2**18
#: Places at which a chunk may end that are tried before the list counts as unreadable.
_MOST_TRIES = 1000
_ITEMS = re.compile(rb'"items"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*\{")


class _List(msgspec.Struct):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None


_lists = JsonReader(_List)
_items = msgspec.json.Decoder(list[msgspec.Raw])


def list_chunks(answer: bytes) -> Iterator[tuple[list[bytes], str]]:
    """The objects of a list in chunks, each with the token of the next page, which is "" but for the last chunk.

    Raises:
        Garbled: the answer is no list.
    """
    begin = _ITEMS.search(answer)
    if begin is None or len(answer) <= _CHUNK:
        page = read(_lists, answer, "list")
        yield [bytes(item) for item in page.items or ()], page.metadata.continue_ or ""
        return
    at, tries = begin.end(), 0
    position = at + _CHUNK
    while (between := _BETWEEN.search(answer, position)) is not None:
        # A chunk that ends within an object leaves a bracket or a text open, so it is no list.
        try:
            items = _items.decode(b"".join((b"[", answer[at : between.start() + 1], b"]")))
        except msgspec.DecodeError as error:
            tries += 1
            if tries > _MOST_TRIES:
                raise Garbled(f"list: no end of an object was found: {error}") from error
            position = between.start() + 1
            yield [], ""
            continue
        yield [bytes(item) for item in items], ""
        at, tries = between.end() - 1, 0
        position = at + _CHUNK
    page = read(_lists, answer[: begin.end()] + answer[at:], "list")
    yield [bytes(item) for item in page.items or ()], page.metadata.continue_ or ""
