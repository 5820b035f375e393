"""Values that expressions compute with, and when two are equal.

Source: cel-spec langdef.md, "Values"; apiserver pkg/cel (quantity.go, semver.go); semver.org 2.0.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAX_INT, MIN_INT, MAX_UINT = 2**63 - 1, -(2**63), 2**64 - 1

#: bool, int, ``Uint``, float, str, None, list, dict, and the classes below. Keys of a dict are str, int and float.
CelValue = Any


class Uint(int):
    """An unsigned integer: equal to an int of the same value, but no operand beside one."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class CelQuantity:
    """A quantity, in billionths.

    Attributes:
        is_sum: it was computed.
    """

    nanos: int
    is_sum: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class CelType:
    """A type as a value."""

    name: str


@dataclass(frozen=True, slots=True)
class CelOptional:
    """A value that may be missing."""

    has_value: bool
    value: CelValue = None


NONE = CelOptional(has_value=False)


class DomainMap(dict[str, CelValue]):
    """Attributes or capacities by domain. A domain that it does not have is an empty map."""

    __slots__ = ()


#: Part of a version's label: numbers order as numbers, before words.
_Identifier = tuple[int, int, str]
_NUMERIC = re.compile(r"0|[1-9][0-9]*")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class CelVersion:
    """A semantic version. What it was built from (``+build``) does not count.

    Attributes:
        label: of a version before the release; () for the release.
    """

    major: int
    minor: int
    patch: int
    label: tuple[_Identifier, ...] = ()

    @property
    def order(self) -> tuple[int, int, int, bool, tuple[_Identifier, ...]]:
        """Versions in order: one before the release comes before the release."""
        return self.major, self.minor, self.patch, not self.label, self.label


def parse_version(text: str) -> CelVersion | None:
    """A version as semver 2.0.0 writes it, None for other texts."""
    text, plus, build = text.partition("+")
    if plus and not all(_IDENTIFIER.fullmatch(part) for part in build.split(".")):
        return None
    numbers, dash, label = text.partition("-")
    parts = numbers.split(".")
    if len(parts) != 3 or not all(_NUMERIC.fullmatch(part) for part in parts) or max(map(len, parts)) > 20:
        return None
    identifiers = [_identifier(part) for part in label.split(".")] if dash else []
    if None in identifiers or max(map(int, parts)) > MAX_UINT:
        return None
    major, minor, patch = map(int, parts)
    return CelVersion(major, minor, patch, tuple(each for each in identifiers if each is not None))


def _identifier(text: str) -> _Identifier | None:
    if _IDENTIFIER.fullmatch(text) is None:
        return None
    if text.isdecimal():
        return (0, int(text), "") if _NUMERIC.fullmatch(text) and len(text) <= 20 else None
    return (1, 0, text)


def type_name(value: CelValue) -> str:
    """The name of a value's type."""
    return _TYPES.get(type(value), "null_type")


def length(value: CelValue) -> int:
    """How long a value is that takes longer to read the longer it is: characters, elements, parts of a version."""
    kind = type(value)
    if kind is str or kind is list:
        return len(value)
    return len(value.label) if kind is CelVersion else 0


_TYPES: dict[type, str] = {
    bool: "bool",
    Uint: "uint",
    int: "int",
    float: "double",
    str: "string",
    list: "list",
    dict: "map",
    DomainMap: "map",
    CelType: "type",
    CelOptional: "optional_type",
    CelQuantity: "kubernetes.Quantity",
    CelVersion: "kubernetes.Semver",
}


def is_number(value: CelValue) -> bool:
    """Whether it is an int, a uint or a double: these compare by value."""
    return type(value) in (int, Uint, float)


def alike_numbers(left: CelValue, right: CelValue) -> tuple[CelValue, CelValue]:
    """Two numbers as they are compared: beside a double an integer is one too, rounded."""
    if type(left) is float or type(right) is float:
        return float(left), float(right)
    return left, right


def has_key(mapping: dict[CelValue, CelValue], key: CelValue) -> bool:
    """Whether a map has a key. Python takes True for 1, CEL does not; and not all values can be keys."""
    return (type(key) is str or is_number(key)) and key in mapping
