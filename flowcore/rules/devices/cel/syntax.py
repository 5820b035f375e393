"""The syntax tree of an expression, macros expanded.

Source: cel-spec langdef.md, "Syntax" and "Macros"; cel-go's bindings, optional types and two-variable comprehensions.
"""

from __future__ import annotations

from dataclasses import dataclass

from flowcore.rules.devices.cel.values import CelValue


@dataclass(frozen=True, slots=True)
class Literal:
    """A value."""

    value: CelValue


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, or a type."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """A field. ``is_optional``: it may be missing, and the value is optional."""

    operand: Syntax
    field: str
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether there is a field: ``has``."""

    operand: Syntax
    field: str


@dataclass(frozen=True, slots=True)
class Index:
    """An entry of a list or a map."""

    operand: Syntax
    index: Syntax
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function, an operator among them, with its target first if it has one."""

    function: str
    target: Syntax | None
    arguments: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Logic:
    """``&&`` or ``||`` of several operands: what decides counts, whatever error there is beside it."""

    decides: bool
    operands: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    """``condition ? yes : no``."""

    condition: Syntax
    yes: Syntax
    no: Syntax


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list. Elements that are marked optional are left out where they are missing."""

    elements: tuple[tuple[Syntax, bool], ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map."""

    entries: tuple[tuple[Syntax, Syntax, bool], ...]


@dataclass(frozen=True, slots=True)
class Comprehension:
    """A macro over the elements of a list or the keys of a map.

    Attributes:
        macro: ``all``, ``exists``, ``exists_one``, ``filter`` or ``map``.
        variables: one, or two: index and element, or key and value.
        condition: what is asked of each; of ``map`` which elements it takes, None for all.
        result: of ``map``; else None.
    """

    macro: str
    elements: Syntax
    variables: tuple[str, ...]
    condition: Syntax | None
    result: Syntax | None = None


@dataclass(frozen=True, slots=True)
class BindName:
    """``cel.bind``: a name for a value."""

    variable: str
    value: Syntax
    body: Syntax


@dataclass(frozen=True, slots=True)
class OptionalMap:
    """``optMap`` and ``optFlatMap``: a name for the value of an optional, if it has one.

    Attributes:
        is_flat: the body is an optional itself.
    """

    operand: Syntax
    variable: str
    body: Syntax
    is_flat: bool


Syntax = (
    Literal
    | Name
    | Select
    | Presence
    | Index
    | Call
    | Logic
    | Conditional
    | ListOf
    | MapOf
    | Comprehension
    | BindName
    | OptionalMap
)


def names_read(tree: object) -> frozenset[tuple[str, str]] | None:
    """Domain and name of each attribute and capacity of the device that an expression reads; None: perhaps any."""
    match tree:
        case Select(Name("device"), "driver" | "allowMultipleAllocations", _):
            return frozenset()
        case (
            Select(Index(Select(Name("device"), "attributes" | "capacity"), Literal(str(domain))), str(name))
            | Presence(Index(Select(Name("device"), "attributes" | "capacity"), Literal(str(domain))), str(name))
            | Index(Index(Select(Name("device"), "attributes" | "capacity"), Literal(str(domain))), Literal(str(name)))
        ):
            return frozenset(((domain, name),))
        case Name("device"):
            return None
        case Literal():
            return frozenset()
    read = frozenset[tuple[str, str]]()
    parts = tree if isinstance(tree, tuple) else [getattr(tree, name) for name in getattr(tree, "__slots__", ())]
    for part in parts:
        names = names_read(part)
        if names is None:
            return None
        read |= names
    return read
