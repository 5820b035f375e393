"""The operations of the view's HTTP API as tables: their queries and answers, from the types' docstrings."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec
from thalweg_view.operations import OPERATIONS, Operation

#: Fields that docstrings leave out, since their name says it.
_PLAIN = {
    "allocatable": "what nodes offer.",
    "code": "why, in one word.",
    "cost": "of the plan.",
    "delivery": "of the policy.",
    "from": "the node that it leaves.",
    "generation": "of the state that the answer is of.",
    "lowerBound": "no plan costs less.",
    "method": "that made the plan.",
    "name": "its name.",
    "node": "name of the node.",
    "number": "of the round.",
    "placed": "what gets a node.",
    "plan": "name of the finding.",
    "planned": "with the plan.",
    "pod": "`namespace/name`.",
    "policies": "those in force.",
    "policy": "name of the policy.",
    "precedence": "of the policy.",
    "priority": "of the pod.",
    "problem": "why it does not count.",
    "queue": "name of the FlowQueue.",
    "queues": "all FlowQueues.",
    "reason": "why, in a sentence.",
    "seconds": "how long it took.",
    "step": "what is done.",
    "steps": "in their order.",
    "time": "when it began.",
    "to": "the node that it gets.",
    "unit": "of the amounts.",
    "used": "what pods hold.",
    "waiting": "what gets none.",
}
_NO_VALUES = (type(None), msgspec.UnsetType)
_NAMES = {str: "text", int: "integer", float: "number", bool: "boolean", dict: "object", Any: "any"}
#: An entry of the part "Attributes" of a docstring: its names, then its text.
_ENTRY = re.compile(r"^    ((?:\w+)(?:, \w+)*): (.*)$")


def operations() -> str:
    """Every operation: path, rights, parameters and the fields of the answer."""
    return "\n\n".join(_operation(name, each) for name, each in sorted(OPERATIONS.items()))


def _operation(name: str, operation: Operation) -> str:
    path = "/".join((f"/api/v1/{name}", *(each.upper() for each in operation.segments)))
    answer = typing.get_type_hints(inspect.unwrap(operation.answer))["return"]
    summary = textwrap.fill(summary_of(answer) + _rights(operation), 140, break_long_words=False)
    parts = [f"### {operation.method} {path}", summary]
    for title, struct in (("Query", operation.query), ("Answer", answer)):
        table = [f"| `{path}` | {kind} | {meaning} |" for path, kind, meaning in rows_of(struct, "", ())]
        if table:
            parts.append(f"{title}:\n\n| field | type | meaning |\n|---|---|---|\n" + "\n".join(table))
    return "\n\n".join(parts)


def _rights(operation: Operation) -> str:
    needs = " and ".join(sorted(operation.needs))
    text = f" The caller must be allowed to list {needs} in the cluster" if needs else ""
    more = "".join(f", with `{field}={value}` {kind} too" for field, value, kind in operation.more_needs)
    return f"{text}{more}." if text else ""


def summary_of(struct: type) -> str:
    """The docstring without its entries."""
    return " ".join(inspect.cleandoc(struct.__doc__ or "").partition("\nAttributes:")[0].replace("``", "`").split())


def rows_of(struct: type[msgspec.Struct], prefix: str, above: tuple[type, ...]) -> Iterator[tuple[str, str, str]]:
    """Path, type and meaning of each field; fields of structs in it follow it."""
    texts, hints = _texts(struct), typing.get_type_hints(struct, include_extras=False)
    config = struct.__struct_config__
    if config.tag is not None:  # one of several structs
        yield f"{prefix}{config.tag_field}", f'"{config.tag}"', summary_of(struct)
    for field in msgspec.structs.fields(struct):
        path, hint = prefix + field.encode_name, hints[field.name]
        default = _default(field)
        text = texts.get(field.name) or _PLAIN.get(field.encode_name, "")
        meaning = " ".join(filter(None, (_sentence(text), default)))
        yield path, _type(hint).replace("|", "\\|"), meaning.replace("|", "\\|")
        for inner, mark in _structs(hint):
            if inner not in above:
                yield from rows_of(inner, f"{path}{mark}.", (*above, struct))


def _sentence(text: str) -> str:
    return (text[:1].upper() + text[1:]).replace("``", "`")


def _default(field: Any) -> str:
    value = field.default
    if value is msgspec.UNSET:
        return "Left out where there is nothing to say."
    if value in (msgspec.NODEFAULT, "", None) or isinstance(value, msgspec.Struct):
        return ""
    return f"Default: {msgspec.json.encode(value).decode()}."


def _texts(struct: type) -> dict[str, str]:
    """The meaning of each field by its name in Python, of the struct and of those that it is based on."""
    found: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        names: list[str] = []
        entries = inspect.cleandoc(each.__doc__ or "").partition("Attributes:\n")[2]
        for line in entries.splitlines():
            if entry := _ENTRY.match(line):
                names = entry[1].split(", ")
                found.update(dict.fromkeys(names, entry[2]))
            elif line.strip():
                found.update({name: f"{found[name]} {line.strip()}" for name in names})
            else:
                break
    return found


def _type(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = list(dict.fromkeys(_type(each) for each in arguments if each not in _NO_VALUES))
        return " or ".join(kinds) + (" or null" if type(None) in arguments else "")
    if origin in (list, tuple):
        return f"list of {_type(arguments[0])}" if arguments else "list"
    if origin is dict:
        return f"{_type(arguments[1])} by name"
    if origin is typing.Literal:
        return ", ".join(f'"{each}"' for each in arguments)
    if inspect.isclass(hint) and issubclass(hint, msgspec.Struct):
        return "object"
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return ", ".join(f'"{each.value}"' for each in hint)
    return _NAMES.get(hint, "any")


def _structs(hint: Any) -> Iterator[tuple[type[msgspec.Struct], str]]:
    """The structs in a type, and what stands behind the name of a field of that type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if inspect.isclass(hint) and issubclass(hint, msgspec.Struct):
        yield hint, ""
    elif origin in (list, tuple):
        yield from ((each, "[]" + mark) for each, mark in _structs(arguments[0]))
    elif origin is dict:
        yield from ((each, ".NAME" + mark) for each, mark in _structs(arguments[1]))
    elif origin in (typing.Union, types.UnionType):
        for argument in arguments:
            yield from _structs(argument)
