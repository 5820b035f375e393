"""What a reflector reads of lists and watch events: names and versions. The objects stay bytes."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from thalweg_operator.api.json_reading import JsonReader, UnreadableJson

T = TypeVar("T")


class Garbled(Exception):
    """The answer is no list or no event. The kind has to be listed again."""


class ListMeta(msgspec.Struct, rename="camel"):
    """Metadata of a page of a list."""

    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct):
    """A page of a list."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None


class WatchEvent(msgspec.Struct):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


class ObjectMeta(msgspec.Struct, rename="camel"):
    """Metadata of any object."""

    name: str = ""
    namespace: str | None = None
    resource_version: str = ""


class WatchedObject(msgspec.Struct):
    """Any object."""

    metadata: ObjectMeta


class WatchError(msgspec.Struct):
    """The object of an event ERROR: a Status."""

    code: int | None = None
    message: str | None = None


PAGES, EVENTS = JsonReader(Page), JsonReader(WatchEvent)
OBJECTS, PROBLEMS = JsonReader(WatchedObject), JsonReader(WatchError)


def read(reader: JsonReader[T], raw: bytes | msgspec.Raw, what: str) -> T:
    """What the bytes say.

    Raises:
        Garbled: they do not say it; the message begins with ``what``.
    """
    try:
        return reader.read(raw)
    except UnreadableJson as error:
        raise Garbled(f"{what}: {error}: {bytes(raw)[:200]!r}") from error
