"""The annotation that says where data is."""

from __future__ import annotations

import msgspec

from flowcore.model.data import DATA, DataPlace, DataSource, Level
from flowcore.model.errors import ModelError
from flowcore.model.quantities import nanos, whole_from_nanos

#: Entries of an annotation, and replicas of each.
_MOST_SOURCES, _MOST_PLACES = 64, 16
_MAX_NAME = 253
#: Longer annotations are not read.
_MAX_BYTES = 64 * 1024
_FIELD = f"annotation {DATA}"
_REMEDY = 'write a JSON list such as [{"node": "n1", "bytes": "10Gi"}]'


class _WirePlace(msgspec.Struct, forbid_unknown_fields=True):
    node: str = ""
    rack: str = ""
    zone: str = ""


class _WireSource(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    bytes: str | int
    node: str = ""
    rack: str = ""
    zone: str = ""
    any_of: list[_WirePlace] = []


_decoder = msgspec.json.Decoder(list[_WireSource])


def parse_data(text: str) -> tuple[DataSource, ...]:
    """What the annotation says.

    Raises:
        ModelError: it cannot be read; ``problem`` names the entry.
    """
    if len(text) > _MAX_BYTES:
        raise ModelError(_FIELD, f"it has more than {_MAX_BYTES} characters")
    try:
        sources = _decoder.decode(text)
    except msgspec.ValidationError as error:
        raise ModelError(_FIELD, f"{error}; {_REMEDY}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ModelError(_FIELD, f"it is no JSON; {_REMEDY}") from None
    if len(sources) > _MOST_SOURCES:
        raise ModelError(_FIELD, f"it has {len(sources)} entries; at most {_MOST_SOURCES} are read")
    return tuple(_source(wire, f"entry {position}") for position, wire in enumerate(sources))


def _source(wire: _WireSource, entry: str) -> DataSource:
    own = _WirePlace(wire.node, wire.rack, wire.zone)
    named = own != _WirePlace()
    if named == bool(wire.any_of):
        raise ModelError(_FIELD, f"{entry}: give one of node, rack, zone and anyOf")
    if len(wire.any_of) > _MOST_PLACES:
        raise ModelError(_FIELD, f"{entry}: anyOf has {len(wire.any_of)} entries; at most {_MOST_PLACES} are read")
    try:
        size = whole_from_nanos(nanos(wire.bytes))
    except ModelError as error:
        raise ModelError(_FIELD, f"{entry}: bytes: {error.problem}") from None
    if size < 0:
        raise ModelError(_FIELD, f"{entry}: bytes: {wire.bytes} is negative")
    return DataSource(tuple(_place(each, entry) for each in ([own] if named else wire.any_of)), size)


def _place(wire: _WirePlace, entry: str) -> DataPlace:
    places = [(level, name) for level in Level if (name := getattr(wire, level.value))]
    if len(places) != 1:
        raise ModelError(_FIELD, f"{entry}: a place is one of node, rack and zone")
    ((level, name),) = places
    if len(name) > _MAX_NAME:
        raise ModelError(_FIELD, f"{entry}: {level.value} has more than {_MAX_NAME} characters")
    return DataPlace(level, name)
