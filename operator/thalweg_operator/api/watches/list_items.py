"""Reads a long list in chunks, so that the event loop gets a turn between two of them.

An API server of its own, such as metrics-server, sends a whole list in one answer, whatever limit is asked for. To
decode the bytes of 150,000 objects at once would stop everything else for a quarter of a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from thalweg_operator.api.watches.watch_messages import PAGES, Garbled, read

#: Bytes that are decoded without a turn of the event loop, about.
_CHUNK = 2**18
#: Places at which a chunk may end that are tried before the list counts as unreadable.
_MOST_TRIES = 1000
_ITEMS = re.compile(rb'"items"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_items = msgspec.json.Decoder(list[msgspec.Raw])


def list_chunks(answer: bytes) -> Iterator[tuple[list[msgspec.Raw], str]]:
    """The objects of a list in chunks, each with the token of the next page, which is "" but for the last chunk.

    A chunk without objects is a turn without a result. More may follow.

    Raises:
        Garbled: the answer is no list.
    """
    begin = _ITEMS.search(answer)
    start = 0 if begin is None else begin.end()
    tries, position = 0, start + _CHUNK
    while begin is not None and (between := _BETWEEN.search(answer, position)) is not None:
        items = _items_of(answer[start : between.start() + 1])
        if items is None:
            tries += 1
            if tries > _MOST_TRIES:
                raise Garbled(f"list: no end of an object in {position - start} bytes: {answer[start : start + 200]!r}")
            position = between.start() + 1
            yield [], ""
            continue
        yield items, ""
        start = between.end() - 1
        tries, position = 0, start + _CHUNK
    page = read(PAGES, answer if begin is None else answer[: begin.end()] + answer[start:], "list")
    if page.items is None:
        raise Garbled("list: no items")
    yield page.items, page.metadata.continue_ or ""


def _items_of(objects: bytes) -> list[msgspec.Raw] | None:
    """The objects between which there are commas; None: the bytes end within one.

    Then a bracket or a text is open, so that they are no list.
    """
    try:
        return _items.decode(b"".join((b"[", objects, b"]")))
    except (msgspec.DecodeError, RecursionError):
        return None
