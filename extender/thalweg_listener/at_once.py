"""Requests that are answered once their last byte is there, without aiohttp, which takes several times as long.

These are POSTs of one path with a body of known length and the headers that Go's client sends. All others are
aiohttp's, as are those that cannot be answered at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Final, Protocol

_HEADERS: Final = frozenset({b"host", b"user-agent", b"content-length", b"content-type", b"accept-encoding"})
_END: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class AnswerMade:
    """A response that is to be written.

    Attributes:
        body: JSON.
        when_written: called once the response is written, before anything else happens. It raises nothing.
    """

    body: bytes
    when_written: Callable[[], None]


class AtOnce(Protocol):
    """Answers requests of one path."""

    @property
    def path(self) -> bytes:
        """The path of its requests."""

    @property
    def largest(self) -> int:
        """The largest body that it answers, in bytes."""

    def answer(self, body: bytes, transport: asyncio.BaseTransport) -> AnswerMade | asyncio.Future[None] | None:
        """The response; None: the request is one for aiohttp.

        A future: it is worth another call when that ends. It is cancelled when nobody waits any more.
        """


@dataclass(frozen=True, slots=True)
class Begun:
    """What there is of a request.

    Attributes:
        body: as far as it is there.
        missing: how many bytes of the body are not.
    """

    path: bytes
    body: bytes
    missing: int


def begun(data: bytes) -> Begun | None:
    """The request that data begins, which has nothing else; None: it is none that Go's client makes with a body."""
    if not data.startswith(b"POST "):
        return None
    head, end, body = data.partition(_END)
    read = _read(head) if end else None
    if read is None:
        return None
    path, length = read
    return None if len(body) > length else Begun(path, body, length - len(body))


@lru_cache(maxsize=64)
def _read(head: bytes) -> tuple[bytes, int] | None:
    """The path of a request and the length of its body; None: the head says something else, too."""
    if len(head) > 8190 or not head.replace(b"\r\n", b"").decode("latin-1").isprintable():
        return None
    line, *fields = head.split(b"\r\n")
    method, *words = line.split(b" ")
    if method != b"POST" or len(words) != 2 or words[1] != b"HTTP/1.1":
        return None
    values = dict[bytes, bytes]()
    for field in fields:
        name, colon, value = field.partition(b":")
        name = name.lower()
        if not colon or name not in _HEADERS or name in values:
            return None
        values[name] = value.strip(b" \t")
    length = values.get(b"content-length", b"")
    return (words[0], int(length)) if b"host" in values and length.isdigit() and len(length) < 12 else None


def response(body: bytes) -> bytes:
    """The response with a body of JSON, after which the connection is kept."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %s\r\n\r\n"
    return head % (len(body), _date(int(time.time()))) + body


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()
